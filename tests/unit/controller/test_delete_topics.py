"""Deletion of topics with all events of the controller, on a real ZooKeeper.

Twins of ``DeleteTopicTest``, of those cases of ``AddPartitionsTest`` that concern the controller, and of
``LeaderElectionTest``. Brokers are registrations; their requests are recorded and answered here.
"""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from ctrlchan.controller.events.notifications import NotificationKind
from ctrlchan.controller.handlers import reassignment
from ctrlchan.controller.machines.states import ReplicaState
from ctrlchan.errors import ErrorCode
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.nodes import encode_topic
from tests.unit.controller.manual_controller import (
    ManualController,
    create_topic,
    read_json,
    register_brokers,
)

TOPIC_ID = b"\1" * 16


@pytest.fixture
def cluster(znodes: KazooClient) -> KazooClient:
    """Four brokers; topic "test" with one partition on 1, 2 and 3."""
    register_brokers(znodes, 1, 2, 3, 4)
    create_topic(znodes, "test", {0: [1, 2, 3]}, topic_id=TOPIC_ID)
    return znodes


def request(znodes: KazooClient, topic: str = "test") -> None:
    znodes.create(paths.deleted_topic(topic), makepath=True)


def delete(controller: ManualController, znodes: KazooClient, topic: str = "test") -> None:
    """Request a deletion, and process the event."""
    request(znodes, topic)
    controller.run_until(lambda: controller.deletion.is_queued(topic), "the topic is queued")


def is_gone(znodes: KazooClient, topic: str = "test") -> bool:
    node_paths = (paths.topic(topic), paths.topic_config(topic), paths.deleted_topic(topic))
    return not any(map(znodes.exists, node_paths))


def set_partitions(znodes: KazooClient, assignment: dict[int, list[int]], topic: str = "test") -> None:
    znodes.set(paths.topic(topic), encode_topic(TOPIC_ID, assignment))


