"""States as plain Python objects, for comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np

from ctrlchan._codec import ListColumn, Partitions, StringColumn, Topics
from ctrlchan.state import Broker, ClusterState
from ctrlchan.state.table import FIXED_COLUMNS, LIST_COLUMNS

Rows = dict[tuple[str, int], dict[str, Any]]

VALUE_COLUMNS = FIXED_COLUMNS[2:]


def rows_of(state: ClusterState) -> Rows:
    """Return (topic, partition) -> column -> value, in row order."""
    columns = state.partitions
    names = state.topics.names.to_list()
    fixed = {name: getattr(columns, name).tolist() for name in FIXED_COLUMNS}
    lists = {name: getattr(columns, name).to_lists() for name in LIST_COLUMNS}
    rows: Rows = {}
    for i, (topic_row, partition) in enumerate(zip(fixed["topic_row"], fixed["partition"], strict=True)):
        rows[str(names[topic_row]), partition] = {
            name: values[i] for name, values in {**fixed, **lists}.items() if name not in FIXED_COLUMNS[:2]
        }
    return rows


def default_row(**values: Any) -> dict[str, Any]:
    """Return the columns of an added partition."""
    row: dict[str, Any] = {
        "controller_epoch": 0, "leader": -1, "leader_epoch": 0, "partition_epoch": 0, "recovery_state": 0,
        "isr": [], "replicas": [], "adding": [], "removing": [], "offline": [],
    }  # fmt: skip
    return {**row, **values}


def message(*topics: tuple[str, bytes, dict[int, dict[str, Any]]]) -> tuple[Topics, Any, Partitions]:
    """Return (topics, topic_starts, partitions) of a decoded request; a topic may come twice."""
    flat = [
        (row, number, values) for row, (_, _, rows) in enumerate(topics) for number, values in rows.items()
    ]
    fixed = {name: np.array([values[name] for _, _, values in flat], np.int32) for name in VALUE_COLUMNS}
    lists = {name: ListColumn.from_lists([values[name] for _, _, values in flat]) for name in LIST_COLUMNS}
    columns: dict[str, Any] = {**fixed, **lists}
    partitions = Partitions(
        topic_row=np.array([row for row, _, _ in flat], np.int32),
        partition=np.array([number for _, number, _ in flat], np.int32),
        **columns,
    )
    ids = np.frombuffer(b"".join(topic_id for _, topic_id, _ in topics), np.uint8).reshape(-1, 16)
    starts = np.cumsum([0, *(len(rows) for _, _, rows in topics)])
    return Topics(StringColumn.from_strings(name for name, _, _ in topics), ids), starts, partitions


def small_state() -> ClusterState:
    """Return topics a (3 partitions), b (1) and c (2) on brokers 1, 2, 3, all with leaders and in sync."""
    state = ClusterState.empty("test", controller_id=1, controller_epoch=5)
    state.set_brokers([Broker(1, 101), Broker(2, 102), Broker(3, 103)])
    state.add_topic(
        "a", {0: [1, 2], 1: [2, 3], 2: [3, 1]}, b"a" * 16, leader=[1, 2, 3], isr=[[1, 2], [2, 3], [3, 1]]
    )
    state.add_topic("b", {0: [3, 2, 1]}, leader=3, isr=[3, 2, 1], leader_epoch=4)
    state.add_topic("c", {0: [1], 1: [2]}, b"c" * 16, leader=[1, 2], isr=[[1], [2]], controller_epoch=5)
    return state


def assert_packed_alike(state: ClusterState) -> None:
    """Assert that the columns are sorted and of one length, and that lists lie inside their values."""
    columns = state.partitions
    keys = columns.topic_row.astype(np.int64) << 32 | columns.partition
    assert (keys[1:] > keys[:-1]).all()
    assert state.topics.deleting is not None
    assert len(state.topics.ids) == len(state.topics.deleting) == len(state.topics)
    for name in LIST_COLUMNS:
        lists = getattr(columns, name)
        assert len(lists) == len(columns)
        assert (lists.starts >= 0).all()
        assert (lists.lengths >= 0).all()
        assert not len(lists) or int((lists.starts + lists.lengths).max()) <= len(lists.values)
