"""Reassignments on a real ZooKeeper: KIP-455's phases, cancelling, replacing, resuming; the node.

Twins of the reassignment cases of ``ControllerIntegrationTest``, and what it leaves out.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

import numpy as np
import pytest
from kazoo.client import KazooClient

from ctrlchan.controller.handlers import reassignment
from ctrlchan.controller.handlers.broker_changes import add_again
from ctrlchan.controller.handlers.replica_assignment import ReplicaAssignment
from ctrlchan.controller.machines.states import ReplicaState
from ctrlchan.errors import ErrorCode
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.nodes import Listener, encode_registration, encode_topic
from tests.unit.controller.manual_controller import (
    ManualController,
    create_topic,
    read_json,
    register_brokers,
)

P0 = ("t", 0)


@pytest.fixture
def cluster(znodes: KazooClient) -> KazooClient:
    """Six brokers; topic t has one partition on 1, 2, 3, led by 1."""
    register_brokers(znodes, 1, 2, 3, 4, 5, 6)
    create_topic(znodes, "t", {0: [1, 2, 3]})
    return znodes


def in_zookeeper(znodes: KazooClient, topic: str = "t", partition: int = 0) -> tuple[list[int], ...]:
    """Return replicas, adding and removing replicas of the topic's node."""
    node = read_json(znodes, paths.topic(topic))
    return tuple(
        node[name].get(str(partition), []) for name in ("partitions", "adding_replicas", "removing_replicas")
    )


def state_node(znodes: KazooClient, topic: str = "t", partition: int = 0) -> tuple[int, int, list[int]]:
    """Return leader, leader epoch and ISR of a state node."""
    node = read_json(znodes, paths.partition_state(topic, partition))
    return node["leader"], node["leader_epoch"], node["isr"]


def catch_up(
    controller: ManualController,
    znodes: KazooClient,
    isr: Sequence[int],
    topic: str = "t",
    partition: int = 0,
) -> None:
    """Let the leader write this ISR, as brokers below IBP 2.7-IV2 do."""
    path = paths.partition_state(topic, partition)
    node = read_json(znodes, path)
    znodes.set(path, json.dumps(node | {"isr": list(isr)}).encode())
    reassignment.complete_caught_up(controller.core, controller.rows((topic, partition)))


def write_node(znodes: KazooClient, targets: dict[tuple[str, int], list[int]]) -> None:
    entries = [
        {"topic": topic, "partition": number, "replicas": target}
        for (topic, number), target in targets.items()
    ]
    data = json.dumps({"version": 1, "partitions": entries}).encode()
    if znodes.exists(paths.REASSIGN_PARTITIONS):
        znodes.set(paths.REASSIGN_PARTITIONS, data)
    else:
        znodes.create(paths.REASSIGN_PARTITIONS, data, makepath=True)


# -- phases


def test_phase_a_starts_the_added_replicas(
    cluster: KazooClient, zookeeper: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "state.change.logger")
    with ManualController(zookeeper) as controller:
        controller.forget_requests()
        answers = reassignment.alter(controller.core, {P0: [4, 5, 6]})
        assert answers == {P0: (ErrorCode.NONE, None)}
        expected = ([4, 5, 6, 1, 2, 3], [4, 5, 6], [1, 2, 3])
        assert controller.assignment(*P0) == expected
        assert in_zookeeper(cluster) == expected
        assert state_node(cluster) == (1, 1, [1, 2, 3])
        assert controller.started(is_new=False) == {(*P0, broker) for broker in (1, 2, 3)}
        assert controller.started(is_new=True) == {(*P0, broker) for broker in (4, 5, 6)}
        assert controller.replicas_in(ReplicaState.NEW) == {(*P0, broker) for broker in (4, 5, 6)}
        assert controller.stopped(delete=True) == set()
    assert (
        "[Controller id=1000 epoch=1] Sent LeaderAndIsr request (Leader:1,ISR:1,2,3,LeaderRecoveryState:"
        "RECOVERED,LeaderEpoch:1,ZkVersion:1,ControllerEpoch:1) with new replica assignment "
        "ReplicaAssignment(replicas=4,5,6,1,2,3, addingReplicas=4,5,6, removingReplicas=1,2,3) to leader 1 "
        "for partition being reassigned t-0"
    ) in caplog.messages


