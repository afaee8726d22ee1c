"""Deletions, elections and reassignments across brokers and controllers that end, on real ZooKeeper."""

from __future__ import annotations

import json

import pytest

from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.zookeeper import nodes, paths
from tests.kafka.waiting import wait_until
from tests.unit.controller.real_cluster import RealCluster

THREE = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}


@pytest.fixture
def active(cluster: RealCluster) -> KafkaController:
    """An active controller with three brokers and the topic ``t``."""
    cluster.start_brokers(1, 2, 3)
    controller = cluster.active_controller()
    cluster.create_topic("t", THREE)
    cluster.wait_seen("t", {0: 1, 1: 2, 2: 3})
    return controller


def wait_deleted(cluster: RealCluster, topic: str) -> None:
    for path in (paths.topic(topic), paths.topic_config(topic), paths.deleted_topic(topic)):
        wait_until(lambda path=path: cluster.znodes.exists(path) is None, what=f"{path} is deleted")  # type: ignore[misc]
    for broker_id in cluster.brokers:
        cluster.wait_on(broker_id, lambda broker_id: cluster.seen(broker_id, topic) == {})
        cluster.wait_on(broker_id, lambda broker_id: cluster.hosted(broker_id, topic) == {})


def reassign(cluster: RealCluster, topic: str, target: dict[int, list[int]]) -> None:
    entries = [{"topic": topic, "partition": one, "replicas": brokers} for one, brokers in target.items()]
    data = json.dumps({"version": 1, "partitions": entries}).encode()
    cluster.znodes.create(paths.REASSIGN_PARTITIONS, data, makepath=True)


def assignment(cluster: RealCluster, topic: str) -> dict[int, list[int]]:
    parsed = nodes.parse_topic(cluster.znodes.get(paths.topic(topic))[0])
    return {one.partition: one.replicas for one in parsed.assignments}


def test_a_topic_is_deleted(cluster: RealCluster, active: KafkaController) -> None:
    cluster.create_topic("stays", {0: [1, 2]})
    cluster.delete_topic("t")
    wait_deleted(cluster, "t")
    cluster.wait_seen("stays", {0: 1})
    assert active.epoch == 1


def test_a_deleted_topic_can_be_created_again(cluster: RealCluster, active: KafkaController) -> None:
    for _ in range(3):
        cluster.delete_topic("t")
        wait_deleted(cluster, "t")
        cluster.create_topic("t", THREE)
        cluster.wait_seen("t", {0: 1, 1: 2, 2: 3})
        for broker_id in (1, 2, 3):
            cluster.wait_hosted(broker_id, "t", {0: 1, 1: 2, 2: 3})


def test_a_deletion_waits_for_a_dead_broker(cluster: RealCluster, active: KafkaController) -> None:
    cluster.kill_brokers(3)
    cluster.wait_state("t", 2, leader=1)
    cluster.delete_topic("t")
    core = active.current()
    assert core is not None
    wait_until(lambda: "t" in core.context.topics_ineligible, what="the deletion is halted")
    assert cluster.znodes.exists(paths.topic("t")) is not None
    cluster.start_brokers(3)
    wait_deleted(cluster, "t")


def test_a_deletion_goes_on_under_the_next_controller(cluster: RealCluster, active: KafkaController) -> None:
    cluster.kill_brokers(3)
    cluster.wait_state("t", 2, leader=1)
    cluster.delete_topic("t")
    core = active.current()
    assert core is not None
    wait_until(lambda: "t" in core.context.topics_ineligible, what="the deletion is halted")
    second = cluster.controller(1001)
    active.close()
    second.wait_until_active(30)
    cluster.start_brokers(3)
    wait_deleted(cluster, "t")


def test_partitions_added_to_a_dying_topic_are_taken_out_again(
    cluster: RealCluster, active: KafkaController
) -> None:
    cluster.kill_brokers(3)
    cluster.wait_state("t", 2, leader=1)
    cluster.delete_topic("t")
    core = active.current()
    assert core is not None
    wait_until(lambda: "t" in core.context.topics_ineligible, what="the deletion is halted")
    cluster.set_assignment("t", THREE | {3: [1, 2]})
    wait_until(lambda: assignment(cluster, "t") == THREE, what="partition 3 is taken out")
    assert cluster.state_node("t", 3) is None
    cluster.start_brokers(3)
    wait_deleted(cluster, "t")


def test_a_request_to_delete_an_unknown_topic_is_removed(
    cluster: RealCluster, active: KafkaController
) -> None:
    cluster.delete_topic("unknown")
    path = paths.deleted_topic("unknown")
    wait_until(lambda: cluster.znodes.exists(path) is None, what="the request is removed")
    assert active.epoch == 1


