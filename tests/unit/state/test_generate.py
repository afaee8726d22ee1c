from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrlchan.errors import ConfigError
from ctrlchan.state import Broker, Endpoint, SecurityProtocol
from ctrlchan.state.brokers import brokers_list
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from ctrlchan.state.lists import total_length
from ctrlchan.topic_names import id_to_text
from tests.unit.state.helpers import rows_of


@st.composite
def configs(draw: st.DrawFn) -> GeneratorConfig:
    brokers = draw(st.integers(1, 12))
    return GeneratorConfig(
        topics=draw(st.integers(0, 8)),
        partitions_per_topic=draw(st.integers(0, 30)),
        brokers=brokers,
        replication=draw(st.integers(1, brokers)),
        racks=draw(st.integers(0, brokers)),
        offline_share=draw(st.floats(0, 1)),
        seed=draw(st.integers(0, 5)),
    )


@settings(deadline=None)
@given(configs())
def test_any_generated_cluster_is_sound_and_of_the_wanted_shape(config: GeneratorConfig) -> None:
    state = generate(config)
    assert state.check() == []
    count = config.topics * config.partitions_per_topic
    assert len(state.topics) == config.topics
    assert len(state.partitions) == count
    assert state.partitions.offline is not None
    assert total_length(state.partitions.offline) == round(count * config.replication * config.offline_share)
    racks = {broker.id: broker.rack for broker in brokers_list(state.brokers)}
    assert len(set(racks.values()) - {None}) == config.racks
    for row in rows_of(state).values():
        assert len(row["replicas"]) == config.replication
        used = {racks[broker] for broker in row["replicas"]}
        assert not config.racks or len(used) == min(config.racks, config.replication)
        online = [broker for broker in row["replicas"] if broker not in row["offline"]]
        assert row["leader"] == (online[0] if online else -1)
        assert row["isr"] == (online or row["replicas"][:1])


def test_the_same_seed_gives_the_same_cluster() -> None:
    one, same, other = (
        generate(GeneratorConfig(topics=5, offline_share=0.1, seed=seed)) for seed in (1, 1, 2)
    )
    assert rows_of(one) == rows_of(same) != rows_of(other)
    assert one.topics.ids.tolist() == same.topics.ids.tolist() != other.topics.ids.tolist()
    assert brokers_list(one.brokers) == brokers_list(same.brokers)


def test_the_cluster_of_a_seed_stays_the_same_over_releases() -> None:
    """Benchmarks of two releases measure the same bytes."""
    state = generate(GeneratorConfig(topics=2, partitions_per_topic=3, brokers=4, replication=2))
    assert state.topics.names.to_list() == ["topic-000000", "topic-000001"]
    expected = [[0, 1], [1, 2], [2, 3], [0, 1], [1, 2], [2, 3]]
    assert [row["replicas"] for row in rows_of(state).values()] == expected
    assert state.partitions.leader_epoch.tolist() == [30, 4, 14, 43, 14, 23]
    assert state.topics.ids[0].tobytes().hex() == "5f82c2d9cfeb4fa3a1d7d982f8bd1045"


def test_defaults() -> None:
    state = generate(GeneratorConfig())
    assert (len(state.topics), len(state.partitions), len(state.brokers)) == (1_000, 100_000, 30)
    assert total_length(state.partitions.replicas) == 300_000
    assert state.topic_name(123) == "topic-000123"
    # Kafka's placement keeps brokers within a few per cent of one another.
    leaders = np.bincount(state.partitions.leader)
    assert leaders.min() > 0.9 * leaders.max()
    replicas = np.bincount(state.partitions.replicas.values)
    assert replicas.min() > 0.9 * replicas.max()
    assert len(np.unique(state.topics.ids, axis=0)) == 1_000
    assert not any(id_to_text(topic_id.tobytes()).startswith("-") for topic_id in state.topics.ids)
    assert state.partitions.controller_epoch.max() <= state.controller_epoch
    assert (np.diff(state.brokers.epochs) > 0).all()


def test_addresses() -> None:
    plain, ssl = SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL
    listeners = (("IN", plain), ("OUT", ssl))
    state = generate(
        GeneratorConfig(topics=1, brokers=2, replication=1, first_port=9_000, host="h", listeners=listeners)
    )
    assert [broker.endpoints for broker in brokers_list(state.brokers)] == [
        (Endpoint("IN", plain, "h", 9_000), Endpoint("OUT", ssl, "h", 9_001)),
        (Endpoint("IN", plain, "h", 9_002), Endpoint("OUT", ssl, "h", 9_003)),
    ]
    state = generate(
        GeneratorConfig(topics=1, brokers=2, replication=1, address=("s", 7), listeners=listeners)
    )
    both = (Endpoint("IN", plain, "s", 7), Endpoint("OUT", ssl, "s", 8))
    assert [broker.endpoints for broker in brokers_list(state.brokers)] == [both, both]
    assert state.broker(1) == Broker(1, int(state.brokers.epochs[1]), both)


def test_many_topics_have_longer_numbers() -> None:
    state = generate(GeneratorConfig(topics=1_000_001, partitions_per_topic=0, brokers=1, replication=1))
    assert state.topic_name(0) == "topic-0000000"
    assert state.topic_name(1_000_000) == "topic-1000000"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"topics": -1}, "topics: -1 is below 0"),
        ({"brokers": 2}, "replication: 3 is not in 1 .. 2 (brokers)"),
        ({"replication": 0}, "replication: 0 is not in 1 .. 30"),
        ({"racks": 31}, "racks: 31 for 30 brokers leave one empty"),
        ({"offline_share": 1.1}, "offline_share: 1.1 is not in 0 .. 1"),
        ({"topics": 10**6, "partitions_per_topic": 10**6}, "topics: more than 2,147,483,647 replicas"),
        ({"listeners": ()}, "listeners: none"),
        ({"listeners": (("A", SecurityProtocol.SSL),) * 2}, "listeners: none, or one name twice"),
        ({"first_port": 65_530}, "first_port: ports 65530 .. 65559 are not in"),
        ({"address": ("h", 0)}, "first_port: ports 0 .. 0 are not in"),
        ({"topic_prefix": "a b"}, "topic_prefix: the topic name has a character"),
        ({"topic_prefix": "x" * 244}, "topic_prefix: the topic name has 250 bytes"),
    ],
)
def test_what_cannot_be_generated(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(reason)):
        GeneratorConfig(**settings)
