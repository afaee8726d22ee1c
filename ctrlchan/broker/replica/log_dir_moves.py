"""LogDirMoves: copies replicas to other log directories of the broker (KIP-113).

A replica that moves has a second log, its future one, in the other directory. A thread copies the records of
the first one there. When both have the same end, the future log takes the place of the first one, which is
deleted. Each thread has partitions of its own, and copies one piece of one partition at a time.
Source: ``ReplicaAlterLogDirsManager``, ``ReplicaAlterLogDirsThread``, ``LocalLeaderEndPoint``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from time import monotonic
from typing import Final

from ctrlchan.broker.config.parts import LogDirMoveSettings
from ctrlchan.broker.log._log import LATEST, Log
from ctrlchan.broker.log.manager import LogManager
from ctrlchan.broker.quota._replication_quota import ReplicationQuota
from ctrlchan.broker.replica._partitions import Partition
from ctrlchan.broker.replica.copied_records import append_copied, common_end
from ctrlchan.broker.replica.thread_choice import thread_of
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.log_context import ContextLogger

__all__ = ["LogDirMoves"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

_UNDEFINED: Final = -1
#: Seconds until a log that is being cleaned is tried again.
_CLEANED_SECONDS: Final = 0.05
#: Bytes of a copy between two flushes.
_FLUSH_BYTES: Final = 32 << 20

Key = tuple[str, int]


class _Step(Enum):
    """What one step has done: it is over, there is more to do at once, or after a pause."""

    ENDED = auto()
    GOES_ON = auto()
    PAUSES = auto()


@dataclass(slots=True, eq=False)
class _Move:
    partition: Partition
    resume_at: float = 0.0
    #: Bytes since the last flush of the copy; -1: it has been flushed at the end of the log.
    unflushed: int = 0


class LogDirMoves:
    """The threads that move replicas of a broker, by default one for each of ``directories`` directories.

    ``quota``: of the bytes that are copied. Methods may be called by any thread; none waits for more than one
    step of a thread.
    """

    def __init__(
        self,
        logs: LogManager,
        directories: int,
        settings: LogDirMoveSettings | None = None,
        quota: ReplicationQuota | None = None,
    ) -> None:
        self._logs = logs
        self._settings = settings or LogDirMoveSettings()
        self._count = self._settings.threads or directories
        self._quota = quota or ReplicationQuota()
        self._lock = threading.Lock()
        self._threads: dict[int, _MoveThread] = {}
        self._stopped = False

    def begin(self, partition: Partition) -> None:
        """Copy a partition to its future log, if it has one. A move that is in progress goes on."""
        topic, number = partition.topic, partition.partition
        future = self._logs.future_log(topic, number)
        if future is None:
            return
        place = thread_of(topic, number, self._count)
        with self._lock:
            if self._stopped:
                return
            partition.set_future_start(future.start_offset)
            thread = self._threads.get(place)
            if thread is None:
                thread = _MoveThread(place, self._logs, self._settings, self._quota, self._forget_idle)
                self._threads[place] = thread
                thread.start()
            thread.add((topic, number), partition)

    def end(self, topic: str, partition: int) -> None:
        """Stop copying a partition. No thread changes its logs after this call."""
        with self._lock:
            for thread in self._threads.values():
                thread.remove((topic, partition))

    def largest_lag(self) -> int:
        """Return the most records that a future log has to get yet (``MaxLag``)."""
        lags = [0]
        for (topic, partition), future in self._logs.future_logs().items():
            log = self._logs.log(topic, partition)
            if log is not None:
                lags.append(log.end_offset - future.end_offset)
        return max(lags)

    def stop(self) -> None:
        """End all threads. The next start of the broker goes on."""
        with self._lock:
            self._stopped = True
            threads = list(self._threads.values())
            self._threads.clear()
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join()

    def _forget_idle(self, thread: _MoveThread) -> bool:
        """Forget a thread that has nothing to move; return whether it ends."""
        with self._lock:
            if thread.is_busy:
                return False
            for place, one in list(self._threads.items()):
                if one is thread:
                    del self._threads[place]
            return True


class _MoveThread(threading.Thread):
    """Moves its partitions. ``number``: among the threads.

    ``forget``: called without partitions; returns whether the thread ends.
    """

    def __init__(
        self,
        number: int,
        logs: LogManager,
        settings: LogDirMoveSettings,
        quota: ReplicationQuota,
        forget: Callable[[_MoveThread], bool],
    ) -> None:
        super().__init__(name=f"replica-alter-log-dirs-{number}", daemon=True)
        self._log = ContextLogger(_LOG, f"[ReplicaAlterLogDirsThread-{number}]: ")
        self._logs = logs
        self._settings = settings
        self._quota = quota
        self._forget = forget
        #: Held during a step; guards ``_moves``.
        self._changed = threading.Condition()
        self._moves: dict[Key, _Move] = {}
        self._ended = False

    @property
    def is_busy(self) -> bool:
        """Whether there is something to move."""
        return bool(self._moves)

    def add(self, key: Key, partition: Partition) -> None:
        with self._changed:
            self._moves[key] = _Move(partition)
            self._changed.notify()

    def remove(self, key: Key) -> None:
        with self._changed:
            move = self._moves.pop(key, None)
            if move is not None:
                move.partition.set_future_start(None)
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()

    def run(self) -> None:
        while not self._ended:
            if not self._moves and self._forget(self):
                return
            with self._changed:
                self._turn()

    def _turn(self) -> None:
        """Do one step, or wait for something to do. Requires ``_changed``."""
        now = monotonic()
        ready = next((key for key, one in self._moves.items() if one.resume_at <= now), None)
        if ready is not None and self._quota.is_exceeded:
            self._wait(self._settings.backoff_ms / 1000)
        elif ready is not None:
            self._step_of(ready)
        elif self._moves:
            self._wait(min(one.resume_at for one in self._moves.values()) - now)

    def _wait(self, seconds: float) -> None:
        if not self._ended:
            self._changed.wait(seconds)

    def _step_of(self, key: Key) -> None:
        """Do one step of a move. Requires ``_changed``."""
        move = self._moves.pop(key)
        try:
            done = self._step(key, move)
        except KafkaError as error:
            done = self._after(key, move, error)
        except Exception:  # noqa: BLE001 - the other moves go on
            self._log.exception("%s-%d is no longer moved", *key)
            done = _Step.ENDED
        if done is _Step.ENDED:
            move.partition.set_future_start(None)
        else:
            # The others are next.
            self._moves[key] = move

    def _step(self, key: Key, move: _Move) -> _Step:
        """Copy one piece, or replace the log. Raises KafkaError."""
        partition, log, future = move.partition, move.partition.log, self._logs.future_log(*key)
        if log is None or future is None or log is future:
            # A log directory has failed, or the replica is deleted.
            return _Step.ENDED
        self._truncate(key, log, future)
        if future.end_offset < log.end_offset:
            found = log.read_file_range(future.end_offset, self._settings.partition_max_bytes)
            try:
                records = found.read()
            finally:
                found.close()
            if records:
                append_copied(future, records)
                self._quota.record(len(records))
                self._flush_some(move, future, len(records))
        future.update_high_watermark(log.high_watermark)
        if log.start_offset > future.start_offset:
            with suppress(KafkaError):
                # Above what is copied: the next step does it.
                future.increment_start_offset(log.start_offset)
        partition.set_future_start(future.start_offset)
        if future.end_offset != log.end_offset:
            return _Step.GOES_ON
        if move.unflushed >= 0:
            # Before the exchange, which then has only few bytes to flush.
            future.flush()
            move.unflushed = -1
            return _Step.GOES_ON
        if self._logs.replace_log(*key, partition.replace_log):
            return _Step.ENDED
        # Records have come meanwhile, or the log is being cleaned.
        if future.end_offset == log.end_offset:
            move.resume_at = monotonic() + _CLEANED_SECONDS
            return _Step.PAUSES
        return _Step.GOES_ON

    @staticmethod
    def _flush_some(move: _Move, future: Log, size: int) -> None:
        """Flush the copy from time to time, so that no step takes long."""
        if move.unflushed >= 0:
            move.unflushed += size
            if move.unflushed >= _FLUSH_BYTES:
                future.flush()
                move.unflushed = 0

    def _truncate(self, key: Key, log: Log, future: Log) -> None:
        """Remove the records of the future log that the other one does not have (any more)."""
        if not log.start_offset <= future.end_offset <= log.end_offset:
            start = log.start_offset
            if future.end_offset < start:
                future.truncate_fully(start)
            else:
                self._logs.truncate({key: log.end_offset}, is_future=True)
        last = future.list_offset(LATEST)
        epoch = _UNDEFINED if last is None else last[2]
        if epoch == _UNDEFINED:
            return
        own = log.end_of_epoch(epoch)
        if own.epoch == _UNDEFINED:
            # The log has none of its records any more.
            if future.end_offset > log.start_offset:
                future.truncate_fully(log.start_offset)
        elif own.epoch < epoch or own.end_offset < future.end_offset:
            offset = common_end(future, own.epoch, own.end_offset)
            if offset < future.end_offset:
                self._logs.truncate({key: offset}, is_future=True)

    def _after(self, key: Key, move: _Move, error: KafkaError) -> _Step:
        """Decide how a move goes on after an error."""
        if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            # The log directory at fault goes offline.
            self._logs.check_log(*key)
            if self._logs.future_log(*key) is None or move.partition.log is None:
                self._log.error("%s-%d is not moved: %s", *key, error)
                return _Step.ENDED
        self._log.warning("%s-%d is moved later: %s", *key, error)
        move.resume_at = monotonic() + self._settings.backoff_ms / 1000
        return _Step.PAUSES