def test_phase_b_removes_the_old_replicas(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [4, 5, 6]})
        controller.forget_requests()
        catch_up(controller, cluster, [1, 2, 3, 4, 5])
        assert controller.channel.sent == []
        catch_up(controller, cluster, [1, 2, 3, 4, 5, 6])
        assert controller.assignment(*P0) == ([4, 5, 6], [], [])
        assert in_zookeeper(cluster) == ([4, 5, 6], [], [])
        # Phase A, a new leader, and one for each replica that left the ISR.
        assert state_node(cluster) == (4, 5, [4, 5, 6])
        assert controller.stopped(delete=False) == {(*P0, broker) for broker in (1, 2, 3)}
        assert controller.stopped(delete=True) == {(*P0, broker) for broker in (1, 2, 3)}
        assert controller.replicas_in(ReplicaState.ONLINE) == {(*P0, broker) for broker in (4, 5, 6)}
        assert len(controller.context.replicas) == 3
        announced = controller.last_metadata(P0)
        assert announced == {"leader": 4, "leader_epoch": 5, "isr": [4, 5, 6], "replicas": [4, 5, 6]}


def test_the_leader_stays_where_it_is_a_target(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [1, 2, 4]})
        catch_up(controller, cluster, [1, 2, 3, 4])
        assert in_zookeeper(cluster) == ([1, 2, 4], [], [])
        assert state_node(cluster) == (1, 3, [1, 2, 4])


def test_an_offline_leader_is_replaced_by_a_target(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [1, 4]})
        controller.set_live(2, 3, 4, 5, 6)
        catch_up(controller, cluster, [1, 2, 3, 4])
        leader, _, _ = state_node(cluster)
        assert leader == 4
        assert in_zookeeper(cluster) == ([1, 4], [], [])


def test_added_replicas_of_a_partition_that_never_had_a_leader_can_be_stopped(
    znodes: KazooClient, zookeeper: str
) -> None:
    register_brokers(znodes, 1, 2)
    znodes.create(paths.topic("t"), encode_topic(bytes(range(16)), {0: [5, 6]}), makepath=True)
    with ManualController(zookeeper) as controller:
        write_node(znodes, {P0: [1, 2]})
        controller.run_until(lambda: reassignment.list_(controller.core), "the reassignment has begun")
        assert (*P0, 1) in controller.replicas_in(ReplicaState.NEW)
        controller.core.partition_states.trigger_online()
        assert state_node(znodes)[0] == 1
        reassignment.alter(controller.core, {P0: [2]})
        controller.run_waiting()
        assert (*P0, 1) in controller.stopped(delete=True)


def test_another_order_of_replicas_completes_at_once(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [3, 1, 2]})
        assert in_zookeeper(cluster) == ([3, 1, 2], [], [])
        assert state_node(cluster) == (1, 1, [1, 2, 3])
        assert controller.stopped(delete=True) == set()


def test_the_replication_factor_shrinks_at_once(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [1]})
        assert in_zookeeper(cluster) == ([1], [], [])
        assert state_node(cluster)[2] == [1]
        assert controller.stopped(delete=True) == {(*P0, 2), (*P0, 3)}


def test_a_topic_id_is_kept(cluster: KazooClient, zookeeper: str) -> None:
    before = read_json(cluster, paths.topic("t"))["topic_id"]
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [1, 2]})
        assert read_json(cluster, paths.topic("t"))["topic_id"] == before


