"""Starts and stops the group coordinator of a broker that stores records, and hands leaderships to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from ctrlchan.broker.config.group_config import GroupConfig
from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.group.coordinator import GroupCoordinator
from ctrlchan.broker.coordinator.later import now_ms, run_on
from ctrlchan.broker.coordinator.offsets_verification import OffsetsVerification, VerifiablePartition
from ctrlchan.broker.coordinator.timer_thread import TimerThread
from ctrlchan.broker.coordinator.topic_log import PartitionLog, TopicLog
from ctrlchan.broker.coordinator.transaction.verifications import Verifier
from ctrlchan.internal_topics import OFFSETS_TOPIC

__all__ = ["GroupService"]


class OffsetsPartition(PartitionLog, VerifiablePartition, Protocol):
    """What is used of a ``Partition`` of ``__consumer_offsets``."""


class GroupService:
    """Owns the coordinator and its threads: timers, loading and unloading, appends that other replicas end.

    Any thread may call every method. `find_partition` returns this broker's replica of a topic's partition,
    or None. `now_ms` returns milliseconds since 1970.
    """

    def __init__(
        self,
        broker_id: int,
        config: GroupConfig,
        find_partition: Callable[[str, int], OffsetsPartition | None],
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        self.config = config
        self._timers = TimerThread("group-timers")
        # Its thread begins with the first append that waits for other replicas.
        self._appends = ThreadPoolExecutor(1, "group-appends")
        self._log = TopicLog(
            OFFSETS_TOPIC,
            find_partition,
            config.offsets_commit_timeout,
            config.offsets_load_buffer_size,
            self._run_later,
            codec=config.offsets_topic_codec,
        )
        self._verification = OffsetsVerification(find_partition)
        self.coordinator = GroupCoordinator(
            broker_id, config, self._log, self._timers, now_ms, self._verification.verify
        )
        # One thread: the changes of a partition's leadership are handled in their order.
        self._loader = ThreadPoolExecutor(1, "group-loader")
        self._counted = False

    def verify_with(self, verifier: Verifier) -> None:
        """Have `verifier` verify the transactions of offset commits, which pass unverified before."""
        self._verification.verifier = verifier

    def start(self) -> None:
        """Serve requests from now on."""
        self._timers.start()
        self.coordinator.start()

    def stop(self) -> None:
        """Refuse requests from now on, and end the threads. Requests that wait get no answer."""
        self.coordinator.close()
        self._log.close()
        self._loader.shutdown(cancel_futures=True)
        self._timers.stop()
        self._appends.shutdown(cancel_futures=True)

    def count_partitions(self, count: Callable[[], int]) -> None:
        """Learn from `count` how many partitions ``__consumer_offsets`` has, until it is not 0 once.

        Later changes do not count, as in Kafka: each of them would move groups to other partitions.
        """
        if not self._counted and (partitions := count()):
            self.coordinator.use_partitions(partitions)
            self._counted = True

    def on_leader(self, partition: int, leader_epoch: int) -> None:
        """Load the groups of a partition of ``__consumer_offsets`` that this broker leads now."""
        self._submit(lambda: self.coordinator.elected(partition, leader_epoch))

    def on_resigned(self, partition: int, leader_epoch: int | None) -> None:
        """Forget the groups of a partition that this broker no longer leads.

        `leader_epoch` is None if its replica is deleted.
        """
        self._submit(lambda: self.coordinator.resigned(partition, leader_epoch))

    def on_partitions_deleted(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Remove the committed offsets of partitions that are deleted."""
        deleted = [TopicPartition(*partition) for partition in partitions]
        self._submit(lambda: self.coordinator.partitions_deleted(deleted))

    def _submit(self, work: Callable[[], None]) -> None:
        run_on(self._loader, work, "group")

    def _run_later(self, work: Callable[[], None]) -> None:
        run_on(self._appends, work, "group")
