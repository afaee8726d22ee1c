"""The comparison of leaders for the listeners of a controller."""

from __future__ import annotations

import numpy as np
import pytest

from ctrlchan._codec import ListColumn
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.leader_changes import LeaderComparison
from ctrlchan.state import ClusterState
from tests.unit.batch.recording import broker
from tests.unit.controller.machines import rows

Change = tuple[str, int, int, int]


@pytest.fixture
def context() -> ControllerContext:
    """Brokers 1 and 2; topic B with two partitions, without leaders."""
    state = ClusterState.empty()
    state.set_brokers([broker(one) for one in (1, 2)])
    context = ControllerContext(state, 7, 3)
    add(context, "B")
    return context


def add(context: ControllerContext, topic: str) -> None:
    context.add_partitions(
        [topic.encode()],
        np.zeros((1, 16), np.uint8),
        np.zeros(2, np.int32),
        np.arange(2, dtype=np.int32),
        ListColumn.from_lists([[1, 2]] * 2),
    )


def lead(context: ControllerContext, topic: str, partition: int, leader: int, leader_epoch: int) -> None:
    one = np.ones(1, np.int32)
    context.put_leadership(
        rows(context.state.row(topic, partition)),
        leader=one * leader,
        leader_epoch=one * leader_epoch,
        partition_epoch=one,
        controller_epoch=7,
        recovery_state=one * 0,
        isr=ListColumn.from_lists([[1, 2]]),
    )


def changes(comparison: LeaderComparison) -> list[Change]:
    found = comparison.changes()
    if found is None:
        return []
    names = [found.topics[row] for row in found.topic_row.tolist()]
    columns = (found.partition.tolist(), found.leader.tolist(), found.leader_epoch.tolist())
    return list(zip(names, *columns, strict=True))


def test_only_leaders_that_are_others_are_changes(context: ControllerContext) -> None:
    lead(context, "B", 0, 1, 0)
    comparison = LeaderComparison(context)
    # The first comparison is with nothing; partitions without a leader are left out.
    assert changes(comparison) == [("B", 0, 1, 0)]
    assert changes(comparison) == []
    # Another ISR is none.
    lead(context, "B", 0, 1, 0)
    assert changes(comparison) == []
    lead(context, "B", 1, 2, 0)
    lead(context, "B", 0, 1, 1)
    assert changes(comparison) == [("B", 0, 1, 1), ("B", 1, 2, 0)]
    # Between two comparisons only the last leader counts.
    lead(context, "B", 0, 2, 1)
    lead(context, "B", 0, 1, 1)
    assert changes(comparison) == []


def test_partitions_that_come_and_go(context: ControllerContext) -> None:
    comparison = LeaderComparison(context)
    assert changes(comparison) == []
    lead(context, "B", 0, 1, 0)
    add(context, "C")
    lead(context, "C", 1, 2, 0)
    assert changes(comparison) == [("B", 0, 1, 0), ("C", 1, 2, 0)]
    lead(context, "B", 1, -1, 1)
    lead(context, "C", 1, 1, 1)
    context.remove_topics(["B"])
    assert changes(comparison) == [("C", 1, 1, 1)]
    # A topic of the old name has new partitions.
    add(context, "B")
    lead(context, "B", 0, 1, 0)
    assert changes(comparison) == [("B", 0, 1, 0)]
