"""Markers on their way to other brokers, on real sockets, and to partitions of this broker."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.marker_appends import Marker, MarkerAppends
from ctrlchan.broker.coordinator.marker_sender import MarkerSender
from ctrlchan.broker.coordinator.timer_thread import TimerThread
from ctrlchan.broker.coordinator.transaction.pending_markers import UNKNOWN_BROKER
from ctrlchan.broker.coordinator.transaction.requests import EndedTransaction, ProducerIdentity
from ctrlchan.errors import ErrorCode
from ctrlchan.peers.connection import Address
from ctrlchan.server.kio_entities import decode, encode, message_type, part_type
from ctrlchan.server.kio_messages import KioError
from tests.kafka.waiting import wait_until
from tests.unit.broker.coordinator.marker_partitions import TIMEOUT_MS, MarkedPartitions
from tests.unit.peers.nodes import SECONDS, Asked, Node

OURS, OTHER, THIRD = 1, 2, 3
API, KEY = "write_txn_markers", 27
HERE, THERE, FAR = TopicPartition("here", 0), TopicPartition("there", 0), TopicPartition("far", 4)

#: (producer id, epoch, commit, topics with partitions, coordinator epoch) of each marker of a request.
Received = list[tuple[int, int, bool, dict[str, tuple[int, ...]], int]]


def read(asked: Asked) -> Received:
    assert asked.api_key == KEY
    request = decode(message_type(API, asked.version, "request"), asked.body)
    return [
        (
            one.producer_id,
            one.producer_epoch,
            one.transaction_result,
            {topic.name: topic.partition_indexes for topic in one.topics},
            one.coordinator_epoch,
        )
        for one in request.markers
    ]


def answer(asked: Asked, error: int = 0) -> bytes:
    """An answer with an error for each partition of the request."""

    def part(kind: str, /, **fields: Any) -> Any:
        return part_type(API, asked.version, "response", kind)(**fields)

    return encode(
        message_type(API, asked.version, "response")(
            markers=tuple(
                part(
                    "WritableTxnMarkerResult",
                    producer_id=producer,
                    topics=tuple(
                        part(
                            "WritableTxnMarkerTopicResult",
                            name=topic,
                            partitions=tuple(
                                part(
                                    "WritableTxnMarkerPartitionResult",
                                    partition_index=partition,
                                    error_code=KioError(error),
                                )
                                for partition in partitions
                            ),
                        )
                        for topic, partitions in topics.items()
                    ),
                )
                for producer, _, _, topics, _ in read(asked)
            )
        )
    )


def broker(answers: Callable[[Asked], bytes | None] = answer, highest: int = 1) -> Node:
    return Node(answers, {KEY: (0, highest)}, {KEY: 1})


class Rig:
    """A sender for broker 1, with the leaders and addresses of its metadata."""

    def __init__(self) -> None:
        self.partitions = MarkedPartitions(HERE)
        self.leaders: dict[TopicPartition, int | None] = {HERE: OURS, THERE: OTHER, FAR: THIRD}
        self.addresses: dict[int, Address] = {}
        self.completed: queue.Queue[str] = queue.Queue()
        self.locked: list[bool] = []
        self.executor = ThreadPoolExecutor(1, "test-later")
        self.timers = TimerThread("test-timers")
        self.timers.start()
        self.sender = MarkerSender(
            OURS,
            MarkerAppends(self.partitions.find, lambda *_: None, self.executor.submit, TIMEOUT_MS),
            lambda partition, _: self.leaders[partition],
            self.addresses.get,
            self.timers,
            self.executor.submit,
            TIMEOUT_MS,
        )

    def close(self) -> None:
        self.sender.stop()
        self.timers.stop()
        self.executor.shutdown()

    def end(self, name: str, *partitions: TopicPartition, producer_id: int = 5, commit: bool = True) -> None:
        ended = EndedTransaction(name, 0, 9, ProducerIdentity(producer_id, 2), commit, frozenset(partitions))
        self.sender.send(ended, lambda: self.completed.put(name), lambda: True)

    def wait(self) -> str:
        return self.completed.get(timeout=SECONDS)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


def test_a_partition_of_this_broker_needs_no_request(rig: Rig) -> None:
    rig.end("a", HERE, commit=False)
    # Nothing waited, so the transaction is complete already.
    assert rig.completed.get_nowait() == "a"
    assert rig.partitions[HERE].markers == [Marker(ProducerIdentity(5, 2), False, 9)]
    assert rig.sender.transactions == 0
    assert not [one for one in threading.enumerate() if one.name.startswith("transaction-markers")]


@pytest.mark.parametrize("highest", [0, 1])
def test_markers_for_several_brokers(rig: Rig, highest: int) -> None:
    with broker(highest=highest) as other, broker() as third:
        rig.addresses |= {OTHER: other.address, THIRD: third.address}
        rig.end("a", HERE, THERE, FAR)
        assert rig.wait() == "a"
        assert [(one.version, read(one)) for one in other.asked] == [
            (highest, [(5, 2, True, {"there": (0,)}, 9)])
        ]
        assert read(third.asked[0]) == [(5, 2, True, {"far": (4,)}, 9)]
        assert len(rig.partitions[HERE].markers) == 1


def test_a_slow_broker_delays_no_other_and_gets_all_that_gathered(rig: Rig) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slowly(asked: Asked) -> bytes:
        entered.set()
        assert go_on.wait(SECONDS)
        return answer(asked)

    with broker(slowly) as other, broker() as third:
        rig.addresses |= {OTHER: other.address, THIRD: third.address}
        rig.end("a", THERE)
        assert entered.wait(SECONDS)
        for number in range(10, 13):
            rig.end(f"b{number}", THERE, producer_id=number)
        rig.end("c", FAR, HERE)
        assert rig.wait() == "c"
        assert rig.sender.transactions == 4
        go_on.set()
        assert [rig.wait() for _ in range(4)] == ["a", "b10", "b11", "b12"]
        assert [[marker[0] for marker in read(one)] for one in other.asked] == [[5], [10, 11, 12]]


def test_a_broker_that_ends_and_another_one_that_leads(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ctrlchan.broker")
    entered = threading.Event()

    def end(_: Asked) -> None:
        entered.set()

    with broker(end) as other:
        rig.addresses[OTHER] = other.address
        rig.end("a", THERE)
        assert entered.wait(SECONDS)
    with broker() as third:
        rig.addresses[THIRD] = third.address
        rig.leaders[THERE] = THIRD
        rig.sender.metadata_changed()
        assert rig.wait() == "a"
    assert (
        "[Transaction Marker Channel Manager 1]: no answer of broker 2 to the markers of 1 transactions"
        in caplog.text
    )


def test_a_broker_that_stands_still(rig: Rig) -> None:
    """Its partitions have other leaders before its request has waited for its timeout."""
    entered, go_on = threading.Event(), threading.Event()

    def wait(asked: Asked) -> bytes:
        entered.set()
        assert go_on.wait(SECONDS)
        return answer(asked)

    with broker(wait) as stopped, broker() as third:
        rig.addresses |= {OTHER: stopped.address, THIRD: third.address}
        rig.end("a", THERE)
        assert entered.wait(SECONDS)
        del rig.addresses[OTHER]
        rig.leaders[THERE] = THIRD
        rig.sender.metadata_changed()
        assert rig.wait() == "a"
        go_on.set()


def test_a_broker_that_answers_garbage(rig: Rig) -> None:
    bad = [b"", b"\xff" * 40, bytes(10_000), b"\x80\x80\x80\x80\x08", b"\0\0\0\x01"]
    with broker(lambda asked: bad.pop() if bad else answer(asked)) as other:
        rig.addresses[OTHER] = other.address
        rig.end("a", THERE)
        assert rig.wait() == "a"
    assert not bad


def test_a_broker_without_the_api(rig: Rig) -> None:
    with broker() as other:
        other.versions.clear()
        rig.addresses[OTHER] = other.address
        rig.end("a", THERE)
        wait_until(lambda: other.connections or None, what="a connection")
        assert rig.sender.transactions == 1
        # It was replaced by a newer one.
        other.versions[KEY] = (0, 1)
        other.close_connections()
        assert rig.wait() == "a"


def test_an_error_of_a_partition_is_retried(rig: Rig) -> None:
    codes = iter([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE])
    rig.partitions[HERE].errors = [ErrorCode.NOT_ENOUGH_REPLICAS]
    with broker(lambda asked: answer(asked, next(codes))) as other:
        rig.addresses[OTHER] = other.address
        rig.end("a", HERE, THERE)
        assert rig.wait() == "a"
        assert (len(other.asked), len(rig.partitions[HERE].markers)) == (3, 2)


def test_a_leader_that_is_elected_later(rig: Rig) -> None:
    rig.leaders[HERE] = UNKNOWN_BROKER
    rig.end("a", HERE)
    assert rig.sender.unknown_destinations == 1
    rig.leaders[HERE] = OURS
    assert rig.sender.metadata_changed() is False
    assert rig.wait() == "a"
    assert rig.sender.unknown_destinations == 0


def test_other_replicas_of_a_partition_of_this_broker(rig: Rig) -> None:
    rig.partitions[HERE].held = []
    rig.end("a", HERE)
    assert rig.completed.empty()
    rig.partitions[HERE].release()
    assert rig.wait() == "a"


def test_a_coordinator_that_moves_while_a_request_is_under_way(rig: Rig) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slowly(asked: Asked) -> bytes:
        entered.set()
        assert go_on.wait(SECONDS)
        return answer(asked)

    with broker(slowly) as other:
        rig.addresses[OTHER] = other.address
        rig.end("a", THERE)
        assert entered.wait(SECONDS)
        rig.sender.forget(0)
        assert rig.sender.transactions == 0
        go_on.set()
        # The next one is answered behind the first one.
        rig.end("b", THERE, producer_id=6)
        assert rig.wait() == "b"
        assert rig.completed.empty()


def test_a_coordinator_that_cannot_complete_stops_nothing(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ValueError("a test")

    rig.sender.send(
        EndedTransaction("a", 0, 9, ProducerIdentity(5, 2), True, frozenset([HERE])), fail, lambda: True
    )
    rig.end("b", HERE)
    assert rig.wait() == "b"
    assert "a transaction that has its markers cannot be completed" in caplog.text


def test_a_transaction_of_a_former_coordinator_is_not_sent(rig: Rig) -> None:
    rig.leaders[HERE] = None
    rig.end("newer", HERE)
    older = EndedTransaction("newer", 0, 8, ProducerIdentity(5, 2), True, frozenset([HERE]))
    rig.sender.send(older, lambda: rig.completed.put("older"), lambda: False)
    rig.leaders[HERE] = OURS
    rig.sender.metadata_changed()
    assert rig.wait() == "newer"
    assert rig.completed.empty()


def test_stop_ends_the_threads(rig: Rig) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slowly(asked: Asked) -> bytes:
        entered.set()
        assert go_on.wait(SECONDS)
        return answer(asked)

    with broker(slowly) as other:
        rig.addresses[OTHER] = other.address
        rig.end("a", THERE)
        assert entered.wait(SECONDS)
        rig.sender.stop()
        go_on.set()
    assert not [one for one in threading.enumerate() if one.name.startswith("transaction-markers")]
    assert rig.completed.empty()
