"""Starts and stops the transaction coordinator of a broker, and hands leaderships to it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, Protocol

from ctrlchan.broker.config.transaction_config import TransactionConfig
from ctrlchan.broker.coordinator._record_batches import take_idle_batches
from ctrlchan.broker.coordinator.later import now_ms, run_on
from ctrlchan.broker.coordinator.leaders import PartitionLeaders
from ctrlchan.broker.coordinator.marker_appends import CompleteGroups, MarkerAppends, MarkerPartition
from ctrlchan.broker.coordinator.marker_sender import MarkerSender
from ctrlchan.broker.coordinator.timer_thread import TimerThread
from ctrlchan.broker.coordinator.topic_log import PartitionLog, TopicLog
from ctrlchan.broker.coordinator.transaction.coordinator import ProducerIdSource, TransactionCoordinator
from ctrlchan.broker.coordinator.transaction.first_batches import ConfirmedPartition, FirstBatches
from ctrlchan.broker.coordinator.transaction.gates import Gates
from ctrlchan.broker.coordinator.transaction_verifier import TransactionVerifier
from ctrlchan.broker.metadata.published_metadata import PublishedMetadata
from ctrlchan.internal_topics import TRANSACTIONS_TOPIC
from ctrlchan.log_context import ContextLogger
from ctrlchan.peers.security import PeerSecurity
from ctrlchan.peers.setup_time import SetupTime

__all__ = ["TransactionService"]

_LOG = logging.getLogger(__name__)

#: Seconds before a partition that cannot be loaded is read again.
_PAUSE: Final = 5.0


class Replica(PartitionLog, MarkerPartition, ConfirmedPartition, Protocol):
    """What is used of a ``Partition``."""


class TransactionService:
    """Owns the coordinator of a broker, what writes its markers and verifies transactions, and the threads.

    Any thread may call every method. `find_partition` returns this broker's replica of a topic's partition,
    or None. `listener`: that other brokers connect to. `complete_groups`: ends the offset commits of
    transactions. `now_ms` returns milliseconds since 1970. `security`: of connections to other brokers; None
    for PLAINTEXT. `gates`: as of the coordinator. `setup_time`: makes the times for connections
    to one broker.
    """

    def __init__(
        self,
        broker_id: int,
        config: TransactionConfig,
        producer_ids: ProducerIdSource,
        find_partition: Callable[[str, int], Replica | None],
        metadata: PublishedMetadata,
        listener: str,
        complete_groups: CompleteGroups,
        now_ms: Callable[[], int] = now_ms,
        security: PeerSecurity | None = None,
        gates: Gates | None = None,
        setup_time: Callable[[], SetupTime] = SetupTime,
    ) -> None:
        self._state_log = ContextLogger(_LOG, f"[Transaction State Manager {broker_id}]: ")
        self.config = config
        self._metadata = metadata
        self._timers = TimerThread("transaction-timers")
        # Its thread begins with the first append that waits for other replicas.
        self._appends = ThreadPoolExecutor(1, "transaction-appends")
        # One thread: the changes of a partition's leadership are handled in their order.
        self._loader = ThreadPoolExecutor(1, "transaction-loader")
        self._stopped = threading.Event()
        self._log = TopicLog(
            TRANSACTIONS_TOPIC,
            find_partition,
            config.request_timeout,
            config.load_buffer_size,
            self._run_later,
            take_idle_batches,
        )
        leaders = PartitionLeaders(broker_id, find_partition, metadata, listener)
        find_address = partial(metadata.address_of, listener)
        self.marker_appends = MarkerAppends(
            find_partition, complete_groups, self._run_later, config.request_timeout
        )
        self.markers = MarkerSender(
            broker_id,
            self.marker_appends,
            leaders.for_marker,
            find_address,
            self._timers,
            self._run_later,
            config.request_timeout,
            security,
            setup_time,
        )
        self._coordinator = TransactionCoordinator(
            broker_id,
            config,
            self._log,
            producer_ids,
            self.markers,
            FirstBatches(find_partition),
            self._timers,
            now_ms,
            gates,
        )
        self.verifier = TransactionVerifier(
            broker_id,
            lambda: self.coordinator,
            leaders.coordinator,
            find_address,
            self._run_later,
            config.request_timeout,
            security,
            setup_time,
        )
        # How many partitions the topic has; 0 until that is known.
        self._partitions = 0

    @property
    def coordinator(self) -> TransactionCoordinator:
        """The coordinator, which knows how many partitions its topic has once the broker knows it.

        Later changes do not count, as in Kafka: each of them would move ids to other partitions.
        """
        if not self._partitions and (partitions := self._count_partitions()):
            self._coordinator.use_partitions(partitions)
            self._partitions = partitions
        return self._coordinator

    def start(self) -> None:
        """Serve requests from now on."""
        with self._metadata.state.lock:
            self._metadata.after_update += (self.markers.metadata_changed, self.verifier.metadata_changed)
        self._timers.start()
        self._coordinator.start()

    def stop(self) -> None:
        """Refuse requests from now on, and end the threads. Requests that wait get no answer."""
        self._stopped.set()
        self._coordinator.close()
        self._log.close()
        self._loader.shutdown(cancel_futures=True)
        self.markers.stop()
        self.verifier.stop()
        self._timers.stop()
        self._appends.shutdown(cancel_futures=True)

    def on_leader(self, partition: int, leader_epoch: int) -> None:
        """Load the transactional ids of a partition that this broker leads now."""
        load = self._coordinator.begin_loading(partition, leader_epoch)
        if load is not None:
            self._load_later(partition, load)

    def on_resigned(self, partition: int, leader_epoch: int | None) -> None:
        """Forget the ids of a partition that this broker no longer leads. None: its replica is deleted.

        At once: if this broker becomes the leader again, nothing of this time is appended then.
        """
        self._coordinator.resigned(partition, leader_epoch)

    def _load_later(self, partition: int, load: Callable[[], bool]) -> None:
        run_on(self._loader, lambda: self._load(partition, load), "transaction")

    def _load(self, partition: int, load: Callable[[], bool]) -> None:
        """Load a partition, again and again until it can be read."""
        known, counted = self._partitions, self._count_partitions()
        if known and counted and known != counted:
            # Kafka does not load it either: other brokers may find its ids in other partitions.
            self._state_log.error(
                "%s-%d is not loaded: the topic has %d partitions instead of %d; restart the broker",
                TRANSACTIONS_TOPIC,
                partition,
                counted,
                known,
            )
        elif not load() and not self._stopped.is_set():
            self._timers.after(_PAUSE, partial(self._load_later, partition, load))

    def _count_partitions(self) -> int:
        return len(self._metadata.snapshot.partitions_of(TRANSACTIONS_TOPIC))

    def _run_later(self, work: Callable[[], None]) -> None:
        run_on(self._appends, work, "transaction")
