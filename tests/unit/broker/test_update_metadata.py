"""UpdateMetadata: the answer of a real broker in every version, and its metadata cache afterwards."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.errors import DecodeError
from ctrlchan.server.apis.lookups import Node
from tests.unit.broker.local_broker import (
    CONTROLLER_EPOCH,
    EPOCH,
    NO_ID,
    LiveBroker,
    LocalBroker,
    Part,
    control_frame,
    topic_id,
)

VERSIONS = range(9)
DELETED = -2
ANOTHER_ID = b"another id 16 by"


@pytest.fixture
def broker() -> LocalBroker:
    return LocalBroker()


def partitions(broker: LocalBroker, *topics: str, **fields: Any) -> dict[tuple[str, int], tuple[int, ...]]:
    """(topic, partition) -> (error, leader, leader epoch) in the Metadata of a client."""
    body = broker.metadata(*topics, all_topics=not topics, **fields)
    return {
        (topic.name, one.partition_index): (int(one.error_code), one.leader_id, one.leader_epoch)
        for topic in body.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_after_an_update(broker: LocalBroker, version: int) -> None:
    rows = (
        Part("alpha", 0, leader=2, leader_epoch=3, isr=(2, 3), replicas=(2, 3, 1), offline=(1,)),
        Part("alpha", 1, leader=3, leader_epoch=1, isr=(3,), replicas=(3, 1)),
        Part("beta", 0, leader=1, leader_epoch=0),
    )
    assert broker.update_metadata(*rows, version=version, controller_id=2, controller_epoch=9) == 0
    body = broker.metadata(all_topics=True)
    seen = {
        (topic.name, one.partition_index): (
            one.leader_id,
            one.leader_epoch,
            one.isr_nodes,
            one.replica_nodes,
            one.offline_replicas,
        )
        for topic in body.topics
        for one in topic.partitions
    }
    assert seen == {
        ("alpha", 0): (2, 3, (2, 3), (2, 3, 1), (1,) if version >= 4 else ()),
        ("alpha", 1): (3, 1, (3,), (3, 1), ()),
        ("beta", 0): (1, 0, (1,), (1,), ()),
    }
    ids = {topic.name: topic.topic_id for topic in body.topics}
    sent = {name: UUID(bytes=topic_id(name)) for name in ("alpha", "beta")}
    assert ids == (sent if version >= 7 else {"alpha": None, "beta": None})
    assert body.controller_id == 2
    # A version without racks gives an empty one, not none: the default in Kafka's schema.
    rack = None if version >= 2 else ""
    assert [(b.node_id, b.host, b.port, b.rack) for b in body.brokers] == [
        (i, f"host-{i}", 9000 + i, rack) for i in (1, 2, 3)
    ]
    assert broker.core.controller_epoch == 9
    assert broker.core.metadata.state.controller_epoch == 9


@pytest.mark.parametrize("version", VERSIONS)
def test_stale_controller_epoch(broker: LocalBroker, version: int) -> None:
    broker.update_metadata()
    assert broker.update_metadata(Part(), version=version, controller_epoch=CONTROLLER_EPOCH - 1) == 11
    assert partitions(broker) == {}


@pytest.mark.parametrize("controller_epoch", [CONTROLLER_EPOCH, CONTROLLER_EPOCH - 1])
@pytest.mark.parametrize("version", VERSIONS[5:])
def test_stale_broker_epoch_also_when_both_are_stale(
    broker: LocalBroker, version: int, controller_epoch: int
) -> None:
    broker.update_metadata()
    stale = {"broker_epoch": EPOCH - 1, "controller_epoch": controller_epoch}
    assert broker.update_metadata(Part(), version=version, **stale) == 77
    assert partitions(broker) == {}


@pytest.mark.parametrize("broker_epoch", [EPOCH + 1, -1])
def test_higher_or_unknown_broker_epoch(broker: LocalBroker, broker_epoch: int) -> None:
    assert broker.update_metadata(Part(), broker_epoch=broker_epoch) == 0
    assert partitions(broker) == {("alpha", 0): (0, 1, 0)}


def test_a_later_controller_epoch_fences_the_former_one(broker: LocalBroker) -> None:
    assert broker.update_metadata(controller_epoch=CONTROLLER_EPOCH + 1) == 0
    assert broker.update_metadata() == 11
    assert broker.leader_and_isr() == (11, [])
    assert broker.stop_replica() == (11, [])


@pytest.mark.parametrize("leader_epoch", [5, 4])
def test_an_older_leader_epoch_is_accepted(broker: LocalBroker, leader_epoch: int) -> None:
    broker.update_metadata(Part(leader_epoch=5))
    assert broker.update_metadata(Part(leader=2, leader_epoch=leader_epoch)) == 0
    assert partitions(broker) == {("alpha", 0): (0, 2, leader_epoch)}


@pytest.mark.parametrize(("sent", "kept"), [(ANOTHER_ID, ANOTHER_ID), (NO_ID, None)])
def test_topic_ids_are_overwritten(broker: LocalBroker, sent: bytes, kept: bytes | None) -> None:
    broker.update_metadata(Part())
    assert broker.update_metadata(Part(), ids={"alpha": sent}) == 0
    (topic,) = broker.metadata("alpha").topics
    assert topic.topic_id == (kept and UUID(bytes=kept))
    (by_old_id,) = broker.metadata(UUID(bytes=topic_id("alpha"))).topics
    assert int(by_old_id.error_code) == 100


def test_versions_without_topic_ids(broker: LocalBroker) -> None:
    broker.update_metadata(Part())
    broker.update_metadata(Part(), version=4)
    assert broker.metadata("alpha").topics[0].topic_id is not None, "v4 has no topic states"
    broker.update_metadata(Part(), version=6)
    assert broker.metadata("alpha").topics[0].topic_id is None, "v6 has a topic state without an id"


def test_partial_updates_insert_and_replace(broker: LocalBroker) -> None:
    broker.update_metadata(Part("beta", 1), Part("beta", 2, leader_epoch=3))
    broker.update_metadata(Part("alpha", 0), Part("beta", 0), Part("beta", 2, leader_epoch=4))
    assert {key: epoch for key, (_, _, epoch) in partitions(broker).items()} == {
        ("alpha", 0): 0,
        ("beta", 0): 0,
        ("beta", 1): 0,
        ("beta", 2): 4,
    }


def test_live_brokers_are_replaced_and_offline_replicas_are_not(broker: LocalBroker) -> None:
    broker.update_metadata(Part(replicas=(1, 2), offline=(2,)))
    assert broker.update_metadata(live=[LiveBroker(2)]) == 0
    body = broker.metadata("alpha")
    assert [broker.node_id for broker in body.brokers] == [2]
    (partition,) = body.topics[0].partitions
    assert (int(partition.error_code), partition.leader_id, partition.offline_replicas) == (5, -1, (2,))


@pytest.mark.parametrize("version", VERSIONS)
def test_no_live_brokers(broker: LocalBroker, version: int) -> None:
    assert broker.update_metadata(Part(), live=[], version=version) == 0
    assert partitions(broker) == {("alpha", 0): (5, -1, 0)}


def test_a_kraft_controller_without_migration(broker: LocalBroker) -> None:
    assert broker.update_metadata(Part(), kraft=True) == -1
    assert partitions(broker) == {}


def test_a_kraft_controller_is_hidden_behind_a_broker(broker: LocalBroker) -> None:
    assert broker.update_metadata(Part(), kraft=True, broker_epoch=-1, controller_id=3000) == 0
    assert broker.metadata().controller_id in (1, 2, 3)
    assert broker.update_metadata(kraft=True, broker_epoch=-1, controller_id=3000, live=[]) == 0
    assert broker.metadata().controller_id == -1


def test_a_controller_without_an_id_is_none(broker: LocalBroker) -> None:
    broker.update_metadata(controller_id=-7)
    assert broker.metadata().controller_id == -1


@pytest.mark.parametrize("version", VERSIONS[1:3])
def test_old_versions_name_listeners_by_their_protocol(broker: LocalBroker, version: int) -> None:
    live = [LiveBroker(1, (("", 0), ("", 2)))]
    assert broker.update_metadata(version=version, live=live) == 0
    for listener in ("PLAINTEXT", "SASL_PLAINTEXT"):
        (node,) = broker.core.metadata.nodes(listener)
        assert (node.id, node.host) == (1, "host-1")
    with pytest.raises(DecodeError, match="securityProtocol"):
        broker.update_metadata(version=version, live=[LiveBroker(1, (("", 9),))])


def test_a_repeated_listener_fails_the_request(broker: LocalBroker) -> None:
    twice = [LiveBroker(1, (("PLAINTEXT", 0), ("PLAINTEXT", 0)))]
    assert broker.update_metadata(Part(), live=twice, controller_epoch=CONTROLLER_EPOCH + 1) == -1
    assert partitions(broker) == {}
    assert broker.core.controller_epoch == 0, "the controller epoch is not changed"


def test_the_last_of_equal_live_brokers_counts(broker: LocalBroker) -> None:
    live = [LiveBroker(1, rack="a"), LiveBroker(2), LiveBroker(1, rack="b"), LiveBroker(-4)]
    assert broker.update_metadata(live=live) == 0
    assert broker.core.metadata.nodes("PLAINTEXT") == [
        Node(1, "host-1", 9001, "b"),
        Node(2, "host-2", 9002, None),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_deleted_partitions_are_removed_with_their_topic(broker: LocalBroker, version: int) -> None:
    broker.update_metadata(Part("alpha", 0), Part("alpha", 1), Part("beta"))
    broker.update_metadata(Part("alpha", 1, leader=DELETED), version=version)
    assert set(partitions(broker)) == {("alpha", 0), ("beta", 0)}
    broker.update_metadata(Part("alpha", 0, leader=DELETED), Part("gamma", leader=DELETED), version=version)
    assert set(partitions(broker)) == {("beta", 0)}
    assert [int(topic.error_code) for topic in broker.metadata("alpha", "gamma").topics] == [3, 3]
    (topic,) = broker.metadata(UUID(bytes=topic_id("alpha"))).topics
    assert (int(topic.error_code), topic.name) == (100, None)


def test_the_id_of_a_topic_without_partitions_is_kept(broker: LocalBroker) -> None:
    """Kafka drops an id with the last partition, and keeps the id of a topic that never had one."""
    broker.update_metadata(Part("gamma", leader=DELETED), topics=["delta"])
    for name in ("gamma", "delta"):
        (topic,) = broker.metadata(UUID(bytes=topic_id(name))).topics
        assert (int(topic.error_code), topic.name) == (3, name)


def test_a_topic_that_is_deleted_and_added_in_one_request_loses_its_id(broker: LocalBroker) -> None:
    broker.update_metadata(Part("alpha", 0), Part("beta", 0), Part("beta", 1))
    broker.update_metadata(
        Part("alpha", 0, leader=DELETED),
        Part("alpha", 5),
        Part("beta", 0, leader=DELETED),
        Part("beta", 5),
    )
    assert set(partitions(broker)) == {("alpha", 5), ("beta", 1), ("beta", 5)}
    ids = {topic.name: topic.topic_id for topic in broker.metadata(all_topics=True).topics}
    assert ids == {"alpha": None, "beta": UUID(bytes=topic_id("beta"))}


def test_the_last_of_equal_partitions_counts(broker: LocalBroker) -> None:
    broker.update_metadata(Part("alpha", 0), Part("beta", 0))
    broker.update_metadata(
        Part("alpha", 0, leader=DELETED),
        Part("alpha", 0, leader=2),
        Part("beta", 0, leader=2),
        Part("beta", 0, leader=DELETED),
    )
    assert partitions(broker) == {("alpha", 0): (0, 2, 0)}


def test_a_body_that_cannot_be_decoded_changes_nothing(broker: LocalBroker) -> None:
    frame = control_frame(UPDATE_METADATA, 8, [Part()])
    for cut in range(len(frame)):
        with pytest.raises(DecodeError):
            broker.ask(frame[:cut])
    assert partitions(broker) == {}
    assert broker.core.metadata.live_ids.tolist() == []
