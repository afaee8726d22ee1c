"""What each class and method of Kafka's tests is expected to do, and the comparison with what it did.

A class of the list ``expected.toml`` has ``runs`` (names of methods that pass), and tables ``cannot`` and
``fails`` (name → reason). A class in the table ``left_out`` is not run: its reason stands for all its
methods.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

__all__ = ["EXPECTED", "ClassExpectation", "Expectations", "Outcome", "read"]

EXPECTED: Final = Path(__file__).with_name("expected.toml")
_KEYS: Final = {"runs", "cannot", "fails"}


class Outcome(StrEnum):
    """How a method ended. Of several invocations the worst counts: the last in this order."""

    ABORTED = "aborted"  # an assumption of the test did not hold
    PASSED = "passed"
    CANNOT = "cannot"  # it asked for the inside of a broker
    FAILED = "failed"


_ORDER: Final = list(Outcome)


def worst(one: Outcome, other: Outcome) -> Outcome:
    return max(one, other, key=_ORDER.index)


@dataclass(frozen=True)
class ClassExpectation:
    """What is expected of one class. Methods that need KRaft are in none of the three."""

    runs: frozenset[str] = frozenset()
    cannot: Mapping[str, str] = field(default_factory=dict)
    fails: Mapping[str, str] = field(default_factory=dict)

    def differences(self, outcomes: Mapping[str, Outcome], chosen: frozenset[str]) -> Iterator[str]:
        """Yield a sentence for each method that did not end as expected.

        ``chosen``: only these were run; none: all.
        """
        for name, outcome in sorted(outcomes.items()):
            if name in self.runs:
                if outcome is not Outcome.PASSED:
                    yield f"{name}: {outcome}, but the list says that it passes"
            elif name in self.fails or name in self.cannot:
                if outcome is Outcome.PASSED:
                    listed = "fails" if name in self.fails else "cannot run"
                    yield f"{name}: passed, but the list says that it {listed}"
            else:
                yield f"{name}: {outcome}, and it is not in the list"
        for name in sorted((self.runs | self.fails.keys()) - outcomes.keys()):
            if not chosen or name in chosen:
                yield f"{name}: is in the list, but did not run"


@dataclass(frozen=True)
class Expectations:
    """The whole list. ``left_out``: class → reason."""

    classes: Mapping[str, ClassExpectation]
    left_out: Mapping[str, str]


def read(path: Path = EXPECTED) -> Expectations:
    """Read the list. Raises ValueError when a class has unknown keys or a method stands in it twice."""
    document = tomllib.loads(path.read_text())
    left_out = document.pop("left_out", {})
    return Expectations({name: _class(name, table) for name, table in document.items()}, left_out)


def _class(name: str, table: Mapping[str, Any]) -> ClassExpectation:
    if not table.keys() <= _KEYS:
        raise ValueError(f"{name}: unknown keys {sorted(table.keys() - _KEYS)}")
    runs, cannot, fails = table.get("runs", []), table.get("cannot", {}), table.get("fails", {})
    names = [*runs, *cannot, *fails]
    if len(names) != len(set(names)):
        raise ValueError(f"{name}: methods stand in it twice")
    return ClassExpectation(frozenset(runs), cannot, fails)
