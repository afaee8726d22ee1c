"""Replica assignment: the cases of Kafka's documentation of the algorithm, and its invariants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.controller.admin.assignment import BrokerRack, assign_replicas, rack_alternated
from ctrlchan.errors import ErrorCode, KafkaError

FIVE = [BrokerRack(broker, None) for broker in range(5)]
RACKS = ["rack1", "rack3", "rack3", "rack2", "rack2", "rack1"]
SIX = [BrokerRack(broker, rack) for broker, rack in enumerate(RACKS)]


def test_round_robin_with_a_growing_distance() -> None:
    assignment = assign_replicas(FIVE, 10, 3, start_index=0)
    assert list(assignment.values()) == [
        [0, 1, 2],
        [1, 2, 3],
        [2, 3, 4],
        [3, 4, 0],
        [4, 0, 1],
        [0, 2, 3],
        [1, 3, 4],
        [2, 4, 0],
        [3, 0, 1],
        [4, 1, 2],
    ]


def test_racks_alternate() -> None:
    assert rack_alternated(SIX) == [0, 3, 1, 5, 4, 2]
    assignment = assign_replicas(SIX, 7, 3, start_index=0)
    assert list(assignment.values()) == [
        [0, 3, 1],
        [3, 1, 5],
        [1, 5, 4],
        [5, 4, 2],
        [4, 2, 0],
        [2, 0, 3],
        [0, 4, 2],
    ]


def test_partitions_go_on_from_the_existing_ones() -> None:
    """AddPartitionsTest.testReplicaPlacementAllServers."""
    four = [BrokerRack(broker, None) for broker in range(4)]
    assignment = assign_replicas(four, 6, 4, start_index=2, first_partition=1)
    assert [(partition, replicas[0]) for partition, replicas in assignment.items()] == [
        (1, 3),
        (2, 0),
        (3, 1),
        (4, 2),
        (5, 3),
        (6, 0),
    ]
    assert all(set(replicas) == {0, 1, 2, 3} for replicas in assignment.values())


def test_placement_on_a_part_of_the_brokers() -> None:
    """AddPartitionsTest.testReplicaPlacementPartialServers."""
    four = [BrokerRack(broker, None) for broker in range(4)]
    assignment = assign_replicas(four, 2, 2, start_index=1, first_partition=1)
    assert {partition: (replicas[0], set(replicas)) for partition, replicas in assignment.items()} == {
        1: (2, {0, 2}),
        2: (3, {1, 3}),
    }


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "error"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (0x7F7F7F7F, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 6, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_numbers_that_cannot_be(partitions: int, replication_factor: int, error: ErrorCode) -> None:
    with pytest.raises(KafkaError) as raised:
        assign_replicas(FIVE, partitions, replication_factor)
    assert raised.value.code == error


def test_a_part_of_the_brokers_without_rack() -> None:
    with pytest.raises(KafkaError, match="rack information: 6 have none") as raised:
        assign_replicas([*SIX, BrokerRack(6, None)], 1, 1)
    assert raised.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


@given(
    brokers=st.dictionaries(st.integers(0, 1000), st.sampled_from("abcd"), min_size=1, max_size=12),
    racked=st.booleans(),
    partitions=st.integers(1, 40),
    first_partition=st.integers(0, 50),
    data=st.data(),
)
def test_invariants(
    brokers: dict[int, str], racked: bool, partitions: int, first_partition: int, data: st.DataObject
) -> None:
    replication_factor = data.draw(st.integers(1, len(brokers)))
    listed = [BrokerRack(broker, rack if racked else None) for broker, rack in sorted(brokers.items())]
    assignment = assign_replicas(listed, partitions, replication_factor, first_partition=first_partition)
    assert list(assignment) == list(range(first_partition, first_partition + partitions))
    firsts = [replicas[0] for replicas in assignment.values()]
    spread = [firsts.count(broker) for broker in brokers]
    assert max(spread) - min(spread) <= 1
    for replicas in assignment.values():
        assert len(set(replicas)) == len(replicas) == replication_factor
        assert set(replicas) <= set(brokers)
        if racked:
            racks = {brokers[broker] for broker in replicas}
            assert len(racks) == min(len(set(brokers.values())), replication_factor)
