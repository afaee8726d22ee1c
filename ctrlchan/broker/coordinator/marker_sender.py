"""MarkerSender: sends the markers of ended transactions to the leaders of their partitions.

Markers for other brokers go with WriteTxnMarkers (27) through a thread for each broker; a request carries all
that has gathered. Markers for partitions that this broker leads are appended without a request.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.timing_wheel import Timers
from ctrlchan.broker.coordinator.marker_appends import Marker, MarkerAppends
from ctrlchan.broker.coordinator.transaction.pending_markers import (
    Changes,
    PartitionErrors,
    PendingMarker,
    PendingMarkers,
)
from ctrlchan.broker.coordinator.transaction.requests import EndedTransaction
from ctrlchan.log_context import ContextLogger
from ctrlchan.peers.connection import Address
from ctrlchan.peers.messages import decode_answer, encode_request, part
from ctrlchan.peers.peer_threads import PeerRequest, PeerThreads
from ctrlchan.peers.requests import Answer, OutgoingRequest
from ctrlchan.peers.security import PeerSecurity
from ctrlchan.peers.setup_time import SetupTime
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.server.afterwards import after_answer

__all__ = ["MarkerSender"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

_WRITE_TXN_MARKERS: Final = 27
_VERSIONS, _FLEXIBLE_FROM = range(2), 1
_API: Final = "write_txn_markers"

#: Partitions of one request: more are in the next one.
_AT_ONCE: Final = 10_000
#: Seconds that an answer may take longer than the appends of a broker.
_MARGIN: Final = 5.0


class MarkerSender:
    """Sends markers (``Markers`` of the coordinator). Any thread may call every method.

    ``find_broker``: as of ``PendingMarkers``, called with the lock of this class. ``find_address`` returns
    where a broker listens, or None. ``timers`` call on a thread of their own; ``run_later`` calls its
    argument on a thread that holds no lock. ``timeout_ms``: request.timeout.ms. ``security``: of the
    connections; None for PLAINTEXT.
    """

    def __init__(
        self,
        broker_id: int,
        appends: MarkerAppends,
        find_broker: Callable[[TopicPartition, int], int | None],
        find_address: Callable[[int], Address | None],
        timers: Timers,
        run_later: Callable[[Callable[[], None]], object],
        timeout_ms: int,
        security: PeerSecurity | None = None,
        setup_time: Callable[[], SetupTime] = SetupTime,
    ) -> None:
        self._log = ContextLogger(_LOG, f"[Transaction Marker Channel Manager {broker_id}]: ")
        self._broker_id = broker_id
        self._appends = appends
        self._timers = timers
        self._run_later = run_later
        self._lock = threading.Lock()
        self._pending = PendingMarkers(broker_id, find_broker, time.monotonic_ns)
        self._lines = LogRateLimit()
        self._peers = PeerThreads(
            "transaction-markers",
            f"broker-{broker_id}-txn-marker-sender",
            find_address,
            self._next_request,
            timeout_ms / 1000 + _MARGIN,
            security=security,
            setup_time=setup_time,
        )

    @property
    def transactions(self) -> int:
        """The number of transactions that have partitions without a marker."""
        with self._lock:
            return len(self._pending)

    @property
    def unknown_destinations(self) -> int:
        """The number of markers whose leader is not known (``UnknownDestinationQueueSize``)."""
        with self._lock:
            return self._pending.unknown_destinations

    def send(self, ended: EndedTransaction, then: Callable[[], None], is_current: Callable[[], bool]) -> None:
        """Send the markers of a transaction; ``then`` is called when all its partitions have one.

        This begins when the thread has answered the EndTxn, if it does that. Without other brokers and
        replicas ``then`` is called at once; it is never called with a lock. ``is_current``: whether this
        broker still coordinates the transaction. It is False before ``forget`` takes the lock, so that what
        is added here is forgotten there.
        """
        after_answer(partial(self._send, ended, then, is_current))

    def _send(
        self, ended: EndedTransaction, then: Callable[[], None], is_current: Callable[[], bool]
    ) -> None:
        with self._lock:
            if not is_current():
                return
            changes = self._pending.add(ended, then)
        self._go_on(changes)

    def forget(self, partition: int) -> None:
        """Send no further markers of a partition of ``__transaction_state``."""
        with self._lock:
            self._pending.forget(partition)

    def metadata_changed(self) -> bool:
        """Look for leaders again. Called under the lock of the metadata; returns False: call it again."""
        # Without the lock: who holds it may be reading the metadata.
        if self._pending:
            self._run_later(self._look_again)
        return False

    def stop(self) -> None:
        """End the threads. No marker is sent any more."""
        self._peers.stop()

    # -- what pending markers ask for

    def _go_on(self, changes: Changes) -> None:
        """Do what follows from a change, without the lock."""
        for seconds, marker in changes.pauses:
            self._timers.after(seconds, partial(self._retry_later, marker))
        for broker in changes.brokers:
            if broker == self._broker_id:
                self._append_here()
            else:
                self._peers.wake(broker)
        for then in changes.then:
            try:
                then()
            except Exception:  # noqa: BLE001 - the other transactions are completed
                self._log.exception("a transaction that has its markers cannot be completed")

    def _look_again(self) -> None:
        self._peers.check_addresses()
        with self._lock:
            changes = self._pending.metadata_changed()
        self._go_on(changes)

    def _retry_later(self, marker: PendingMarker) -> None:
        """Leave the thread of the timers, which other timers need."""
        self._run_later(partial(self._retry, marker))

    def _retry(self, marker: PendingMarker) -> None:
        with self._lock:
            changes = self._pending.retry(marker)
        self._go_on(changes)

    def _append_here(self) -> None:
        """Append the markers for partitions that this broker leads."""
        with self._lock:
            taken = self._pending.take(self._broker_id, _AT_ONCE)
        while taken:
            for marker in taken:
                ended = marker.ended
                self._appends.append(
                    Marker(ended.producer, ended.commit, ended.coordinator_epoch),
                    marker.partitions,
                    partial(self._appended, marker),
                )
            with self._lock:
                taken = self._pending.take(self._broker_id, _AT_ONCE)

    def _appended(self, marker: PendingMarker, errors: dict[TopicPartition, int]) -> None:
        self._answered(self._broker_id, [marker], {marker.ended.producer.producer_id: errors})

    def _answered(self, broker: int, sent: Iterable[PendingMarker], errors: PartitionErrors) -> None:
        with self._lock:
            changes = self._pending.answered(broker, sent, errors)
        self._go_on(changes)

    def _failed(self, broker: int, sent: Sequence[PendingMarker], error: Exception) -> None:
        with self._lock:
            left_out = self._lines.admit(broker, time.monotonic_ns())
            changes = self._pending.failed(sent)
        if left_out is not None:
            self._log.info(
                "no answer of broker %d to the markers of %d transactions: %s%s",
                broker,
                len(sent),
                error,
                left_out,
            )
        self._go_on(changes)

    def _next_request(self, broker: int) -> PeerRequest[PartitionErrors] | None:
        with self._lock:
            sent = self._pending.take(broker, _AT_ONCE)
        if not sent:
            return None
        return PeerRequest(
            OutgoingRequest(_WRITE_TXN_MARKERS, _VERSIONS, _FLEXIBLE_FROM, partial(_encode, sent)),
            _decode,
            answered=partial(self._answered, broker, sent),
            failed=partial(self._failed, broker, sent),
        )


def _encode(sent: Iterable[PendingMarker], version: int) -> bytes:
    """Return the body of a WriteTxnMarkers request."""
    make = partial(part, _API, version)
    markers = []
    for marker in sent:
        topics: dict[str, list[int]] = {}
        for topic, partition in marker.partitions:
            topics.setdefault(topic, []).append(partition)
        ended = marker.ended
        markers.append(
            make(
                "WritableTxnMarker",
                producer_id=ended.producer.producer_id,
                producer_epoch=ended.producer.epoch,
                transaction_result=ended.commit,
                topics=tuple(
                    make("WritableTxnMarkerTopic", name=topic, partition_indexes=tuple(partitions))
                    for topic, partitions in topics.items()
                ),
                coordinator_epoch=ended.coordinator_epoch,
            )
        )
    return encode_request(_API, version, markers=tuple(markers))


def _decode(answer: Answer) -> PartitionErrors:
    """Return the errors of a WriteTxnMarkers response. Raises DecodeError."""
    response = decode_answer(_API, *answer)
    errors: dict[int, dict[TopicPartition, int]] = {}
    for marker in response.markers:
        own = errors.setdefault(int(marker.producer_id), {})
        for topic in marker.topics:
            for one in topic.partitions:
                own[TopicPartition(str(topic.name), int(one.partition_index))] = int(one.error_code)
    return errors
