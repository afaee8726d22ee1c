"""Requests made of a state without a batch are the ones that a batch makes."""

from __future__ import annotations

import numpy as np
import pytest

from ctrlchan._codec import SharedBody
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.channel import ControlRequest
from ctrlchan.state import ClusterState
from tests.unit.batch.recording import CONTROLLER_EPOCH, RecordingChannel, cluster

TOPIC_IDS = {"a": bytes([1]) * 16, "b": bytes([2]) * 16}
ROWS = np.array([1, 2, 5])


@pytest.fixture
def state() -> ClusterState:
    state = cluster([1, 2, 3], 3, 3, TOPIC_IDS)
    state.update("all", leader=2, leader_epoch=4, isr=[[1, 2, 3]] * 6, controller_epoch=CONTROLLER_EPOCH)
    return state


def bytes_of(request: ControlRequest) -> tuple[int, int, bytes, int, bool]:
    assert isinstance(request.shared_body, SharedBody)
    content = bytes(request.shared_body.to_bytes())
    return request.version, request.controller_epoch, content, request.rows, request.delete_partitions


@pytest.mark.parametrize("ibp", ["0.10.0", "1.0", "2.4", "3.9"])
@pytest.mark.parametrize("rows", [None, ROWS])
def test_a_request_has_the_bytes_of_the_batchs(
    state: ClusterState, ibp: str, rows: np.ndarray[tuple[int], np.dtype[np.int64]] | None
) -> None:
    channel = RecordingChannel(ibp)
    batch = ControllerBrokerRequestBatch(channel, state)
    batch.new_batch()
    selected = np.arange(6) if rows is None else rows
    batch.add_leader_and_isr([1], selected)
    batch.add_update_metadata([1], selected)
    batch.add_stop_replica([1], selected)
    batch.send_requests_to_brokers(CONTROLLER_EPOCH)
    sent = {one.request.api_key: bytes_of(one.request) for one in channel.sent}
    made = [
        ControlRequest.leader_and_isr(state, CONTROLLER_EPOCH, inter_broker_protocol=ibp, rows=rows),
        ControlRequest.update_metadata(state, CONTROLLER_EPOCH, inter_broker_protocol=ibp, rows=rows),
        ControlRequest.stop_replica(state, CONTROLLER_EPOCH, inter_broker_protocol=ibp, rows=rows),
    ]
    assert {one.api_key: bytes_of(one) for one in made} == sent
