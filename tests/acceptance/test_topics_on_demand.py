"""Topics that Metadata create (``auto.create.topics.enable``): the answers are the same bytes as Kafka's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.acceptance.same_answers.both import Both, both_brokers
from tests.acceptance.same_answers.recorder import Broker
from tests.acceptance.same_answers.topics import create_topic, topic_id

pytestmark = pytest.mark.long

CONFIGS: Final = {
    "auto.create.topics.enable": "true",
    "num.partitions": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.segment.bytes": "2000000",
    "log.index.size.max.bytes": "1048576",
}
#: More replicas than there are brokers.
TOO_MANY: Final = CONFIGS | {"default.replication.factor": "2", "offsets.topic.replication.factor": "3"}


@pytest.fixture(scope="module")
def both(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with both_brokers(tmp_path_factory.mktemp("on-demand"), CONFIGS) as found:
        yield found


def ask(broker: Broker, version: int, *names: str, **fields: Any) -> None:
    topics = [{"Name": name} for name in names]
    broker.ask("Metadata", version, **{"Topics": topics, "AllowAutoTopicCreation": True} | fields)


def created(broker: Broker) -> None:
    """Topics that are created, that cannot be, and that are not to be."""
    create_topic(broker, "there.is_one")
    for version in broker.versions["Metadata"]:
        ask(broker, version, f"created-{version}")
        ask(broker, version, "there.is_one", f"also-{version}", "not a topic")
        # The name of another topic but for a dot and an underline.
        ask(broker, version, "there_is.one")
        ask(broker, version, "")
        if version >= 4:
            ask(broker, version, "unwanted", AllowAutoTopicCreation=False)
        if version >= 8:
            ask(broker, version, f"allowed-{version}", IncludeTopicAuthorizedOperations=True)
        if version >= 10:
            by_id = [
                {"Name": None, "TopicId": topic_id(broker, "there.is_one")},
                {"Name": f"by-id-{version}"},
            ]
            ask(broker, version, Topics=by_id)
            ask(broker, version, f"by-id-{version}", AllowAutoTopicCreation=False)


def created_internal(broker: Broker) -> None:
    """``__consumer_offsets`` has settings of its own."""
    ask(broker, 12, "__consumer_offsets")
    broker.wait(
        lambda answer: len(answer["Topics"][0]["Partitions"]) == 3,
        "Metadata",
        12,
        Topics=[{"Name": "__consumer_offsets"}],
        AllowAutoTopicCreation=False,
    )
    names = ["cleanup.policy", "compression.type", "segment.bytes"]
    resource = {"ResourceType": 2, "ResourceName": "__consumer_offsets", "ConfigurationKeys": names}
    broker.ask("DescribeConfigs", 4, Resources=[resource])


def refused(broker: Broker) -> None:
    """Topics with more replicas than there are brokers."""
    # The controller has seen the broker.
    create_topic(broker, "there")
    for version in broker.versions["Metadata"]:
        ask(broker, version, "too-many-replicas", "not a topic", "there")
        ask(broker, version, "__consumer_offsets")


def test_a_created_topic_has_no_leader_yet(both: Both) -> None:
    assert both.run(created) == []


def test_an_internal_topic_is_created_with_its_settings(both: Both) -> None:
    assert both.run(created_internal) == []


def test_why_a_topic_is_not_created(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> None:
    with both_brokers(tmp_path_factory.mktemp("refused"), TOO_MANY) as both:
        assert both.run(refused) == []