def test_all_replicas_are_alive(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        delete(controller, cluster)
        controller.answer()
        assert is_gone(cluster)
        controller.run_until(
            lambda: NotificationKind.TOPIC_DELETED in [one.kind for one in controller.notifications],
            "listeners hear of the deletion",
        )


def test_the_deletion_goes_on_with_a_recovered_follower(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        controller.stop_broker(cluster, 3)
        delete(controller, cluster)
        controller.answer()
        assert controller.replicas_in(ReplicaState.DELETION_SUCCESSFUL) == {("test", 0, 1), ("test", 0, 2)}
        assert not is_gone(cluster)
        controller.start_broker(cluster, 3)
        controller.answer()
        assert is_gone(cluster)


def test_the_deletion_goes_on_with_a_new_controller(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        controller.stop_broker(cluster, 3)
        delete(controller, cluster)
        controller.answer()
        controller.fail_over()
        controller.answer()
        assert not is_gone(cluster)
        controller.start_broker(cluster, 3)
        controller.answer()
        assert is_gone(cluster)


def test_a_broker_restarts_during_the_deletion(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        delete(controller, cluster)
        controller.stop_broker(cluster, 2)
        assert controller.context.topics_ineligible == {"test"}
        controller.start_broker(cluster, 2)
        controller.answer()
        assert is_gone(cluster)


def test_no_reassignment_during_the_deletion(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        controller.stop_broker(cluster, 3)
        delete(controller, cluster)
        answers = reassignment.alter(controller.core, {("test", 0): [1, 2, 4]})
        assert answers["test", 0][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        controller.start_broker(cluster, 3)
        controller.answer()
        assert is_gone(cluster)


def test_partitions_added_during_the_deletion_are_taken_out_again(
    cluster: KazooClient, zookeeper: str
) -> None:
    with ManualController(zookeeper) as controller:
        controller.stop_broker(cluster, 3)
        delete(controller, cluster)
        controller.answer()
        set_partitions(cluster, {0: [1, 2, 3], 1: [1, 2, 3]})
        controller.run_until(
            lambda: list(read_json(cluster, paths.topic("test"))["partitions"]) == ["0"],
            "the partition is taken out",
        )
        controller.start_broker(cluster, 3)
        controller.answer()
        assert is_gone(cluster)


def test_partitions_added_before_a_failover_are_deleted_too(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        controller.stop_broker(cluster, 3)
        delete(controller, cluster)
        set_partitions(cluster, {0: [1, 2, 3], 1: [1, 2, 3]})
        controller.fail_over()
        controller.start_broker(cluster, 3)
        controller.answer()
        assert is_gone(cluster)


def test_a_deletion_during_the_adding_of_partitions(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        controller.stop_broker(cluster, 3)
        set_partitions(cluster, {number: [1, 2, 3] for number in range(3)})
        request(cluster)
        controller.run_until(lambda: controller.deletion.is_queued("test"), "the topic is queued")
        controller.start_broker(cluster, 3)
        controller.answer()
        assert is_gone(cluster)
        assert len(controller.context.replicas) == 0


def test_a_topic_is_created_again_after_its_deletion(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        delete(controller, cluster)
        controller.answer()
        assert is_gone(cluster)
        data = encode_topic(b"\2" * 16, {0: [1, 2, 3]})
        cluster.create(paths.topic("test"), data)
        controller.run_until(lambda: controller.context.has_topic("test"), "the topic is there again")
        assert read_json(cluster, paths.partition_state("test", 0))["leader"] == 1
        assert controller.state.topics.ids[controller.state.topic_row("test")].tobytes() == b"\2" * 16
        delete(controller, cluster)
        controller.answer()
        assert is_gone(cluster)


def test_a_topic_that_does_not_exist(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        request(cluster, "test2")
        controller.run_until(lambda: is_gone(cluster, "test2"), "the request is removed")
        assert controller.context.has_topic("test")
        assert cluster.exists(paths.topic("test")) is not None


def test_deletion_is_disabled(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper, delete_topics=False) as controller:
        request(cluster)
        controller.run_until(
            lambda: cluster.exists(paths.deleted_topic("test")) is None, "the request is removed"
        )
        controller.answer()
        assert cluster.exists(paths.topic("test")) is not None
        assert read_json(cluster, paths.partition_state("test", 0))["leader"] == 1


def test_a_topic_that_a_former_controller_has_deleted_in_part(znodes: KazooClient, zookeeper: str) -> None:
    create_topic(znodes, "test", {0: [1, 2, 3], 1: [1, 2, 3]})
    znodes.delete(paths.partition("test", 0), recursive=True)
    request(znodes)
    with ManualController(zookeeper) as controller:
        # All brokers start after the controller.
        for broker_id in (1, 2, 3):
            controller.start_broker(znodes, broker_id)
        controller.answer()
        assert is_gone(znodes)


# -- AddPartitionsTest


def test_partitions_are_added(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        controller.forget_requests()
        set_partitions(cluster, {0: [1, 2, 3], 1: [2, 3, 4], 2: [3, 4, 1]})
        controller.run_until(
            lambda: cluster.exists(paths.partition_state("test", 2)), "the new partitions have states"
        )
        for number, leader in ((1, 2), (2, 3)):
            node = read_json(cluster, paths.partition_state("test", number))
            assert (node["leader"], node["leader_epoch"]) == (leader, 0)
        assert controller.started(is_new=True) == {
            ("test", number, broker)
            for number, replicas in ((1, (2, 3, 4)), (2, (3, 4, 1)))
            for broker in replicas
        }
        assert controller.last_metadata(("test", 2)) is not None


def test_a_partition_without_live_replicas_waits_for_one(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        controller.stop_broker(cluster, 4)
        set_partitions(cluster, {0: [1, 2, 3], 1: [4]})
        controller.run_until(lambda: len(controller.state.partitions) == 2, "the partition is known")
        assert cluster.exists(paths.partition_state("test", 1)) is None
        controller.start_broker(cluster, 4)
        assert read_json(cluster, paths.partition_state("test", 1))["leader"] == 4


# -- LeaderElectionTest


def test_leaders_and_epochs_as_brokers_come_and_go(znodes: KazooClient, zookeeper: str) -> None:
    register_brokers(znodes, 0, 1)
    with ManualController(zookeeper, unclean_leader_election=True) as controller:
        znodes.create(paths.topic("t"), encode_topic(TOPIC_ID, {0: [1, 0]}), makepath=True)
        controller.run_until(lambda: znodes.exists(paths.partition_state("t", 0)), "there is a leader")

        def leader() -> tuple[int, int]:
            node = read_json(znodes, paths.partition_state("t", 0))
            return node["leader"], node["leader_epoch"]

        assert leader() == (1, 0)
        controller.stop_broker(znodes, 1)
        assert leader()[0] == 0
        epoch = leader()[1]
        controller.start_broker(znodes, 1)
        assert leader() == (0, epoch)
        controller.stop_broker(znodes, 0)
        assert leader()[0] == 1
        assert leader()[1] > epoch
