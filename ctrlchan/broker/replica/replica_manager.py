"""Opens, closes and deletes the logs of a broker's replicas as controllers ask for it: ``ReplicaManager``.

LeaderAndIsr and StopReplica decide with columns (``metadata/hosted_replicas.py``) which rows change; this
gives each of these partitions its log and its role. ISRs that a leader wants go to the controller, and come
back with the controller's answer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, Protocol, TypeAlias

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.parts import FetcherSettings
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.log.manager import LogManager
from ctrlchan.broker.metadata.hosted_replicas import Assignment, HostedReplicas
from ctrlchan.broker.replica._partitions import Partition, PartitionTable, WantedIsr
from ctrlchan.broker.replica.fetcher import Address, ReplicaFetchers
from ctrlchan.broker.replica.isr_changes import AlteredPartition, IsrChange
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.internal_topics import OFFSETS_TOPIC

__all__ = ["Groups", "IsrController", "ReplicaManager"]

logger = logging.getLogger("ctrlchan.broker")

#: Answers of the controller after which the ISR stays as it is.
_NOT_CHANGED: Final = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)


#: From this number on, several threads open the logs.
_MANY: Final = 16
_OPENING_THREADS: Final = 8

_Become: TypeAlias = Callable[[Assignment, Partition, Log], None]


class IsrController(Protocol):
    """The part of the controller's client that ISRs need."""

    def alter_partition(self, change: IsrChange) -> Future[AlteredPartition]: ...


class Groups(Protocol):
    """The part of the group coordinator that is notified of leaders of ``__consumer_offsets``."""

    def on_leader(self, partition: int, leader_epoch: int) -> None: ...
    def on_resigned(self, partition: int, leader_epoch: int | None) -> None: ...


