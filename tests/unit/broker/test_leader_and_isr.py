"""LeaderAndIsr: every row of what a real broker answers, in every version, and what is hosted then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ctrlchan._codec import LEADER_AND_ISR, decode_response, decode_response_header
from ctrlchan.broker.metadata.hosted_replicas import HostedReplicas
from tests.unit.broker.local_broker import (
    CONTROLLER_EPOCH,
    EPOCH,
    NO_ID,
    LocalBroker,
    Part,
    control_frame,
    topic_id,
)

VERSIONS = range(8)
FOLLOWER = Part(leader=2, isr=(2,), replicas=(2, 1))


@pytest.fixture
def broker() -> LocalBroker:
    broker = LocalBroker()
    assert broker.update_metadata() == 0
    return broker


def hosted(broker: LocalBroker, topic: str = "alpha", partition: int = 0) -> dict[str, Any] | None:
    """The row of a hosted partition; None when it is not hosted."""
    replicas: HostedReplicas = broker.core.replicas
    columns = replicas.columns
    for row in range(len(replicas)):
        name = replicas.names[columns.topic_row[row]].decode()
        if (name, int(columns.partition[row])) == (topic, partition):
            return {
                "leader": int(columns.leader[row]),
                "leader_epoch": int(columns.leader_epoch[row]),
                "partition_epoch": int(columns.partition_epoch[row]),
                "isr": columns.isr[row].tolist(),
                "replicas": columns.replicas[row].tolist(),
                "topic_id": replicas.topic_ids[row].tobytes(),
                "has_log": bool(replicas.has_log[row]),
            }
    return None


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_are_made_leader_or_follower(broker: LocalBroker, version: int) -> None:
    leader = Part("alpha", 3, leader_epoch=4, partition_epoch=2, isr=(1, 2), replicas=(1, 2))
    follower = Part("beta", 1, leader=2, leader_epoch=6, isr=(2, 1), replicas=(2, 1))
    error, partitions = broker.leader_and_isr(leader, follower, version=version, controller_epoch=9)
    assert (error, sorted(partitions)) == (0, [("alpha", 3, 0), ("beta", 1, 0)])
    assert broker.core.controller_epoch == 9
    with_ids = version >= 5
    assert hosted(broker, "alpha", 3) == {
        "leader": 1,
        "leader_epoch": 4,
        "partition_epoch": 2,
        "isr": [1, 2],
        "replicas": [1, 2],
        "topic_id": topic_id("alpha") if with_ids else NO_ID,
        "has_log": True,
    }
    # A follower keeps no in-sync replicas.
    assert hosted(broker, "beta", 1) == {
        "leader": 2,
        "leader_epoch": 6,
        "partition_epoch": 0,
        "isr": [],
        "replicas": [2, 1],
        "topic_id": topic_id("beta") if with_ids else NO_ID,
        "has_log": True,
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_stale_controller_epoch(broker: LocalBroker, version: int) -> None:
    rows = (Part("alpha"), Part("alpha", 1), Part("beta", 7))
    answer = broker.leader_and_isr(*rows, version=version, controller_epoch=CONTROLLER_EPOCH - 1)
    assert answer == (11, [("alpha", 0, 11), ("alpha", 1, 11), ("beta", 7, 11)])
    assert len(broker.core.replicas) == 0
    assert broker.core.controller_epoch == CONTROLLER_EPOCH


@pytest.mark.parametrize("controller_epoch", [CONTROLLER_EPOCH, CONTROLLER_EPOCH - 1])
@pytest.mark.parametrize("version", VERSIONS[2:])
def test_stale_broker_epoch_also_when_both_are_stale(
    broker: LocalBroker, version: int, controller_epoch: int
) -> None:
    rows = (Part("alpha"), Part("alpha", 1), Part("beta", 7))
    answer = broker.leader_and_isr(
        *rows, version=version, broker_epoch=EPOCH - 1, controller_epoch=controller_epoch
    )
    assert answer == (77, [("alpha", 0, 77), ("alpha", 1, 77), ("beta", 7, 77)])
    assert len(broker.core.replicas) == 0


@pytest.mark.parametrize("broker_epoch", [EPOCH + 1, -1])
def test_higher_or_unknown_broker_epoch(broker: LocalBroker, broker_epoch: int) -> None:
    assert broker.leader_and_isr(Part(), broker_epoch=broker_epoch) == (0, [("alpha", 0, 0)])


def test_a_broker_without_an_epoch_accepts_every_epoch(broker: LocalBroker) -> None:
    broker.core.node.epoch = -1
    assert broker.leader_and_isr(Part(), broker_epoch=0) == (0, [("alpha", 0, 0)])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("leader_epoch", [5, 4, 0, -1, -2])
def test_same_or_older_leader_epoch(broker: LocalBroker, version: int, leader_epoch: int) -> None:
    broker.leader_and_isr(Part(leader_epoch=5), version=version)
    answer = broker.leader_and_isr(Part(leader_epoch=leader_epoch, replicas=(1, 2)), version=version)
    assert answer == (0, [("alpha", 0, 11)])
    state = hosted(broker)
    assert state is not None
    assert (state["leader_epoch"], state["replicas"]) == (5, [1])


@pytest.mark.parametrize("leader_epoch", [0, 1, 2])
def test_wrong_topic_id_is_echoed(broker: LocalBroker, leader_epoch: int) -> None:
    broker.leader_and_isr(Part(leader_epoch=1))
    answer = broker.leader_and_isr(Part(leader_epoch=leader_epoch), ids={"alpha": b"another id 16 by"})
    assert answer == (0, [("alpha", 0, 103)])
    state = hosted(broker)
    assert state is not None
    assert (state["topic_id"], state["leader_epoch"]) == (topic_id("alpha"), 1)


def test_zero_topic_id(broker: LocalBroker) -> None:
    none = {"alpha": NO_ID}
    broker.leader_and_isr(Part(leader_epoch=1))
    assert broker.leader_and_isr(Part(leader_epoch=2), ids=none) == (0, [("alpha", 0, 0)])
    assert broker.leader_and_isr(Part(leader_epoch=2), ids=none) == (0, [("alpha", 0, 11)])
    state = hosted(broker)
    assert state is not None
    assert state["topic_id"] == topic_id("alpha"), "a log keeps its id"


def test_a_follower_may_lose_its_topic_id_at_the_same_epoch(broker: LocalBroker) -> None:
    broker.leader_and_isr(FOLLOWER)
    assert broker.leader_and_isr(FOLLOWER, ids={"alpha": NO_ID}) == (0, [("alpha", 0, 0)])
    assert broker.leader_and_isr(FOLLOWER) == (0, [("alpha", 0, 11)])


def test_a_log_without_a_topic_id_takes_one_at_the_same_epoch(broker: LocalBroker) -> None:
    broker.leader_and_isr(Part(), version=4)
    assert broker.leader_and_isr(Part()) == (0, [("alpha", 0, 0)])
    assert broker.leader_and_isr(Part()) == (0, [("alpha", 0, 11)])
    state = hosted(broker)
    assert state is not None
    assert state["topic_id"] == topic_id("alpha")


def test_topic_ids_belong_to_partitions(broker: LocalBroker) -> None:
    other = {"alpha": b"another id 16 by"}
    broker.leader_and_isr(Part(partition=0))
    answer = broker.leader_and_isr(Part(partition=0, leader_epoch=1), Part(partition=1), ids=other)
    assert sorted(answer[1]) == [("alpha", 0, 103), ("alpha", 1, 0)]


@pytest.mark.parametrize("version", VERSIONS)
def test_not_among_the_replicas(broker: LocalBroker, version: int) -> None:
    foreign = Part(leader=2, isr=(2,), replicas=(2, 3), leader_epoch=3)
    for _ in range(2):
        assert broker.leader_and_isr(foreign, version=version) == (0, [("alpha", 0, 3)])
    state = hosted(broker)
    assert state is not None
    assert (state["leader_epoch"], state["has_log"]) == (-1, False)
    # Its epoch is not kept: a lower one counts as newer once the broker is a replica.
    assert broker.leader_and_isr(Part(leader_epoch=0), version=version) == (0, [("alpha", 0, 0)])


@pytest.mark.parametrize("leader", [-1, -2, 99])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_leader_that_is_not_alive(broker: LocalBroker, version: int, leader: int) -> None:
    waiting = Part(leader=leader, isr=(2,), replicas=(1, 2), leader_epoch=3)
    for _ in range(2):
        # The epoch is not changed, so that the same request is applied once the leader is alive.
        assert broker.leader_and_isr(waiting, version=version) == (0, [("alpha", 0, 0)])
    state = hosted(broker)
    assert state is not None
    assert (state["leader_epoch"], state["has_log"]) == (-1, True)


def test_a_leader_outside_the_isr(broker: LocalBroker) -> None:
    assert broker.leader_and_isr(Part(isr=(2,), replicas=(1, 2))) == (0, [("alpha", 0, 0)])


@pytest.mark.parametrize("leader", [1, 2])
def test_an_older_partition_epoch_changes_nothing_and_is_no_error(broker: LocalBroker, leader: int) -> None:
    broker.leader_and_isr(Part(leader_epoch=1, partition_epoch=9, replicas=(1, 2)))
    late = Part(leader=leader, leader_epoch=2, partition_epoch=8, replicas=(1, 2, 3))
    assert broker.leader_and_isr(late) == (0, [("alpha", 0, 0)])
    state = hosted(broker)
    assert state is not None
    assert (state["leader_epoch"], state["partition_epoch"], state["replicas"]) == (1, 9, [1, 2])


def test_a_kraft_controller_without_migration(broker: LocalBroker) -> None:
    rows = (Part("alpha"), Part("beta", 7))
    assert broker.leader_and_isr(*rows, kraft=True) == (-1, [("alpha", 0, -1), ("beta", 7, -1)])
    assert len(broker.core.replicas) == 0


def test_a_kraft_controller_with_an_unknown_broker_epoch(broker: LocalBroker) -> None:
    for _ in range(2):
        # It may repeat a leader epoch, which a ZooKeeper controller may not.
        assert broker.leader_and_isr(Part(), kraft=True, broker_epoch=-1) == (0, [("alpha", 0, 0)])


def test_a_failed_log_directory(broker: LocalBroker) -> None:
    broker.leader_and_isr(Part())
    broker.core.replicas.set_offline("alpha", 0, True)
    assert broker.leader_and_isr(Part(leader_epoch=1)) == (0, [("alpha", 0, 56)])
    broker.core.replicas.set_offline("alpha", 0, False)
    assert broker.leader_and_isr(Part(leader_epoch=1)) == (0, [("alpha", 0, 0)])
    with pytest.raises(KeyError):
        broker.core.replicas.set_offline("alpha", 1, True)


@pytest.mark.parametrize("version", VERSIONS[2:])
def test_a_repeated_topic_fails_the_request(broker: LocalBroker, version: int) -> None:
    rows = (Part("alpha", 0), Part("beta", 0), Part("alpha", 1))
    answer = broker.leader_and_isr(*rows, version=version, controller_epoch=1)
    assert answer == (-1, [("alpha", 0, -1), ("beta", 0, -1), ("alpha", 1, -1)])


@pytest.mark.parametrize("version", [0, 1])
def test_a_topic_may_be_repeated_in_versions_without_topic_states(broker: LocalBroker, version: int) -> None:
    rows = (Part("alpha", 0), Part("beta", 0), Part("alpha", 1))
    error, partitions = broker.leader_and_isr(*rows, version=version)
    assert (error, sorted(partitions)) == (0, [("alpha", 0, 0), ("alpha", 1, 0), ("beta", 0, 0)])


def test_the_last_of_equal_partitions_counts(broker: LocalBroker) -> None:
    answer = broker.leader_and_isr(Part(leader_epoch=2), Part(leader_epoch=1, replicas=(1, 2)))
    assert answer == (0, [("alpha", 0, 0)])
    state = hosted(broker)
    assert state is not None
    assert (state["leader_epoch"], state["replicas"]) == (1, [1, 2])


def test_a_refused_partition_is_overruled_by_an_equal_one(broker: LocalBroker) -> None:
    assert broker.leader_and_isr(Part(), Part(replicas=(2,))) == (0, [("alpha", 0, 0)])


def test_a_topic_id_for_a_partition_without_a_log_stops_the_request(broker: LocalBroker) -> None:
    odd = Part("beta", leader_epoch=-1)
    rows = (Part("alpha"), odd, Part("gamma"))
    error, partitions = broker.leader_and_isr(*rows)
    assert (error, {code for _, _, code in partitions}) == (6, {6})
    # What came before was created, not made leader; what came after was not looked at.
    state = hosted(broker)
    assert state is not None
    assert state["leader_epoch"] == -1
    assert hosted(broker, "beta") is not None
    assert hosted(broker, "gamma") is None


def test_a_request_without_partitions(broker: LocalBroker) -> None:
    for version in VERSIONS:
        assert broker.leader_and_isr(version=version) == (0, [])
    assert broker.leader_and_isr(topics=["alpha"]) == (0, [])


def test_topics_without_an_id_are_one_topic_of_the_response(broker: LocalBroker) -> None:
    none = {"alpha": NO_ID, "beta": NO_ID}
    frame = control_frame(LEADER_AND_ISR, 7, [Part("alpha"), Part("beta", 1)], ids=none)
    response = broker.ask(frame)
    body = decode_response(LEADER_AND_ISR, 7, response, decode_response_header(response, 1)[1])
    assert len(body.topics) == 1
    assert sorted(body.partition.tolist()) == [0, 1]


def test_columns_of_hosted_rows_stay_aligned(broker: LocalBroker) -> None:
    """Columns beside the partition table move with it."""
    random = np.random.default_rng(7)
    expected: dict[tuple[str, int], int] = {}
    for step in range(60):
        topic, partition = f"topic-{random.integers(5)}", int(random.integers(20))
        if random.random() < 0.3 and expected:
            topic, partition = list(expected)[int(random.integers(len(expected)))]
            broker.stop_replica(Part(topic, partition, leader_epoch=-2, delete=True))
            del expected[topic, partition]
        else:
            broker.leader_and_isr(Part(topic, partition, leader_epoch=step))
            expected[topic, partition] = step
        assert len(broker.core.replicas) == len(expected)
        for (name, number), epoch in expected.items():
            state = hosted(broker, name, number)
            assert state is not None
            assert (state["leader_epoch"], state["topic_id"]) == (epoch, topic_id(name))
