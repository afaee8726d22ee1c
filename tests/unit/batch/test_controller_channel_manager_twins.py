"""Every case of Kafka's ``ControllerChannelManagerTest`` (18, Kafka 3.9), with our batch.

Each test carries the name of Kafka's case in snake_case. Kafka's cases over all metadata versions run over
all IBP names here. Requests are read back from their bytes.
"""

from __future__ import annotations

import pytest

from ctrlchan._codec import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.channel import Outcome
from ctrlchan.errors import ErrorCode
from ctrlchan.protocol import IBP_NAMES, request_versions
from ctrlchan.state import ClusterState
from tests.unit.batch.recording import (
    CONTROLLER_EPOCH,
    CONTROLLER_ID,
    RecordingChannel,
    TopicPartition,
    cluster,
    isrs,
    lead,
    leaders,
    stops,
    topic_partitions,
)

TOPIC_IDS = {"foo": bytes(range(16)), "bar": bytes(range(100, 116))}
ZERO_ID = bytes(16)
LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2
RECOVERING = 1

#: (topic, partition): (leader, ISR)
LED = {("foo", 0): (1, [1, 2]), ("foo", 1): (2, [2, 3]), ("bar", 1): (3, [1, 3])}
LEADERS = {partition: leader for partition, (leader, _) in LED.items()}
ISRS = {partition: isr for partition, (_, isr) in LED.items()}

every_ibp = pytest.mark.parametrize("ibp", IBP_NAMES)


class Controller:
    """A state of three brokers and two topics, a batch over a recording channel, StopReplica responses."""

    def __init__(self, ibp: str = "3.9", topics: tuple[str, ...] = ("foo", "bar")) -> None:
        self.state: ClusterState = cluster([1, 2, 3], 2, 3, {name: TOPIC_IDS[name] for name in topics})
        self.channel = RecordingChannel(ibp)
        self.leader_and_isr: list[Outcome] = []
        self.update_metadata: list[Outcome] = []
        self.stop_replica: list[tuple[int, int, dict[TopicPartition, int]]] = []
        self.batch = ControllerBrokerRequestBatch(
            self.channel,
            self.state,
            on_leader_and_isr_response=self.leader_and_isr.append,
            on_update_metadata_response=self.update_metadata.append,
            on_stop_replica_response=lambda broker, error, errors: self.stop_replica.append(
                (broker, error, dict(errors))
            ),
        )
        self.batch.new_batch()

    def lead_all(self) -> None:
        for (topic, partition), (leader, isr) in LED.items():
            lead(self.state, topic, partition, leader, isr)

    def stop(self, partitions: dict[TopicPartition, bool], *brokers: int) -> None:
        """Give each partition a leader and adds StopReplica with this delete flag, one by one."""
        for leader, ((topic, partition), delete) in enumerate(partitions.items(), start=1):
            lead(self.state, topic, partition, leader, [])
            self.batch.add_stop_replica(brokers, (topic, partition), delete)

    def send(self) -> None:
        self.batch.send_requests_to_brokers(CONTROLLER_EPOCH)

    def events(self) -> int:
        return len(self.leader_and_isr) + len(self.update_metadata) + len(self.stop_replica)

    def only_stop_replica(self, broker_id: int) -> StopReplicaRequest:
        """The one request to this broker, which is a StopReplica."""
        recorded = [one for one in self.channel.sent if one.broker_id == broker_id]
        assert len(recorded) == 1
        body = recorded[0].body
        assert isinstance(body, StopReplicaRequest)
        return body

    def expect_stops(
        self, body: StopReplicaRequest, partitions: dict[TopicPartition, bool], deleting: tuple[str, ...] = ()
    ) -> None:
        """The leader epoch is carried from version 3 on; -2 for topics that are queued for deletion."""
        assert stops(body) == {
            (topic, number): (
                -1 if body.version < 3 else EPOCH_DURING_DELETE if topic in deleting else 0,
                delete,
            )
            for (topic, number), delete in partitions.items()
        }


def test_leader_and_isr_request_sent() -> None:
    controller = Controller()
    for (topic, partition), (leader, isr) in LED.items():
        lead(controller.state, topic, partition, leader, isr)
        controller.batch.add_leader_and_isr([2], (topic, partition))
    controller.send()

    (request,) = controller.channel.bodies(2, LeaderAndIsrRequest)
    assert len(controller.channel.bodies(2, UpdateMetadataRequest)) == 1
    assert request.controller_id == CONTROLLER_ID
    assert request.controller_epoch == CONTROLLER_EPOCH
    assert leaders(request) == LEADERS
    assert isrs(request) == ISRS
    assert dict(zip(request.topics.names.to_list(), map(bytes, request.topics.ids), strict=True)) == TOPIC_IDS

    controller.channel.answer_all(2)
    (outcome,) = controller.leader_and_isr
    assert outcome.broker_id == 2
    assert outcome.response is not None
    assert outcome.response.partition.tolist() == request.partitions.partition.tolist()
    assert bytes(outcome.response.topics.ids) == bytes(request.topics.ids)


