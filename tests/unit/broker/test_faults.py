"""Faults on demand: which requests they hit, how often, and what is answered."""

from __future__ import annotations

import math
import threading
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ctrlchan import EmbeddedBroker
from ctrlchan._codec import encode_request_header
from ctrlchan.broker.faults import FOREVER, Fault, Faults, FaultTarget
from ctrlchan.broker.handlers.faulty_answers import DisconnectError, answer_of_fault, hot_answer_of_fault
from ctrlchan.errors import ConfigError
from ctrlchan.peers.controller_connections import ControllerConnections
from ctrlchan.peers.messages import decode_answer, encode_request, part
from ctrlchan.peers.requests import OutgoingRequest
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import KioError
from tests.unit.server.contexts import LOCAL_CLIENT

SECONDS = 30.0
NOT_HOT: frozenset[int] = frozenset()
LIST_OFFSETS: Api[Any] = Api(
    key=2, name="ListOffsets", lowest=0, highest=9, flexible_from=6, handle=lambda _core, _request: Reply(b"")
)


class Broker(FaultTarget):
    """A broker that keeps its faults here."""

    def __init__(self) -> None:
        self.changes: list[frozenset[str]] = []
        self.faults = Faults(self.changes.append)
        self.lock = threading.RLock()
        self.metadata: Any = SimpleNamespace(topic_name=lambda _: None)

    def _change_faults(self, fault: Fault | None) -> None:
        if fault is None:
            self.faults.clear()
        else:
            self.faults.add(fault)


def frame_of(version: int, topic: str, partition: int) -> tuple[bytes, int]:
    """A whole ListOffsets request, and the size of its header."""
    header = encode_request_header(1, 2, version, 7, b"test")
    asked = part("list_offsets", version, "ListOffsetsPartition", partition_index=partition, timestamp=-1)
    topics = (part("list_offsets", version, "ListOffsetsTopic", name=topic, partitions=(asked,)),)
    body = encode_request("list_offsets", version, replica_id=-1, isolation_level=0, topics=topics)
    return header + body, len(header)


def request(topic: str = "t", partition: int = 0) -> Request:
    frame, size = frame_of(5, topic, partition)
    return Request(5, 7, b"test", memoryview(frame), size, LOCAL_CLIENT)


def test_an_error_is_answered_as_often_as_wanted() -> None:
    broker = Broker()
    broker.fail("ListOffsets", "t", 0, "NOT_LEADER_OR_FOLLOWER", times=2)
    assert broker.faults.active
    assert answer_of_fault(broker, NOT_HOT, LIST_OFFSETS, request("other")) is None
    assert answer_of_fault(broker, NOT_HOT, LIST_OFFSETS, request("t", 1)) is None
    for _ in range(2):
        answer = answer_of_fault(broker, NOT_HOT, LIST_OFFSETS, request())
        assert isinstance(answer, Reply)
        (topic,) = decode_answer("list_offsets", 5, answer.body).topics
        assert (topic.name, topic.partitions[0].error_code) == ("t", KioError.not_leader_or_follower)
    assert answer_of_fault(broker, NOT_HOT, LIST_OFFSETS, request()) is None
    assert not broker.faults.active
    assert broker.changes == [frozenset({"ListOffsets"}), frozenset()]


def test_a_connection_is_closed_and_faults_end() -> None:
    broker = Broker()
    broker.disconnect("ListOffsets", times=FOREVER)
    for _ in range(3):
        with pytest.raises(DisconnectError):
            answer_of_fault(broker, NOT_HOT, LIST_OFFSETS, request())
    broker.clear_faults()
    assert answer_of_fault(broker, NOT_HOT, LIST_OFFSETS, request()) is None


def test_a_delay_ends_and_the_request_goes_on() -> None:
    broker = Broker()
    broker.delay("ListOffsets", 0.01)
    delay = answer_of_fault(broker, NOT_HOT, LIST_OFFSETS, request())
    assert isinstance(delay, Future)
    assert delay.result(30) is None