def test_many_partitions_are_written_and_sent_together(znodes: KazooClient, zookeeper: str) -> None:
    register_brokers(znodes, 1, 2, 3, 4)
    for topic in ("a", "b"):
        create_topic(znodes, topic, {number: [1, 2] for number in range(50)})
    keys = [(topic, number) for topic in ("a", "b") for number in range(50)]
    with ManualController(zookeeper) as controller:
        controller.forget_requests()
        versions = {topic: znodes.get(paths.topic(topic))[1].version for topic in ("a", "b")}
        answers = reassignment.alter(controller.core, {key: [3, 4] for key in keys})
        assert set(answers.values()) == {(ErrorCode.NONE, None)}
        # One write for each topic, and a handful of requests for each broker.
        for topic, version in versions.items():
            assert znodes.get(paths.topic(topic))[1].version == version + 1
        assert len(controller.channel.sent) < 20
        for key in keys:
            assert controller.assignment(*key) == ([3, 4, 1, 2], [3, 4], [1, 2])
            path = paths.partition_state(*key)
            node = read_json(znodes, path)
            znodes.set(path, json.dumps(node | {"isr": [1, 2, 3, 4]}).encode())
        controller.forget_requests()
        reassignment.complete_caught_up(controller.core, controller.rows(*keys))
        for topic, version in versions.items():
            assert znodes.get(paths.topic(topic))[1].version == version + 2
        assert len(controller.channel.sent) < 40
        for key in keys:
            assert in_zookeeper(znodes, *key) == ([3, 4], [], [])
            assert state_node(znodes, *key)[2] == [3, 4]


# -- requests


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([], "empty"),
        ([1, 1], "twice"),
        ([1, -1], "below 0"),
        ([1, 9], "not live: [9]"),
    ],
)
def test_impossible_targets_are_refused(
    cluster: KazooClient, zookeeper: str, target: list[int], message: str
) -> None:
    with ManualController(zookeeper) as controller:
        code, reason = reassignment.alter(controller.core, {P0: target})[P0]
        assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert message in (reason or "")
        assert in_zookeeper(cluster) == ([1, 2, 3], [], [])


def test_targets_that_are_replicas_already_need_not_be_live(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        controller.set_live(1, 3, 4)
        assert reassignment.alter(controller.core, {P0: [1, 2, 4]})[P0] == (ErrorCode.NONE, None)


def test_unknown_partitions_and_topics_being_deleted_are_refused(
    cluster: KazooClient, zookeeper: str
) -> None:
    create_topic(cluster, "dying", {0: [1, 9], 1: [1, 9]})
    cluster.create(paths.deleted_topic("dying"), makepath=True)
    with ManualController(zookeeper) as controller:
        answers = reassignment.alter(
            controller.core,
            {
                ("t", 7): [1],
                ("t", 8): [9],
                ("u", 0): None,
                ("dying", 0): [1, 2],
                # A replica that it has need not be live.
                ("dying", 1): [2, 9],
                ("dying", 2): None,
                P0: [1, 2],
            },
        )
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert {key: code for key, (code, _) in answers.items()} == {
            ("t", 7): unknown,
            # As in Kafka.
            ("t", 8): ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ("u", 0): ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            ("dying", 0): unknown,
            ("dying", 1): unknown,
            ("dying", 2): unknown,
            P0: ErrorCode.NONE,
        }


def test_nothing_to_cancel(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        code, message = reassignment.alter(controller.core, {P0: None})[P0]
        assert code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert message


def test_cancelling_restores_the_original_replicas(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [4, 5, 6]})
        catch_up(controller, cluster, [1, 2, 3, 4])
        controller.forget_requests()
        assert reassignment.alter(controller.core, {P0: None})[P0] == (ErrorCode.NONE, None)
        assert in_zookeeper(cluster) == ([1, 2, 3], [], [])
        # Replica 4 was in sync already: it leaves the ISR, too.
        assert state_node(cluster)[2] == [1, 2, 3]
        assert controller.stopped(delete=True) == {(*P0, broker) for broker in (4, 5, 6)}
        assert reassignment.list_(controller.core) == {}
        assert len(controller.context.replicas) == 3


def test_a_reassignment_in_progress_is_replaced(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [4, 5, 6]})
        controller.forget_requests()
        reassignment.alter(controller.core, {P0: [1, 2, 4]})
        assert controller.assignment(*P0) == ([1, 2, 4, 3], [4], [3])
        assert controller.stopped(delete=True) == {(*P0, 5), (*P0, 6)}
        catch_up(controller, cluster, [1, 2, 3, 4])
        assert in_zookeeper(cluster) == ([1, 2, 4], [], [])


