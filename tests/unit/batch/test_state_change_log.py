"""The state-change log has the lines of Kafka's, and costs nothing when it is off."""

from __future__ import annotations

import logging

import pytest

import ctrlchan.batch.request_batch
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.state_change_log import TRACE
from tests.unit.batch.recording import RecordingChannel, cluster, lead

LOGGER = "state.change.logger"
PREFIX = "[Controller id=1 epoch=7] "


def send_everything(ibp: str = "3.9") -> None:
    state = cluster([1, 2, 3], 2, 3, {"foo": bytes(16), "bar": bytes(16)})
    lead(state, "foo", 0, 1, [1, 2])
    lead(state, "bar", 1, 2, [2])
    state.update(state.row("bar", 1), adding=[3], leader_epoch=4, partition_epoch=9)
    batch = ControllerBrokerRequestBatch(RecordingChannel(ibp), state)
    batch.add_leader_and_isr([2], ("foo", 0))
    batch.add_leader_and_isr([2], ("bar", 1), is_new=True)
    batch.add_stop_replica([3], ("foo", 0))
    batch.add_stop_replica([3], ("bar", 1), delete=True)
    batch.send_requests_to_brokers(7)


def test_info_for_each_request(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger=LOGGER):
        send_everything()
    assert [record.getMessage() for record in caplog.records if record.name == LOGGER] == [
        PREFIX
        + "Sending LeaderAndIsr request to broker 2 with 1 become-leader and 1 become-follower partitions",
        PREFIX + "Sending UpdateMetadata request to brokers HashSet(1, 2, 3) for 2 partitions",
        PREFIX + "Sending StopReplica request for 2 replicas to broker 3",
    ]
    assert {record.levelno for record in caplog.records} == {logging.INFO}


def test_info_for_split_stop_replica(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger=LOGGER):
        send_everything("2.4")
    assert [record.getMessage() for record in caplog.records[2:]] == [
        PREFIX + "Sending StopReplica request (delete = true) for 1 replicas to broker 3",
        PREFIX + "Sending StopReplica request (delete = false) for 1 replicas to broker 3",
    ]


def test_trace_for_each_partition(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(TRACE, logger=LOGGER):
        send_everything()
    traced = [record.getMessage() for record in caplog.records if record.levelno == TRACE]
    assert traced == [
        PREFIX + "Sending become-follower LeaderAndIsr request LeaderAndIsrPartitionState(topicName='foo', "
        "partitionIndex=0, controllerEpoch=1, leader=1, leaderEpoch=0, isr=[1, 2], partitionEpoch=0, "
        "replicas=[1, 2, 3], addingReplicas=[], removingReplicas=[], isNew=false, leaderRecoveryState=0) "
        "to broker 2 for partition foo-0",
        PREFIX + "Sending become-leader LeaderAndIsr request LeaderAndIsrPartitionState(topicName='bar', "
        "partitionIndex=1, controllerEpoch=1, leader=2, leaderEpoch=4, isr=[2], partitionEpoch=9, "
        "replicas=[1, 2, 3], addingReplicas=[3], removingReplicas=[], isNew=true, leaderRecoveryState=0) "
        "to broker 2 for partition bar-1",
        PREFIX + "Sending StopReplica request StopReplicaPartitionState(partitionIndex=0, leaderEpoch=0, "
        "deletePartition=false) to broker 3 for partition foo-0",
        PREFIX + "Sending StopReplica request StopReplicaPartitionState(partitionIndex=1, leaderEpoch=4, "
        "deletePartition=true) to broker 3 for partition bar-1",
    ]
    assert caplog.records[0].levelname == "TRACE"


def test_nothing_is_formatted_when_the_log_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("gathered")

    for name in ("log_leader_and_isr", "log_update_metadata", "log_stop_replica"):
        monkeypatch.setattr(ctrlchan.batch.request_batch, name, refuse)
    logging.getLogger(LOGGER).setLevel(logging.WARNING)
    try:
        send_everything()
    finally:
        logging.getLogger(LOGGER).setLevel(logging.NOTSET)


def test_no_partition_is_formatted_at_info(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("formatted")

    for name in ("_trace_leader_and_isr", "_trace_stop_replica"):
        monkeypatch.setattr(f"ctrlchan.batch.log_lines.{name}", refuse)
    with caplog.at_level(logging.INFO, logger=LOGGER):
        send_everything()
