"""Collects the bad rows of a table for one error that names the first of them and their number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ctrlchan.errors import CtrlchanError, InvalidStateError

__all__ = ["Describe", "Problems", "Source", "always"]

#: Bad rows that an error names.
_LISTED = 5

Describe = Callable[[int], str]


def always(text: str) -> Describe:
    """Return a function that gives the same text for each row."""
    return lambda _row: text


class Problems:
    """Collects (row, reason); ``raise_if_any`` makes one error of them."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.place = source.place
        self._first: list[tuple[int, int, Describe]] = []
        self._rows: list[npt.NDArray[np.int64]] = []

    def flag(self, bad: npt.NDArray[np.bool_], reason: Describe) -> None:
        """Add the flagged rows. ``reason``: row -> text; called only when an error is raised."""
        self.add(np.flatnonzero(bad), reason)

    def add(self, rows: npt.NDArray[np.int64], reason: Describe) -> None:
        """Add rows, in any order. ``reason`` as for ``flag``."""
        if len(rows):
            self._rows.append(rows)
            self._first.extend((row, len(self._rows), reason) for row in np.sort(rows)[:_LISTED].tolist())

    def raise_if_any(self, name: Describe | None = None) -> None:
        """Raise the source's error when there are bad rows. ``name``: row -> topic and partition."""
        if not self._rows:
            return
        total = len(np.unique(np.concatenate(self._rows)))
        listed: dict[int, list[str]] = {}
        for row, _, reason in sorted(self._first, key=lambda entry: entry[:2]):
            listed.setdefault(row, []).append(reason(row))
        shown = list(listed.items())[:_LISTED]
        parts = []
        for row, reasons in shown:
            about = f" ({name(row)})" if name is not None else ""
            parts.append(f"{self.place(row)}{about}: {', '.join(reasons)}")
        more = f"; and {total - len(shown):,} more" if total > len(shown) else ""
        count = "1 bad row" if total == 1 else f"{total:,} bad rows"
        raise self._source.fail(f"{count}: {'; '.join(parts)}{more}")


class Source:
    """The origin of rows, for errors.

    ``name``: of the table or file. ``error``: the class to raise. ``place``: row -> its place in the source.
    """

    def __init__(
        self, name: str, error: type[CtrlchanError] = InvalidStateError, place: Describe = "row {}".format
    ) -> None:
        self.name = name
        self.error = error
        self.place = place

    def fail(self, reason: str) -> CtrlchanError:
        """Return an error about the source as a whole."""
        return self.error(f"{self.name}: {reason}")

    def problems(self) -> Problems:
        """Return an empty collection of bad rows."""
        return Problems(self)