def test_an_answer_is_hit_after_the_effect() -> None:
    broker = Broker()
    broker.fail("ListOffsets", "t", error="NOT_LEADER_OR_FOLLOWER", after=True)
    broker.disconnect("ListOffsets", after=True)
    broker.delay("ListOffsets", 0.01, after=True)
    handled = Reply(b"handled")
    fault = answer_of_fault(broker, NOT_HOT, LIST_OFFSETS, request())
    assert callable(fault)
    answer = fault(handled)
    assert isinstance(answer, Reply)
    (topic,) = decode_answer("list_offsets", 5, answer.body).topics
    assert topic.partitions[0].error_code == KioError.not_leader_or_follower
    fault = answer_of_fault(broker, NOT_HOT, LIST_OFFSETS, request())
    assert callable(fault)
    with pytest.raises(DisconnectError):
        fault(handled)
    fault = answer_of_fault(broker, NOT_HOT, LIST_OFFSETS, request())
    assert callable(fault)
    delayed = fault(handled)
    assert not isinstance(delayed, Reply)
    assert delayed.result(SECONDS) is handled
    assert not broker.faults.active


def test_a_processor_leaves_faults_of_answers_to_handler_threads() -> None:
    broker = Broker()
    apis = {2: LIST_OFFSETS}
    frame, _ = frame_of(5, "t", 0)
    broker.fail("ListOffsets", "t", error=3, after=True)
    assert hot_answer_of_fault(broker, apis, 2, 5, frame_of(5, "other", 0)[0]) is True
    assert hot_answer_of_fault(broker, apis, 2, 5, frame) is None
    broker.disconnect("ListOffsets")
    # The handler threads' requests were looked at by a processor for faults of the other kind.
    assert callable(answer_of_fault(broker, {2}, LIST_OFFSETS, request()))
    assert answer_of_fault(broker, {2}, LIST_OFFSETS, request()) is None
    assert hot_answer_of_fault(broker, apis, 2, 5, frame) is False
    assert not broker.faults.active


def test_requests_on_a_processor_are_hit_too() -> None:
    broker = Broker()
    apis = {2: LIST_OFFSETS}
    frame, _ = frame_of(5, "t", 0)
    assert hot_answer_of_fault(broker, apis, 2, 5, frame) is True
    broker.fail("ListOffsets", error=3)
    broker.delay("ListOffsets", 0.01)
    broker.disconnect("ListOffsets")
    answer = hot_answer_of_fault(broker, apis, 2, 5, frame)
    assert isinstance(answer, bytes)
    assert answer[:4] == (7).to_bytes(4)
    assert "unknown_topic_or_partition" in repr(decode_answer("list_offsets", 5, answer[4:]))
    assert hot_answer_of_fault(broker, apis, 2, 5, frame) == 0.01
    assert hot_answer_of_fault(broker, apis, 2, 5, frame) is False


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"api": "Produced", "error": 1}, "no API 'Produced'"),
        ({"api": "Produce", "error": "NONSENSE"}, "no error 'NONSENSE'"),
        ({"api": "Produce", "error": 1, "partition": 1}, "needs its topic"),
        ({"api": "Produce", "error": 1, "times": 0}, "hits 0 requests"),
        ({"api": "Produce", "error": 1, "times": 1.5}, "hits 1.5 requests"),
        ({"api": "Produce", "error": "NONE"}, "'NONE' is no error"),
        ({"api": "Fetch", "error": 1, "after": True}, "Fetch has no effect before its answer"),
        ({"api": "Produce", "seconds": -1}, "a delay of -1 seconds"),
        ({"api": "Produce", "seconds": math.nan}, "a delay of nan seconds"),
        ({"api": "Produce", "seconds": math.inf}, "a delay of inf seconds"),
    ],
)
def test_faults_that_cannot_be(wanted: dict[str, Any], message: str) -> None:
    broker = Broker()
    with pytest.raises(ConfigError, match=message):
        (broker.delay if "seconds" in wanted else broker.fail)(**wanted)


def test_an_embedded_broker_fails_on_demand(tmp_path: Path) -> None:
    with EmbeddedBroker(1, log_dir=tmp_path) as broker:
        broker.fail("Metadata", error="UNKNOWN_SERVER_ERROR")
        address = ("127.0.0.1", broker.port)
        connections = ControllerConnections(lambda: address, "test")
        asked = OutgoingRequest(3, range(1, 2), 9, partial(encode_request, "metadata", topics=()))
        broker.disconnect("Metadata")
        connections.send(asked, SECONDS).result(SECONDS)
        assert broker.describe()["apis"]["Metadata"]["errors"] == {"UNKNOWN_SERVER_ERROR": 1}
        connections.stop()
    with EmbeddedBroker(2) as broker, pytest.raises(ConfigError, match="log directory"):
        broker.clear_faults()
