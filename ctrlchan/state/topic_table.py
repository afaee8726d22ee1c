"""The topic rows of a state: names, ids, deletion flags, and an index of the names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import StringColumn, Topics

__all__ = ["TopicTable", "name_list"]

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]


class TopicTable:
    """Topic rows in the order of their addition. Others read ``columns``, which always has deletion flags.

    Adopts the arrays it is given (ids and flags are copied when read-only). There are far fewer topics than
    partitions: the index of names is a dict, made on the first look-up.
    """

    columns: Topics

    def __init__(self, topics: Topics) -> None:
        ids = topics.ids if topics.ids.flags.writeable else topics.ids.copy()
        deleting = topics.deleting
        if deleting is None:
            deleting = np.zeros(len(topics), np.uint8)
        elif not deleting.flags.writeable:
            deleting = deleting.copy()
        self.columns = Topics(topics.names, ids, deleting)
        self._index: dict[bytes, int] | None = None

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def ids(self) -> UInt8:
        """uint8[n, 16], changed in place."""
        return self.columns.ids

    @property
    def deleting(self) -> UInt8:
        """uint8[n], changed in place."""
        flags = self.columns.deleting
        assert flags is not None
        return flags

    @property
    def index(self) -> dict[bytes, int]:
        """Name bytes -> row."""
        if self._index is None:
            self._index = {name: row for row, name in enumerate(name_list(self.columns.names))}
        return self._index

    def row(self, name: str | bytes) -> int:
        """Return the row of a topic. Raises KeyError of the name as text."""
        row = self.index.get(name.encode(errors="surrogateescape") if isinstance(name, str) else name)
        if row is None:
            raise KeyError(name if isinstance(name, str) else name.decode(errors="replace"))
        return row

    def rows(self, names: Iterable[str | bytes]) -> Int64:
        """Return the rows (int64) of these names, in their order. Raises KeyError as ``row``."""
        return np.array([self.row(name) for name in names], dtype=np.int64)

    def append(self, names: Sequence[bytes], ids: UInt8) -> None:
        """Add topics after the last; the caller has checked that no name exists or comes twice."""
        index = self.index
        index.update((name, len(self) + i) for i, name in enumerate(names))
        old, new = self.columns.names, StringColumn.from_strings(names)
        self.columns = Topics(
            StringColumn(
                np.concatenate((old.starts, new.starts + np.int32(len(old.data)))),
                np.concatenate((old.lengths, new.lengths)),
                np.concatenate((old.data, new.data)),
            ),
            np.concatenate((self.ids, ids)),
            np.concatenate((self.deleting, np.zeros(len(names), np.uint8))),
        )

    def keep(self, kept: Bool) -> None:
        """Drop the topics whose flag is not set; later rows get lower numbers."""
        names = StringColumn.from_strings(
            name for name, stays in zip(name_list(self.columns.names), kept.tolist(), strict=True) if stays
        )
        self.columns = Topics(names, self.ids[kept], self.deleting[kept])
        self._index = None

    def have_names(self, others: StringColumn) -> bool:
        """Return whether ``others`` are the same names in the same order."""
        mine = self.columns.names
        if len(mine) != len(others) or not np.array_equal(mine.lengths, others.lengths):
            return False
        if np.array_equal(mine.starts, others.starts) and np.array_equal(mine.data, others.data):
            return True
        return name_list(mine) == name_list(others)


def name_list(names: StringColumn) -> list[bytes]:
    """Return the names as bytes, null as empty."""
    data = names.data.tobytes()
    return [
        data[start : start + length] if length > 0 else b""
        for start, length in zip(names.starts.tolist(), names.lengths.tolist(), strict=True)
    ]
