"""Opens, closes and deletes the logs of a broker's replicas as controllers ask for it: ``ReplicaManager``.

It starts and stops their fetchers, and their moves between log directories, too.

LeaderAndIsr and StopReplica decide with columns (``metadata/hosted_replicas.py``) which rows change; this
gives each of these partitions its log and its role, and notifies the listeners of its topic.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.parts import FetcherSettings, LogDirMoveSettings
from ctrlchan.broker.log import checkpoints, names
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.log.manager import LogManager
from ctrlchan.broker.log.spare_descriptors import TooFewDescriptorsError
from ctrlchan.broker.metadata.hosted_replicas import Assignment, HostedReplicas
from ctrlchan.broker.quota._replication_quota import ReplicationQuota
from ctrlchan.broker.replica._partitions import Partition, PartitionTable
from ctrlchan.broker.replica.fetcher import FetcherFigures, ReplicaFetchers
from ctrlchan.broker.replica.log_dir_moves import LogDirMoves
from ctrlchan.broker.replica.refused_replicas import RefusedReplicas
from ctrlchan.errors import ErrorCode, KafkaError, LogDirectoryError
from ctrlchan.log_context import ContextLogger
from ctrlchan.peers.connection import Address
from ctrlchan.peers.security import PeerSecurity

__all__ = ["Failure", "LeadershipListener", "ReplicaManager"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

#: From this number on, several threads open the logs.
_MANY: Final = 16
_OPENING_THREADS: Final = 8
#: Of a folder, in characters.
_LONGEST_NAME: Final = 255

_Become: TypeAlias = Callable[[Assignment, Partition, Log], None]


class Failure(NamedTuple):
    """Why a replica has no log. ``is_offline``: it has none until this broker starts again."""

    code: int
    is_offline: bool


class LeadershipListener(Protocol):
    """Hears what this broker leads of one topic: a coordinator. The methods may not wait."""

    def on_leader(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition, in this leader epoch."""

    def on_resigned(self, partition: int, leader_epoch: int | None) -> None:
        """Another broker leads the partition. No `leader_epoch`: this broker's replica is deleted."""


