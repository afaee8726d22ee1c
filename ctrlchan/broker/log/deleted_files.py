"""Files of former segments: they wait for ``file.delete.delay.ms``, because readers may still open them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ctrlchan.broker.log import names

__all__ = ["NEVER_MS", "DeletedFiles"]

NEVER_MS: Final = 2**63 - 1

_KINDS: Final = (
    names.LOG_SUFFIX,
    names.INDEX_SUFFIX,
    names.TIME_INDEX_SUFFIX,
    names.TXN_INDEX_SUFFIX,
    names.SNAPSHOT_SUFFIX,
)


class DeletedFiles:
    """The files of one log that wait for deletion. ``next_ms``: the time of the next deletion.

    Not thread-safe: the log calls it with ``changing``. ``next_ms`` is read without.
    """

    def __init__(self) -> None:
        self.next_ms = NEVER_MS
        self._files: list[tuple[int, Path]] = []

    def add(self, folder: Path, offsets: Iterable[int], due_ms: int) -> None:
        """Add the files of segments, which are marked already, by the first offsets of the segments."""
        for offset in offsets:
            name = names.segment_name(offset)
            self._files += [(due_ms, folder / f"{name}{kind}{names.DELETED_SUFFIX}") for kind in _KINDS]
        self._find_next()

    def delete(self, now_ms: int) -> int:
        """Delete the files that are due; return how many are left. Raises OSError."""
        due = [path for when, path in self._files if when <= now_ms]
        self._files = [one for one in self._files if one[0] > now_ms]
        self._find_next()
        left = len(self._files)
        for path in due:
            path.unlink(missing_ok=True)
        return left

    def move(self, folder: Path) -> None:
        """Take the new name of the folder."""
        self._files = [(due, folder / file.name) for due, file in self._files]

    def _find_next(self) -> None:
        self.next_ms = min((when for when, _ in self._files), default=NEVER_MS)
