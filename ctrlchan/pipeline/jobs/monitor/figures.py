"""The figures of a monitor: by broker and API, and the unfinished requests of each broker."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrlchan.channel.observability.counters import EDGES, quantile
from ctrlchan.errors import ErrorCode
from ctrlchan.pipeline.jobs.monitor.aggregates import EVER, HISTOGRAM, since
from ctrlchan.pipeline.jobs.monitor.checkpoint import MonitorState
from ctrlchan.pipeline.jobs.monitor.unfinished import BrokerWait
from ctrlchan.protocol import API_NAMES

__all__ = ["NOT_FAILED", "Diverged", "Figures", "RequestFigures", "figures_of"]

_Rows: TypeAlias = list[dict[str, Any]]

#: Outcomes that are no failures; a cancelled request was never sent.
NOT_FAILED: Final = ("acknowledged", "cancelled")


@dataclass(frozen=True)
class RequestFigures:
    """The figures of one broker and API; ``recent...``: of the window, the others: of all time."""

    broker: int
    api: str
    requests: int
    outcomes: dict[str, int]
    errors: dict[str, int]
    bytes: int
    attempts: int
    repeated: int
    #: Time from ``enqueue`` to the end: its sum, and the number of requests in each bucket of EDGES.
    seconds: float
    buckets: tuple[int, ...]
    recent: int
    recent_failed: int
    #: Seconds. None if no request has ended.
    recent_p50: float | None
    recent_p95: float | None
    recent_p99: float | None


@dataclass(frozen=True)
class Diverged:
    """A broker with stale metadata. ``partitions``: how many; ``named``: names of some of them."""

    broker: int
    partitions: int
    named: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figures:
    """All figures at the time ``now`` (seconds since 1970)."""

    now: float
    #: Seconds.
    window: float
    rows: int
    batch: int
    requests: tuple[RequestFigures, ...]
    waits: tuple[BrokerWait, ...] = ()
    #: Broker -> when a request last ended as fenced, when as acknowledged; microseconds since 1970.
    fenced_at: dict[int, int] = field(default_factory=dict)
    acknowledged_at: dict[int, int] = field(default_factory=dict)
    #: None if not compared with a snapshot.
    diverged: tuple[Diverged, ...] | None = None

    @property
    def brokers(self) -> list[int]:
        """The ids of all brokers with figures."""
        known = {one.broker for one in self.requests} | {one.broker for one in self.waits}
        return sorted(known | {one.broker for one in self.diverged or ()})

    def age(self, wait: BrokerWait) -> float | None:
        """Return the age of the oldest unfinished request in seconds."""
        return None if wait.oldest_at is None else max(0.0, self.now - wait.oldest_at / 1e6)


def figures_of(
    state: MonitorState,
    waits: Sequence[BrokerWait],
    *,
    now: float,
    window: float,
    diverged: Sequence[Diverged] | None = None,
) -> Figures:
    """Return the figures of a state. ``now``: seconds since 1970; ``window``: seconds before ``now``."""
    ever = state.aggregates.filter(pc.field("at") == EVER).to_pylist()
    recent = since(state.aggregates, now - window).to_pylist()
    return Figures(
        now=now,
        window=window,
        rows=state.rows,
        batch=state.batch,
        requests=tuple(_requests(ever, recent)),
        waits=tuple(waits),
        fenced_at=_last(state.aggregates, "fenced"),
        acknowledged_at=_last(state.aggregates, "acknowledged"),
        diverged=None if diverged is None else tuple(diverged),
    )


def _requests(ever: _Rows, recent: _Rows) -> list[RequestFigures]:
    groups: defaultdict[tuple[int, int], tuple[_Rows, _Rows]] = defaultdict(lambda: ([], []))
    for at, rows in enumerate((ever, recent)):
        for row in rows:
            groups[row["broker"], row["api"]][at].append(row)
    return [_request(*key, *groups[key]) for key in sorted(groups)]


def _request(broker: int, api: int, ever: _Rows, recent: _Rows) -> RequestFigures:
    outcomes: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for row in ever:
        outcomes[row["outcome"]] += row["requests"]
        if row["error_code"]:
            errors[ErrorCode.name_of(row["error_code"])] += row["requests"]
    buckets = np.array([[row[name] for name in HISTOGRAM] for row in recent], np.int64)
    window = buckets.sum(axis=0) if recent else np.zeros(len(EDGES) + 1, np.int64)
    p50, p95, p99 = (quantile(window, share) if window.any() else None for share in (0.5, 0.95, 0.99))
    return RequestFigures(
        broker=broker,
        api=API_NAMES.get(api, str(api)),
        requests=outcomes.total(),
        outcomes=dict(sorted(outcomes.items())),
        errors=dict(sorted(errors.items())),
        bytes=sum(row["bytes"] for row in ever),
        attempts=sum(row["attempts"] for row in ever),
        repeated=sum(row["repeated"] for row in ever),
        seconds=sum(row["seconds"] for row in ever),
        buckets=tuple(sum(row[name] for row in ever) for name in HISTOGRAM),
        recent=sum(row["requests"] for row in recent),
        recent_failed=sum(row["requests"] for row in recent if row["outcome"] not in NOT_FAILED),
        recent_p50=p50,
        recent_p95=p95,
        recent_p99=p99,
    )


def _last(aggregates: pa.Table, outcome: str) -> dict[int, int]:
    """Return broker -> the last time at which a request ended with ``outcome``, where one is known."""
    found: dict[int, int] = {}
    aggregates = aggregates.filter(pc.is_valid(pc.field("last_at")))
    for row in aggregates.filter(pc.field("outcome") == outcome).select(["broker", "last_at"]).to_pylist():
        found[row["broker"]] = max(row["last_at"], found.get(row["broker"], 0))
    return found