def test_leader_and_isr_request_is_new() -> None:
    controller = Controller()
    lead(controller.state, "foo", 0, 1, [1, 2])
    controller.batch.add_leader_and_isr([2], ("foo", 0), is_new=True)
    controller.batch.add_leader_and_isr([2], ("foo", 0), is_new=False)
    controller.send()

    (request,) = controller.channel.bodies(2, LeaderAndIsrRequest)
    assert len(controller.channel.bodies(2, UpdateMetadataRequest)) == 1
    assert topic_partitions(request) == [("foo", 0)]
    assert request.is_new.tolist() == [1]


def test_leader_and_isr_request_sent_to_live_or_shutting_down_brokers() -> None:
    controller = Controller()
    controller.state.set_shutting_down([2])
    controller.state.remove_brokers([3])
    lead(controller.state, "foo", 0, 1, [1, 2])
    controller.batch.add_leader_and_isr([1, 2, 3], ("foo", 0))
    controller.send()

    assert controller.events() == 0
    assert controller.channel.brokers() == {1, 2}
    for broker_id in (1, 2):
        (request,) = controller.channel.bodies(broker_id, LeaderAndIsrRequest)
        assert topic_partitions(request) == [("foo", 0)]
        assert len(controller.channel.bodies(broker_id, UpdateMetadataRequest)) == 1


@every_ibp
def test_leader_and_isr_inter_broker_protocol_version(ibp: str) -> None:
    controller = Controller(ibp)
    version = request_versions(ibp).leader_and_isr
    knows_recovery = version >= 6
    lead(controller.state, "foo", 0, 1, [1, 2], RECOVERING if knows_recovery else 0)
    controller.batch.add_leader_and_isr([2], ("foo", 0))
    controller.send()

    (request,) = controller.channel.bodies(2, LeaderAndIsrRequest)
    assert request.version == version
    assert request.partitions.recovery_state.tolist() == [RECOVERING if knows_recovery else 0]
    assert bytes(request.topics.ids) == (TOPIC_IDS["foo"] if version >= 5 else ZERO_ID)


def test_update_metadata_request_sent() -> None:
    controller = Controller()
    controller.lead_all()
    for partition in LED:
        controller.batch.add_update_metadata([2], partition)
    controller.send()

    (request,) = controller.channel.bodies(2, UpdateMetadataRequest)
    assert leaders(request) == LEADERS
    assert isrs(request) == ISRS
    assert dict(zip(request.topics.names.to_list(), map(bytes, request.topics.ids), strict=True)) == TOPIC_IDS
    assert request.controller_id == CONTROLLER_ID
    assert request.controller_epoch == CONTROLLER_EPOCH
    assert request.live_brokers.ids.tolist() == [1, 2, 3]

    controller.channel.answer_all(2, ErrorCode.STALE_BROKER_EPOCH)
    (outcome,) = controller.update_metadata
    assert outcome.broker_id == 2
    assert outcome.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_update_metadata_does_not_include_partitions_without_leader_and_isr() -> None:
    controller = Controller()
    for partition in LED:
        controller.batch.add_update_metadata([2], partition)
    controller.send()

    assert controller.events() == 0
    assert controller.channel.brokers() == {2}
    (request,) = controller.channel.bodies(2, UpdateMetadataRequest)
    assert topic_partitions(request) == []
    assert request.live_brokers.ids.tolist() == [1, 2, 3]


def test_update_metadata_request_during_topic_deletion() -> None:
    controller = Controller()
    controller.lead_all()
    controller.state.mark_topics_deleting(["foo"])
    for partition in LED:
        controller.batch.add_update_metadata([2], partition)
    controller.send()

    (request,) = controller.channel.bodies(2, UpdateMetadataRequest)
    assert leaders(request) == {
        (topic, number): LEADER_DURING_DELETE if topic == "foo" else leader
        for (topic, number), leader in LEADERS.items()
    }
    assert isrs(request) == ISRS
    assert request.live_brokers.ids.tolist() == [1, 2, 3]


def test_update_metadata_includes_live_or_shutting_down_brokers() -> None:
    controller = Controller()
    controller.state.set_shutting_down([2])
    controller.state.remove_brokers([3])
    controller.batch.add_update_metadata([1, 2, 3], ())
    controller.send()

    assert controller.channel.brokers() == {1, 2}
    for broker_id in (1, 2):
        (request,) = controller.channel.bodies(broker_id, UpdateMetadataRequest)
        assert topic_partitions(request) == []
        assert request.live_brokers.ids.tolist() == [1, 2]


@every_ibp
def test_update_metadata_inter_broker_protocol_version(ibp: str) -> None:
    controller = Controller(ibp)
    controller.batch.add_update_metadata([2], ())
    controller.send()

    assert controller.events() == 0
    assert controller.channel.brokers() == {2}
    (request,) = controller.channel.bodies(2, UpdateMetadataRequest)
    assert request.version == request_versions(ibp).update_metadata


