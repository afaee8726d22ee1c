"""UpdateMetadata: what a real broker answers, in every version, and what its metadata cache holds then."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.broker.metadata.metadata_cache import Node
from ctrlchan.errors import DecodeError
from tests.unit.broker.talk import (
    CONTROLLER_EPOCH,
    EPOCH,
    NO_ID,
    LiveBroker,
    Part,
    Talk,
    control_frame,
    topic_id,
)

VERSIONS = range(9)
DELETED = -2
ANOTHER_ID = b"another id 16 by"


@pytest.fixture
def talk() -> Talk:
    return Talk()


def partitions(talk: Talk, *topics: str, **fields: Any) -> dict[tuple[str, int], tuple[int, ...]]:
    """(topic, partition) -> (error, leader, leader epoch) as a client is told."""
    body = talk.metadata(*topics, all_topics=not topics, **fields)
    return {
        (topic.name, one.partition_index): (int(one.error_code), one.leader_id, one.leader_epoch)
        for topic in body.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_the_cluster_as_told(talk: Talk, version: int) -> None:
    rows = (
        Part("alpha", 0, leader=2, leader_epoch=3, isr=(2, 3), replicas=(2, 3, 1), offline=(1,)),
        Part("alpha", 1, leader=3, leader_epoch=1, isr=(3,), replicas=(3, 1)),
        Part("beta", 0, leader=1, leader_epoch=0),
    )
    assert talk.update_metadata(*rows, version=version, controller_id=2, controller_epoch=9) == 0
    body = talk.metadata(all_topics=True)
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
    told = {name: UUID(bytes=topic_id(name)) for name in ("alpha", "beta")}
    assert ids == (told if version >= 7 else {"alpha": None, "beta": None})
    assert body.controller_id == 2
    # A rack that a version cannot tell is empty, not absent: so it is in Kafka's schema.
    rack = None if version >= 2 else ""
    assert [(b.node_id, b.host, b.port, b.rack) for b in body.brokers] == [
        (i, f"host-{i}", 9000 + i, rack) for i in (1, 2, 3)
    ]
    assert talk.core.controller_epoch == 9
    assert talk.core.metadata.state.controller_epoch == 9


@pytest.mark.parametrize("version", VERSIONS)
def test_stale_controller_epoch(talk: Talk, version: int) -> None:
    talk.update_metadata()
    assert talk.update_metadata(Part(), version=version, controller_epoch=CONTROLLER_EPOCH - 1) == 11
    assert partitions(talk) == {}


@pytest.mark.parametrize("controller_epoch", [CONTROLLER_EPOCH, CONTROLLER_EPOCH - 1])
@pytest.mark.parametrize("version", VERSIONS[5:])
def test_stale_broker_epoch_also_when_both_are_stale(talk: Talk, version: int, controller_epoch: int) -> None:
    talk.update_metadata()
    stale = {"broker_epoch": EPOCH - 1, "controller_epoch": controller_epoch}
    assert talk.update_metadata(Part(), version=version, **stale) == 77
    assert partitions(talk) == {}


@pytest.mark.parametrize("broker_epoch", [EPOCH + 1, -1])
def test_higher_or_unknown_broker_epoch(talk: Talk, broker_epoch: int) -> None:
    assert talk.update_metadata(Part(), broker_epoch=broker_epoch) == 0
    assert partitions(talk) == {("alpha", 0): (0, 1, 0)}


def test_a_later_controller_epoch_fences_the_true_one(talk: Talk) -> None:
    assert talk.update_metadata(controller_epoch=CONTROLLER_EPOCH + 1) == 0
    assert talk.update_metadata() == 11
    assert talk.leader_and_isr() == (11, [])
    assert talk.stop_replica() == (11, [])


@pytest.mark.parametrize("leader_epoch", [5, 4])
def test_an_older_leader_epoch_is_believed(talk: Talk, leader_epoch: int) -> None:
    talk.update_metadata(Part(leader_epoch=5))
    assert talk.update_metadata(Part(leader=2, leader_epoch=leader_epoch)) == 0
    assert partitions(talk) == {("alpha", 0): (0, 2, leader_epoch)}


@pytest.mark.parametrize(("told", "kept"), [(ANOTHER_ID, ANOTHER_ID), (NO_ID, None)])
def test_topic_ids_are_overwritten(talk: Talk, told: bytes, kept: bytes | None) -> None:
    talk.update_metadata(Part())
    assert talk.update_metadata(Part(), ids={"alpha": told}) == 0
    (topic,) = talk.metadata("alpha").topics
    assert topic.topic_id == (kept and UUID(bytes=kept))
    (by_old_id,) = talk.metadata(UUID(bytes=topic_id("alpha"))).topics
    assert int(by_old_id.error_code) == 100


def test_versions_without_topic_ids(talk: Talk) -> None:
    talk.update_metadata(Part())
    talk.update_metadata(Part(), version=4)
    assert talk.metadata("alpha").topics[0].topic_id is not None, "v4 says nothing of topics"
    talk.update_metadata(Part(), version=6)
    assert talk.metadata("alpha").topics[0].topic_id is None, "v6 names the topic, without an id"


def test_partial_updates_join_and_replace(talk: Talk) -> None:
    talk.update_metadata(Part("beta", 1), Part("beta", 2, leader_epoch=3))
    talk.update_metadata(Part("alpha", 0), Part("beta", 0), Part("beta", 2, leader_epoch=4))
    assert {key: epoch for key, (_, _, epoch) in partitions(talk).items()} == {
        ("alpha", 0): 0,
        ("beta", 0): 0,
        ("beta", 1): 0,
        ("beta", 2): 4,
    }


def test_live_brokers_are_replaced_and_offline_replicas_are_not(talk: Talk) -> None:
    talk.update_metadata(Part(replicas=(1, 2), offline=(2,)))
    assert talk.update_metadata(live=[LiveBroker(2)]) == 0
    body = talk.metadata("alpha")
    assert [broker.node_id for broker in body.brokers] == [2]
    (partition,) = body.topics[0].partitions
    assert (int(partition.error_code), partition.leader_id, partition.offline_replicas) == (5, -1, (2,))


@pytest.mark.parametrize("version", VERSIONS)
def test_no_live_brokers(talk: Talk, version: int) -> None:
    assert talk.update_metadata(Part(), live=[], version=version) == 0
    assert partitions(talk) == {("alpha", 0): (5, -1, 0)}


def test_a_kraft_controller_without_migration(talk: Talk) -> None:
    assert talk.update_metadata(Part(), kraft=True) == -1
    assert partitions(talk) == {}


def test_a_kraft_controller_is_hidden_behind_a_broker(talk: Talk) -> None:
    assert talk.update_metadata(Part(), kraft=True, broker_epoch=-1, controller_id=3000) == 0
    assert talk.metadata().controller_id in (1, 2, 3)
    assert talk.update_metadata(kraft=True, broker_epoch=-1, controller_id=3000, live=[]) == 0
    assert talk.metadata().controller_id == -1


def test_a_controller_without_an_id_is_none(talk: Talk) -> None:
    talk.update_metadata(controller_id=-7)
    assert talk.metadata().controller_id == -1


@pytest.mark.parametrize("version", VERSIONS[1:3])
def test_old_versions_name_listeners_by_their_protocol(talk: Talk, version: int) -> None:
    live = [LiveBroker(1, (("", 0), ("", 2)))]
    assert talk.update_metadata(version=version, live=live) == 0
    for listener in ("PLAINTEXT", "SASL_PLAINTEXT"):
        (node,) = talk.core.metadata.nodes(listener)
        assert (node.id, node.host) == (1, "host-1")
    with pytest.raises(DecodeError, match="securityProtocol"):
        talk.update_metadata(version=version, live=[LiveBroker(1, (("", 9),))])


def test_a_listener_that_comes_twice_fails_the_request(talk: Talk) -> None:
    twice = [LiveBroker(1, (("PLAINTEXT", 0), ("PLAINTEXT", 0)))]
    assert talk.update_metadata(Part(), live=twice, controller_epoch=CONTROLLER_EPOCH + 1) == -1
    assert partitions(talk) == {}
    assert talk.core.controller_epoch == 0, "nothing was taken over"


def test_of_one_live_broker_twice_the_last_counts(talk: Talk) -> None:
    live = [LiveBroker(1, rack="a"), LiveBroker(2), LiveBroker(1, rack="b"), LiveBroker(-4)]
    assert talk.update_metadata(live=live) == 0
    assert talk.core.metadata.nodes("PLAINTEXT") == [
        Node(1, "host-1", 9001, "b"),
        Node(2, "host-2", 9002, None),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_deleted_partitions_go_and_take_their_topic_along(talk: Talk, version: int) -> None:
    talk.update_metadata(Part("alpha", 0), Part("alpha", 1), Part("beta"))
    talk.update_metadata(Part("alpha", 1, leader=DELETED), version=version)
    assert set(partitions(talk)) == {("alpha", 0), ("beta", 0)}
    talk.update_metadata(Part("alpha", 0, leader=DELETED), Part("gamma", leader=DELETED), version=version)
    assert set(partitions(talk)) == {("beta", 0)}
    assert [int(topic.error_code) for topic in talk.metadata("alpha", "gamma").topics] == [3, 3]
    (topic,) = talk.metadata(UUID(bytes=topic_id("alpha"))).topics
    assert (int(topic.error_code), topic.name) == (100, None)


def test_the_id_of_a_topic_that_was_never_there_is_kept(talk: Talk) -> None:
    """Kafka forgets an id with the last partition; of a topic without any it remembers it."""
    talk.update_metadata(Part("gamma", leader=DELETED), topics=["delta"])
    for name in ("gamma", "delta"):
        (topic,) = talk.metadata(UUID(bytes=topic_id(name))).topics
        assert (int(topic.error_code), topic.name) == (3, name)


def test_a_topic_that_is_deleted_and_told_again_in_one_request_loses_its_id(talk: Talk) -> None:
    talk.update_metadata(Part("alpha", 0), Part("beta", 0), Part("beta", 1))
    talk.update_metadata(
        Part("alpha", 0, leader=DELETED),
        Part("alpha", 5),
        Part("beta", 0, leader=DELETED),
        Part("beta", 5),
    )
    assert set(partitions(talk)) == {("alpha", 5), ("beta", 1), ("beta", 5)}
    ids = {topic.name: topic.topic_id for topic in talk.metadata(all_topics=True).topics}
    assert ids == {"alpha": None, "beta": UUID(bytes=topic_id("beta"))}


def test_of_one_partition_twice_the_last_counts(talk: Talk) -> None:
    talk.update_metadata(Part("alpha", 0), Part("beta", 0))
    talk.update_metadata(
        Part("alpha", 0, leader=DELETED),
        Part("alpha", 0, leader=2),
        Part("beta", 0, leader=2),
        Part("beta", 0, leader=DELETED),
    )
    assert partitions(talk) == {("alpha", 0): (0, 2, 0)}


def test_a_body_that_cannot_be_read_changes_nothing(talk: Talk) -> None:
    frame = control_frame(UPDATE_METADATA, 8, [Part()])
    for cut in range(len(frame)):
        with pytest.raises(DecodeError):
            talk.ask(frame[:cut])
    assert partitions(talk) == {}
    assert talk.core.metadata.live_ids.tolist() == []
