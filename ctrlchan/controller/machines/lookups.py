"""From names, ids and brokers in requests and nodes to rows of the state, and back."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from ctrlchan.state import ClusterState
from ctrlchan.state.lists import contains, take

__all__ = [
    "failed_rows",
    "find_rows",
    "is_reassigning",
    "partition_pairs",
    "rows_of_pairs",
    "topic_rows_of_names",
]

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]


def topic_rows_of_names(state: ClusterState, names: Iterable[str | bytes]) -> Int64:
    """Return the topic row (int64) of each name; -1 where there is no such topic."""

    def row(name: str | bytes) -> int:
        try:
            return state.topic_row(name)
        except KeyError:
            return -1

    return np.array([row(name) for name in names], dtype=np.int64)


def find_rows(state: ClusterState, topic_rows: Int64, partitions: Int32) -> Int64:
    """Return the row of each (topic row, partition); -1 where there is none, also for topic row -1."""
    rows = np.full(len(topic_rows), -1, np.int64)
    known = np.flatnonzero(topic_rows >= 0)
    rows[known] = state.find_rows(topic_rows[known].astype(np.int32), partitions[known])
    return rows


def rows_of_pairs(state: ClusterState, pairs: Iterable[tuple[str, int]]) -> Int64:
    """Return the rows of these (topic, partition), ascending and each once, without unknown ones."""
    rows = []
    for topic, partition in pairs:
        try:
            rows.append(state.row(topic, partition))
        except KeyError:
            continue
    return np.unique(np.array(rows, dtype=np.int64))


def partition_pairs(state: ClusterState, rows: Int64) -> list[tuple[str, int]]:
    """Return the (topic, partition) of each row."""
    partitions = state.partitions
    return [
        (state.topic_name(topic_row), partition)
        for topic_row, partition in zip(
            partitions.topic_row[rows].tolist(), partitions.partition[rows].tolist(), strict=True
        )
    ]


def is_reassigning(state: ClusterState, rows: Int64) -> Bool:
    """Return a flag for each row: whether it has adding or removing replicas."""
    partitions = state.partitions
    assert partitions.adding is not None
    assert partitions.removing is not None
    flags: Bool = (partitions.adding.lengths[rows] > 0) | (partitions.removing.lengths[rows] > 0)
    return flags


def failed_rows(state: ClusterState, broker_id: int) -> Int64:
    """Return the rows whose replica on this broker, which is online, is in a failed log directory."""
    offline = state.partitions.offline
    assert offline is not None
    rows = np.flatnonzero(offline.lengths)
    return rows[contains(take(offline, rows), np.full(len(rows), broker_id, np.int32))]
