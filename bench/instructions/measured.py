"""What can be measured: work that is repeated, and how often."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Measured", "Open", "in_groups"]


@dataclass(frozen=True)
class Measured:
    """Work whose instructions are counted.

    ``work``: does it so many times, what is to be counted within ``marks.counted``. ``repetitions``: enough
    that what happens only now and then (an index entry, a larger buffer) is in each count alike.
    """

    work: Callable[[int], None]
    repetitions: int


#: Makes what the work needs; what is measured, by name.
Open: TypeAlias = Callable[[], AbstractContextManager[dict[str, Measured]]]


def in_groups(times: int, at_once: int) -> Iterator[int]:
    """Return the sizes of groups that are `times` together, and at most `at_once` each."""
    while times:
        count = min(times, at_once)
        yield count
        times -= count