def test_the_last_replicas_in_sync_are_not_dropped(cluster: KazooClient, zookeeper: str) -> None:
    """Kafka in ZooKeeper mode stops and deletes them: their records are lost."""
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [4, 5]})
        catch_up(controller, cluster, [4])
        controller.forget_requests()
        refused = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, "No replica that is in sync would stay: [4]")
        assert reassignment.alter(controller.core, {P0: None}) == {P0: refused}
        assert reassignment.alter(controller.core, {P0: [5, 6]}) == {P0: refused}
        write_node(cluster, {P0: [5, 6]})
        reassignment.process_node(controller.core)
        assert controller.assignment(*P0) == ([4, 5, 1, 2, 3], [4, 5], [1, 2, 3])
        assert controller.stopped(delete=True) == set()
        assert reassignment.alter(controller.core, {P0: [4, 6]}) == {P0: (ErrorCode.NONE, None)}


def test_listing(cluster: KazooClient, zookeeper: str) -> None:
    create_topic(cluster, "u", {0: [1, 2], 1: [1, 2]})
    with ManualController(zookeeper) as controller:
        assert reassignment.list_(controller.core) == {}
        reassignment.alter(controller.core, {P0: [1, 2, 4], ("u", 1): [1, 3]})
        listed = reassignment.list_(controller.core)
        assert listed == {
            P0: ReplicaAssignment((1, 2, 4, 3), (4,), (3,)),
            ("u", 1): ReplicaAssignment((1, 3, 2), (3,), (2,)),
        }
        assert set(reassignment.list_(controller.core, {"u": [0, 1], "x": [3]})) == {("u", 1)}
        assert reassignment.list_(controller.core, {}) == {}


# -- failover


def test_a_reassignment_goes_on_after_a_failover(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [4, 5, 6]})
        controller.fail_over()
        assert controller.started(is_new=True) >= {(*P0, broker) for broker in (4, 5, 6)}
        assert state_node(cluster) == (1, 2, [1, 2, 3])
        catch_up(controller, cluster, [1, 2, 3, 4, 5, 6])
        assert in_zookeeper(cluster) == ([4, 5, 6], [], [])


def test_a_reassignment_that_became_complete_ends_at_the_failover(
    cluster: KazooClient, zookeeper: str
) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [4, 5, 6]})
        path = paths.partition_state("t", 0)
        cluster.set(path, json.dumps(read_json(cluster, path) | {"isr": [1, 2, 3, 4, 5, 6]}).encode())
        controller.fail_over()
        assert in_zookeeper(cluster) == ([4, 5, 6], [], [])
        assert controller.stopped(delete=True) == {(*P0, broker) for broker in (1, 2, 3)}


def test_a_reassignment_goes_on_when_a_target_returns(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [4, 5, 6]})
        controller.forget_requests()
        reassignment.resume_on_brokers(controller.core, [2, 3])
        assert controller.channel.sent == []
        reassignment.resume_on_brokers(controller.core, [2, 5])
        assert (*P0, 5) in controller.started(is_new=True)


