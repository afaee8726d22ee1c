"""Chooses which log is compacted next, and knows up to where each one is clean (``LogCleanerManager``)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from ctrlchan.broker.config.log_manager_settings import LogManagerSettings
from ctrlchan.broker.log.checkpoints import CLEANER_CHECKPOINT
from ctrlchan.broker.log.cleaner import Dirty, Stopped, clean, dirty_part
from ctrlchan.broker.log.directory import LogDirectory, Place
from ctrlchan.broker.log.throttle import Throttle
from ctrlchan.errors import KafkaError, LogDirectoryError
from ctrlchan.log_context import ContextLogger

__all__ = ["CleanerStatus", "LogCleaner"]

_LOG: Final = logging.getLogger(__name__)

Replica = tuple[str, int]


class CleanerStatus(NamedTuple):
    """What the cleaner has done, for metrics (Kafka: gauges of LogCleaner and LogCleanerManager).

    ``dirtiest``: the largest dirty ratio that the last run has seen. ``idle_ms``: since the last run began.
    ``recopied``: the part of its bytes that the last cleaning has kept. ``seconds``: how long that one took.
    ``damaged``: the logs that are not cleaned any more.
    """

    dirtiest: float
    idle_ms: float
    recopied: float
    seconds: float
    damaged: frozenset[Replica]


class LogCleaner:
    """Compacts the logs whose cleanup.policy says so, the one with the largest dirty part first.

    ``places``: returns all logs. ``io``: takes a directory offline when the disk fails. ``settings``: of the
    map of keys, the bytes that are read at once, and the rate. ``is_moving``: whether a log is copied to
    another directory, and not cleaned meanwhile. A log with a damaged segment is left alone until the broker
    starts again, as by Kafka.
    """

    def __init__(
        self,
        places: Callable[[], Mapping[Replica, Place]],
        io: Callable[[LogDirectory, str], AbstractContextManager[None]],
        settings: LogManagerSettings,
        is_moving: Callable[[Replica], bool] = lambda _key: False,
    ) -> None:
        self._places = places
        self._io = io
        self._is_moving = is_moving
        self._settings = settings
        self._throttle = Throttle(settings.cleaner_max_bytes_per_second)
        self._is_stopped = False
        #: Nothing that takes another lock is called while it is held: the log manager asks with its own lock.
        self._lock = threading.Lock()
        self._clean_up_to: dict[Replica, int] = {}
        self._running: set[Replica] = set()
        self._damaged: set[Replica] = set()
        # For metrics.
        self._dirtiest = 0.0
        self._last_run = time.monotonic()
        self._last_cleaning = 0.0, 0.0

    def load(self, directory: LogDirectory) -> None:
        """Take the cleaner's checkpoint of a directory that is being loaded."""
        self._clean_up_to.update(directory.offsets_of(CLEANER_CHECKPOINT))

    def reconfigure(self, settings: LogManagerSettings) -> None:
        """Have another rate from now on, and other memory from the next cleaning on."""
        self._settings = settings
        self._throttle.use(settings.cleaner_max_bytes_per_second)

    def stop(self) -> None:
        """End a cleaning that runs."""
        self._is_stopped = True

    def forget(self, replicas: Iterable[Replica]) -> None:
        """Forget replicas that are deleted."""
        with self._lock:
            for key in replicas:
                self._clean_up_to.pop(key, None)
                self._damaged.discard(key)

    def run(self, number: int) -> None:
        """Clean until no log is dirty enough, and apply retention to the logs that are compacted too.

        ``number``: of this run among those at the same time.
        """
        lines = ContextLogger(_LOG, f"[kafka-log-cleaner-thread-{number}]: ")
        while not self._is_stopped and (chosen := self._choose()) is not None:
            key, place, dirty = chosen
            try:
                self._clean(key, place, dirty, lines)
            finally:
                self._end(key)
        for key, place in self._places().items():
            if place.log.config.cleanup_compact and not self._is_stopped and self._begin(key):
                try:
                    with self._io(place.directory, "cannot be written"):
                        place.log.delete_old_segments()
                finally:
                    self._end(key)

    def _begin(self, key: Replica) -> bool:
        with self._lock:
            if key in self._running or key in self._damaged or self._is_moving(key):
                return False
            self._running.add(key)
            return True

    def status(self) -> CleanerStatus:
        """Return what the cleaner has done."""
        with self._lock:
            damaged = frozenset(self._damaged)
        idle_ms = 1000 * (time.monotonic() - self._last_run)
        return CleanerStatus(self._dirtiest, idle_ms, *self._last_cleaning, damaged)

    def is_cleaning(self, key: Replica) -> bool:
        """Return whether a log is being cleaned."""
        with self._lock:
            return key in self._running

    def _end(self, key: Replica) -> None:
        with self._lock:
            self._running.discard(key)

    def _choose(self) -> tuple[Replica, Place, Dirty] | None:
        """Return the log with the largest dirty ratio among those to be cleaned, and mark it as running."""
        now = time.time_ns() // 1_000_000
        self._last_run, dirtiest = time.monotonic(), 0.0
        best: tuple[Replica, Place, Dirty] | None = None
        for key, place in self._places().items():
            log = place.log
            if not log.config.cleanup_compact or log.segment_count < 2 or not self._begin(key):
                continue
            try:
                dirty = self._dirty(key, place, now)
            except KafkaError:
                dirty = None  # closed meanwhile
            if dirty is not None:
                dirtiest = max(dirtiest, dirty.ratio)
            dirty = dirty if dirty is not None and self._is_dirty_enough(place, dirty) else None
            if dirty is not None and (best is None or dirty.ratio > best[2].ratio):
                if best is not None:
                    self._end(best[0])
                best = key, place, dirty
            else:
                self._end(key)
        self._dirtiest = dirtiest
        return best

    def _dirty(self, key: Replica, place: Place, now_ms: int) -> Dirty | None:
        """Return the part of a log that can be cleaned, or None."""
        truncated = place.log.take_lowest_truncation()
        if truncated is not None and key in self._clean_up_to:
            self._clean_up_to[key] = min(self._clean_up_to[key], truncated)
        dirty = dirty_part(place.log, self._clean_up_to.get(key), now_ms)
        return None if dirty is None or dirty.cleanable_bytes == 0 else dirty

    def _is_dirty_enough(self, place: Place, dirty: Dirty) -> bool:
        """Return whether a log is worth a cleaning."""
        return dirty.is_overdue or dirty.ratio > place.log.config.min_cleanable_dirty_ratio

    def _clean(self, key: Replica, place: Place, dirty: Dirty, lines: ContextLogger) -> None:
        log, directory = place
        before, begun, settings = log.size, time.monotonic(), self._settings
        with self._io(directory, f"{log.folder} cannot be cleaned"):
            try:
                end = clean(
                    log,
                    dirty,
                    memory=settings.cleaner_memory // settings.cleaner_threads,
                    load_factor=settings.cleaner_load_factor,
                    read_bytes=settings.cleaner_buffer_bytes // settings.cleaner_threads // 2,
                    throttle=self._throttle,
                    now_ms=time.time_ns() // 1_000_000,
                    is_stopped=lambda: self._is_stopped or self._is_moving(key),
                )
                if end <= dirty.first_dirty:
                    raise LogDirectoryError(
                        f"{log.folder}, offset {end}: log.cleaner.dedupe.buffer.size is too small"
                    )
            except Stopped:
                return
            except LogDirectoryError as error:
                lines.error("A log is not cleaned any more: %s", error)
                with self._lock:
                    self._damaged.add(key)
                return
            seconds = time.monotonic() - begun
            lines.info(
                "Cleaned %s up to offset %d in %.1f s: %d of %d bytes are left",
                log.folder, end, seconds, log.size, before,
            )  # fmt: skip
            kept = sum(
                one.size for one in log.describe_segments() if one.base_offset < dirty.first_uncleanable
            )
            self._last_cleaning = kept * dirty.ratio / dirty.cleanable_bytes, seconds
            self._clean_up_to[key] = end
            self.write_checkpoint(directory)

    def write_checkpoint(self, directory: LogDirectory) -> None:
        """Write up to where the logs of a directory are clean. Raises OSError."""
        places = self._places()
        with self._lock:
            offsets = {
                key: self._clean_up_to[key]
                for key, place in places.items()
                if place.directory is directory and key in self._clean_up_to
            }
        directory.write_checkpoint(CLEANER_CHECKPOINT, offsets)
