"""The partitions that one broker hosts, as columns: Kafka's ``ReplicaManager.allPartitions``.

A row exists from the first LeaderAndIsr that names the partition, even when the broker is not among the
replicas and refuses: Kafka makes its ``Partition`` before this check. Such a row has leader epoch -1 and no
log, so every later leader epoch is newer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn, Partitions, Topics
from ctrlchan.protocol import NO_EPOCH
from ctrlchan.state.lists import empty_lists
from ctrlchan.state.table import PartitionTable

if TYPE_CHECKING:
    from ctrlchan._codec import Int32, Int64, UInt8

__all__ = ["Assignment", "Bool", "HostedReplicas"]

Bool = npt.NDArray[np.bool_]


class Assignment(NamedTuple):
    """The state of one partition in a LeaderAndIsr request. ``topic_id``: zero if the request has no id."""

    topic: str
    partition: int
    topic_id: bytes
    leader: int
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    is_new: bool


class HostedReplicas:
    """Holds one row for each hosted partition, sorted by ``keys`` (int64: topic number, then partition).

    ``columns`` holds each partition's state, as of the last LeaderAndIsr that was applied. ``topic_ids``
    uint8[n, 16] belong to the partitions, not to their topics, because each log has its own (zero: none).
    ``has_log`` and ``offline`` are flags; offline: the log directory failed.
    """

    keys: Int64
    topic_ids: UInt8
    has_log: UInt8
    offline: UInt8

    def __init__(self) -> None:
        #: The highest epoch of a controller whose request was applied.
        self.controller_epoch = 0
        self._numbers: dict[bytes, int] = {}
        self._names: list[bytes] = []
        self._clear()

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def columns(self) -> Partitions:
        """Return the rows as of now; ``topic_row`` is an index into ``names``."""
        return self._table.columns

    @property
    def names(self) -> list[bytes]:
        """Return the topic names by number. A name stays until no partition of any topic is left."""
        return self._names

    def keys_of(self, topics: Topics, topic_row: Int32, partition: Int32) -> Int64:
        """Return the key of each (topic, partition). Keys of new topics change with the next ``create``."""
        numbers = np.empty(len(topics), dtype=np.int64)
        new: dict[bytes, int] = {}
        for row in range(len(topics)):
            name = topics.names[row] or b""
            number = self._numbers.get(name)
            if number is None:
                number = new.setdefault(name, len(self._names) + len(new))
            numbers[row] = number
        return (numbers[topic_row] << 32) | partition.view(np.uint32)

    def find(self, keys: Int64) -> Int64:
        """Return the row of each key, -1 where it is not hosted."""
        if not len(self.keys):
            return np.full(len(keys), -1, dtype=np.int64)
        rows = np.searchsorted(self.keys, keys)
        rows[rows == len(self.keys)] = 0
        return np.where(self.keys[rows] == keys, rows, -1)

    def create(self, keys: Int64, topics: Topics) -> None:
        """Add a row for each of `keys` (of these topics) that has none.

        A new row has no leader epoch, partition epoch 0 and no log.
        """
        for row in range(len(topics)):
            name = topics.names[row] or b""
            if self._numbers.setdefault(name, len(self._names)) == len(self._names):
                self._names.append(name)
        # Without the index NumPy would import numpy.ma, which takes longer than the brokers' first request.
        new = np.unique(keys, return_index=True)[0]
        new = new[self.find(new) < 0]
        count = len(new)
        if not count:
            return
        at = np.searchsorted(self.keys, new) + np.arange(count)
        zeros = np.zeros(count, dtype=np.int32)
        unknown = np.full(count, NO_EPOCH, dtype=np.int32)
        self._table.insert(
            at,
            Partitions(
                topic_row=(new >> 32).astype(np.int32),
                partition=new.astype(np.uint32).view(np.int32),
                controller_epoch=zeros,
                leader=unknown,
                leader_epoch=unknown,
                partition_epoch=zeros,
                recovery_state=zeros,
                isr=empty_lists(count),
                replicas=empty_lists(count),
            ),
        )
        self.keys = _with_rows(self.keys, at, new)
        self.topic_ids = _with_rows(self.topic_ids, at, np.uint8(0))
        self.has_log = _with_rows(self.has_log, at, np.uint8(0))
        self.offline = _with_rows(self.offline, at, np.uint8(0))

    def assign(
        self, rows: Int64, fixed: Mapping[str, Int32 | np.int32], lists: Mapping[str, ListColumn]
    ) -> None:
        """Write columns of `rows`: a value for each row, or one value for all."""
        if len(rows):
            self._table.assign(rows, fixed, lists)

    def raise_partition_epoch(
        self, topic: str, partition: int, leader_epoch: int, partition_epoch: int
    ) -> None:
        """Note that the controller has committed another ISR. Raises KeyError when it is not hosted."""
        row = self.row_of(topic, partition)
        columns = self.columns
        if columns.leader_epoch[row] == leader_epoch and columns.partition_epoch[row] < partition_epoch:
            self.assign(np.array([row]), {"partition_epoch": np.int32(partition_epoch)}, {})

    def open_logs(self, rows: Int64, topic_ids: UInt8) -> None:
        """Mark these partitions as having a log. One without a topic id takes the given id (zero: no id)."""
        self.has_log[rows] = 1
        without = ~self.topic_ids[rows].any(axis=1)
        self.topic_ids[rows[without]] = topic_ids[without]

    def refuse(self, row: int) -> None:
        """Forget the role and the log of a partition: the same leader epoch may come again."""
        self.assign(np.array([row]), {"leader_epoch": np.int32(NO_EPOCH)}, {})
        self.has_log[row] = 0
        self.topic_ids[row] = 0

    def remove(self, rows: Int64) -> None:
        """Remove these partitions and their logs."""
        if not len(rows):
            return
        kept = np.ones(len(self.keys), dtype=bool)
        kept[rows] = False
        if not kept.any():
            self._numbers.clear()
            self._names.clear()
            self._clear()
            return
        self._table.keep(kept)
        self.keys = self.keys[kept]
        self.topic_ids = self.topic_ids[kept]
        self.has_log = self.has_log[kept]
        self.offline = self.offline[kept]

    def set_offline(self, topic: str, partition: int, offline: bool) -> None:
        """Let the log directory of a partition fail, or recover. Raises KeyError when it is not hosted."""
        self.offline[self.row_of(topic, partition)] = offline

    def row_of(self, topic: str, partition: int) -> int:
        """Return the row of a partition. Raises KeyError when it is not hosted."""
        number = self._numbers.get(topic.encode())
        key = np.array([-1 if number is None else (number << 32) | (partition & 0xFFFFFFFF)], dtype=np.int64)
        row = int(self.find(key)[0])
        if row < 0:
            raise KeyError(f"{topic}-{partition} is not hosted")
        return row

    def _clear(self) -> None:
        empty = np.empty(0, dtype=np.int32)
        self._table = PartitionTable(
            Partitions(empty, empty, empty, empty, empty, empty, empty, empty_lists(0), empty_lists(0))
        )
        self.keys = np.empty(0, dtype=np.int64)
        self.topic_ids = np.zeros((0, 16), dtype=np.uint8)
        self.has_log = np.zeros(0, dtype=np.uint8)
        self.offline = np.zeros(0, dtype=np.uint8)


def _with_rows(column: npt.NDArray[Any], at: Int64, values: Any) -> npt.NDArray[Any]:
    """Return `column` with new rows; new row i becomes row ``at[i]`` of the result."""
    merged = np.empty((len(column) + len(at), *column.shape[1:]), dtype=column.dtype)
    old = np.ones(len(merged), dtype=bool)
    old[at] = False
    merged[at] = values
    merged[old] = column
    return merged