def test_a_reassignment_goes_on_when_an_offline_target_starts(cluster: KazooClient, zookeeper: str) -> None:
    """ControllerIntegrationTest.testPartitionReassignmentResumesAfterReplicaComesOnline."""
    write_node(cluster, {P0: [1, 2, 9]})
    with ManualController(zookeeper) as controller:
        controller.forget_requests()
        controller.start_broker(cluster, 9)
        assert (*P0, 9) in controller.started(is_new=True)
        catch_up(controller, cluster, [1, 2, 3, 9])
        assert in_zookeeper(cluster) == ([1, 2, 9], [], [])
        assert cluster.exists(paths.REASSIGN_PARTITIONS) is None


def test_a_broker_restarts_while_it_is_added(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [1, 2, 4]})
        controller.stop_broker(cluster, 4)
        assert controller.assignment(*P0) == ([1, 2, 4, 3], [4], [3])
        controller.start_broker(cluster, 4)
        catch_up(controller, cluster, [1, 2, 3, 4])
        assert in_zookeeper(cluster) == ([1, 2, 4], [], [])
        assert controller.stopped(delete=True) == {(*P0, 3)}


# -- connections that end


def test_a_broker_that_the_channel_has_given_up_is_sent_its_new_replicas(
    cluster: KazooClient, zookeeper: str
) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [4, 5, 6]})
        controller.forget_requests()
        controller.channel.given_up = {4}
        add_again(controller.core, 4)
        assert controller.channel.given_up == set()
        assert (*P0, 4) in controller.started(is_new=True)


def test_a_broker_with_a_changed_endpoint_is_sent_everything(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        controller.forget_requests()
        moved = [Listener("PLAINTEXT", "PLAINTEXT", "localhost", 1234)]
        cluster.set(paths.broker(2), encode_registration(moved))
        controller.run_until(
            lambda: controller.state.broker(2).endpoints[0].port == 1234, "the new port is known"
        )
        assert controller.started(is_new=False) == {(*P0, 2)}


# -- deletion


def test_a_deletion_waits_for_the_reassignment(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [4, 5, 6]})
        cluster.create(paths.deleted_topic("t"), makepath=True)
        controller.deletion.process_requests(["t"])
        assert controller.context.topics_ineligible == {"t"}
        assert controller.stopped(delete=True) == set()
        catch_up(controller, cluster, [1, 2, 3, 4, 5, 6])
        assert controller.context.topics_ineligible == set()
        assert controller.stopped(delete=True) == {(*P0, broker) for broker in range(1, 7)}
        assert controller.replicas_in(ReplicaState.DELETION_STARTED) == {(*P0, one) for one in (4, 5, 6)}


def test_a_broker_that_starts_does_not_begin_a_deletion_during_a_reassignment(
    cluster: KazooClient, zookeeper: str
) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [4, 5, 6]})
        cluster.create(paths.deleted_topic("t"), makepath=True)
        controller.deletion.process_requests(["t"])
        controller.stop_broker(cluster, 2)
        controller.start_broker(cluster, 2)
        assert "t" in controller.context.topics_ineligible
        assert controller.stopped(delete=True) == set()
        catch_up(controller, cluster, [1, 2, 3, 4, 5, 6])
        reassignment.complete_caught_up(controller.core, controller.rows(P0))
        controller.answer()
        assert not cluster.exists(paths.topic("t"))


def test_a_reassignment_without_a_leader_does_not_halt_a_deletion_after_a_failover(
    cluster: KazooClient, zookeeper: str
) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [4, 5, 6]})
        path = paths.partition_state(*P0)
        node = read_json(cluster, path)
        cluster.set(path, json.dumps(node | {"leader": -1}).encode())
        cluster.create(paths.deleted_topic("t"), makepath=True)
        controller.fail_over()
        controller.answer()
        assert not cluster.exists(paths.topic("t"))


