"""Invariants of a valid cluster, checked for all rows at once.

Violations are reported, never enforced: a controller must be able to work on a broken cluster. Rules about
leaders skip partitions whose leadership is not known (``leader_epoch`` -1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.state.lists import contains, has_duplicates, not_within, packed_values, select, take
from ctrlchan.state.view import StateView

__all__ = ["Violation", "check_invariants"]

Bool = npt.NDArray[np.bool_]
Int64 = npt.NDArray[np.int64]

#: Partitions that a violation's text names.
_NAMED = 3


@dataclass(frozen=True, slots=True, eq=False)
class Violation:
    """One violated rule. ``rows``: int64, the partition rows that violate it, ascending, at least one."""

    rule: str
    reason: str
    rows: Int64
    examples: tuple[str, ...]

    @property
    def count(self) -> int:
        """The number of partitions that violate the rule."""
        return len(self.rows)

    def __str__(self) -> str:
        more = ", …" if self.count > len(self.examples) else ""
        return f"{self.rule}: {self.reason} in {self.count:,} partitions ({', '.join(self.examples)}{more})"


def check_invariants(state: StateView) -> list[Violation]:
    """Return the violated rules of a state."""
    checker = _Checker(state)
    checker.check_leadership()
    checker.check_replicas()
    checker.check_topics()
    return checker.violations


class _Checker:
    def __init__(self, state: StateView) -> None:
        self.violations: list[Violation] = []
        self._state = state
        self._columns = state.partitions

    def check_leadership(self) -> None:
        columns, state = self._columns, self._state
        known = columns.leader_epoch >= 0
        led = known & (columns.leader >= 0)
        self._report(
            "leader-not-in-isr", "the leader is not in the ISR", led & ~contains(columns.isr, columns.leader)
        )
        self._report(
            "leader-not-online",
            "the leader's broker is not live, or is shutting down",
            led & ~np.isin(columns.leader, state.online_broker_ids),
        )
        self._report(
            "controller-epoch-ahead",
            "the leadership is of a later controller epoch than the cluster's",
            columns.controller_epoch > state.controller_epoch,
        )

    def check_replicas(self) -> None:
        columns, state = self._columns, self._state
        self._report("replicas-empty", "there are no replicas", columns.replicas.lengths == 0)
        for name in ("isr", "replicas", "adding", "removing", "offline"):
            lists: ListColumn = getattr(columns, name)
            self._report(
                f"{name}-twice", f"a broker is twice among {name}", _where_filled(lists, has_duplicates)
            )
            if name != "replicas":
                self._report(
                    f"{name}-not-replica",
                    f"a broker among {name} is not a replica",
                    _where_filled(lists, not_within, columns.replicas),
                )
        assert columns.offline is not None
        dead = select(columns.replicas, ~np.isin(packed_values(columns.replicas), state.online_broker_ids))
        self._report(
            "dead-not-offline",
            "a replica on a broker that is not online is not among offline",
            _where_filled(dead, not_within, columns.offline),
        )

    def check_topics(self) -> None:
        columns, ids = self._columns, self._state.topics.ids
        rows = np.arange(len(columns))
        first_rows = np.searchsorted(columns.topic_row, columns.topic_row, "left")
        self._report(
            "partitions-not-dense",
            "partition numbers do not run from 0 without gaps",
            columns.partition != rows - first_rows,
        )
        known = np.flatnonzero(ids.any(axis=1))
        _, inverse, counts = np.unique(
            np.ascontiguousarray(ids[known]).view("V16").ravel(), return_inverse=True, return_counts=True
        )
        shared = np.zeros(len(ids), dtype=bool)
        shared[known[counts[inverse] > 1]] = True
        self._report("topic-id-shared", "two topics have the same id", shared[columns.topic_row])

    def _report(self, rule: str, reason: str, broken: Bool) -> None:
        rows = np.flatnonzero(broken)
        if not len(rows):
            return
        state, columns = self._state, self._columns
        examples = tuple(
            f"{state.topic_name(int(columns.topic_row[row]))}-{columns.partition[row]}"
            for row in rows[:_NAMED].tolist()
        )
        self.violations.append(Violation(rule, reason, rows, examples))


def _where_filled(lists: ListColumn, broken: Callable[..., Bool], *others: ListColumn) -> Bool:
    """Return ``broken(lists, *others)``, computed only for rows whose list in ``lists`` has elements."""
    filled = np.flatnonzero(lists.lengths)
    if len(filled) == len(lists):
        return broken(lists, *others)
    flags = np.zeros(len(lists), dtype=bool)
    flags[filled] = broken(take(lists, filled), *(take(other, filled) for other in others))
    return flags
