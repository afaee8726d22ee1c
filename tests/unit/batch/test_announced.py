"""A live broker that is announced: it stands in UpdateMetadata, gets no request and has no replicas."""

from __future__ import annotations

import pytest

from ctrlchan import Broker, ClusterState, ControlRequest, Endpoint, SecurityProtocol
from ctrlchan._codec import UpdateMetadataRequest, decode_request, encode_head, update_metadata_body
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.batch.full_state import StateSource
from ctrlchan.errors import InvalidStateError
from ctrlchan.state.brokers import brokers_list
from tests.unit.batch.manual_channel import ManualChannel
from tests.unit.batch.recording import CONTROLLER_EPOCH, RecordingChannel, broker, cluster

CONTROLLER = Broker(
    1000,
    -1,
    (
        Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "controller", 9093),
        Endpoint("INSIDE", SecurityProtocol.SSL, "controller", 9094),
    ),
    rack="r0",
)


@pytest.fixture
def state() -> ClusterState:
    """A topic with a replica on the controller's id, and partitions led by brokers 1, 2, 3."""
    state = cluster([1, 2, 3], 4, 2, {"a": b"a" * 16})
    state.add_topic("b", {0: [1000, 1]})
    state.update("all", leader=1, leader_epoch=0, isr=[1])
    state.set_announced([CONTROLLER])
    return state


def live_ids(request: UpdateMetadataRequest) -> list[int]:
    return list(request.live_brokers.ids)


def test_it_is_a_live_broker_of_every_update_metadata_and_gets_none(state: ClusterState) -> None:
    channel = RecordingChannel()
    batch = ControllerBrokerRequestBatch(channel, state)
    batch.new_batch()
    batch.add_update_metadata([1, 2, 3, 1000], "all")
    batch.add_leader_and_isr([1, 2, 1000], slice(0, 2))
    batch.add_stop_replica([1000], 4)
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)

    assert channel.brokers() == {1, 2, 3}
    [request] = channel.bodies(3, UpdateMetadataRequest)
    assert brokers_list(request.live_brokers)[-1] == Broker(1000, -1, CONTROLLER.endpoints, CONTROLLER.rack)
    assert live_ids(request) == [1, 2, 3, 1000]


def test_a_change_of_it_alone_is_sent_to_brokers_that_have_everything(state: ClusterState) -> None:
    channel = ManualChannel([1, 2, 3])
    batch = ControllerBrokerRequestBatch(channel, state)

    def push() -> list[list[int]]:
        before = len(channel.requests)
        batch.new_batch()
        batch.add_update_metadata([1, 2, 3, 1000], "changed")
        batch.send_requests_to_brokers(CONTROLLER_EPOCH)
        channel.end_all()
        return [live_ids(message) for _, message, _ in channel.requests[before:]]

    assert push() == [[1, 2, 3, 1000]]
    state.set_announced([CONTROLLER])
    assert push() == []
    state.set_announced([Broker(1001, -1, CONTROLLER.endpoints)])
    assert push() == [[1, 2, 3, 1001]]
    state.set_announced([])
    assert push() == [[1, 2, 3]]
    assert len(channel.requests[-1][1].partitions) == 0


def test_a_full_state_in_place_of_a_backlog_has_it(state: ClusterState) -> None:
    for version in (0, 8):
        with StateSource(state)(version, None, {}) as full_state:
            body = full_state.shared_body
            head = encode_head(6, version, 1, 1, 1)
            message = bytearray(len(head) + body.size)
            message[: len(head)] = head
            body.write_into(message, len(head))
        request = decode_request(6, version, message)
        assert isinstance(request, UpdateMetadataRequest)
        assert live_ids(request) == [1, 2, 3, 1000]


def test_a_request_of_a_state_has_it(state: ClusterState) -> None:
    announced = ControlRequest.update_metadata(state, 1).shared_body
    without = update_metadata_body(8, state.topics, state.partitions, state.brokers)
    assert announced.size > without.size


def test_it_is_never_online_for_a_replica_and_no_broker_of_the_state(state: ClusterState) -> None:
    assert state.announced == (CONTROLLER,)
    assert state.broker_ids.tolist() == state.online_broker_ids.tolist() == [1, 2, 3]
    for brokers in ([2, 3], [1, 2]):
        assert state.partitions.offline is not None
        assert 1000 in state.partitions.offline.to_lists()[4]
        state.set_brokers([broker(one) for one in brokers])
    with pytest.raises(KeyError):
        state.broker(1000)


def test_the_columns_stay_the_same_object_until_a_change(state: ClusterState) -> None:
    live = state.live_brokers
    assert state.live_brokers is live
    state.set_shutting_down([1])
    assert state.live_brokers is live
    state.add_brokers([broker(4)])
    assert state.live_brokers.ids.tolist() == [1, 2, 3, 4, 1000]
    state.set_announced([])
    assert state.live_brokers is state.brokers


def test_a_registered_broker_of_the_same_id_stands_in_its_place(state: ClusterState) -> None:
    state.add_brokers([broker(1000)])
    assert brokers_list(state.live_brokers) == brokers_list(state.brokers)
    state.remove_brokers([1000])
    assert state.live_brokers.ids.tolist() == [1, 2, 3, 1000]


@pytest.mark.parametrize(
    "bad",
    [
        [Broker(5), Broker(5)],
        [Broker(-1)],
        [Broker(5, -1, (Endpoint("A", SecurityProtocol.PLAINTEXT, "h", 70_000),))],
    ],
)
def test_a_refused_one_changes_nothing(state: ClusterState, bad: list[Broker]) -> None:
    version = state.changes.version
    with pytest.raises(InvalidStateError):
        state.set_announced(bad)
    assert state.announced == (CONTROLLER,)
    assert state.changes.version == version


def test_no_snapshot_and_no_table_has_it(state: ClusterState, tmp_path: object) -> None:
    folder = f"{tmp_path}/snapshot"
    state.write(folder)
    again = ClusterState.read(folder)
    assert again.announced == ()
    assert again.live_brokers.ids.tolist() == [1, 2, 3]