def test_a_deletion_waits_for_the_reassignment_after_a_failover(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [4, 5, 6]})
        cluster.create(paths.deleted_topic("t"), makepath=True)
        controller.fail_over()
        assert controller.context.topics_ineligible == {"t"}
        assert controller.stopped(delete=True) == set()
        catch_up(controller, cluster, [1, 2, 3, 4, 5, 6])
        assert controller.replicas_in(ReplicaState.DELETION_STARTED) == {(*P0, one) for one in (4, 5, 6)}


# -- the node


def test_reassignment_by_the_node(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        write_node(cluster, {P0: [4, 5, 6]})
        controller.run_until(lambda: reassignment.list_(controller.core), "the reassignment has begun")
        assert in_zookeeper(cluster) == ([4, 5, 6, 1, 2, 3], [4, 5, 6], [1, 2, 3])
        catch_up(controller, cluster, [1, 2, 3, 4, 5, 6])
        assert in_zookeeper(cluster) == ([4, 5, 6], [], [])
        assert cluster.exists(paths.REASSIGN_PARTITIONS) is None
        # And again: the node is watched.
        write_node(cluster, {P0: [1, 5, 6]})
        controller.run_until(lambda: reassignment.list_(controller.core), "the second reassignment has begun")


def test_entries_leave_the_node_as_they_end(cluster: KazooClient, zookeeper: str) -> None:
    create_topic(cluster, "u", {0: [1, 2]})
    write_node(cluster, {P0: [1, 2, 4], ("u", 0): [2, 3]})
    with ManualController(zookeeper) as controller:
        epochs = state_node(cluster, "u")[1]
        catch_up(controller, cluster, [1, 2, 3, 4])
        entries = read_json(cluster, paths.REASSIGN_PARTITIONS)["partitions"]
        assert [(entry["topic"], entry["partition"]) for entry in entries] == [("u", 0)]
        # Its own change of the node does not start the others again.
        controller.run_past_changes(cluster)
        assert state_node(cluster, "u")[1] == epochs
        catch_up(controller, cluster, [1, 2, 3], "u")
        assert cluster.exists(paths.REASSIGN_PARTITIONS) is None


def test_impossible_entries_are_removed_from_the_node(cluster: KazooClient, zookeeper: str) -> None:
    write_node(cluster, {("unknown", 0): [1], ("t", 9): [1], P0: []})
    with ManualController(zookeeper):
        assert cluster.exists(paths.REASSIGN_PARTITIONS) is None
        assert in_zookeeper(cluster) == ([1, 2, 3], [], [])


def test_entries_of_a_topic_leave_the_node_with_the_topic(cluster: KazooClient, zookeeper: str) -> None:
    """Else they would reassign a later topic of the same name, or stay there for ever."""
    create_topic(cluster, "u", {0: [2]})
    write_node(cluster, {P0: [1, 2, 9], ("u", 0): [3]})
    with ManualController(zookeeper) as controller:
        # Without a leader a reassignment does not halt the deletion.
        controller.stop_broker(cluster, 2)
        cluster.create(paths.deleted_topic("u"), makepath=True)
        controller.deletion.process_requests(["u"])
        controller.start_broker(cluster, 2)
        controller.answer()
        assert not cluster.exists(paths.topic("u"))
        entries = read_json(cluster, paths.REASSIGN_PARTITIONS)["partitions"]
        assert [entry["topic"] for entry in entries] == ["t"]


def test_entries_leave_the_node_with_a_topic_that_somebody_else_removes(
    cluster: KazooClient, zookeeper: str
) -> None:
    write_node(cluster, {P0: [1, 2, 9]})
    with ManualController(zookeeper) as controller:
        cluster.delete(paths.topic("t"), recursive=True)
        controller.run_past_changes(cluster)
        assert cluster.exists(paths.REASSIGN_PARTITIONS) is None


def test_targets_in_the_node_may_be_offline(cluster: KazooClient, zookeeper: str) -> None:
    """ControllerIntegrationTest.testPartitionReassignmentWithOfflineReplicaHaltingProgress."""
    write_node(cluster, {P0: [1, 2, 9]})
    with ManualController(zookeeper):
        assert in_zookeeper(cluster) == ([1, 2, 9, 3], [9], [3])
        assert state_node(cluster) == (1, 1, [1, 2, 3])
        assert cluster.exists(paths.REASSIGN_PARTITIONS) is not None


def test_a_node_without_entries_is_removed(cluster: KazooClient, zookeeper: str) -> None:
    write_node(cluster, {})
    with ManualController(zookeeper):
        assert cluster.exists(paths.REASSIGN_PARTITIONS) is None


@pytest.mark.parametrize("data", [b"", b"{", b'{"version":1}', b'{"partitions":[{"topic":"t"}]}'])
def test_a_malformed_node_is_left_until_it_is_repaired(
    cluster: KazooClient, zookeeper: str, data: bytes
) -> None:
    cluster.create(paths.REASSIGN_PARTITIONS, data, makepath=True)
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [1, 2]})
        assert cluster.get(paths.REASSIGN_PARTITIONS)[0] == data
        write_node(cluster, {P0: [1, 2, 4]})
        controller.run_until(lambda: reassignment.list_(controller.core), "the reassignment has begun")


