"""Snapshots of the metadata: what they show after each UpdateMetadata, and that they never change."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from kio.schema.fetch.v17.response import NodeEndpoint
from kio.serial import entity_reader

from ctrlchan._codec import Topics
from ctrlchan.broker.metadata._snapshot import CurrentMetadata, MetadataSnapshot
from ctrlchan.broker.metadata.published_metadata import PublishedMetadata
from tests.unit.broker.cores import storing_core
from tests.unit.broker.local_broker import LiveBroker, LocalBroker, Part, topic_id

LISTENERS = ("PLAINTEXT", "OTHER", "ÜBER")
ROUNDS = 120


@pytest.fixture
def broker() -> LocalBroker:
    return LocalBroker(storing_core(1, epoch=50))


def metadata_of(broker: LocalBroker) -> PublishedMetadata:
    metadata = broker.core.metadata
    assert isinstance(metadata, PublishedMetadata)
    return metadata


def nodes_of(data: bytes) -> list[tuple[int, str, int, str | None]]:
    """Decode the field ``NodeEndpoints``; its length is that of a compact array of at most 126 nodes."""
    if not data:
        return []
    at, nodes = 1, []
    for _ in range(data[0] - 1):
        node, size = entity_reader(NodeEndpoint)(data, at)
        nodes.append((int(node.node_id), node.host, int(node.port), node.rack))
        at += size
    assert at == len(data)
    return nodes


def shown(snapshot: MetadataSnapshot, names: list[str]) -> dict[Any, Any]:
    """All that a snapshot says of topics and brokers."""
    partitions = {name: snapshot.partitions_of(name).tolist() for name in names}
    return {
        "partitions": partitions,
        "topics": [snapshot.has_topic(name) for name in names],
        "leaders": {
            (name, number): snapshot.leader(name, number) for name in names for number in partitions[name]
        },
        "names": [snapshot.topic_name(given(name, n)) for name in names for n in range(3)],
        "nodes": {listener: nodes_of(snapshot.endpoints(listener, range(12))) for listener in LISTENERS},
    }


def expected(metadata: PublishedMetadata, names: list[str]) -> dict[Any, Any]:
    """What the state itself says."""
    state = metadata.state
    known = [name for name in names if metadata.row_of(name) is not None]
    rows = {name: state.rows_of_topic(name) if name in known else slice(0, 0) for name in names}
    columns = state.partitions
    return {
        "partitions": {name: columns.partition[rows[name]].tolist() for name in names},
        "topics": [metadata.topic_row(name) is not None for name in names],
        "leaders": {
            (name, int(columns.partition[row])): (int(columns.leader[row]), int(columns.leader_epoch[row]))
            for name in names
            for row in range(rows[name].start, rows[name].stop)
        },
        "names": [metadata.topic_name(given(name, n)) for name in names for n in range(3)],
        "nodes": {
            listener: [tuple(node) for node in metadata.nodes(listener) if node.id in range(12)]
            for listener in LISTENERS
        },
    }


def given(name: str, number: int) -> bytes:
    """One of the ids that the test gives a topic."""
    return topic_id(f"{name}-{number}")


def random_part(chosen: random.Random, name: str) -> Part:
    return Part(
        name,
        chosen.choice((0, 1, 2, 5)),
        leader=chosen.choice((-2, -1, 1, 2)),
        leader_epoch=chosen.randrange(99),
    )


def random_broker(chosen: random.Random, number: int) -> LiveBroker:
    listeners = tuple((name, 0) for name in chosen.sample(LISTENERS, chosen.randrange(4)))
    return LiveBroker(
        number, listeners, chosen.choice((None, "", "a rack", "r" * 200)), host=f"h{chosen.randrange(9)}"
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_snapshot_shows_the_state_and_stays_what_it_was(broker: LocalBroker, seed: int) -> None:
    chosen = random.Random(seed)
    metadata = metadata_of(broker)
    names = ["", "unknown", *(f"topic-{number}" for number in range(30)), "t" * 249]
    earlier = []
    for _ in range(ROUNDS):
        named = chosen.sample(names[2:], chosen.choice((1, 2, 15)))
        parts = [random_part(chosen, name) for name in named for _ in range(chosen.randrange(1, 4))]
        ids = {name: chosen.choice((bytes(16), *(given(name, n) for n in range(3)))) for name in named}
        live = [random_broker(chosen, number) for number in chosen.sample(range(12), chosen.randrange(12))]
        assert broker.update_metadata(*parts, ids=ids, live=live, topics=chosen.sample(names[2:], 1)) == 0
        snapshot = metadata.snapshot
        now = shown(snapshot, names)
        assert now == expected(metadata, names)
        earlier.append((snapshot, now))
    for snapshot, before in earlier:
        assert shown(snapshot, names) == before


def test_partitions_and_ids_that_cannot_be(broker: LocalBroker) -> None:
    broker.update_metadata(Part("a", 0, leader=7, leader_epoch=8), Part("a", 2**31 - 1), Part("b", 1))
    snapshot = metadata_of(broker).snapshot
    assert snapshot.leader("a", 0) == (7, 8)
    assert snapshot.has_partition("a", 2**31 - 1)
    assert [snapshot.has_partition("a", number) for number in (-1, 1, 2**31, 2**32)] == [False] * 4
    assert [snapshot.has_partition(name, 0) for name in ("", "b", "c", "a\0", "\udc80")] == [False] * 5
    assert snapshot.topic_name(topic_id("a")) == "a"
    assert [snapshot.topic_name(one) for one in (bytes(16), b"", b"short", topic_id("c"))] == [None] * 4


def test_a_topic_that_gets_another_id_again_and_again_is_found(broker: LocalBroker) -> None:
    """The table of ids is made again when it is full of ids that are no longer there."""
    metadata = metadata_of(broker)
    for number in range(200):
        broker.update_metadata(Part("a"), Part("b"), ids={"a": given("a", number)})
        assert metadata.snapshot.topic_name(given("a", number)) == "a"
        assert metadata.snapshot.topic_name(given("a", number - 1)) is None
        assert metadata.snapshot.topic_name(topic_id("b")) == "b"


def test_what_has_not_changed_is_shared(broker: LocalBroker) -> None:
    """One partition of many costs a copy of two columns."""
    metadata = metadata_of(broker)
    broker.update_metadata(*(Part(f"topic-{number}") for number in range(100)))
    before = metadata.snapshot.partitions_of("topic-7")
    broker.update_metadata(Part("topic-7", leader=9, leader_epoch=1))
    assert np.shares_memory(before, metadata.snapshot.partitions_of("topic-7"))
    assert metadata.snapshot.leader("topic-7", 0) == (9, 1)


def test_a_snapshot_of_columns_alone(broker: LocalBroker) -> None:
    broker.update_metadata(Part("a"), Part("b"))
    state = broker.core.metadata.state
    names = state.topics.names
    state_of_others = Topics(type(names).from_strings(["x", "y"]), np.zeros((2, 16), np.uint8))
    one = MetadataSnapshot(state.topics, state.partitions, state.live_brokers)
    # Other topics take the rows of those before: nothing of their tables may stay.
    other = MetadataSnapshot(state_of_others, state.partitions, state.live_brokers, one)
    assert [other.has_topic(name) for name in ("a", "b", "x", "y")] == [False, False, True, True]
    assert other.topic_names() == ["x", "y"]
    assert [other.topic_name(topic_id(name)) for name in ("a", "b")] == [None, None]
    current = CurrentMetadata(one)
    current.publish(other)
    assert current.snapshot is other
    assert one.has_topic("a")


def test_an_error_changes_nothing(broker: LocalBroker) -> None:
    broker.update_metadata(Part("a", leader=2))
    before = metadata_of(broker).snapshot
    twice = LiveBroker(5, (("PLAINTEXT", 0), ("PLAINTEXT", 0)))
    assert broker.update_metadata(Part("a", leader=3), live=[twice]) == -1
    assert metadata_of(broker).snapshot is before
