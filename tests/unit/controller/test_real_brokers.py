"""Deletion, reassignment and elections through the channel, with embedded brokers and a real ZooKeeper."""

from __future__ import annotations

import json

from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.handlers import elections, reassignment
from ctrlchan.controller.handlers.elections import ElectionType
from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.errors import ErrorCode
from ctrlchan.zookeeper import paths
from tests.kafka.waiting import wait_until
from tests.unit.controller.real_cluster import TIMEOUT, RealCluster


def wait_gone(cluster: RealCluster, topic: str) -> None:
    node_paths = (paths.topic(topic), paths.topic_config(topic), paths.deleted_topic(topic))
    wait_until(
        lambda: not any(map(cluster.znodes.exists, node_paths)), timeout=TIMEOUT, what=f"{topic} is deleted"
    )


def wait_metadata(cluster: RealCluster, topic: str, partitions: set[int]) -> None:
    """Wait until every broker's metadata has these partitions of the topic, and no others."""
    wait_until(
        lambda: all(set(cluster.seen(one, topic)) == partitions for one in cluster.brokers),
        timeout=TIMEOUT,
        what=f"all brokers know partitions {partitions} of {topic}",
    )


def join_isr(cluster: RealCluster, topic: str, isr: list[int]) -> None:
    """Let the leader of partition 0 report this ISR as brokers below IBP 2.7-IV2 do."""
    path = paths.partition_state(topic, 0)
    node = json.loads(cluster.znodes.get(path)[0])
    cluster.znodes.set(path, json.dumps(node | {"isr": isr}).encode())
    change = {"version": 1, "partitions": [{"topic": topic, "partition": 0}]}
    cluster.znodes.create(
        f"{paths.ISR_CHANGE_NOTIFICATIONS}/isr_change_", json.dumps(change).encode(), sequence=True
    )


def alter(controller: KafkaController, topic: str, replicas: list[int]) -> None:
    answers = controller.loop.call(
        ControllerState.ALTER_PARTITION_REASSIGNMENT,
        lambda core: reassignment.alter(core, {(topic, 0): replicas}),
    ).result(TIMEOUT)
    assert answers == {(topic, 0): (ErrorCode.NONE, None)}


def test_topics_are_deleted(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2, 3)
    names = [f"t{number}" for number in range(20)]
    for name in names:
        cluster.create_topic(name, {0: [1, 2, 3], 1: [2, 3, 1]})
    cluster.create_topic("kept", {0: [1, 2]})
    cluster.active_controller()
    wait_metadata(cluster, "t19", {0, 1})
    for name in names:
        cluster.delete_topic(name)
    for name in names:
        wait_gone(cluster, name)
        wait_metadata(cluster, name, set())
        assert not any(cluster.hosted(broker, name) for broker in cluster.brokers)
    wait_metadata(cluster, "kept", {0})


def test_a_deletion_waits_for_a_dead_broker_over_a_failover(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2, 3)
    cluster.create_topic("t", {0: [1, 2, 3]})
    first = cluster.active_controller()
    wait_metadata(cluster, "t", {0})
    cluster.kill_brokers(3)
    cluster.delete_topic("t")
    wait_metadata(cluster, "t", set())
    first.close()
    cluster.active_controller(1001)
    assert cluster.znodes.exists(paths.topic("t")) is not None
    cluster.start_brokers(3)
    wait_gone(cluster, "t")


def test_a_reassignment_moves_a_partition(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2, 3, 4)
    cluster.create_topic("t", {0: [1, 2]})
    controller = cluster.active_controller()
    cluster.wait_state("t", 0, leader=1, isr=[1, 2])
    alter(controller, "t", [3, 4])
    join_isr(cluster, "t", [1, 2, 3, 4])
    cluster.wait_state("t", 0, leader=3, isr=[3, 4])
    wait_until(
        lambda: not any(cluster.hosted(one, "t") for one in (1, 2)),
        timeout=TIMEOUT,
        what="the old replicas are deleted",
    )
    wait_until(
        lambda: all(cluster.hosted(one, "t") for one in (3, 4)),
        timeout=TIMEOUT,
        what="the new replicas are there",
    )
    wait_until(
        lambda: all(
            [seen.replicas for seen in cluster.seen(one, "t").values()] == [[3, 4]] for one in cluster.brokers
        ),
        timeout=TIMEOUT,
        what="all brokers know the new replicas",
    )


def test_a_reassignment_goes_on_with_another_controller(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2, 3)
    cluster.create_topic("t", {0: [1, 2]})
    first = cluster.active_controller()
    cluster.wait_state("t", 0, leader=1)
    alter(first, "t", [3, 2])
    first.close()
    cluster.active_controller(1001)
    join_isr(cluster, "t", [1, 2, 3])
    cluster.wait_state("t", 0, leader=3, isr=[2, 3])
    node = json.loads(cluster.znodes.get(paths.topic("t"))[0])
    wait_until(
        lambda: json.loads(cluster.znodes.get(paths.topic("t"))[0])["partitions"]["0"] == [3, 2],
        timeout=TIMEOUT,
        what=f"the topic's node has the targets (it was {node})",
    )


def test_a_preferred_leader_comes_back(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2)
    cluster.create_topic("t", {0: [1, 2]})
    # On a busy machine the controller's own check, five seconds after its election, could come first.
    controller = cluster.active_controller(auto_leader_rebalance=False)
    cluster.wait_state("t", 0, leader=1, isr=[1, 2])
    cluster.kill_brokers(1)
    cluster.wait_state("t", 0, leader=2, isr=[2])
    cluster.start_brokers(1)
    wait_until(lambda: 1 in cluster.live_brokers(2), timeout=TIMEOUT, what="the controller knows broker 1")
    join_isr(cluster, "t", [2, 1])
    wait_until(
        lambda: [one.isr for one in cluster.seen(2, "t").values()] == [[2, 1]],
        timeout=TIMEOUT,
        what="the controller has read the ISR",
    )
    answers = controller.loop.call(
        ControllerState.MANUAL_LEADER_BALANCE,
        lambda core: elections.elect_leaders(core, None, ElectionType.PREFERRED),
    ).result(TIMEOUT)
    assert answers == {("t", 0): (ErrorCode.NONE, None)}
    cluster.wait_state("t", 0, leader=1)
