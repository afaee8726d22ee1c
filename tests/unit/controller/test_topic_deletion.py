"""TopicDeletionManager on a real ZooKeeper. Twins of ``TopicDeletionManagerTest``, and what it leaves out."""

from __future__ import annotations

import logging

import pytest
from kazoo.client import KazooClient

from ctrlchan.channel import OutcomeKind
from ctrlchan.controller.machines.states import PartitionState, ReplicaState
from ctrlchan.errors import ErrorCode
from ctrlchan.protocol import LEADER_DURING_DELETE
from ctrlchan.zookeeper import paths
from tests.unit.controller.manual_controller import (
    CONTROLLER_ID,
    ManualController,
    create_topic,
    read_json,
    register_brokers,
)

LOGGER = "ctrlchan.controller.machines.topic_deletion"
GONE = ErrorCode.BROKER_NOT_AVAILABLE
BROKERS = (1, 2, 3)
ASSIGNMENT = {0: [1, 2, 3], 1: [2, 3, 1]}


def replicas(*topics: str, brokers: tuple[int, ...] = BROKERS) -> set[tuple[str, int, int]]:
    return {(topic, number, broker) for topic in topics for number in ASSIGNMENT for broker in brokers}


def partitions(*topics: str) -> set[tuple[str, int]]:
    return {(topic, number) for topic in topics for number in ASSIGNMENT}


@pytest.fixture
def cluster(znodes: KazooClient) -> KazooClient:
    """Three brokers and the topics foo, bar and baz."""
    register_brokers(znodes, *BROKERS)
    for topic in ("foo", "bar", "baz"):
        create_topic(znodes, topic, ASSIGNMENT)
    return znodes


def request(znodes: KazooClient, *topics: str) -> None:
    for topic in topics:
        znodes.create(paths.deleted_topic(topic), makepath=True)


def delete(controller: ManualController, znodes: KazooClient, *topics: str) -> None:
    """Request the deletion of topics and let the controller begin it."""
    request(znodes, *topics)
    controller.deletion.process_requests(controller.nodes.topic_deletions())


def acknowledge(controller: ManualController, *brokers: int, error: int = 0) -> None:
    """Let these brokers answer all their requests."""
    for broker in brokers:
        for one in list(controller.channel.sent):
            if one.broker_id == broker:
                one.answer(error)
    controller.run_waiting()


def complete(controller: ManualController, deleted: set[tuple[str, int, int]]) -> None:
    """Let brokers answer that they have deleted these replicas."""
    for broker in {broker for _, _, broker in deleted}:
        controller.deletion.stop_replica_response(
            broker, 0, {(topic, number): 0 for topic, number, one in deleted if one == broker}
        )


def fail(controller: ManualController, failed: set[tuple[str, int, int]]) -> None:
    """Let brokers answer that they could not delete these replicas."""
    for broker in {broker for _, _, broker in failed}:
        controller.deletion.stop_replica_response(
            broker, 0, {(topic, number): 56 for topic, number, one in failed if one == broker}
        )


def queued(controller: ManualController) -> set[str]:
    return set(controller.context.topics_to_delete)


def begun(controller: ManualController) -> set[str]:
    return set(controller.context.topics_with_deletion_started)


def halted(controller: ManualController) -> set[str]:
    return set(controller.context.topics_ineligible)


def in_topic(controller: ManualController, topic: str, state: ReplicaState) -> set[tuple[str, int, int]]:
    return {one for one in controller.replicas_in(state) if one[0] == topic}


# -- TopicDeletionManagerTest


def test_initialization(cluster: KazooClient, zookeeper: str) -> None:
    create_topic(cluster, "offline", {0: [1, 9]})
    request(cluster, "foo", "offline")
    with ManualController(zookeeper) as controller:
        assert queued(controller) == {"foo", "offline"}
        assert halted(controller) == {"offline"}


