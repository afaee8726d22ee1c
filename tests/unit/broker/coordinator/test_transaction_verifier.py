"""Questions to coordinators whether partitions are part of a transaction, on real sockets.

Twins of ``AddPartitionsToTxnManagerTest`` of Kafka 3.9. Its authentication errors have none: other brokers
ask for no authentication. What TRANSACTION_ABORTABLE reads in older versions decides who asks.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from kio.static.primitive import i32Timedelta

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.broker.coordinator.transaction.verifications import Verification, Verifications
from ctrlchan.broker.coordinator.transaction_verifier import TransactionVerifier
from ctrlchan.errors import ErrorCode
from ctrlchan.peers.connection import Address
from ctrlchan.server.kio_entities import decode, encode, message_type, part_type
from ctrlchan.server.kio_messages import KioError
from tests.unit.peers.nodes import SECONDS, Asked, Node

OURS, OTHER, THIRD = 1, 2, 3
API, KEY = "add_partitions_to_txn", 24
PARTITIONS = tuple(TopicPartition("foo", number) for number in (1, 2, 3))
BAR = TopicPartition("bar", 0)

#: Transactional id -> error of each partition.
Errors = Mapping[str, Mapping[TopicPartition, ErrorCode]]


def all_with(error: ErrorCode) -> dict[TopicPartition, ErrorCode]:
    return dict.fromkeys(PARTITIONS, error)


# -- what waits for the next request


def question(name: str, epoch: int = 0) -> Verification:
    return Verification(name, ProducerIdentity(5, epoch), PARTITIONS, lambda _: None, 0.0)


def test_a_transactional_id_is_in_a_request_once() -> None:
    """testAddTxnData"""
    waiting = Verifications()
    first, second, third = question("txn1"), question("txn2"), question("txn3")
    assert waiting.add(OTHER, first) is waiting.add(THIRD, second) is waiting.add(OTHER, third) is None
    again = question("txn1")
    assert waiting.add(OTHER, again) == (first, ErrorCode.NETWORK_EXCEPTION)
    newer = question("txn1", epoch=1)
    assert waiting.add(OTHER, newer) == (again, ErrorCode.INVALID_PRODUCER_EPOCH)
    older = question("txn1")
    refused = waiting.add(OTHER, older)
    assert refused == (older, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert refused[0] is older
    assert waiting.take(OTHER, 10) == [third, newer]
    assert waiting.take(THIRD, 10) == [second]
    assert waiting.take(OTHER, 10) == waiting.take_all() == []


def test_a_request_has_a_limit() -> None:
    waiting = Verifications()
    asked = [question(f"txn{number}") for number in range(5)]
    for one in asked:
        waiting.add(OTHER, one)
    assert [waiting.take(OTHER, 2) for _ in range(2)] == [asked[:2], asked[2:4]]
    assert waiting.take_all() == asked[4:]


# -- requests to brokers


def read(asked: Asked) -> dict[str, tuple[int, int, bool, dict[str, tuple[int, ...]]]]:
    """Producer id, epoch, whether it only verifies, and topics with partitions, by transactional id."""
    assert asked.api_key == KEY
    request = decode(message_type(API, asked.version, "request"), asked.body)
    return {
        one.transactional_id: (
            one.producer_id,
            one.producer_epoch,
            one.verify_only,
            {topic.name: topic.partitions for topic in one.topics},
        )
        for one in request.transactions
    }


def answer(version: int, errors: Errors, error: ErrorCode = ErrorCode.NONE) -> bytes:
    """Return a response. ``error``: of all of it."""

    def part(kind: str, /, **fields: Any) -> Any:
        return part_type(API, version, "response", kind)(**fields)

    return encode(
        message_type(API, version, "response")(
            throttle_time=i32Timedelta.parse(timedelta()),
            error_code=KioError(error),
            results_by_transaction=tuple(
                part(
                    "AddPartitionsToTxnResult",
                    transactional_id=name,
                    topic_results=tuple(
                        part(
                            "AddPartitionsToTxnTopicResult",
                            name=partition.topic,
                            results_by_partition=(
                                part(
                                    "AddPartitionsToTxnPartitionResult",
                                    partition_index=partition.partition,
                                    partition_error_code=KioError(code),
                                ),
                            ),
                        )
                        for partition, code in own.items()
                    ),
                )
                for name, own in errors.items()
            ),
        )
    )


def verified(asked: Asked) -> bytes:
    """An answer that verifies all that is asked."""
    return answer(
        asked.version,
        {
            name: {
                TopicPartition(topic, number): ErrorCode.NONE
                for topic, numbers in topics.items()
                for number in numbers
            }
            for name, (*_, topics) in read(asked).items()
        },
    )


def broker(
    answers: Callable[[Asked], bytes | None] = verified, versions: tuple[int, int] | None = (0, 5)
) -> Node:
    return Node(answers, {} if versions is None else {KEY: versions}, {KEY: 3})


class Coordinator:
    """The coordinator of this broker: an id's partition is its last character."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ProducerIdentity, tuple[TopicPartition, ...]]] = []
        self.error = ErrorCode.NONE

    def partition_for(self, transactional_id: str) -> int:
        return int(transactional_id[-1])

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        self.asked.append((transactional_id, producer, tuple(partitions)))
        return dict.fromkeys(partitions, self.error)


