"""ISR changes: AlterPartition and the notifications of old brokers, on real ZooKeeper.

Twins of the AlterPartition cases of ``ControllerIntegrationTest``.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ctrlchan._codec import ListColumn
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.handlers.isr_changes import (
    AlterPartitionRequest,
    AlterPartitionResult,
    alter_partitions,
)
from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.errors import ErrorCode
from ctrlchan.zookeeper import nodes, paths
from tests.kafka.waiting import wait_until
from tests.unit.controller.real_cluster import TIMEOUT, RealCluster, StateNode

VERSIONS = (0, 1, 2, 3)
TOPIC_IDS_SINCE = 2
RECOVERED, RECOVERING = 0, 1


class Alterations:
    """A cluster with the topic ``t``: partition 0 on brokers 1, 2, 3 and partition 1 on 2, 3, 1."""

    def __init__(self, cluster: RealCluster, controller: KafkaController, topic_id: bytes) -> None:
        self.cluster = cluster
        self.controller = controller
        self.topic_id = topic_id

    def alter(
        self,
        version: int,
        *rows: dict[str, Any],
        broker_id: int = 1,
        broker_epoch: int | None = None,
        topic: bytes | None = None,
    ) -> AlterPartitionResult:
        """Send a request with a row for each of ``rows`` (defaults: partition 0, current, the whole ISR)."""
        if broker_epoch is None:
            broker_epoch = self.cluster.brokers[broker_id].broker.epoch
        if topic is None:
            topic = self.topic_id if version >= TOPIC_IDS_SINCE else b"t"
        columns = {
            name: np.array([row.get(name, default) for row in rows], np.int32)
            for name, default in (
                ("partition", 0),
                ("leader_epoch", 0),
                ("partition_epoch", 0),
                ("recovery_state", RECOVERED),
            )
        }
        request = AlterPartitionRequest(
            version=version,
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            topics=[topic],
            topic=np.zeros(len(rows), np.int32),
            isr=ListColumn.from_lists([row.get("isr", [1, 2]) for row in rows]),
            **columns,
        )
        return self.controller.loop.call_jointly(
            ControllerState.ISR_CHANGE, alter_partitions, request
        ).result(TIMEOUT)

    def error(self, version: int, row: dict[str, Any] | None = None, **request: Any) -> int:
        """Return the error of a request with one partition, which changes nothing."""
        before = self.cluster.state_node("t", 0)
        result = self.alter(version, row or {}, **request)
        assert self.cluster.state_node("t", 0) == before
        return result.error_code or int(result.error[0])


@pytest.fixture
def alterations(cluster: RealCluster) -> Alterations:
    cluster.start_brokers(1, 2, 3)
    controller = cluster.active_controller()
    topic_id = cluster.create_topic("t", {0: [1, 2, 3], 1: [2, 3, 1]})
    cluster.wait_seen("t", {0: 1, 1: 2})
    return Alterations(cluster, controller, topic_id)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_isr_that_shrinks_and_grows(alterations: Alterations, version: int) -> None:
    result = alterations.alter(version, {"isr": [1, 2]})
    assert (result.error_code, result.error.tolist()) == (0, [0])
    assert alterations.cluster.state_node("t", 0) == StateNode(1, 0, [1, 2], 1, 1)
    assert (result.leader.tolist(), result.leader_epoch.tolist()) == ([1], [0])
    assert (result.partition_epoch.tolist(), result.isr[0].tolist()) == ([1], [1, 2])
    result = alterations.alter(version, {"isr": [1, 2, 3], "partition_epoch": 1})
    assert result.partition_epoch.tolist() == [2]
    assert alterations.cluster.state_node("t", 0) == StateNode(1, 0, [1, 2, 3], 1, 2)
    # All brokers are sent the new ISR, as metadata.
    for broker_id in (1, 2, 3):
        wait_until(
            lambda broker_id=broker_id: alterations.cluster.seen(broker_id, "t")[0].isr == [1, 2, 3],  # type: ignore[misc]
            what="brokers have the new ISR",
        )


def test_several_partitions_have_a_result_each(alterations: Alterations) -> None:
    result = alterations.alter(
        3,
        {"isr": [1, 2]},
        {"partition": 9},
        {"partition": 1, "leader_epoch": 5},
    )
    assert result.error.tolist() == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_CONTROLLER,
    ]
    assert result.partition_epoch.tolist() == [1, 0, 0]
    assert [result.isr[row].tolist() for row in range(3)] == [[1, 2], [], []]
    assert alterations.cluster.state_node("t", 1) == StateNode(2, 0, [2, 3, 1], 1, 0)


def test_a_partition_that_is_named_twice_has_its_last_isr(alterations: Alterations) -> None:
    result = alterations.alter(3, {"isr": [1, 2]}, {"isr": [1, 3]})
    assert result.error.tolist() == [0, 0]
    assert alterations.cluster.state_node("t", 0) == StateNode(1, 0, [1, 3], 1, 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_of_another_epoch_are_refused(alterations: Alterations, version: int) -> None:
    epoch = alterations.cluster.brokers[1].broker.epoch
    for wrong in (epoch - 1, epoch + 1):
        assert alterations.error(version, broker_epoch=wrong) == ErrorCode.STALE_BROKER_EPOCH
    assert alterations.error(version, broker_id=7, broker_epoch=1) == ErrorCode.STALE_BROKER_EPOCH


@pytest.mark.parametrize("version", VERSIONS)
def test_epochs_that_are_ahead_mean_that_there_is_another_controller(
    alterations: Alterations, version: int
) -> None:
    assert alterations.error(version, {"partition_epoch": 1}) == ErrorCode.NOT_CONTROLLER
    assert alterations.error(version, {"leader_epoch": 1}) == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("version", VERSIONS)
def test_epochs_that_are_behind_are_refused(alterations: Alterations, version: int) -> None:
    cluster = alterations.cluster
    cluster.kill_brokers(3)
    node = cluster.wait_state("t", 0, isr=[1, 2])
    assert (node.leader_epoch, node.version) == (1, 1)
    assert alterations.error(version, {"isr": [1]}) == ErrorCode.FENCED_LEADER_EPOCH
    row = {"isr": [1], "leader_epoch": 1, "partition_epoch": 0}
    assert alterations.error(version, row) == ErrorCode.INVALID_UPDATE_VERSION
    # A request that was applied before is answered with the state, also with an old partition epoch.
    same = alterations.alter(version, {"isr": [1, 2], "leader_epoch": 1, "partition_epoch": 0})
    assert (same.error.tolist(), same.partition_epoch.tolist()) == ([0], [1])


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.OPERATION_NOT_ATTEMPTED),
        (1, ErrorCode.OPERATION_NOT_ATTEMPTED),
        (2, ErrorCode.INELIGIBLE_REPLICA),
        (3, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_replicas_that_are_not_live_cannot_join_the_isr(
    alterations: Alterations, version: int, code: ErrorCode
) -> None:
    assert alterations.error(version, {"isr": [1, 2, 7]}) == code


def test_replicas_that_are_shutting_down_cannot_join_the_isr(alterations: Alterations) -> None:
    from ctrlchan.controller.handlers.controlled_shutdown import controlled_shutdown

    alterations.controller.loop.call(
        ControllerState.CONTROLLED_SHUTDOWN, lambda core: controlled_shutdown(core, 3, None)
    ).result(TIMEOUT)
    node = alterations.cluster.wait_state("t", 0, isr=[1, 2])
    row = {"isr": [1, 2, 3], "leader_epoch": node.leader_epoch, "partition_epoch": node.version}
    assert alterations.error(3, row) == ErrorCode.INELIGIBLE_REPLICA


def test_topics_are_named_by_id_from_version_2_on(alterations: Alterations) -> None:
    assert alterations.error(3, topic=b"\x01" * 16) == ErrorCode.UNKNOWN_TOPIC_ID
    assert alterations.error(3, topic=bytes(16)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert alterations.error(1, topic=b"unknown") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_recovery_state_cannot_become_recovering(alterations: Alterations) -> None:
    for isr in ([1], [1, 2]):
        row = {"isr": isr, "recovery_state": RECOVERING}
        assert alterations.error(3, row) == ErrorCode.INVALID_REQUEST


def test_only_the_leader_changes_the_isr(alterations: Alterations) -> None:
    assert alterations.error(3, {"isr": [1, 2]}, broker_id=2) == ErrorCode.INVALID_REQUEST
    assert alterations.error(3, {"isr": [2, 3]}) == ErrorCode.INVALID_REQUEST


def test_a_leader_that_has_recovered(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2)
    topic_id = cluster.create_topic("t", {0: [1, 2]})
    data = json.loads(nodes.encode_partition_state(nodes.PartitionState(1, 3, 0, [1], RECOVERING)))
    cluster.znodes.create(paths.partition_state("t", 0), json.dumps(data).encode(), makepath=True)
    alterations = Alterations(cluster, cluster.active_controller(), topic_id)
    row = {"isr": [1, 2], "leader_epoch": 3, "recovery_state": RECOVERING}
    assert alterations.error(3, row) == ErrorCode.INVALID_REQUEST
    result = alterations.alter(3, {"isr": [1, 2], "leader_epoch": 3, "recovery_state": RECOVERED})
    assert (result.error.tolist(), result.recovery_state.tolist()) == ([0], [RECOVERED])
    assert nodes.parse_partition_state(
        cluster.znodes.get(paths.partition_state("t", 0))[0]
    ) == nodes.PartitionState(1, 3, 1, [1, 2], RECOVERED)


def test_a_state_node_that_another_has_written_is_read_again(alterations: Alterations) -> None:
    path = paths.partition_state("t", 0)
    data = nodes.encode_partition_state(nodes.PartitionState(1, 0, 1, [1, 2]))
    alterations.cluster.znodes.set(path, data)
    result = alterations.alter(3, {"isr": [1, 3]})
    assert result.error.tolist() == [ErrorCode.INVALID_UPDATE_VERSION]
    result = alterations.alter(3, {"isr": [1, 3], "partition_epoch": 1})
    assert result.error.tolist() == [0]
    assert alterations.cluster.state_node("t", 0) == StateNode(1, 0, [1, 3], 1, 2)


def test_old_brokers_write_state_nodes_and_report_them(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2)
    cluster.active_controller(ibp="2.6")
    cluster.create_topic("t", {0: [1, 2]})
    cluster.wait_seen("t", {0: 1})
    cluster.znodes.set(
        paths.partition_state("t", 0),
        nodes.encode_partition_state(nodes.PartitionState(1, 0, 1, [1])),
    )
    report = {"version": 1, "partitions": [{"topic": "t", "partition": 0}]}
    cluster.znodes.create(
        paths.isr_change_notification(), json.dumps(report).encode(), sequence=True, makepath=True
    )
    for broker_id in (1, 2):
        wait_until(
            lambda broker_id=broker_id: cluster.seen(broker_id, "t")[0].isr == [1],  # type: ignore[misc]
            what="brokers have the ISR of the node",
        )
    wait_until(
        lambda: cluster.znodes.get_children(paths.ISR_CHANGE_NOTIFICATIONS) == [],
        what="the notification is deleted",
    )