def test_deletion_can_be_disabled(cluster: RealCluster) -> None:
    cluster.start_brokers(1)
    cluster.active_controller(delete_topics=False)
    cluster.create_topic("t", {0: [1]})
    cluster.wait_seen("t", {0: 1})
    cluster.delete_topic("t")
    wait_until(lambda: cluster.znodes.exists(paths.deleted_topic("t")) is None, what="the request is removed")
    assert cluster.znodes.exists(paths.topic("t")) is not None


def test_a_deletion_that_was_requested_without_a_controller(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2, 3)
    cluster.create_topic("t", THREE)
    first = cluster.active_controller(1000)
    cluster.wait_seen("t", {0: 1, 1: 2, 2: 3})
    first.close()
    cluster.delete_topic("t")
    cluster.active_controller(1001)
    wait_deleted(cluster, "t")


def test_preferred_leaders_are_elected_by_the_node(cluster: RealCluster, active: KafkaController) -> None:
    cluster.kill_brokers(1)
    cluster.wait_state("t", 0, leader=2)
    cluster.start_brokers(1)
    node = cluster.wait_state("t", 0, leader=2)
    # The leader would report the replica; embedded brokers do not replicate.
    state = nodes.PartitionState(2, node.leader_epoch, 1, [2, 3, 1])
    cluster.znodes.set(paths.partition_state("t", 0), nodes.encode_partition_state(state))
    data = json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0}]}).encode()
    cluster.znodes.create(paths.PREFERRED_REPLICA_ELECTION, data, makepath=True)
    assert cluster.wait_state("t", 0, leader=1).isr == [2, 3, 1]
    wait_until(
        lambda: cluster.znodes.exists(paths.PREFERRED_REPLICA_ELECTION) is None, what="the node is deleted"
    )
    cluster.wait_seen("t", {0: 1, 1: 2, 2: 3})


def test_a_reassignment_by_the_node_within_the_isr(cluster: RealCluster, active: KafkaController) -> None:
    reassign(cluster, "t", {0: [3, 2], 1: [2, 3]})
    wait_until(
        lambda: assignment(cluster, "t") == {0: [3, 2], 1: [2, 3], 2: [3, 1, 2]}, what="both are reassigned"
    )
    assert cluster.wait_state("t", 0, leader=3).isr in ([2, 3], [3, 2])
    wait_until(lambda: cluster.znodes.exists(paths.REASSIGN_PARTITIONS) is None, what="the node is deleted")
    cluster.wait_seen("t", {0: 3, 1: 2, 2: 3})
    cluster.wait_on(1, lambda broker_id: set(cluster.hosted(broker_id, "t")) == {2})


def test_a_reassignment_goes_on_under_the_next_controller(
    cluster: RealCluster, active: KafkaController
) -> None:
    cluster.start_brokers(4)
    reassign(cluster, "t", {0: [4, 2]})
    wait_until(lambda: assignment(cluster, "t")[0] == [4, 2, 1, 3], what="the reassignment begins")
    cluster.wait_on(4, lambda broker_id: 0 in cluster.hosted(broker_id, "t"))
    second = cluster.controller(1001)
    active.close()
    second.wait_until_active(30)
    node = cluster.state_node("t", 0)
    assert node is not None
    # The new replica has caught up.
    state = nodes.PartitionState(node.leader, node.leader_epoch, node.controller_epoch, [1, 2, 3, 4])
    cluster.znodes.set(paths.partition_state("t", 0), nodes.encode_partition_state(state))
    # With AlterPartition the controller learns of it at the next failover, or when a broker comes.
    cluster.start_brokers(5)
    cluster.kill_brokers(5)
    second.resign()
    wait_until(lambda: assignment(cluster, "t")[0] == [4, 2], what="the reassignment ends")
    cluster.wait_state("t", 0, leader=4)
    cluster.wait_on(1, lambda broker_id: 0 not in cluster.hosted(broker_id, "t"))


def test_unclean_leaders_are_elected_where_the_topic_allows_it(
    cluster: RealCluster, active: KafkaController
) -> None:
    cluster.create_topic("u", {0: [1, 2]})
    cluster.wait_seen("u", {0: 1})
    cluster.kill_brokers(2)
    cluster.wait_state("u", 0, isr=[1])
    cluster.kill_brokers(1)
    cluster.wait_state("u", 0, leader=-1)
    cluster.start_brokers(2)
    cluster.wait_on(2, lambda broker_id: 0 in cluster.seen(broker_id, "u"))
    assert cluster.wait_state("u", 0, leader=-1).isr == [1]
    config = json.dumps({"version": 1, "config": {"unclean.leader.election.enable": "true"}}).encode()
    cluster.znodes.set(paths.topic_config("u"), config)
    change = json.dumps({"version": 2, "entity_path": "topics/u"}).encode()
    cluster.znodes.create(paths.config_change(), change, sequence=True, makepath=True)
    assert cluster.wait_state("u", 0, leader=2).isr == [2]