def test_basic_deletion(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        controller.forget_requests()
        delete(controller, cluster, "foo", "bar")
        assert controller.partitions_in(PartitionState.NON_EXISTENT) == partitions("foo", "bar")
        assert controller.replicas_in(ReplicaState.DELETION_STARTED) == replicas("foo", "bar")
        assert queued(controller) == begun(controller) == {"foo", "bar"}
        assert halted(controller) == set()
        announced = controller.last_metadata(("foo", 0))
        assert announced is not None
        assert announced["leader"] == LEADER_DURING_DELETE

        complete(controller, replicas("foo", "bar"))
        assert queued(controller) == begun(controller) == halted(controller) == set()
        assert not controller.context.has_topic("foo")
        assert {topic for topic, _, _ in controller.replicas_in(ReplicaState.ONLINE)} == {"baz"}
        assert len(controller.context.replicas) == len(replicas("baz"))
    for topic in ("foo", "bar"):
        assert cluster.exists(paths.topic(topic)) is None
        assert cluster.exists(paths.topic_config(topic)) is None
        assert cluster.exists(paths.deleted_topic(topic)) is None
    assert cluster.exists(paths.topic("baz")) is not None


def test_log_lines_name_the_controller_and_at_debug_each_replica(
    cluster: KazooClient, zookeeper: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)
    with ManualController(zookeeper) as controller:
        delete(controller, cluster, "foo")
        fail(controller, {("foo", 0, 2)})
        complete(controller, replicas("foo") - {("foo", 0, 2)})
    lines = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    prefix = f"[Topic Deletion Manager {CONTROLLER_ID}] "
    assert all(line.startswith(prefix) for line in lines)
    found = [line.removeprefix(prefix) for line in lines]
    assert found[:3] == [
        "deletion of topics is requested: foo",
        "deletion of topics begins: foo",
        "deletion of replicas begins: foo-0 on broker 1, foo-0 on broker 2, foo-0 on broker 3, "
        "foo-1 on broker 2, foo-1 on broker 3, foo-1 on broker 1",
    ]
    assert "broker 2 did not delete 1 replicas, the first is foo-0: error 56" in found
    assert "replicas cannot be deleted now: foo-0 on broker 2" in found
    assert "replicas are deleted: foo-0 on broker 3, foo-1 on broker 3" in found


def test_deletion_with_an_offline_broker(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        online, offline = replicas("foo", brokers=(1, 3)), replicas("foo", brokers=(2,))
        controller.set_live(1, 3)
        rows = controller.rows(("foo", 0), ("foo", 1))
        controller.core.replica_states.handle_state_changes(
            rows, rows.astype("int32") * 0 + 2, ReplicaState.OFFLINE
        )
        delete(controller, cluster, "foo")
        assert controller.partitions_in(PartitionState.NON_EXISTENT) == partitions("foo")
        assert in_topic(controller, "foo", ReplicaState.DELETION_STARTED) == online
        assert in_topic(controller, "foo", ReplicaState.DELETION_INELIGIBLE) == offline
        assert queued(controller) == begun(controller) == halted(controller) == {"foo"}

        complete(controller, online)
        assert queued(controller) == begun(controller) == halted(controller) == {"foo"}
        assert in_topic(controller, "foo", ReplicaState.DELETION_SUCCESSFUL) == online
        assert in_topic(controller, "foo", ReplicaState.OFFLINE) == offline
        assert cluster.exists(paths.deleted_topic("foo")) is not None

        controller.set_live(1, 2, 3)
        controller.deletion.resume_for(["foo"])
        assert in_topic(controller, "foo", ReplicaState.DELETION_SUCCESSFUL) == online
        assert in_topic(controller, "foo", ReplicaState.DELETION_STARTED) == offline

        complete(controller, offline)
        assert queued(controller) == begun(controller) == halted(controller) == set()
        assert not controller.context.has_topic("foo")


def test_a_broker_fails_after_the_deletion_has_begun(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        online, offline = replicas("foo", brokers=(1, 3)), replicas("foo", brokers=(2,))
        delete(controller, cluster, "foo")
        assert in_topic(controller, "foo", ReplicaState.DELETION_STARTED) == replicas("foo")

        controller.set_live(1, 3)
        fail(controller, offline)
        assert queued(controller) == begun(controller) == halted(controller) == {"foo"}
        assert in_topic(controller, "foo", ReplicaState.DELETION_INELIGIBLE) == offline
        assert in_topic(controller, "foo", ReplicaState.DELETION_STARTED) == online

        controller.set_live(1, 2, 3)
        controller.deletion.resume_for(["foo"])
        assert queued(controller) == begun(controller) == {"foo"}
        assert halted(controller) == set()
        # Others are still being deleted: the failed ones wait for them.
        assert in_topic(controller, "foo", ReplicaState.DELETION_INELIGIBLE) == offline
        assert in_topic(controller, "foo", ReplicaState.DELETION_STARTED) == online

        complete(controller, online)
        assert in_topic(controller, "foo", ReplicaState.DELETION_SUCCESSFUL) == online
        assert in_topic(controller, "foo", ReplicaState.DELETION_STARTED) == offline


# -- requests


def test_requests_go_out_in_kafkas_order(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        controller.forget_requests()
        delete(controller, cluster, "foo")
        assert controller.request_order() == ["UpdateMetadata", "StopReplica(stop)", "StopReplica(delete)"]
        assert controller.stopped(delete=False) == replicas("foo")
        assert controller.stopped(delete=True) == replicas("foo")


def test_responses_of_brokers_end_the_deletion(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        delete(controller, cluster, "foo")
        acknowledge(controller, 1, 2)
        assert cluster.exists(paths.topic("foo")) is not None
        acknowledge(controller, 3)
        assert cluster.exists(paths.topic("foo")) is None


def test_requests_for_unknown_topics_are_removed(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        delete(controller, cluster, "unknown")
        assert queued(controller) == set()
        assert cluster.exists(paths.deleted_topic("unknown")) is None
        assert controller.context.has_topic("foo")


def test_requests_for_unknown_topics_are_removed_at_failover(cluster: KazooClient, zookeeper: str) -> None:
    request(cluster, "unknown")
    with ManualController(zookeeper) as controller:
        assert queued(controller) == set()
        assert cluster.exists(paths.deleted_topic("unknown")) is None


def test_requests_are_removed_where_deletion_is_disabled(cluster: KazooClient, zookeeper: str) -> None:
    request(cluster, "foo")
    with ManualController(zookeeper, delete_topics=False) as controller:
        assert cluster.exists(paths.deleted_topic("foo")) is None
        delete(controller, cluster, "bar")
        assert cluster.exists(paths.deleted_topic("bar")) is None
        assert queued(controller) == set()
        assert cluster.exists(paths.topic("foo")) is not None
        assert cluster.exists(paths.topic("bar")) is not None


# -- failures


def test_an_error_of_a_whole_response_fails_all_its_replicas(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        delete(controller, cluster, "foo")
        controller.deletion.stop_replica_response(2, 77, {("foo", 0): 0, ("foo", 1): 0})
        assert in_topic(controller, "foo", ReplicaState.DELETION_INELIGIBLE) == replicas("foo", brokers=(2,))
        assert halted(controller) == {"foo"}


def test_an_outcome_of_a_former_registration_fails_nothing(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        delete(controller, cluster, "foo")
        errors = {("foo", 0): int(GONE), ("foo", 1): int(GONE)}
        controller.deletion.stop_replica_response(2, GONE, errors)
        assert in_topic(controller, "foo", ReplicaState.DELETION_STARTED) == replicas("foo")
        assert halted(controller) == set()


def test_the_deletion_begins_again_on_a_broker_that_the_channel_has_given_up(
    cluster: KazooClient, zookeeper: str
) -> None:
    with ManualController(zookeeper) as controller:
        delete(controller, cluster, "foo")
        acknowledge(controller, 1, 3)
        controller.channel.given_up = {2}
        requests = [one for one in controller.channel.sent if one.broker_id == 2]
        controller.forget_requests()
        for one in requests:
            one.end(OutcomeKind.BROKER_GONE)
        controller.run_waiting()
        assert controller.channel.given_up == set()
        assert controller.stopped(delete=True) == replicas("foo", brokers=(2,))
        acknowledge(controller, 2)
        assert cluster.exists(paths.topic("foo")) is None


def test_a_failed_deletion_is_tried_again_when_its_broker_returns(
    cluster: KazooClient, zookeeper: str
) -> None:
    with ManualController(zookeeper) as controller:
        delete(controller, cluster, "foo")
        fail(controller, replicas("foo", brokers=(2,)))
        complete(controller, replicas("foo", brokers=(1, 3)))
        assert cluster.exists(paths.topic("foo")) is not None
        controller.forget_requests()
        controller.deletion.resume_for(["foo"])
        assert controller.stopped(delete=True) == replicas("foo", brokers=(2,))
        complete(controller, replicas("foo", brokers=(2,)))
        assert cluster.exists(paths.topic("foo")) is None


def test_one_response_deletes_one_topic_and_fails_another(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        delete(controller, cluster, "bar", "foo")
        complete(controller, replicas("bar", "foo", brokers=(1, 2)))
        errors = {("bar", 0): 0, ("bar", 1): 0, ("foo", 0): 56, ("foo", 1): 0}
        controller.deletion.stop_replica_response(3, 0, errors)
        assert not controller.context.has_topic("bar")
        assert queued(controller) == halted(controller) == {"foo"}
        # "foo" has moved up in the state; its replicas are still the right ones. The failed one is ready for
        # the next attempt: nothing else of the topic is being deleted.
        assert in_topic(controller, "foo", ReplicaState.OFFLINE) == {("foo", 0, 3)}
        assert len(in_topic(controller, "foo", ReplicaState.DELETION_SUCCESSFUL)) == 5


def test_late_responses_of_deleted_topics_are_ignored(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        delete(controller, cluster, "foo")
        complete(controller, replicas("foo"))
        complete(controller, replicas("foo", brokers=(1,)))
        fail(controller, replicas("foo", brokers=(2,)))
        assert queued(controller) == halted(controller) == set()


def test_topics_that_are_not_queued_are_not_halted(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        controller.deletion.mark_ineligible(["foo"], "a test")
        assert halted(controller) == set()
        fail(controller, replicas("foo", brokers=(2,)))
        assert halted(controller) == set()
        assert controller.replicas_in(ReplicaState.ONLINE) == replicas("foo", "bar", "baz")


# -- failover


def test_a_deletion_goes_on_after_a_failover(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        delete(controller, cluster, "foo")
        complete(controller, replicas("foo", brokers=(1,)))
        controller.fail_over()
        assert queued(controller) == {"foo"}
        assert controller.stopped(delete=True) == replicas("foo")
        acknowledge(controller, *BROKERS)
        assert cluster.exists(paths.topic("foo")) is None


def test_a_partly_deleted_topic_is_deleted(cluster: KazooClient, zookeeper: str) -> None:
    """A controller that died in the middle of the last step has left some nodes of the topic."""
    cluster.delete(paths.partition("foo", 0), recursive=True)
    request(cluster, "foo")
    with ManualController(zookeeper) as controller:
        acknowledge(controller, *BROKERS)
        assert cluster.exists(paths.topic("foo")) is None
        assert queued(controller) == set()


def test_many_topics_are_deleted_together(znodes: KazooClient, zookeeper: str) -> None:
    register_brokers(znodes, *BROKERS)
    names = [f"topic-{number}" for number in range(40)]
    for name in names:
        create_topic(znodes, name, ASSIGNMENT)
    create_topic(znodes, "kept", ASSIGNMENT)
    with ManualController(zookeeper) as controller:
        controller.forget_requests()
        delete(controller, znodes, *names)
        # One request of each kind for each broker, whatever the number of topics.
        assert len(controller.channel.sent) == 3 * len(BROKERS)
        acknowledge(controller, *BROKERS)
        assert znodes.get_children(paths.TOPICS) == ["kept"]
        assert znodes.get_children(paths.DELETED_TOPICS) == []
        assert read_json(znodes, paths.topic_config("kept")) is not None