class ReplicaManager:
    """The replicas of a broker: ``table`` has the partitions, ``logs`` the logs.

    ``lock`` guards ``replicas``, which has the same partitions as columns; ``topic_config`` returns the
    settings of a topic's logs; True: the topic may be new. Methods that open or delete logs are called with
    the lock held. ``listeners``: by topic, who hears of its leaders. ``find_address``: returns where a broker
    listens, None while that is not known; it is called without a lock. ``max_lag_ms``:
    ``replica.lag.time.max.ms``. ``ask_again``: see ``RefusedReplicas``.
    """

    def __init__(
        self,
        table: PartitionTable,
        logs: LogManager,
        topic_config: Callable[[str, bool], LogConfig],
        replicas: HostedReplicas,
        lock: AbstractContextManager[object],
        *,
        max_lag_ms: int,
        listeners: Mapping[str, LeadershipListener],
        find_address: Callable[[int], Address | None] = lambda _broker_id: None,
        fetching: FetcherSettings | None = None,
        security: PeerSecurity | None = None,
        follower_quota: ReplicationQuota | None = None,
        moving: LogDirMoveSettings | None = None,
        move_quota: ReplicationQuota | None = None,
        ask_again: Callable[[], bool] = lambda: True,
    ) -> None:
        self.table = table
        self._log = ContextLogger(_LOG, f"[ReplicaManager broker={table.broker_id}] ")
        self._logs = logs
        self._topic_config = topic_config
        self._replicas = replicas
        self._lock = lock
        self._max_lag_ms = max_lag_ms
        self._listeners = listeners
        self._fetchers = ReplicaFetchers(
            table.broker_id, find_address, self._truncate, fetching, security, follower_quota
        )
        directories = len(logs.online_dirs) + len(logs.offline_dirs)
        self.moves = LogDirMoves(logs, directories, moving, move_quota)
        self._refused = RefusedReplicas(ask_again, logs.run_later)
        self._stopped = threading.Event()
        self._isr_thread = threading.Thread(target=self._shrink_isrs, name="isr-expiration", daemon=True)

    # -- what controllers ask for

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """Return the topic id of a log that is on disk."""
        return self._logs.topic_id(topic, partition)

    def make_leaders(self, assignments: Iterable[Assignment]) -> dict[int, Failure]:
        """Lead these partitions. Return why those that have no log have none, by their places."""
        return self._apply(assignments, self._make_leader)

    def make_followers(self, assignments: Iterable[Assignment]) -> dict[int, Failure]:
        """Follow other brokers. Return as ``make_leaders``."""
        return self._apply(assignments, self._make_follower)

    def open_logs(self, assignments: Iterable[Assignment]) -> dict[int, Failure]:
        """Make the logs of replicas whose leader is not live. Return as ``make_leaders``."""
        return self._apply(assignments, lambda _one, _partition, _log: None)

    def delete(self, replicas: Iterable[tuple[str, int, int]]) -> None:
        """Delete (topic, partition, leader epoch of the request) and their logs, where there are any."""
        deleted = list(replicas)
        for topic, partition, _ in deleted:
            self._fetchers.unfollow(topic, partition)
            self.moves.end(topic, partition)
            self.table.remove(topic, partition)
        try:
            self._logs.delete_logs([(topic, partition) for topic, partition, _ in deleted])
        except (KafkaError, OSError) as error:
            self._log.error("not all logs can be deleted: %s", error)
        for topic, partition, leader_epoch in deleted:
            if topic in self._listeners:
                self._listeners[topic].on_resigned(partition, leader_epoch if leader_epoch >= 0 else None)

    def move(self, topic: str, partition: int, path: str, *, is_known: bool) -> int:
        """Move a replica to a log directory of this broker; return an error code. The lock is held.

        A replica that is not here yet will be made there. ``is_known``: the cluster has the partition.
        Source: ``ReplicaManager.alterReplicaLogDirs``.
        """
        try:
            self._move(topic, partition, path, is_known)
        except KafkaError as error:
            self._log.warning("%s-%d is not moved: %s", topic, partition, error)
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                # What clients have got since the request exists.
                return int(ErrorCode.REPLICA_NOT_AVAILABLE)
            return error.code
        return 0

    def _move(self, topic: str, number: int, path: str, is_known: bool) -> None:
        if len(names.renamed_folder(topic, number, names.FUTURE_SUFFIX)) > _LONGEST_NAME:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic name is too long")
        self._logs.check_dir(path)
        partition = self.table.get(topic, number)
        if partition is not None:
            if partition.is_offline:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the log directory of the replica is offline")
            future = self._logs.future_log(topic, number)
            if future is not None and str(future.folder.parent) != path:
                self.moves.end(topic, number)
                self._logs.delete_future(topic, number)
        self._logs.want_dir(topic, number, path)
        if partition is None and not is_known:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition is None or partition.log is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it will be made there")
        self._logs.create_future(topic, number, path)
        self.moves.begin(partition)

    def _go_on_moving(self, partition: Partition) -> None:
        """Go on with a move that was in progress when the partition got another role, or the broker ended."""
        topic, number = partition.topic, partition.partition
        future = self._logs.future_log(topic, number)
        if future is None:
            return
        try:
            topic_id = checkpoints.read_topic_id(future.folder)
        except (OSError, LogDirectoryError) as error:
            self._log.warning("%s: %s", future.folder, error)
            topic_id = None
        if topic_id not in (None, self._logs.topic_id(topic, number)):
            self._log.warning("%s is of a deleted topic", future.folder)
            self.moves.end(topic, number)
            self._logs.delete_future(topic, number)
            return
        self.moves.begin(partition)

    def topics(self) -> set[str]:
        """Return the topics that have a log here."""
        return {topic for topic, _ in self._logs.logs()}

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Let the topic's logs take new settings."""
        self._logs.update_config(topic, config)
        for partition in self.table.partitions():
            if partition.topic == topic:
                partition.update_config(config)

    def fetcher_figures(self) -> FetcherFigures:
        """Return what the fetchers have done so far, and how far behind they are."""
        return self._fetchers.figures()

    def resize_fetchers(self, threads: int) -> None:
        """Have another number of fetcher threads for each leader."""
        self._fetchers.resize(threads)

    def log_dir_failed(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Let every request for these partitions fail with KAFKA_STORAGE_ERROR. The lock must not be held."""
        with self._lock:
            for topic, number in partitions:
                self._fetchers.unfollow(topic, number)
                self.moves.end(topic, number)
                partition = self.table.get(topic, number)
                if partition is not None:
                    partition.set_offline()
                    if topic in self._listeners:
                        self._listeners[topic].on_resigned(number, None)
                try:
                    self._replicas.set_offline(topic, number, True)
                except KeyError:
                    continue  # a log without a replica: no controller has named it

    def _apply(self, assignments: Iterable[Assignment], become: _Become) -> dict[int, Failure]:
        rows = list(assignments)
        configs: dict[str, LogConfig] = {}
        for one in rows:
            if one.topic not in configs:
                configs[one.topic] = self._topic_config(one.topic, one.is_new)
        apply = partial(self._apply_one, become, configs)
        if len(rows) < _MANY:
            return _failures(map(apply, rows))
        # A new log waits for the disk four times, and the disk serves several waits at once.
        with ThreadPoolExecutor(_OPENING_THREADS, "log-opening") as pool:
            return _failures(pool.map(apply, rows))

    def _apply_one(
        self, become: _Become, configs: Mapping[str, LogConfig], one: Assignment
    ) -> Failure | None:
        """Open the log of one partition and give it its role."""
        partition = self.table.open(one.topic, one.partition, one.topic_id)
        try:
            log = self._logs.open_log(
                one.topic, one.partition, one.topic_id, configs[one.topic], is_new=one.is_new
            )
            become(one, partition, log)
        except TooFewDescriptorsError as error:
            self._log.error("%s-%d is refused: %s", one.topic, one.partition, error)
            self._refused.note()
            return Failure(error.code, is_offline=False)
        except (KafkaError, OSError) as error:
            code = error.code if isinstance(error, KafkaError) else int(ErrorCode.KAFKA_STORAGE_ERROR)
            self._log.error("%s-%d has no log: %s", one.topic, one.partition, error)
            if code == ErrorCode.KAFKA_STORAGE_ERROR:
                partition.set_offline()
            return Failure(code, is_offline=code == ErrorCode.KAFKA_STORAGE_ERROR)
        return None

    def _make_leader(self, one: Assignment, partition: Partition, log: Log) -> None:
        self._fetchers.unfollow(one.topic, one.partition)
        partition.make_leader(log, one.leader_epoch, one.partition_epoch, one.replicas, one.isr)
        self._go_on_moving(partition)
        if one.topic in self._listeners:
            self._listeners[one.topic].on_leader(one.partition, one.leader_epoch)

    def _make_follower(self, one: Assignment, partition: Partition, log: Log) -> None:
        partition.make_follower(log, one.leader, one.leader_epoch, one.partition_epoch, one.replicas, one.isr)
        self._fetchers.follow(partition)
        self._go_on_moving(partition)
        if one.topic in self._listeners:
            self._listeners[one.topic].on_resigned(one.partition, one.leader_epoch)

    # -- life

    def serve(self, *, shrinks_isrs: bool) -> None:
        """Shrink ISRs from now on, where a controller decides about them.

        Source: ``isr-expiration`` of ``ReplicaManager.startup``.
        """
        if shrinks_isrs:
            self._isr_thread.start()

    def stop(self) -> None:
        """End the threads. The owner of the table closes it afterwards."""
        self._stopped.set()
        self.moves.stop()
        self._fetchers.stop()
        if self._isr_thread.ident is not None:
            self._isr_thread.join()

    def _truncate(self, topic: str, partition: int, offset: int) -> None:
        self._logs.truncate({(topic, partition): offset})

    def _shrink_isrs(self) -> None:
        while not self._stopped.wait(self._max_lag_ms / 2000):
            try:
                self.table.shrink_isrs()
            except Exception:  # noqa: BLE001 - the next time may succeed
                self._log.exception("ISRs cannot shrink")


def _failures(results: Iterable[Failure | None]) -> dict[int, Failure]:
    """Return the results that are failures, by place."""
    return {place: failure for place, failure in enumerate(results) if failure is not None}
