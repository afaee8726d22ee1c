"""Columns that a user of a state attaches to its rows; test_model.py compares them with a dict."""

from __future__ import annotations

import numpy as np

from ctrlchan.state import ClusterState


def test_values_move_with_their_rows() -> None:
    state = ClusterState.empty()
    state.add_topic("a", {0: [1], 2: [1]})
    state.add_topic("b", {0: [1]})
    side = state.attach_column(-7)
    assert side.array.dtype == np.int32
    side.array[:] = [10, 12, 20]

    state.add_partitions("a", {1: [1]})
    assert side.array.tolist() == [10, -7, 12, 20]
    state.add_topic("c", {0: [1], 1: [1]})
    assert side.array.tolist() == [10, -7, 12, 20, -7, -7]
    state.remove_rows([0])
    assert side.array.tolist() == [-7, 12, 20, -7, -7]
    state.remove_topics(["a"])
    assert side.array.tolist() == [20, -7, -7]


def test_layout_counts_insertions_and_removals_alone() -> None:
    state = ClusterState.empty()
    state.add_topic("a", {0: [1]})
    side = state.attach_column(0)
    before = side.layout
    state.update("all", leader=1)
    assert side.layout == before
    state.add_partitions("a", {1: [1]})
    state.remove_rows([0])
    assert side.layout == before + 2


def test_writing_values_is_no_change_of_the_state() -> None:
    state = ClusterState.empty()
    state.add_topic("a", {0: [1]})
    side = state.attach_column(0)
    version = state.changes.version
    side.array[0] = 3
    assert state.changes.version == version
