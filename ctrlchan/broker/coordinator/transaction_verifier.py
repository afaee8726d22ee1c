"""TransactionVerifier: asks the coordinators whether partitions are part of a transaction.

A broker asks before the first records of a transaction enter a partition, so that a producer whose
transaction has ended opens none that nobody ends. Another broker is asked with AddPartitionsToTxn (24), this
one without a request.
Source: ``AddPartitionsToTxnManager`` of Kafka 3.9 (KIP-890, part 1).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.broker.coordinator.transaction.verifications import (
    Result,
    Verification,
    Verifications,
    error_for_producers,
    results_of,
)
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.log_context import ContextLogger
from ctrlchan.peers.connection import Address
from ctrlchan.peers.messages import decode_answer, encode_request, part
from ctrlchan.peers.peer_threads import PeerRequest, PeerThreads
from ctrlchan.peers.requests import Answer, OutgoingRequest
from ctrlchan.peers.security import PeerSecurity
from ctrlchan.peers.setup_time import SetupTime
from ctrlchan.rate_limit import LogRateLimit

__all__ = ["TransactionVerifier"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

_ADD_PARTITIONS_TO_TXN: Final = 24
#: Those for brokers.
_VERSIONS, _FLEXIBLE_FROM = range(4, 6), 3
_API: Final = "add_partitions_to_txn"
#: Transactions of one request: more are in the next one.
_AT_ONCE: Final = 1_000


class LocalCoordinator(Protocol):
    """What is asked of the coordinator of this broker."""

    def partition_for(self, transactional_id: str) -> int: ...

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
    ) -> Result: ...


class _Answer(NamedTuple):
    """An answer: the error of all, and those of partitions by transactional id."""

    error: ErrorCode
    errors: Mapping[str, Result]


class TransactionVerifier:
    """Verifies transactions. Any thread may call every method.

    ``coordinator`` returns that of this broker. ``find_coordinator`` returns the broker that leads a
    partition of ``__transaction_state``, or None: nobody does. ``find_address`` returns where a broker
    listens, or None. ``run_later`` calls its argument on a thread that holds no lock. ``timeout_ms``:
    request.timeout.ms. ``security``: of the connections; None for PLAINTEXT.
    """

    def __init__(
        self,
        broker_id: int,
        coordinator: Callable[[], LocalCoordinator],
        find_coordinator: Callable[[int], int | None],
        find_address: Callable[[int], Address | None],
        run_later: Callable[[Callable[[], None]], object],
        timeout_ms: int,
        security: PeerSecurity | None = None,
        setup_time: Callable[[], SetupTime] = SetupTime,
    ) -> None:
        self._log = ContextLogger(_LOG, f"[AddPartitionsToTxnSenderThread-{broker_id}]: ")
        self._broker_id = broker_id
        self._run_later = run_later
        self._coordinator = coordinator
        self._find_coordinator = find_coordinator
        self._lock = threading.Lock()
        self._waiting = Verifications()
        self._lines = LogRateLimit()
        self._stopped = False
        self._peers = PeerThreads(
            "transaction-verifier",
            f"broker-{broker_id}-add-partitions-to-txn-sender",
            find_address,
            self._next_request,
            timeout_ms / 1000,
            security=security,
            setup_time=setup_time,
        )
        #: Partitions that were refused (``VerificationFailureRate``).
        self.failures = 0
        #: Answers, and how many milliseconds they took together (``VerificationTimeMs``).
        self.answers = 0
        self.answer_ms = 0.0

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        then: Callable[[Result], None],
    ) -> None:
        """Ask the coordinator of a transactional id whether partitions are part of its transaction.

        ``then`` gets the error code of each partition, once, on any thread and without a lock. NONE: the
        partition is part of it, or its coordinator cannot verify that. TRANSACTION_ABORTABLE (120): it is
        not; the client may be too old for that code. NETWORK_EXCEPTION: the same question was asked again, or
        was not answered.
        """
        asked = Verification(transactional_id, producer, tuple(partitions), then, time.monotonic())
        coordinator = self._coordinator()
        broker = self._find_coordinator(coordinator.partition_for(transactional_id))
        if broker is None:
            self._end(asked, asked.with_error(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif broker == self._broker_id:
            errors = coordinator.verify_partitions(transactional_id, producer, asked.partitions)
            self._end(asked, {one: error_for_producers(errors[one]) for one in asked.partitions})
        else:
            with self._lock:
                if self._stopped:
                    refused: tuple[Verification, ErrorCode] | None = asked, ErrorCode.NETWORK_EXCEPTION
                else:
                    refused = self._waiting.add(broker, asked)
            self._peers.wake(broker)
            if refused is not None:
                earlier, error = refused
                self._end(earlier, earlier.with_error(error))

    def metadata_changed(self) -> bool:
        """Give up brokers that do not live any more. Called under the lock of the metadata; returns False."""
        if self._peers.is_busy:
            self._run_later(self._peers.check_addresses)
        return False

    def stop(self) -> None:
        """End the threads. Questions without an answer get NETWORK_EXCEPTION."""
        with self._lock:
            self._stopped = True
            waiting = self._waiting.take_all()
        self._peers.stop()
        for asked in waiting:
            self._end(asked, asked.with_error(ErrorCode.NETWORK_EXCEPTION))

    def _end(self, asked: Verification, result: Result) -> None:
        with self._lock:
            self.failures += sum(1 for error in result.values() if error)
            self.answers += 1
            self.answer_ms += (time.monotonic() - asked.asked_at) * 1000
        try:
            asked.then(result)
        except Exception:  # noqa: BLE001 - the thread serves other requests
            self._log.exception("after the verification of transactional id %r", asked.transactional_id)

    # -- requests to other brokers

    def _next_request(self, broker: int) -> PeerRequest[_Answer] | None:
        with self._lock:
            asked = self._waiting.take(broker, _AT_ONCE)
        if not asked:
            return None
        return PeerRequest(
            OutgoingRequest(_ADD_PARTITIONS_TO_TXN, _VERSIONS, _FLEXIBLE_FROM, partial(_encode, asked)),
            _decode,
            answered=partial(self._answered, broker, asked),
            failed=partial(self._failed, broker, asked),
        )

    def _answered(self, broker: int, asked: Sequence[Verification], answer: _Answer) -> None:
        if answer.error:
            self._log_answer(broker, "answers %s", ErrorCode.name_of(answer.error))
        for one, result in results_of(asked, answer.error, answer.errors):
            self._end(one, result)

    def _failed(self, broker: int, asked: Sequence[Verification], error: Exception) -> None:
        code = ErrorCode.NETWORK_EXCEPTION
        if isinstance(error, KafkaError) and error.code == ErrorCode.UNSUPPORTED_VERSION:
            # An older broker: its producers go on without verification.
            code = ErrorCode.NONE
            self._log_answer(broker, "cannot verify transactions")
        else:
            self._log_answer(broker, "does not answer: %s", error)
        for one in asked:
            self._end(one, one.with_error(code))

    def _log_answer(self, broker: int, text: str, *values: object) -> None:
        with self._lock:
            left_out = self._lines.admit(broker, time.monotonic_ns())
        if left_out is not None:
            self._log.warning(
                f"the coordinator of transactions, broker %d, {text}%s", broker, *values, left_out
            )


def _encode(asked: Sequence[Verification], version: int) -> bytes:
    """Return the body of an AddPartitionsToTxn request that verifies."""
    make = partial(part, _API, version)
    transactions = []
    for one in asked:
        topics: dict[str, list[int]] = {}
        for topic, partition in one.partitions:
            topics.setdefault(topic, []).append(partition)
        transactions.append(
            make(
                "AddPartitionsToTxnTransaction",
                transactional_id=one.transactional_id,
                producer_id=one.producer.producer_id,
                producer_epoch=one.producer.epoch,
                verify_only=True,
                topics=tuple(
                    make("AddPartitionsToTxnTopic", name=topic, partitions=tuple(partitions))
                    for topic, partitions in topics.items()
                ),
            )
        )
    return encode_request(_API, version, transactions=tuple(transactions))


def _decode(answer: Answer) -> _Answer:
    """Return the errors of an AddPartitionsToTxn response. Raises DecodeError."""
    response = decode_answer(_API, *answer)
    errors = {
        str(one.transactional_id): {
            TopicPartition(str(topic.name), int(found.partition_index)): ErrorCode.known(
                found.partition_error_code
            )
            for topic in one.topic_results
            for found in topic.results_by_partition
        }
        for one in response.results_by_transaction
    }
    return _Answer(ErrorCode.known(response.error_code), errors)
