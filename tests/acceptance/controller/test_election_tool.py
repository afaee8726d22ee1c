"""kafka-leader-election on a cluster that ctrlchan controls: twins of Kafka's LeaderElectionCommandTest."""

from __future__ import annotations

import re

from tests.acceptance.controller import nodes
from tests.acceptance.controller.agreement import wait_until_agreed, wait_until_in_sync
from tests.acceptance.controller.cluster import ControlledCluster
from tests.acceptance.controller.tools import KafkaTools
from tests.kafka.waiting import wait_until

PREFERRED = ("--election-type", "preferred")
UNCLEAN = ("--election-type", "unclean")


def test_preferred_leaders_are_elected(cluster: ControlledCluster, tools: KafkaTools) -> None:
    """Twins of testTopicPartition, testPathToJsonFile, testPreferredReplicaElection and others."""
    rig, topic = cluster.rig, "preferred"
    cluster.create_topic(topic, [[1, 2], [1, 3], [1, 2, 3], [2, 3]])
    # Another order changes the preferred leader and elects nobody.
    plan = {(topic, 0): [2, 1], (topic, 1): [3, 1], (topic, 2): [3, 2, 1]}
    assert tools.execute(plan).status == 0
    wait_until(
        lambda: all(
            list(node.replicas) == plan.get(key, [2, 3])
            for key, node in nodes.partition_nodes(rig.zookeeper, {topic}).items()
        ),
        what="the replicas are in their new order",
    )
    assert _leaders(cluster, topic) == [1, 1, 1, 2]

    run = tools.elect(*PREFERRED, "--topic", topic, "--partition", "0")
    assert run.status == 0, run
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in run.output
    assert _leaders(cluster, topic) == [2, 1, 1, 2]
    again = tools.elect(*PREFERRED, "--topic", topic, "--partition", "0")
    assert f"Valid replica already elected for partitions {topic}-0" in again.output, again
    file = tools.file({"partitions": [{"topic": topic, "partition": p} for p in (1, 3)]})
    run = tools.elect(*PREFERRED, "--path-to-json-file", file)
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-1" in run.output, run
    assert f"Valid replica already elected for partitions {topic}-3" in run.output, run
    run = tools.elect(*PREFERRED, "--all-topic-partitions")
    assert run.status == 0, run
    assert re.search(rf"leader election \(PREFERRED\) for partitions .*{topic}-2", run.output), run
    assert _leaders(cluster, topic) == [2, 3, 3, 2]
    wait_until_in_sync(rig, [topic])
    cluster.delete_topic(topic)


def test_an_unknown_topic_is_refused(cluster: ControlledCluster, tools: KafkaTools) -> None:
    """Twin of testTopicDoesNotExist."""
    run = tools.elect(*PREFERRED, "--topic", "nobody-made-it", "--partition", "0")
    assert run.status == 1
    assert "UnknownTopicOrPartitionException" in run.output + run.errors, run


def test_a_preferred_leader_that_is_dead_is_refused(cluster: ControlledCluster, tools: KafkaTools) -> None:
    """Twin of the dead preferred leader, and of unclean elections by request and by configuration."""
    rig = cluster.rig
    by_partition, by_file, by_config, by_default, by_all, dead = topics = [
        f"unclean-{name}" for name in ("partition", "file", "config", "default", "all", "dead")
    ]
    for topic in topics:
        cluster.create_topic(topic, [[2, 3]], {"min.insync.replicas": "1"})
    rig.kill_broker(3)
    _wait_for(cluster, topics, leader=2, isr={2})
    rig.kill_broker(2)
    _wait_for(cluster, topics, leader=-1, isr={2})
    rig.restart_broker(3)
    wait_until_agreed(rig, topics)
    _wait_for(cluster, topics, leader=-1, isr={2})

    run = tools.elect(*PREFERRED, "--topic", dead, "--partition", "0")
    assert run.status == 1, run
    assert "PreferredLeaderNotAvailableException" in run.output + run.errors, run

    run = tools.elect(*UNCLEAN, "--topic", by_partition, "--partition", "0")
    assert (
        f"Successfully completed leader election (UNCLEAN) for partitions {by_partition}-0" in run.output
    ), run
    _wait_for(cluster, [by_partition], leader=3, isr={3})
    file = tools.file({"partitions": [{"topic": by_file, "partition": 0}]})
    run = tools.elect(*UNCLEAN, "--path-to-json-file", file)
    assert f"Successfully completed leader election (UNCLEAN) for partitions {by_file}-0" in run.output, run
    # The controller elects when the configuration begins to allow it.
    enable = ("--add-config", "unclean.leader.election.enable=true")
    of_topic = ("--entity-type", "topics", "--entity-name", by_config)
    assert tools.configs("--alter", *of_topic, *enable).status == 0
    _wait_for(cluster, [by_file, by_config], leader=3, isr={3})
    _wait_for(cluster, [by_default, by_all, dead], leader=-1, isr={2})
    run = tools.elect(*UNCLEAN, "--all-topic-partitions")
    assert run.status == 0, run
    done = set(re.findall(r"unclean-\w+-0", run.output.partition("(UNCLEAN) for partitions")[2]))
    assert done >= {f"{topic}-0" for topic in (by_default, by_all, dead)}, run
    _wait_for(cluster, topics, leader=3, isr={3})
    rig.restart_broker(2)
    wait_until_in_sync(rig)
    for topic in topics:
        cluster.delete_topic(topic)


def _leaders(cluster: ControlledCluster, topic: str) -> list[int]:
    found = nodes.partition_nodes(cluster.rig.zookeeper, {topic})
    return [found[topic, partition].leader for partition in range(len(found))]


def _wait_for(cluster: ControlledCluster, topics: list[str], *, leader: int, isr: set[int]) -> None:
    wait_until(
        lambda: all(
            (node.leader, set(node.isr)) == (leader, isr)
            for node in nodes.partition_nodes(cluster.rig.zookeeper, set(topics)).values()
        ),
        what=f"{topics} have leader {leader} and ISR {isr}",
    )
