"""Cases that Kafka's own tests do not have: grouping, shared requests, endpoints, failures, callbacks."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import ctrlchan.batch.request_batch
from ctrlchan._codec import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
    update_metadata_body,
)
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.channel import ChannelConfig
from ctrlchan.channel.target import targets_of
from ctrlchan.errors import IllegalStateError, InvalidStateError
from ctrlchan.protocol import request_versions
from ctrlchan.state import Broker, ClusterState, Endpoint, SecurityProtocol
from tests.unit.batch.recording import (
    CONTROLLER_EPOCH,
    RecordingChannel,
    broker,
    cluster,
    lead,
    leaders,
    stops,
    topic_partitions,
)

TOPIC_IDS = {name: bytes([number]) * 16 for number, name in enumerate(["a", "b", "c"], start=1)}
PARTITIONS = 4
ROWS = PARTITIONS * len(TOPIC_IDS)


@pytest.fixture
def state() -> ClusterState:
    """Three topics of four partitions on brokers 1, 2, 3; row r is led by its first replica."""
    state = cluster([1, 2, 3], PARTITIONS, 3, TOPIC_IDS)
    first = state.partitions.replicas
    state.update(
        "all",
        leader=first.values[first.starts],
        leader_epoch=np.arange(ROWS),
        isr=[[1, 2, 3]] * ROWS,
        controller_epoch=CONTROLLER_EPOCH,
    )
    return state


@pytest.fixture
def channel() -> RecordingChannel:
    return RecordingChannel()


@pytest.fixture
def batch(channel: RecordingChannel, state: ClusterState) -> ControllerBrokerRequestBatch:
    batch = ControllerBrokerRequestBatch(channel, state)
    batch.new_batch()
    return batch


# -- selections


def test_all_goes_to_the_codec_without_a_row_array(
    batch: ControllerBrokerRequestBatch, channel: RecordingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    def record(*arguments: Any) -> Any:
        given.append(arguments)
        return update_metadata_body(*arguments)

    monkeypatch.setattr(ctrlchan.batch.request_batch, "update_metadata_body", record)
    batch.add_update_metadata([1, 2, 3], 5)
    batch.add_update_metadata([1, 2, 3], "all")
    batch.add_update_metadata([1, 2, 3], slice(2, 7))
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)

    ((_, _, _, _, rows),) = given
    assert rows is None
    assert channel.bodies(1, UpdateMetadataRequest)[0].partitions.partition.tolist() == [0, 1, 2, 3] * 3


def test_rows_without_leadership_are_left_out_of_all_and_counted(
    batch: ControllerBrokerRequestBatch,
    channel: RecordingChannel,
    state: ClusterState,
    caplog: pytest.LogCaptureFixture,
) -> None:
    state.update([1, 6], leader_epoch=-1)
    batch.add_update_metadata([1], "all")
    with caplog.at_level(logging.INFO, logger="ctrlchan.batch"):
        batch.send_requests_to_brokers(CONTROLLER_EPOCH)

    (request,) = channel.bodies(1, UpdateMetadataRequest)
    assert ("a", 1) not in leaders(request)
    assert ("b", 2) not in leaders(request)
    assert len(leaders(request)) == ROWS - 2
    assert "leaves out 2 partitions" in caplog.text


def test_a_known_absence_of_a_leader_is_sent(
    batch: ControllerBrokerRequestBatch, channel: RecordingChannel, state: ClusterState
) -> None:
    state.update(0, leader=-1)
    batch.add_update_metadata([1], 0)
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    assert leaders(channel.bodies(1, UpdateMetadataRequest)[0]) == {("a", 0): -1}


def test_an_unsorted_selection_with_duplicates_is_sorted_and_unique(
    batch: ControllerBrokerRequestBatch, channel: RecordingChannel
) -> None:
    batch.add_leader_and_isr([1], np.array([9, 0, 5, 9, 0]))
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    expected = [("a", 0), ("b", 1), ("c", 1)]
    assert topic_partitions(channel.bodies(1, LeaderAndIsrRequest)[0]) == expected
    assert topic_partitions(channel.bodies(2, UpdateMetadataRequest)[0]) == expected


def test_flags_belong_to_one_broker_and_row(
    batch: ControllerBrokerRequestBatch, channel: RecordingChannel
) -> None:
    batch.add_leader_and_isr([1, 2], slice(0, 4))
    batch.add_leader_and_isr([2], np.array([1, 3]), is_new=True)
    batch.add_stop_replica([1], "all")
    batch.add_stop_replica([1], ("b", 0), delete=True)
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    assert channel.bodies(1, LeaderAndIsrRequest)[0].is_new.tolist() == [0, 0, 0, 0]
    assert channel.bodies(2, LeaderAndIsrRequest)[0].is_new.tolist() == [0, 1, 0, 1]
    assert channel.bodies(1, StopReplicaRequest)[0].delete.tolist() == [0] * 4 + [1] + [0] * 7


def test_the_state_is_read_when_the_batch_is_sent(
    batch: ControllerBrokerRequestBatch, channel: RecordingChannel, state: ClusterState
) -> None:
    batch.add_leader_and_isr([1], 0)
    state.update(0, leader=3, leader_epoch=77)
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    assert channel.bodies(1, LeaderAndIsrRequest)[0].partitions.leader_epoch.tolist() == [77]


def test_negative_broker_ids_and_empty_selections_add_nothing(
    batch: ControllerBrokerRequestBatch, channel: RecordingChannel
) -> None:
    batch.add_leader_and_isr([1, 2], ())
    batch.add_stop_replica([1, 2], np.empty(0, dtype=np.int64), delete=True)
    batch.add_stop_replica([-1], "all")
    batch.add_update_metadata(np.array([-1, -2]), "all")
    assert batch.send_requests_to_brokers(CONTROLLER_EPOCH) == []
    assert channel.sent == []
    # LeaderAndIsr to no broker still sends the metadata to all of them.
    batch.add_leader_and_isr([-1], 0)
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    assert {type(recorded.body) for recorded in channel.sent} == {UpdateMetadataRequest}
    assert channel.brokers() == {1, 2, 3}


@pytest.mark.parametrize("rows", [12, -1, np.array([0, 12]), "some", [0.5]])
def test_unknown_rows(batch: ControllerBrokerRequestBatch, rows: Any) -> None:
    with pytest.raises(InvalidStateError):
        batch.add_update_metadata([1], rows)
    with pytest.raises(InvalidStateError):
        batch.add_leader_and_isr([1], rows)
    with pytest.raises(InvalidStateError):
        batch.add_stop_replica([1], rows)
    with pytest.raises(KeyError):
        batch.add_stop_replica([1], ("a", PARTITIONS))


@pytest.mark.parametrize("rows", [("b", 2), 6, np.array([2, 6]), slice(5, 8), "all"])
def test_leader_and_isr_needs_leadership(
    batch: ControllerBrokerRequestBatch, state: ClusterState, rows: Any
) -> None:
    state.update(6, leader_epoch=-1)
    with pytest.raises(IllegalStateError, match="b-2"):
        batch.add_leader_and_isr([1], rows)
    batch.new_batch()


# -- order, sharing, versions


def test_requests_are_in_order_and_shared_by_brokers(
    batch: ControllerBrokerRequestBatch, channel: RecordingChannel, state: ClusterState
) -> None:
    batch.add_stop_replica([2, 3], 3)
    batch.add_update_metadata([3, 2, 1], 3)
    batch.add_leader_and_isr([1, 3], np.array([0, 4]))
    batch.add_leader_and_isr([2], 4)
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    assert [(ids, type(body).__name__) for ids, body in shared(channel)] == [
        ([1, 3], "LeaderAndIsrRequest"),
        ([2], "LeaderAndIsrRequest"),
        ([1, 2, 3], "UpdateMetadataRequest"),
        ([2, 3], "StopReplicaRequest"),
    ]
    assert [request.rows for _, request in channel.requests] == [2, 1, 3, 1]


def shared(channel: RecordingChannel) -> list[tuple[list[int], object]]:
    bodies = {id(recorded.request): recorded.body for recorded in channel.sent}
    return [(ids, bodies[id(request)]) for ids, request in channel.requests]


def test_brokers_are_grouped_by_version(state: ClusterState) -> None:
    channel = RecordingChannel(versions={2: request_versions("2.2"), 3: request_versions("2.2")})
    answered: list[int] = []
    batch = ControllerBrokerRequestBatch(
        channel, state, on_stop_replica_response=lambda broker_id, *_: answered.append(broker_id)
    )
    batch.add_leader_and_isr([1, 2, 3], slice(0, 2))
    batch.add_stop_replica([1, 2, 3], slice(2, 4))
    batch.add_stop_replica([1, 2, 3], 3, delete=True)
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    assert [(request.api_key, request.version, ids) for ids, request in channel.requests] == [
        (4, 7, [1]), (4, 2, [2, 3]),
        (6, 8, [1]), (6, 5, [2, 3]),
        (5, 4, [1]), (5, 1, [2, 3]), (5, 1, [2, 3]),
    ]  # fmt: skip
    assert [stops(body) for body in channel.bodies(2, StopReplicaRequest)] == [
        {("a", 3): (-1, True)},
        {("a", 2): (-1, False)},
    ]


def test_leader_epochs_of_stop_replica(
    batch: ControllerBrokerRequestBatch, channel: RecordingChannel, state: ClusterState
) -> None:
    state.update([4, 5], leader_epoch=-1)
    state.mark_topics_deleting(["c"])
    batch.add_stop_replica([1], "all")
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    (request,) = channel.bodies(1, StopReplicaRequest)
    assert request.leader_epoch.tolist() == [0, 1, 2, 3, -1, -1, 6, 7, -2, -2, -2, -2]


def test_a_stop_replica_has_the_leader_epoch_of_when_it_was_added(
    batch: ControllerBrokerRequestBatch, channel: RecordingChannel, state: ClusterState
) -> None:
    batch.add_stop_replica([1], 1)
    batch.add_stop_replica([2, 3], np.array([3, 1]))
    batch.add_stop_replica([3], "all", delete=True)
    # The ISR shrinks: the next leader epoch belongs to what is sent to the other replicas.
    state.update([1, 3], leader_epoch=[20, 30])
    state.mark_topics_deleting(["b"])
    # A later call counts, as in Kafka.
    batch.add_stop_replica([3], ("a", 3))
    batch.add_stop_replica([3], slice(3, 5))
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    [[first], [second], [third]] = [channel.bodies(broker_id, StopReplicaRequest) for broker_id in (1, 2, 3)]
    assert stops(first) == {("a", 1): (1, False)}
    assert stops(second) == {("a", 1): (1, False), ("a", 3): (3, False)}
    assert [epoch for epoch, delete in stops(third).values()] == [0, 1, 2, 30, -2, *range(5, 12)]
    assert all(delete for _, delete in stops(third).values())
    # Brokers with the same rows and epochs share a request.
    batch.add_stop_replica([1, 2], 0)
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    assert channel.requests[-1][0] == [1, 2]
    for broker_id in (1, 2):
        batch.add_stop_replica([broker_id], 0)
    batch.add_stop_replica([1, 2], slice(4, 6))
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    assert channel.requests[-1][0] == [1, 2]
    batch.add_stop_replica([1], 0)
    state.update(0, leader_epoch=50)
    batch.add_stop_replica([2], 0)
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    assert [stops(channel.bodies(one, StopReplicaRequest)[-1]) for one in (1, 2)] == [
        {("a", 0): (0, False)},
        {("a", 0): (50, False)},
    ]


# -- endpoints


def test_live_leaders_are_those_of_the_partitions_of_the_broker(
    batch: ControllerBrokerRequestBatch, channel: RecordingChannel, state: ClusterState
) -> None:
    lead(state, "a", 0, 3, [3])
    lead(state, "a", 1, 9, [9])
    lead(state, "a", 2, -1, [])
    batch.add_leader_and_isr([1], slice(0, 3))
    batch.add_leader_and_isr([2], "all")
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    (request,) = channel.bodies(1, LeaderAndIsrRequest)
    assert request.live_leaders.ids.tolist() == [3]
    assert request.live_leaders.hosts.to_list() == ["localhost"]
    assert request.live_leaders.ports.tolist() == [9903]
    assert channel.bodies(2, LeaderAndIsrRequest)[0].live_leaders.ids.tolist() == [1, 2, 3]


def endpoints(*listeners: str) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(listener, SecurityProtocol.PLAINTEXT, f"{listener.lower()}.host", 9000 + number)
        for number, listener in enumerate(listeners)
    )


def test_leaders_are_named_by_their_inter_broker_endpoint(state: ClusterState) -> None:
    state.set_brokers([Broker(2, 1, endpoints("CLIENTS", "PLAINTEXT"))])
    channel = RecordingChannel()
    batch = ControllerBrokerRequestBatch(channel, state)
    state.update("all", leader=2)
    batch.add_leader_and_isr([2], 0)
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    (request,) = channel.bodies(2, LeaderAndIsrRequest)
    assert request.live_leaders.hosts.to_list() == ["plaintext.host"]
    assert request.live_leaders.ports.tolist() == [9001]


def test_a_leader_without_an_endpoint_for_followers_is_left_out_and_the_others_go_on(
    batch: ControllerBrokerRequestBatch,
    channel: RecordingChannel,
    state: ClusterState,
    caplog: pytest.LogCaptureFixture,
) -> None:
    inside = Endpoint("INSIDE", SecurityProtocol.SSL, "localhost", 9)
    state.set_brokers([broker(1), broker(2), Broker(3, 1, (inside,))])
    batch.add_leader_and_isr([1], "all")
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    [request] = channel.bodies(1, LeaderAndIsrRequest)
    assert request.live_leaders.ids.tolist() == [1, 2]
    assert request.live_leaders.ports.tolist() == [9901, 9902]
    assert len(request.partitions) == ROWS
    assert "leader 3: it has no endpoint for listener PLAINTEXT" in caplog.text


PROTOCOLS = (
    Endpoint("CLIENT", SecurityProtocol.SSL, "host", 1),
    Endpoint("INSIDE", SecurityProtocol.PLAINTEXT, "host", 2),
    Endpoint("CONTROL", SecurityProtocol.PLAINTEXT, "host", 3),
)


@pytest.mark.parametrize(
    ("settings", "connection", "leader"),
    [
        # Only the protocol is known: the first endpoint with the protocol.
        ({}, 2, 2),
        ({"security_protocol": "SSL"}, 1, 1),
        ({"inter_broker_listener": "CONTROL"}, 3, 3),
        # The protocol is that of the control-plane listener.
        ({"listener_name": "CONTROL", "inter_broker_listener": "CLIENT"}, 3, 1),
    ],
)
def test_followers_and_the_channel_connect_by_one_rule(
    state: ClusterState, settings: dict[str, Any], connection: int, leader: int
) -> None:
    state.set_brokers([Broker(2, 1, PROTOCOLS)])
    state.update("all", leader=2)
    channel = RecordingChannel()
    channel.config = ChannelConfig(controller_id=1, **settings)
    batch = ControllerBrokerRequestBatch(channel, state)
    batch.add_leader_and_isr([2], 0)
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    [request] = channel.bodies(2, LeaderAndIsrRequest)
    assert request.live_leaders.ports.tolist() == [leader]
    [target], _ = targets_of(state.brokers, channel.config)
    assert target.port == connection


def test_version_0_carries_the_plaintext_listener_alone(state: ClusterState) -> None:
    state.set_brokers([Broker(1, 1, endpoints("CLIENTS", "PLAINTEXT"), "rack"), broker(2)])
    channel = RecordingChannel("0.8.2")
    batch = ControllerBrokerRequestBatch(channel, state)
    batch.add_update_metadata([1], ())
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    (request,) = channel.bodies(1, UpdateMetadataRequest)
    assert request.version == 0
    assert request.live_brokers.hosts.to_list() == ["plaintext.host", "localhost"]
    assert request.live_brokers.ports.tolist() == [9001, 9902]

    state.set_brokers([broker(1), broker(2, "CLIENTS")])
    batch.add_update_metadata([1], 0)
    with pytest.raises(
        IllegalStateError, match=r"broker 2 has no endpoint .* UpdateMetadata of 1 partitions"
    ):
        batch.send_requests_to_brokers(CONTROLLER_EPOCH)


# -- failures


def test_a_failure_names_what_was_not_sent(
    batch: ControllerBrokerRequestBatch,
    channel: RecordingChannel,
    caplog: pytest.LogCaptureFixture,
) -> None:
    channel.fail_at = {2}
    batch.add_leader_and_isr([1], slice(0, 3))
    batch.add_leader_and_isr([2], slice(1, 4))
    batch.add_leader_and_isr([3], slice(2, 5))
    batch.add_stop_replica([3], 9)
    with pytest.raises(IllegalStateError) as caught:
        batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    message = (
        "the batch was not sent: the channel is broken; left in it: "
        "LeaderAndIsr of 4 partitions to brokers 2, 3; "
        "UpdateMetadata of 5 partitions to brokers 1, 2, 3; "
        "StopReplica of 1 partitions to brokers 3"
    )
    assert str(caught.value) == message
    assert message in caplog.text
    assert isinstance(caught.value.__cause__, OSError)
    assert channel.brokers() == {1}

    with pytest.raises(IllegalStateError, match="LeaderAndIsr of 4 partitions to brokers 2, 3"):
        batch.new_batch()
    channel.fail_at = set()
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    batch.new_batch()
    assert [ids for ids, request in channel.requests if request.api_key == 4] == [[1], [2], [3]]


def test_an_error_names_a_few_brokers_only(state: ClusterState) -> None:
    state.set_brokers([broker(broker_id) for broker_id in range(50)])
    batch = ControllerBrokerRequestBatch(RecordingChannel(), state)
    batch.add_update_metadata(range(50), "all")
    with pytest.raises(IllegalStateError, match=r"UpdateMetadata of 12 partitions .* 18, 19 and 30 more$"):
        batch.new_batch()


@pytest.mark.parametrize("api", ["leader_and_isr", "stop_replica", "update_metadata"])
def test_a_new_batch_needs_an_empty_one(batch: ControllerBrokerRequestBatch, api: str) -> None:
    getattr(batch, f"add_{api}")([1], 0)
    with pytest.raises(IllegalStateError, match="was not sent"):
        batch.new_batch()
    batch.clear()
    batch.new_batch()


def test_rows_may_not_be_added_or_removed_before_the_batch_is_sent(
    batch: ControllerBrokerRequestBatch, channel: RecordingChannel, state: ClusterState
) -> None:
    batch.add_update_metadata([1], ())
    state.add_topic("d", {0: [1]})
    batch.add_leader_and_isr([1], 11)
    state.remove_topics(["a", "b", "c"])
    with pytest.raises(IllegalStateError, match="had 13 rows when some were added, now 1"):
        batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    assert channel.sent == []


def test_a_recovery_state_is_dropped_by_an_old_ibp_only(state: ClusterState) -> None:
    state.update(0, recovery_state=1)
    old = RecordingChannel("3.1")
    batch = ControllerBrokerRequestBatch(old, state)
    batch.add_leader_and_isr([1], slice(0, 2))
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    (request,) = old.bodies(1, LeaderAndIsrRequest)
    assert request.version == 5
    assert leaders(request) == {("a", 0): 1, ("a", 1): 2}

    batch = ControllerBrokerRequestBatch(RecordingChannel(versions={1: request_versions("3.1")}), state)
    batch.add_leader_and_isr([1], 0)
    with pytest.raises(IllegalStateError, match="leaderRecoveryState"):
        batch.send_requests_to_brokers(CONTROLLER_EPOCH)


# -- responses


def test_without_handlers_there_are_no_callbacks(
    batch: ControllerBrokerRequestBatch, channel: RecordingChannel
) -> None:
    batch.add_leader_and_isr([1], "all")
    batch.add_stop_replica([1], "all", delete=True)
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    assert len(channel.sent) == 5
    assert {recorded.callback for recorded in channel.sent} == {None}


def test_the_response_of_a_deletion_after_the_topic_has_moved(state: ClusterState) -> None:
    channel = RecordingChannel()
    answers: list[tuple[int, int, dict[tuple[str, int], int]]] = []
    batch = ControllerBrokerRequestBatch(
        channel,
        state,
        on_stop_replica_response=lambda *answer: answers.append((*answer[:2], dict(answer[2]))),
    )
    state.mark_topics_deleting(["b", "c"])
    state.set_deletion_in_progress(["b", "c"])
    batch.add_stop_replica([1, 2], "all")
    batch.add_stop_replica([1], ("b", 1), delete=True)
    batch.add_stop_replica([1], ("c", 3), delete=True)
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    state.remove_topics(["a"])
    channel.answer_all(1, 56)
    channel.answer_all(2)
    assert answers == [(1, 56, {("b", 1): 56, ("c", 3): 56})]
    # Deletion of c has ended: its responses are ignored.
    state.unmark_topics_deleting(["c"])
    channel.answer_all(1)
    assert answers[1:] == [(1, 0, {("b", 1): 0})]


def test_rows_that_have_left_the_state_are_an_illegal_state_and_clear_forgets_them(
    batch: ControllerBrokerRequestBatch, channel: RecordingChannel, state: ClusterState
) -> None:
    batch.add_leader_and_isr([1, 2], "all")
    batch.add_leader_and_isr([1], ROWS - 1, is_new=True)
    batch.add_stop_replica([1], "all")
    batch.add_stop_replica([1], np.array([0, ROWS - 1]), delete=True)
    batch.add_update_metadata([3], "changed")
    state.remove_topics(["c"])
    with pytest.raises(
        IllegalStateError, match=r"12 rows when some were added, now 8; left in it: LeaderAndIsr"
    ):
        batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    with pytest.raises(IllegalStateError, match="the last batch was not sent"):
        batch.new_batch()
    batch.clear()
    batch.new_batch()
    assert batch.send_requests_to_brokers(CONTROLLER_EPOCH) == []
    assert channel.sent == []


@pytest.mark.parametrize("fails", ["add", "versions", "send"])
def test_clear_forgets_a_batch_with_an_illegal_state(
    batch: ControllerBrokerRequestBatch,
    channel: RecordingChannel,
    state: ClusterState,
    fails: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch.add_leader_and_isr([1, 2], 0)
    batch.add_stop_replica([3], 1, delete=True)
    batch.add_update_metadata([1], "changed")
    with monkeypatch.context() as broken:
        if fails == "add":
            state.update(5, leader_epoch=-1)
            with pytest.raises(IllegalStateError, match="b-1"):
                batch.add_leader_and_isr([1], 5)
        else:
            if fails == "versions":
                broken.setattr(channel, "request_versions", None)
            else:
                broken.setattr(channel, "fail_at", {3})
            with pytest.raises(IllegalStateError, match="left in it"):
                batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    batch.clear()
    batch.new_batch()
    channel.sent.clear()
    batch.add_update_metadata([2], 7)
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    [recorded] = channel.sent
    assert recorded.broker_id == 2
    assert topic_partitions(recorded.body) == [("b", 3)]