def test_stop_replica_request_sent() -> None:
    controller = Controller()
    partitions = dict.fromkeys(LED, False)
    controller.stop(partitions, 2)
    controller.send()

    assert controller.events() == 0
    assert controller.channel.brokers() == {2}
    controller.expect_stops(controller.only_stop_replica(2), partitions)
    controller.channel.answer_all(2)
    assert controller.events() == 0


def test_stop_replica_request_with_already_defined_deleted_partition() -> None:
    controller = Controller()
    lead(controller.state, "foo", 0, 1, [1, 2])
    controller.batch.add_stop_replica([2], ("foo", 0), delete=True)
    controller.batch.add_stop_replica([2], ("foo", 0), delete=False)
    controller.send()

    controller.expect_stops(controller.only_stop_replica(2), {("foo", 0): True})


@every_ibp
def test_stop_replica_requests_while_topic_queued_for_deletion(ibp: str) -> None:
    controller = Controller(ibp)
    controller.state.mark_topics_deleting(["foo"])
    partitions = dict.fromkeys(LED, True)
    controller.stop(partitions, 2)
    controller.send()

    assert controller.events() == 0
    assert controller.channel.brokers() == {2}
    controller.expect_stops(controller.only_stop_replica(2), partitions, deleting=("foo",))
    # Deletion is queued but has not begun: the response is ignored.
    controller.channel.answer_all(2)
    assert controller.events() == 0


@every_ibp
def test_stop_replica_requests_while_topic_deletion_started(ibp: str) -> None:
    controller = Controller(ibp)
    controller.state.mark_topics_deleting(["foo"])
    controller.state.set_deletion_in_progress(["foo"])
    partitions = dict.fromkeys(LED, True)
    controller.stop(partitions, 2)
    controller.send()

    assert controller.events() == 0
    assert controller.channel.brokers() == {2}
    controller.expect_stops(controller.only_stop_replica(2), partitions, deleting=("foo",))
    # Only the topic that is being deleted is reported.
    controller.channel.answer_all(2)
    assert controller.stop_replica == [(2, 0, {("foo", 0): 0, ("foo", 1): 0})]
    assert controller.events() == 1


@every_ibp
def test_stop_replica_request_without_delete_partition_while_topic_deletion_started(ibp: str) -> None:
    controller = Controller(ibp)
    controller.state.mark_topics_deleting(["foo"])
    controller.state.set_deletion_in_progress(["foo"])
    partitions = dict.fromkeys(LED, False)
    controller.stop(partitions, 2)
    controller.send()

    assert controller.events() == 0
    assert controller.channel.brokers() == {2}
    controller.expect_stops(controller.only_stop_replica(2), partitions, deleting=("foo",))
    controller.channel.answer_all(2)
    assert controller.events() == 0


@every_ibp
def test_mixed_delete_and_not_delete_stop_replica_requests(ibp: str) -> None:
    controller = Controller(ibp)
    version = request_versions(ibp).stop_replica
    deleted = {("foo", 0): True, ("foo", 1): True}
    stopped = {("bar", 0): False, ("bar", 1): False}
    controller.stop(deleted, 2)
    controller.stop(stopped, 2)
    controller.send()

    assert controller.events() == 0
    assert controller.channel.brokers() == {2}
    requests = controller.channel.bodies(2, StopReplicaRequest)
    assert len(requests) == len(controller.channel.sent)
    assert {request.version for request in requests} == {version}
    if version >= 3:
        (request,) = requests
        controller.expect_stops(request, deleted | stopped)
    else:
        # The request with deletions goes first.
        with_delete, without_delete = requests
        assert (with_delete.delete_partitions, without_delete.delete_partitions) == (True, False)
        controller.expect_stops(with_delete, deleted)
        controller.expect_stops(without_delete, stopped)


def test_stop_replica_groups_by_broker() -> None:
    controller = Controller()
    partitions = dict.fromkeys(LED, False)
    controller.stop(partitions, 2, 3)
    controller.send()

    assert controller.events() == 0
    assert controller.channel.brokers() == {2, 3}
    for broker_id in (2, 3):
        controller.expect_stops(controller.only_stop_replica(broker_id), partitions)
        controller.channel.answer_all(broker_id)
        assert controller.events() == 0


def test_stop_replica_sent_only_to_live_and_shutting_down_brokers() -> None:
    controller = Controller()
    controller.state.set_shutting_down([2])
    controller.state.remove_brokers([3])
    partitions = dict.fromkeys(LED, False)
    controller.stop(partitions, 2, 3)
    controller.send()

    assert controller.events() == 0
    assert controller.channel.brokers() == {2}
    controller.expect_stops(controller.only_stop_replica(2), partitions)


@every_ibp
def test_stop_replica_inter_broker_protocol_version(ibp: str) -> None:
    controller = Controller(ibp, topics=("foo",))
    controller.stop({("foo", 0): False}, 2)
    controller.send()

    assert controller.events() == 0
    assert controller.channel.brokers() == {2}
    assert controller.only_stop_replica(2).version == request_versions(ibp).stop_replica
