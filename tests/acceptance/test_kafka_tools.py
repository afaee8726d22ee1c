"""Kafka's own command-line tools against an embedded broker."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctrlchan import ChannelConfig, ClusterState, ControllerBrokerRequestBatch, ControllerChannelManager
from ctrlchan.launch.embedded import EmbeddedBroker
from tests.acceptance.zk_controller import refused
from tests.kafka.jars import SHORT_LIVED, java_command

TOPIC = "a-topic"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
TIMEOUT = 120.0  # s, for a JVM on a busy machine


@pytest.fixture(scope="module")
def broker(kafka_jars_ready: None) -> Iterator[EmbeddedBroker]:
    """A broker that leads the two partitions of a topic."""
    with EmbeddedBroker(1) as broker:
        state = ClusterState.empty(cluster_id="tools")
        state.controller_id = 1
        state.add_brokers([broker.broker])
        state.add_topic(TOPIC, {0: [1], 1: [1]}, leader=[1, 1], leader_epoch=0, isr=[[1], [1]])
        with ControllerChannelManager(ChannelConfig(controller_id=1), controller_epoch=1) as channel:
            channel.startup(state.brokers)
            batch = ControllerBrokerRequestBatch(channel, state)
            batch.new_batch()
            batch.add_update_metadata([1], rows="all")
            batch.add_leader_and_isr([1], 0)
            batch.add_leader_and_isr([1], 1)
            outcomes = channel.wait(batch.send_requests_to_brokers(1), timeout=60)
        assert refused(outcomes) == []
        yield broker


@pytest.fixture(scope="module")
def log4j(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the tools log, from WARN on, goes to standard error: the configuration of Kafka's own scripts."""
    path = tmp_path_factory.mktemp("tools") / "log4j.properties"
    path.write_text(
        "log4j.rootLogger=WARN, stderr\n"
        "log4j.appender.stderr=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.stderr.Target=System.err\n"
        "log4j.appender.stderr.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.stderr.layout.ConversionPattern=%p %m (%c)%n\n"
    )
    return path


def run(broker: EmbeddedBroker, log4j: Path, tool: str, *arguments: str, text: str = "") -> tuple[str, str]:
    """(standard output, standard error) of a tool, whatever its exit status."""
    command = java_command(
        tool,
        "--bootstrap-server",
        f"127.0.0.1:{broker.port}",
        *arguments,
        options=(*SHORT_LIVED, f"-Dlog4j.configuration=file:{log4j}"),
    )
    ran = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    return ran.stdout, ran.stderr


def test_kafka_topics_describes_a_topic(broker: EmbeddedBroker, log4j: Path) -> None:
    output, errors = run(broker, log4j, "org.apache.kafka.tools.TopicCommand", "--describe")
    lines = [line.split("\t") for line in output.splitlines()]
    assert lines[0][0] == f"Topic: {TOPIC}", errors
    assert "PartitionCount: 2" in lines[0]
    assert [line[2:5] for line in lines[1:]] == [
        ["Partition: 0", "Leader: 1", "Replicas: 1"],
        ["Partition: 1", "Leader: 1", "Replicas: 1"],
    ]


def test_the_console_producer_fails(broker: EmbeddedBroker, log4j: Path) -> None:
    output, errors = run(
        broker,
        log4j,
        "kafka.tools.ConsoleProducer",
        *("--topic", TOPIC, "--producer-property", "enable.idempotence=false"),
        text="a record\n",
    )
    assert "an embedded broker stores no records" in output + errors


def test_the_console_consumer_of_a_group_fails(broker: EmbeddedBroker, log4j: Path) -> None:
    output, errors = run(broker, log4j, CONSOLE_CONSUMER, "--topic", TOPIC)
    assert "The node does not support JOIN_GROUP" in output + errors


def test_the_console_consumer_of_a_partition_fails(broker: EmbeddedBroker, log4j: Path) -> None:
    output, errors = run(
        broker, log4j, CONSOLE_CONSUMER, "--topic", TOPIC, "--partition", "0", "--offset", "0"
    )
    assert "error code 35 while fetching" in output + errors
