"""kafka-topics and kafka-configs on a cluster that ctrlchan controls."""

from __future__ import annotations

import re

import pytest

from tests.acceptance.clients import consume, produce
from tests.acceptance.controller import nodes
from tests.acceptance.controller.agreement import wait_until_agreed, wait_until_in_sync
from tests.acceptance.controller.cluster import ControlledCluster
from tests.acceptance.controller.tools import KafkaTools
from tests.kafka.waiting import wait_until


def described(tools: KafkaTools, *arguments: str) -> list[dict[str, str]]:
    """Return the lines of kafka-topics --describe as fields."""
    run = tools.topics("--describe", *arguments)
    assert run.status == 0, run
    return [
        {key.strip(): value.strip() for key, _, value in (field.partition(":") for field in line.split("\t"))}
        for line in run.output.splitlines()
    ]


def test_a_topic_is_created_described_expanded_and_deleted(
    cluster: ControlledCluster, tools: KafkaTools
) -> None:
    rig, topic = cluster.rig, "by-the-tool"
    named = ("--topic", topic)
    size = ("--partitions", "3", "--replication-factor", "2")
    run = tools.topics("--create", *named, *size, "--config", "retention.ms=3600000")
    assert (run.status, run.output) == (0, f"Created topic {topic}.\n"), run
    wait_until_in_sync(rig, [topic])
    head, *partitions = described(tools, *named)
    assert (head["PartitionCount"], head["ReplicationFactor"]) == ("3", "2")
    assert "retention.ms=3600000" in head["Configs"]
    assert [line["Partition"] for line in partitions] == ["0", "1", "2"]
    # The controller is listed among the brokers and must not be given replicas.
    replicas = {int(broker) for line in partitions for broker in line["Replicas"].split(",")}
    assert replicas <= set(rig.broker_ids)
    wait_until_in_sync(rig, [topic])
    produce(rig.bootstrap, topic, [b"first"], partition=2)
    assert consume(rig.bootstrap, topic, 2, 1) == [b"first"]

    again = tools.topics("--create", *named, *size)
    assert again.status == 1
    assert f"Topic '{topic}' already exists" in again.output + again.errors
    assert tools.topics("--create", "--if-not-exists", *named, *size).status == 0

    assert tools.topics("--alter", *named, "--partitions", "5").status == 0
    wait_until_in_sync(rig, [topic])
    assert described(tools, *named)[0]["PartitionCount"] == "5"
    produce(rig.bootstrap, topic, [b"to a new one"], partition=4)
    fewer = tools.topics("--alter", *named, "--partitions", "2")
    assert fewer.status == 1
    assert "InvalidPartitionsException" in fewer.output + fewer.errors

    assert topic in tools.topics("--list").output.split()
    assert tools.topics("--delete", *named).status == 0
    cluster.wait_until_gone(topic)
    assert topic not in tools.topics("--list").output.split()
    unknown = tools.topics("--delete", *named)
    assert unknown.status == 1
    assert "does not exist" in unknown.output + unknown.errors


def test_topics_with_given_and_with_default_replicas(cluster: ControlledCluster, tools: KafkaTools) -> None:
    given, default = "given-replicas", "default-replicas"
    assert tools.topics("--create", "--topic", given, "--replica-assignment", "3:1,2:3").status == 0
    assert tools.topics("--create", "--topic", default).status == 0
    wait_until_in_sync(cluster.rig, [given, default])
    found = nodes.partition_nodes(cluster.rig.zookeeper, {given, default})
    assert {key: node.replicas for key, node in found.items() if key[0] == given} == {
        (given, 0): (3, 1),
        (given, 1): (2, 3),
    }
    # The defaults of the controller's settings.
    assert len(found[default, 0].replicas) == 3
    cluster.delete_topic(given)
    cluster.delete_topic(default)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--partitions", "1", "--replication-factor", "4"), "InvalidReplicationFactorException"),
        (("--replica-assignment", "1:1000"), "InvalidReplicaAssignmentException"),
        (("--partitions", "1", "--config", "retention.ms=soon"), "Invalid"),
        (("--partitions", "1", "--config", "no.such.key=1"), "no.such.key"),
    ],
)
def test_bad_topics_are_refused(
    cluster: ControlledCluster, tools: KafkaTools, arguments: tuple[str, ...], message: str
) -> None:
    run = tools.topics("--create", "--topic", "bad-topic", *arguments)
    assert run.status == 1
    assert message in run.output + run.errors, run
    assert "bad-topic" not in nodes.topic_names(cluster.rig.zookeeper)


def test_configs_of_topics_and_brokers(cluster: ControlledCluster, tools: KafkaTools) -> None:
    topic = "configured"
    cluster.create_topic(topic, [[1, 2, 3]])
    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    # Any node may be asked for these, the controller too.
    for _ in range(6):
        run = tools.configs("--alter", *of_topic, "--add-config", "retention.ms=7200000")
        assert (run.status, run.errors) == (0, ""), run
        run = tools.configs("--describe", *of_topic)
        assert run.status == 0, run
        assert "retention.ms=7200000" in run.output
    assert tools.configs("--alter", *of_topic, "--delete-config", "retention.ms").status == 0
    assert "retention.ms" not in tools.configs("--describe", *of_topic).output
    run = tools.configs("--alter", *of_topic, "--add-config", "retention.ms=soon")
    assert run.status == 1

    of_broker = ("--entity-type", "brokers", "--entity-name", "2")
    run = tools.configs("--alter", *of_broker, "--add-config", "log.cleaner.threads=2")
    assert run.status == 0, run
    wait_until(
        lambda: "log.cleaner.threads=2" in tools.configs("--describe", *of_broker).output,
        what="broker 2 has the new value",
    )
    run = tools.configs("--alter", *of_broker, "--delete-config", "log.cleaner.threads")
    assert run.status == 0, run
    cluster.delete_topic(topic)


def test_partitions_without_leader_or_in_sync_replicas_are_described(
    cluster: ControlledCluster, tools: KafkaTools
) -> None:
    rig, topic = cluster.rig, "described"
    cluster.create_topic(topic, [[1], [2, 1], [3, 2]])
    rig.kill_broker(1)
    wait_until(
        lambda: nodes.partition_nodes(rig.zookeeper, {topic})[topic, 0].leader == -1,
        what="partition 0 has no leader",
    )
    wait_until_agreed(rig, [topic])
    assert _partitions(tools, topic, "--under-replicated-partitions") == {"1"}
    assert _partitions(tools, topic, "--unavailable-partitions") == {"0"}
    rig.restart_broker(1)
    wait_until_in_sync(rig)
    assert _partitions(tools, topic, "--under-replicated-partitions") == set()
    cluster.delete_topic(topic)


def _partitions(tools: KafkaTools, topic: str, *arguments: str) -> set[str]:
    # The tool asks any broker, and one may be a little behind.
    run = tools.topics("--describe", "--topic", topic, *arguments)
    assert run.status == 0, run
    return set(re.findall(r"Partition: (\d+)", run.output))
