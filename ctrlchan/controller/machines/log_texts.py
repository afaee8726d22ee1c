"""Names in log lines: the first ones, and how many more there are.

Nothing is formatted while the level of a line is off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ctrlchan.controller.machines.context import ControllerContext

__all__ = ["Listed", "ListedPartitions"]

#: A log line names at most so many topics or partitions.
_MOST: Final = 20


class Listed:
    """An argument of a log line: the first of these names."""

    __slots__ = ("_names",)

    def __init__(self, names: Sequence[object]) -> None:
        self._names = names

    def __str__(self) -> str:
        return _joined([str(name) for name in self._names[:_MOST]], len(self._names))


class ListedPartitions:
    """An argument of a log line: the first of the partitions of these rows.

    ``text``: returns what is written behind the name at a place.
    """

    __slots__ = ("_context", "_rows", "_text")

    def __init__(
        self,
        context: ControllerContext,
        rows: npt.NDArray[np.int64],
        text: Callable[[int], str] = lambda _place: "",
    ) -> None:
        self._context = context
        self._rows = rows
        self._text = text

    def __str__(self) -> str:
        names = map(self._context.partition_name, self._rows[:_MOST].tolist())
        return _joined([name + self._text(place) for place, name in enumerate(names)], len(self._rows))


def _joined(names: list[str], total: int) -> str:
    return ", ".join(names) + (f" and {total - _MOST} more" if total > _MOST else "")
