"""What the planned events leave behind, and what they count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ctrlchan.channel import ChannelConfig
from ctrlchan.planning.events import PlannedCluster
from ctrlchan.planning.shape import Shape


def cluster(**shape: Any) -> PlannedCluster:
    return PlannedCluster(Shape(**shape).state(), ChannelConfig(controller_id=1_000))


def test_a_restart_gives_leaders_and_isrs_back() -> None:
    planned = cluster(partitions=200, brokers=5)
    columns = planned.state.partitions
    leaders, isrs = columns.leader.copy(), [sorted(one) for one in columns.isr.to_lists()]
    planned.failover()
    counted = planned.restart(2)
    columns = planned.state.partitions
    assert columns.leader.tolist() == leaders.tolist()
    assert [sorted(one) for one in columns.isr.to_lists()] == isrs
    assert set(counted.traffic.apis) == {"LeaderAndIsr", "StopReplica", "UpdateMetadata"}
    led = np.count_nonzero(leaders == 2)
    followed = sum(2 in one for one in isrs) - led
    # Each replica leaves its ISR once and comes back once; leaders move away and come back.
    assert counted.writes == 3 * led + 2 * followed


def test_a_death_is_sent_to_the_others_and_as_a_difference() -> None:
    planned = cluster(partitions=200, brokers=5)
    planned.failover()
    hosted = sum(2 in one for one in planned.state.partitions.replicas.to_lists())
    died, difference = planned.death(2)
    assert difference.traffic.apis["UpdateMetadata"].encoded_partitions == hosted
    assert difference.traffic.total.requests == 4
    assert 2 not in planned.state.partitions.leader
    assert died.traffic.total.bytes > difference.traffic.total.bytes


def test_a_topic_difference_has_its_partitions_alone() -> None:
    planned = cluster(partitions=200, brokers=5, partitions_per_topic=40)
    counted = planned.topic_difference(3)
    assert counted.traffic.total.encoded_partitions == 40
    assert counted.traffic.total.requests == 5


def test_an_unknown_broker_cannot_die() -> None:
    with pytest.raises(KeyError):
        cluster(partitions=10, brokers=3).death(9)


def test_topics_that_are_being_deleted_count_as_others() -> None:
    state = Shape(partitions=20, brokers=3, partitions_per_topic=10).state()
    state.mark_topics_deleting([state.topic_name(0)])
    planned = PlannedCluster(state, ChannelConfig(controller_id=1_000))
    assert planned.failover().traffic.apis["LeaderAndIsr"].encoded_partitions == 60