def test_a_request_replaces_the_entry_of_the_node(cluster: KazooClient, zookeeper: str) -> None:
    create_topic(cluster, "u", {0: [1, 2]})
    write_node(cluster, {P0: [1, 2, 4], ("u", 0): [2, 3]})
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [1, 2, 5]})
        assert controller.assignment(*P0) == ([1, 2, 5, 3], [5], [3])
        entries = read_json(cluster, paths.REASSIGN_PARTITIONS)["partitions"]
        assert [entry["topic"] for entry in entries] == ["u"]


def test_the_node_replaces_a_request(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        reassignment.alter(controller.core, {P0: [1, 2, 5]})
        write_node(cluster, {P0: [1, 2, 4]})
        controller.fail_over()
        assert controller.assignment(*P0) == ([1, 2, 4, 3], [4], [3])
        assert (*P0, 5) in controller.stopped(delete=True)


# -- below IBP 2.7-IV2


def test_leaders_that_write_the_isr_themselves_complete_a_reassignment(
    cluster: KazooClient, zookeeper: str
) -> None:
    with ManualController(zookeeper, ibp="2.6") as controller:
        reassignment.alter(controller.core, {P0: [1, 2, 4]})
        path = paths.partition_state("t", 0)
        cluster.set(path, json.dumps(read_json(cluster, path) | {"isr": [1, 2]}).encode())
        controller.run_until(lambda: controller.isr(*P0) == [1, 2], "the controller has read the ISR")
        assert reassignment.list_(controller.core)
        cluster.set(path, json.dumps(read_json(cluster, path) | {"isr": [1, 2, 4]}).encode())
        controller.run_until(lambda: not reassignment.list_(controller.core), "the reassignment has ended")
        assert in_zookeeper(cluster) == ([1, 2, 4], [], [])


# -- failures


def test_a_topic_whose_node_is_gone_fails_alone(cluster: KazooClient, zookeeper: str) -> None:
    create_topic(cluster, "gone", {0: [1, 2, 3]})
    with ManualController(zookeeper) as controller:
        cluster.delete(paths.topic("gone"), recursive=True)
        answers = reassignment.alter(controller.core, {P0: [1, 2, 4], ("gone", 0): [1, 2, 4]})
        assert answers[P0] == (ErrorCode.NONE, None)
        assert answers["gone", 0][0] == ErrorCode.UNKNOWN_SERVER_ERROR
        assert controller.assignment("gone", 0) == ([1, 2, 3], [], [])
        assert np.array_equal(controller.context.reassigning_rows(), controller.rows(P0))