class ReplicaManager:
    """The replicas of the broker ``broker_id``: ``table`` has the partitions, ``logs`` the logs.

    ``lock`` guards ``replicas``, which has the same partitions as columns; ``topic_config`` returns the
    settings of a topic's logs; True: the topic may be new. Methods that open or delete logs are called with
    the lock held. ``max_lag_ms``: ``replica.lag.time.max.ms``. ``find_address``: returns where a broker
    listens, None while that is not known; it is called without a lock.
    """

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        topic_config: Callable[[str, bool], LogConfig],
        replicas: HostedReplicas,
        lock: AbstractContextManager[object],
        *,
        max_lag_ms: int,
        find_address: Callable[[int], Address | None] = lambda _broker_id: None,
        fetching: FetcherSettings | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._topic_config = topic_config
        self._replicas = replicas
        self._lock = lock
        self._max_lag_ms = max_lag_ms
        #: Set before the first request.
        self.controller: IsrController | None = None
        self.groups: Groups | None = None
        self.table: PartitionTable
        self._fetchers = ReplicaFetchers(broker_id, find_address, self._truncate, fetching)
        self._stopped = threading.Event()
        self._isr_thread = threading.Thread(target=self._shrink_isrs, name="isr-expiration", daemon=True)

    def start(self, controller: IsrController | None) -> None:
        """Make the table. ``controller``: decides about ISRs; None: ISRs change by LeaderAndIsr only."""
        self.controller = controller
        self.table = PartitionTable(
            self._broker_id,
            isr_wanted=None if controller is None else self._isr_wanted,
            storage_failed=lambda partition: self._logs.check_log(partition.topic, partition.partition),
            max_lag_ms=self._max_lag_ms,
        )

    # -- what controllers ask for

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """Return the topic id of a log that is on disk."""
        return self._logs.topic_id(topic, partition)

    def make_leaders(self, assignments: Iterable[Assignment]) -> dict[int, int]:
        """Lead these partitions. Return the error of each that has no log, by its place."""
        return self._apply(assignments, self._make_leader)

    def make_followers(self, assignments: Iterable[Assignment]) -> dict[int, int]:
        """Follow other brokers. Return as ``make_leaders``."""
        return self._apply(assignments, self._make_follower)

    def open_logs(self, assignments: Iterable[Assignment]) -> dict[int, int]:
        """Make the logs of replicas whose leader is not live. Return as ``make_leaders``."""
        return self._apply(assignments, lambda _one, _partition, _log: None)

    def delete(self, replicas: Iterable[tuple[str, int, int]]) -> None:
        """Delete (topic, partition, leader epoch of the request) and their logs, where there are any."""
        deleted = list(replicas)
        for topic, partition, _ in deleted:
            self._fetchers.unfollow(topic, partition)
            self.table.remove(topic, partition)
        try:
            self._logs.delete_logs([(topic, partition) for topic, partition, _ in deleted])
        except (KafkaError, OSError) as error:
            logger.error("broker %d: not all logs can be deleted: %s", self._broker_id, error)
        for topic, partition, leader_epoch in deleted:
            if topic == OFFSETS_TOPIC and self.groups is not None:
                self.groups.on_resigned(partition, leader_epoch if leader_epoch >= 0 else None)

    def topics(self) -> set[str]:
        """Return the topics that have a log here."""
        return {topic for topic, _ in self._logs.logs()}

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Let the topic's logs take new settings."""
        self._logs.update_config(topic, config)
        for partition in self.table.partitions():
            if partition.topic == topic:
                partition.update_config(config)

    def log_dir_failed(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Let every request for these partitions fail with KAFKA_STORAGE_ERROR. The lock must not be held."""
        with self._lock:
            for topic, number in partitions:
                self._fetchers.unfollow(topic, number)
                partition = self.table.get(topic, number)
                if partition is not None:
                    partition.set_offline()
                    if topic == OFFSETS_TOPIC and self.groups is not None:
                        self.groups.on_resigned(number, None)
                try:
                    self._replicas.set_offline(topic, number, True)
                except KeyError:
                    continue  # a log without a replica: no controller has named it

    def _apply(self, assignments: Iterable[Assignment], become: _Become) -> dict[int, int]:
        rows = list(assignments)
        configs: dict[str, LogConfig] = {}
        for one in rows:
            if one.topic not in configs:
                configs[one.topic] = self._topic_config(one.topic, one.is_new)
        apply = partial(self._apply_one, become, configs)
        if len(rows) < _MANY:
            return _errors(map(apply, rows))
        # A new log waits for the disk four times, and the disk serves several waits at once.
        with ThreadPoolExecutor(_OPENING_THREADS, "log-opening") as pool:
            return _errors(pool.map(apply, rows))

    def _apply_one(self, become: _Become, configs: Mapping[str, LogConfig], one: Assignment) -> int:
        """Open the log of one partition and give it its role; return an error code."""
        partition = self.table.open(one.topic, one.partition, one.topic_id)
        try:
            log = self._logs.open_log(
                one.topic, one.partition, one.topic_id, configs[one.topic], is_new=one.is_new
            )
            become(one, partition, log)
        except (KafkaError, OSError) as error:
            code = error.code if isinstance(error, KafkaError) else int(ErrorCode.KAFKA_STORAGE_ERROR)
            logger.error("broker %d: %s-%d has no log: %s", self._broker_id, one.topic, one.partition, error)
            if code == ErrorCode.KAFKA_STORAGE_ERROR:
                partition.set_offline()
            return code
        return 0

    def _make_leader(self, one: Assignment, partition: Partition, log: Log) -> None:
        self._fetchers.unfollow(one.topic, one.partition)
        partition.make_leader(log, one.leader_epoch, one.partition_epoch, one.replicas, one.isr)
        if one.topic == OFFSETS_TOPIC and self.groups is not None:
            self.groups.on_leader(one.partition, one.leader_epoch)

    def _make_follower(self, one: Assignment, partition: Partition, log: Log) -> None:
        partition.make_follower(log, one.leader, one.leader_epoch, one.partition_epoch, one.replicas, one.isr)
        self._fetchers.follow(partition)
        if one.topic == OFFSETS_TOPIC and self.groups is not None:
            self.groups.on_resigned(one.partition, one.leader_epoch)

    # -- ISRs

    def serve(self) -> None:
        """Shrink ISRs from now on. Source: ``isr-expiration`` of ``ReplicaManager.startup``."""
        if self.controller is not None:
            self._isr_thread.start()

    def stop(self) -> None:
        """End the threads. Appends that wait for followers are answered."""
        self._stopped.set()
        self._fetchers.stop()
        if self._isr_thread.ident is not None:
            self._isr_thread.join()
        self.table.close()

    def _truncate(self, topic: str, partition: int, offset: int) -> None:
        self._logs.truncate({(topic, partition): offset})

    def _shrink_isrs(self) -> None:
        while not self._stopped.wait(self._max_lag_ms / 2000):
            try:
                self.table.shrink_isrs()
            except Exception:
                logger.exception("broker %d: ISRs cannot shrink", self._broker_id)

    def _isr_wanted(self, partition: Partition, wanted: WantedIsr) -> None:
        """Ask the controller for another ISR of a partition that this broker leads."""
        assert self.controller is not None
        logger.info(
            "broker %d: ISR of %s-%d: %s is wanted, after %s",
            self._broker_id,
            partition.topic,
            partition.partition,
            list(wanted.isr),
            list(partition.isr),
        )
        change = IsrChange(
            partition.topic,
            partition.topic_id,
            partition.partition,
            wanted.leader_epoch,
            wanted.partition_epoch,
            tuple(wanted.isr),
        )
        answer = self.controller.alter_partition(change)
        answer.add_done_callback(lambda done: self._isr_altered(partition, wanted, done))

    def _isr_altered(self, partition: Partition, wanted: WantedIsr, done: Future[AlteredPartition]) -> None:
        """Apply the controller's answer to a wanted ISR."""
        if done.cancelled() or done.exception() is not None:
            partition.keep_isr(wanted.leader_epoch, wanted.partition_epoch)
            return
        altered = done.result()
        if altered.error in _NOT_CHANGED:
            partition.keep_isr(wanted.leader_epoch, wanted.partition_epoch)
        if altered.error:
            # After any other error the next LeaderAndIsr has the valid ISR.
            logger.info(
                "broker %d: ISR of %s-%d: the controller answers %s",
                self._broker_id,
                partition.topic,
                partition.partition,
                ErrorCode.name_of(altered.error),
            )
            return
        partition.set_isr(tuple(altered.isr), altered.partition_epoch, altered.leader_epoch)
        with self._lock:
            try:
                self._replicas.raise_partition_epoch(
                    partition.topic, partition.partition, altered.leader_epoch, altered.partition_epoch
                )
            except KeyError:
                return  # deleted in between


def _errors(codes: Iterable[int]) -> dict[int, int]:
    """Return the codes that are errors, by place."""
    return {place: code for place, code in enumerate(codes) if code}