class Rig:
    """A verifier of broker 1. ``results``: transactional id and result, in the order of the answers."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        #: By partition of ``__transaction_state``.
        self.leaders: dict[int, int | None] = {0: OTHER, 1: OURS, 2: THIRD}
        self.addresses: dict[int, Address] = {}
        self.results: queue.Queue[tuple[str, Mapping[TopicPartition, ErrorCode]]] = queue.Queue()
        self.verifier = TransactionVerifier(
            OURS,
            lambda: self.coordinator,
            self.leaders.get,
            self.addresses.get,
            lambda call: call(),
            30_000,
        )

    def verify(self, name: str, *partitions: TopicPartition, epoch: int = 0) -> None:
        self.verifier.verify(
            name,
            ProducerIdentity(5, epoch),
            partitions or PARTITIONS,
            lambda result: self.results.put((name, result)),
        )

    def result(self) -> tuple[str, Mapping[TopicPartition, ErrorCode]]:
        return self.results.get(timeout=SECONDS)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.verifier.stop()


@pytest.mark.parametrize("highest", [4, 5, 9])
def test_another_broker_is_asked(rig: Rig, highest: int) -> None:
    with broker(versions=(0, highest)) as other:
        rig.addresses[OTHER] = other.address
        rig.verify("txn0", *PARTITIONS, BAR)
        assert rig.result() == ("txn0", {**all_with(ErrorCode.NONE), BAR: 0})
        [asked] = other.asked
        assert asked.version == min(highest, 5)
        assert read(asked) == {"txn0": (5, 0, True, {"foo": (1, 2, 3), "bar": (0,)})}


def test_this_broker_is_asked_without_a_request(rig: Rig) -> None:
    rig.verify("txn1")
    assert rig.results.get_nowait() == ("txn1", all_with(ErrorCode.NONE))
    assert rig.coordinator.asked == [("txn1", ProducerIdentity(5, 0), PARTITIONS)]
    for error, shown in (
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ):
        rig.coordinator.error = error
        rig.verify("txn1")
        assert rig.results.get_nowait() == ("txn1", all_with(shown))


def test_one_request_of_a_broker_is_under_way(rig: Rig) -> None:
    """testGenerateRequests, with the replacement of testAddTxnData"""
    entered, go_on = threading.Event(), threading.Event()

    def slowly(asked: Asked) -> bytes:
        entered.set()
        assert go_on.wait(SECONDS)
        return verified(asked)

    with broker(slowly) as other, broker() as third:
        rig.addresses |= {OTHER: other.address, THIRD: third.address}
        rig.verify("first-0")
        assert entered.wait(SECONDS)
        rig.verify("second-0")
        rig.verify("third-0")
        rig.verify("other-2")
        assert rig.result() == ("other-2", all_with(ErrorCode.NONE))
        rig.verify("second-0", epoch=1)
        assert rig.result() == ("second-0", all_with(ErrorCode.INVALID_PRODUCER_EPOCH))
        go_on.set()
        assert [rig.result()[0] for _ in range(3)] == ["first-0", "third-0", "second-0"]
        assert [list(read(one)) for one in other.asked] == [["first-0"], ["third-0", "second-0"]]
        assert read(other.asked[1])["second-0"][:2] == (5, 1)


def test_a_broker_that_stands_still(rig: Rig) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def wait(asked: Asked) -> bytes:
        entered.set()
        assert go_on.wait(SECONDS)
        return verified(asked)

    with broker(wait) as stopped:
        rig.addresses[OTHER] = stopped.address
        rig.verify("txn0")
        assert entered.wait(SECONDS)
        assert rig.verifier.metadata_changed() is False
        assert rig.results.empty()
        # It does not live any more.
        del rig.addresses[OTHER]
        rig.verifier.metadata_changed()
        assert rig.result() == ("txn0", all_with(ErrorCode.NETWORK_EXCEPTION))
        go_on.set()


def test_nobody_coordinates(rig: Rig) -> None:
    """testTransactionCoordinatorResolution"""
    rig.leaders[0] = None
    rig.verify("txn0")
    assert rig.results.get_nowait() == ("txn0", all_with(ErrorCode.COORDINATOR_NOT_AVAILABLE))


# testAddPartitionsToTxnHandlerErrorHandling


@pytest.mark.parametrize("versions", [None, (0, 3)])
def test_a_broker_that_cannot_verify(rig: Rig, versions: tuple[int, int] | None) -> None:
    """Producers go on without verification."""
    with broker(versions=versions) as old:
        rig.addresses[OTHER] = old.address
        for _ in range(2):
            rig.verify("txn0")
            assert rig.result() == ("txn0", all_with(ErrorCode.NONE))
        assert old.asked == []


def test_a_broker_that_ends(rig: Rig) -> None:
    with broker(lambda _: None) as dying:
        rig.addresses[OTHER] = dying.address
        rig.verify("txn0")
        assert rig.result() == ("txn0", all_with(ErrorCode.NETWORK_EXCEPTION))
    rig.verify("txn0")
    assert rig.result() == ("txn0", all_with(ErrorCode.NETWORK_EXCEPTION))
    del rig.addresses[OTHER]
    rig.verify("txn0")
    assert rig.result() == ("txn0", all_with(ErrorCode.NETWORK_EXCEPTION))


@pytest.mark.parametrize("garbage", [b"", b"\xff" * 40, b"\0\0\0\0\0\0\x05", bytes(5)])
def test_a_broker_that_answers_garbage(rig: Rig, garbage: bytes) -> None:
    answers = [garbage]
    with broker(lambda asked: answers.pop() if answers else verified(asked)) as bad:
        rig.addresses[OTHER] = bad.address
        rig.verify("txn0")
        assert rig.result() == ("txn0", all_with(ErrorCode.NETWORK_EXCEPTION))
        rig.verify("txn0")
        assert rig.result() == ("txn0", all_with(ErrorCode.NONE))


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_error_of_the_whole_answer(rig: Rig, error: ErrorCode, shown: ErrorCode) -> None:
    with broker(lambda asked: answer(asked.version, {}, error)) as other:
        rig.addresses[OTHER] = other.address
        rig.verify("txn0")
        assert rig.result() == ("txn0", all_with(shown))


def test_errors_of_partitions(rig: Rig) -> None:
    none = ErrorCode.NONE
    mixed = {PARTITIONS[0]: none, PARTITIONS[1]: ErrorCode.INVALID_TXN_STATE, PARTITIONS[2]: none}
    errors = {
        "a0": all_with(ErrorCode.PRODUCER_FENCED),
        "b0": mixed,
        "c0": all_with(ErrorCode.TRANSACTION_ABORTABLE),
        "d0": {PARTITIONS[0]: none, BAR: none},
    }
    with broker(lambda asked: answer(asked.version, errors)) as other:
        rig.addresses[OTHER] = other.address
        for name in errors:
            rig.verify(name)
        results = dict(rig.result() for _ in errors)
    assert results["a0"] == all_with(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert results["b0"] == mixed
    assert results["c0"] == all_with(ErrorCode.TRANSACTION_ABORTABLE)
    # Partitions that are not in the answer are not verified.
    assert results["d0"] == {
        PARTITIONS[0]: 0,
        PARTITIONS[1]: ErrorCode.NETWORK_EXCEPTION,
        PARTITIONS[2]: ErrorCode.NETWORK_EXCEPTION,
    }


def test_an_answer_without_the_transaction(rig: Rig) -> None:
    with broker(lambda asked: answer(asked.version, {"other": all_with(ErrorCode.NONE)})) as other:
        rig.addresses[OTHER] = other.address
        rig.verify("txn0")
        assert rig.result() == ("txn0", all_with(ErrorCode.NETWORK_EXCEPTION))


def test_counters(rig: Rig) -> None:
    """testAddPartitionsToTxnManagerMetrics"""
    rig.verify("txn1")
    assert (rig.verifier.failures, rig.verifier.answers) == (0, 1)
    rig.coordinator.error = ErrorCode.CONCURRENT_TRANSACTIONS
    rig.verify("txn1")
    assert (rig.verifier.failures, rig.verifier.answers) == (3, 2)
    assert rig.verifier.answer_ms >= 0


def test_a_caller_that_fails_keeps_nobody_from_an_answer(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: object) -> None:
        raise ValueError("a test")

    with broker() as other:
        rig.addresses[OTHER] = other.address
        rig.verifier.verify("a0", ProducerIdentity(5, 0), PARTITIONS, fail)
        rig.verify("b0")
        assert rig.result() == ("b0", all_with(ErrorCode.NONE))
    line = "[AddPartitionsToTxnSenderThread-1]: after the verification of transactional id 'a0'"
    assert line in caplog.text


def test_stop_answers_everybody(rig: Rig) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def slowly(asked: Asked) -> bytes:
        entered.set()
        assert go_on.wait(SECONDS)
        return verified(asked)

    with broker(slowly) as other:
        rig.addresses[OTHER] = other.address
        rig.verify("a0")
        assert entered.wait(SECONDS)
        rig.verify("b0")
        rig.verifier.stop()
        rig.verify("c0")
        assert {rig.result()[0] for _ in range(3)} == {"a0", "b0", "c0"}
        go_on.set()
    assert not [one for one in threading.enumerate() if one.name.startswith("transaction-verifier")]
