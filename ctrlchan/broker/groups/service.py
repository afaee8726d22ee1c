"""The group coordinator of a broker that stores records: started, stopped, and told of leaderships."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from ctrlchan.broker.coordinator.config import GroupConfig
from ctrlchan.broker.coordinator.coordinator import GroupCoordinator
from ctrlchan.broker.coordinator.requests import TopicPartition
from ctrlchan.broker.groups.offsets_log import OFFSETS_TOPIC, OffsetsLog, PartitionLog
from ctrlchan.broker.groups.timer_thread import TimerThread

__all__ = ["GroupService"]

_LOG = logging.getLogger(__name__)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class GroupService:
    """Owns the coordinator, the thread of its timers, and the thread that loads and unloads groups.

    Any thread may call every method. `find_partition` returns this broker's replica of a topic's partition,
    or None. `now_ms` returns milliseconds since 1970.
    """

    def __init__(
        self,
        config: GroupConfig,
        find_partition: Callable[[str, int], PartitionLog | None],
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self.config = config
        self._timers = TimerThread("group-timers")
        self._log = OffsetsLog(
            lambda partition: find_partition(OFFSETS_TOPIC, partition),
            config.offsets_commit_timeout,
            config.offsets_load_buffer_size,
        )
        self.coordinator = GroupCoordinator(config, self._log, self._timers, now_ms)
        # One thread: the changes of a partition's leadership are handled in their order.
        self._loader = ThreadPoolExecutor(1, "group-loader")
        self._stopped = False
        self._counted = False

    def start(self) -> None:
        """Serve requests from now on."""
        self._timers.start()
        self.coordinator.start()

    def stop(self) -> None:
        """Refuse requests from now on, and end the threads. Requests that wait get no answer."""
        self._stopped = True
        self.coordinator.close()
        self._log.close()
        self._loader.shutdown(cancel_futures=True)
        self._timers.stop()

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
        """Forget the groups of a partition that this broker leads no more; None: its replica is deleted."""
        self._submit(lambda: self.coordinator.resigned(partition, leader_epoch))

    def on_partitions_deleted(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Remove the committed offsets of partitions that are deleted."""
        deleted = [TopicPartition(*partition) for partition in partitions]
        self._submit(lambda: self.coordinator.partitions_deleted(deleted))

    def _submit(self, work: Callable[[], None]) -> None:
        if not self._stopped:
            self._loader.submit(work).add_done_callback(_log_failure)


def _log_failure(future: Future[None]) -> None:
    if not future.cancelled() and (failure := future.exception()) is not None:
        _LOG.error("groups: a change of leadership failed", exc_info=failure)
