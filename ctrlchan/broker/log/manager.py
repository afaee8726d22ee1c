"""All logs of one broker: they are loaded, recovered, flushed, cleaned, checkpointed and deleted here.

In: the log directories, the settings of topics, and which replicas there should be. Out: ``Log`` objects. A
disk that fails takes only its log directory offline. Sources: ``LogManager``, ``LogDirFailureChannel``.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.log_manager_settings import LogManagerSettings
from ctrlchan.broker.log import checkpoints, names
from ctrlchan.broker.log._log import (
    DUE_DELETION,
    DUE_FLUSH,
    DUE_FLUSH_ROLLED,
    DUE_OFFLINE,
    Log,
)
from ctrlchan.broker.log.background import Scheduler
from ctrlchan.broker.log.directory import LogDirectory, Place, read_identity
from ctrlchan.broker.log.lock_file import RefusedError
from ctrlchan.broker.log.log_cleaner import CleanerStatus, LogCleaner
from ctrlchan.broker.log.spare_descriptors import demand_spare_descriptors
from ctrlchan.errors import ConfigError, ErrorCode, KafkaError, LogDirectoryError
from ctrlchan.text import quoted
from ctrlchan.topic_names import ZERO_ID, id_to_text, why_invalid

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LogDirSizes", "LogManager", "ReplicaSize", "read_identity"]

logger: Final = logging.getLogger(__name__)

#: Seconds between two looks at each log: is a flush or a deletion due, has it failed?
_TICK_SECONDS: Final = 1.0
#: The shortest pause of the cleaner.
_CLEANER_PAUSE_SECONDS: Final = 0.01
#: Threads that close the logs of one directory: each waits for the disk.
_CLOSING_THREADS: Final = 8
_STRIPES: Final = 16
#: Replicas that are not here yet, for which a log directory is remembered.
_MOST_WANTED: Final = 100_000
#: DescribeLogDirsResponse.INVALID_OFFSET_LAG
_NO_LAG: Final = -1


class ReplicaSize(NamedTuple):
    """The size of a replica on disk, and how far its end is behind the high watermark.

    ``is_future``: it is being moved to this directory; its end is behind that of the replica, or -1.
    """

    topic: str
    partition: int
    size: int
    offset_lag: int
    is_future: bool = False


class LogDirSizes(NamedTuple):
    """The sizes in one log directory; -1 and no replicas where it is offline: ``failure`` says why."""

    path: Path
    failure: str | None
    total_bytes: int
    usable_bytes: int
    replicas: list[ReplicaSize]


class LogManager:
    """The logs of one broker in its log directories.

    ``progress``: called for each loaded log with directory, number of loaded logs, number of all, and the
    replica's folder name, on the threads that load. ``on_offline``: called on a background thread with a
    directory that has failed and the (topic, partition) pairs in it.
    """

    def __init__(
        self,
        dirs: Sequence[str | os.PathLike[str]],
        defaults: LogConfig,
        broker_id: int,
        cluster_id: str,
        *,
        settings: LogManagerSettings | None = None,
        progress: Callable[[Path, int, int, str], None] | None = None,
        on_offline: Callable[[Path, list[tuple[str, int]]], None] | None = None,
    ) -> None:
        paths = [Path(os.path.abspath(path)) for path in dirs]
        if not paths:
            raise ConfigError("log.dirs: no directory")
        if len({path.resolve() for path in paths}) < len(paths):
            raise ConfigError(f"log.dirs: a directory comes twice: {', '.join(map(str, paths))}")
        self.defaults = defaults
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.settings = settings or LogManagerSettings()
        self._progress = progress
        self._on_offline = on_offline
        self._directories = [LogDirectory(path) for path in paths]
        self._scheduler: Scheduler | None = None
        #: Counts the changes of the cleaner's settings: runs that were planned before one are dropped.
        self._cleaner_settings = 0
        self._cleaner = LogCleaner(
            self._all_places,
            self._io,
            self.settings,
            lambda key: key in self._future,
        )
        #: Locks for creating and deleting replicas; several replicas share one. Taken before ``_lock``.
        self._stripes = [threading.RLock() for _ in range(_STRIPES)]
        #: Guards the fields below. Its owner never waits for the disk, except to rename a folder.
        self._lock = threading.RLock()
        self._places: dict[tuple[str, int], Place] = {}
        self._topic_ids: dict[tuple[str, int], bytes] = {}
        #: Due time and folder of each replica that waits for its deletion.
        self._deleted: list[tuple[int, LogDirectory, Path]] = []
        #: Logs that are to take the place of a replica's log in another directory (KIP-113).
        self._future: dict[tuple[str, int], Place] = {}
        #: Where replicas shall be made that are not here yet.
        self._wanted_dirs: dict[tuple[str, int], LogDirectory] = {}

    # -- start and stop

    def start(self, topic_configs: Callable[[str], LogConfig] | None = None) -> None:
        """Lock, check and load all log directories, and begin the background work.

        ``topic_configs``: the settings of a topic's logs. Raises LogDirectoryError where a directory belongs
        to somebody else, a replica is in two of them, or none can be used.
        """
        try:
            self._open()
            self._load(topic_configs or (lambda _: self.defaults))
        except BaseException:
            self.kill()
            raise
        self._scheduler = Scheduler(self.settings.background_threads, "log-background")
        self._schedule(self._scheduler)

    def _open(self) -> None:
        for directory in self._directories:
            with self._io(directory, "cannot be opened"):
                directory.open()
        online = self._online()
        for directory in online:
            directory.check_identity(self.cluster_id, self.broker_id)
        for directory in online:
            with self._io(directory, "meta.properties cannot be written"):
                directory.write_identity(self.cluster_id, self.broker_id)
        self._demand_one()

    def _load(self, topic_configs: Callable[[str], LogConfig]) -> None:
        """Load all logs, those of each directory on its own threads."""
        begun = time.monotonic()
        pools: list[ThreadPoolExecutor] = []
        jobs: list[Future[None]] = []
        try:
            for directory in self._online():
                with self._io(directory, "cannot be read"):
                    folders = directory.begin_loading()
                    due = _now_ms() + self.defaults.file_delete_delay_ms
                    self._deleted += [(due, directory, path) for path in folders.deleted]
                    number = len(folders.replicas) + len(folders.future)
                    self._log_beginning(directory, number)
                    pool = ThreadPoolExecutor(
                        self.settings.recovery_threads_per_dir,
                        thread_name_prefix=f"log-recovery-{directory.path}",
                    )
                    pools.append(pool)
                    count = _Count(number)
                    jobs += [
                        pool.submit(self._load_log, directory, key, path, topic_configs, count)
                        for key, path in (*folders.replicas.items(), *folders.future)
                    ]
            for job in jobs:
                job.result()
        finally:
            for pool in pools:
                pool.shutdown(cancel_futures=True)
        for directory in self._online():
            self._cleaner.load(directory)
            directory.end_loading()
        self._demand_one()
        logger.info("Loaded %d logs in %.3f s", len(self._places), time.monotonic() - begun)

    @staticmethod
    def _log_beginning(directory: LogDirectory, number: int) -> None:
        if directory.was_clean:
            logger.info("%s: loading %d logs after a clean shutdown", directory.path, number)
        else:
            logger.info("%s: recovering %d logs: no clean shutdown", directory.path, number)

    def _load_log(
        self,
        directory: LogDirectory,
        key: tuple[str, int],
        path: Path,
        topic_configs: Callable[[str], LogConfig],
        count: _Count,
    ) -> None:
        if directory.failure is not None:
            return
        offset_of = partial(directory.offset_of, topic=key[0], partition=key[1])
        with self._io(directory, f"{path.name} cannot be loaded"):
            topic_id = checkpoints.read_topic_id(path)
            log = Log(
                path,
                topic_configs(key[0]),
                start_offset=offset_of(checkpoints.LOG_START_CHECKPOINT),
                recovery_point=offset_of(checkpoints.RECOVERY_POINT_CHECKPOINT),
                clean=directory.was_clean,
                producer_expiration_ms=self.settings.producer_expiration_ms,
            )
            log.update_high_watermark(offset_of(checkpoints.HIGH_WATERMARK_CHECKPOINT))
            is_future = path.name.endswith(names.FUTURE_SUFFIX)
            places = self._future if is_future else self._places
            with self._lock:
                other = places.get(key)
                if other is not None:
                    log.close_files()
                    raise RefusedError(
                        f"{path} and {other.log.folder}: the same replica in two log directories; delete the "
                        "one in the directory that is known to have failed"
                    )
                if directory.failure is not None:
                    log.close_files()
                    return
                places[key] = Place(log, directory)
                if topic_id is not None and not is_future:
                    self._topic_ids[key] = topic_id
            if self._progress is not None:
                self._progress(directory.path, count.add(), count.of, path.name)

    def _schedule(self, scheduler: Scheduler) -> None:
        """Schedule the tasks. One with a period of 0 runs once, as in ``KafkaScheduler``."""
        settings, delay = self.settings, self.settings.initial_delay_ms / 1000
        for directory in self._online():
            for period, what in (
                (settings.retention_check_ms, self._delete_old_segments),
                (settings.recovery_point_checkpoint_ms, self._write_recovery_points),
                (settings.log_start_checkpoint_ms, self._write_start_offsets),
                (settings.producer_expiration_check_ms, self._remove_expired_producers),
            ):
                if period > 0:
                    scheduler.every(period / 1000, partial(what, directory), delay)
                else:
                    scheduler.once(partial(what, directory), delay)
            period = settings.high_watermark_checkpoint_ms
            if period > 0:
                scheduler.every(period / 1000, partial(self._write_high_watermarks, directory))
            else:
                scheduler.once(partial(self._write_high_watermarks, directory))
            scheduler.every(_TICK_SECONDS, partial(self._tick, directory))
        self._plan_cleaner(scheduler)

    def _plan_cleaner(self, scheduler: Scheduler) -> None:
        """Begin with the cleaner's settings, on as many threads as they say."""
        self._cleaner_settings += 1
        if self.settings.cleaner_enabled:
            for number in range(self.settings.cleaner_threads):
                self._plan_cleaning(scheduler, self._cleaner_settings, number)

    def _plan_cleaning(self, scheduler: Scheduler, version: int, number: int) -> None:
        # Without a pause a thread would do nothing but ask whether a log is dirty, as Kafka's does.
        pause = max(self.settings.cleaner_backoff_ms / 1000, _CLEANER_PAUSE_SECONDS)
        scheduler.once(partial(self._run_cleaner, scheduler, version, number), pause)

    def _run_cleaner(self, scheduler: Scheduler, version: int, number: int) -> None:
        if version != self._cleaner_settings:
            return
        try:
            self._cleaner.run(number)
        finally:
            self._plan_cleaning(scheduler, version, number)

    def reconfigure(self, settings: LogManagerSettings) -> None:
        """Take other settings: threads, the cleaner's, producer.id.expiration.ms. The periods of tasks stay.

        Those of the loading count at the next start.
        """
        before, self.settings = self.settings, settings
        scheduler = self._scheduler
        if settings.producer_expiration_ms != before.producer_expiration_ms:
            for log in (*self.logs().values(), *self.future_logs().values()):
                log.set_producer_expiration(settings.producer_expiration_ms)
        if scheduler is None:
            return
        if settings.background_threads != before.background_threads:
            scheduler.resize(settings.background_threads)
        if settings.of_cleaner != before.of_cleaner:
            self._cleaner.reconfigure(settings)
            self._plan_cleaner(scheduler)

    def stop(self, broker_epoch: int = -1) -> None:
        """Flush and close all logs, write the checkpoints, and mark the directories as closed in order."""
        self._stop_scheduler()
        starts = {directory: self._start_offsets(directory) for directory in self._online()}
        try:
            with ThreadPoolExecutor(max(1, len(starts)), thread_name_prefix="log-closing") as pool:
                closing = [
                    pool.submit(self._close_directory, directory, offsets, broker_epoch)
                    for directory, offsets in starts.items()
                ]
            for job in closing:
                job.result()
        finally:
            self.kill()

    def _close_directory(
        self, directory: LogDirectory, starts: Mapping[tuple[str, int], int], broker_epoch: int
    ) -> None:
        with self._io(directory, "cannot be closed"):
            with ThreadPoolExecutor(_CLOSING_THREADS, thread_name_prefix="log-closing") as pool:
                for closed in [pool.submit(log.close) for log in self._logs_in(directory).values()]:
                    closed.result()
            self._write_recovery_points(directory)
            directory.write_checkpoint(checkpoints.LOG_START_CHECKPOINT, starts)
            self._write_high_watermarks(directory)
            directory.close(clean=directory.is_loaded, broker_epoch=broker_epoch)

    def kill(self) -> None:
        """Close all files as they are and give the locks back: the logs need recovery afterwards."""
        self._stop_scheduler()
        with self._lock:
            for place in (*self._places.values(), *self._future.values()):
                place.log.close_files()
            self._places.clear()
            self._future.clear()
            for directory in self._directories:
                directory.close(clean=False)

    def run_later(self, function: Callable[[], object], delay: float = 0.0) -> None:
        """Run a function on a background thread after ``delay`` seconds, unless they have ended."""
        scheduler = self._scheduler
        if scheduler is not None:
            scheduler.once(function, delay)

    def _stop_scheduler(self) -> None:
        self._cleaner.stop()
        if self._scheduler is not None:
            self._scheduler.stop()
            self._scheduler = None

    # -- directories that fail

    @property
    def online_dirs(self) -> list[Path]:
        """The log directories that can be used."""
        return [directory.path for directory in self._online()]

    @property
    def offline_dirs(self) -> dict[Path, str]:
        """The log directories that have failed, and why."""
        return {one.path: one.failure for one in self._directories if one.failure is not None}

    def cleaner_status(self) -> CleanerStatus:
        """Return what the cleaner has done."""
        return self._cleaner.status()

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if directory.failure is None]

    def _demand_one(self) -> None:
        if not self._online():
            reasons = "; ".join(f"{path}: {reason}" for path, reason in self.offline_dirs.items())
            raise LogDirectoryError(f"no log directory can be used: {reasons}")

    @contextmanager
    def _io(self, directory: LogDirectory, what: str) -> Iterator[None]:
        """Take the directory offline where the disk fails or a file in it cannot be used."""
        try:
            yield
        except LogDirectoryError as error:
            if isinstance(error, RefusedError):
                raise
            self._take_offline(directory, f"{what}: {error}")
        except (OSError, KafkaError) as error:
            self._take_offline(directory, f"{what}: {error}")

    def check_log(self, topic: str, partition: int) -> None:
        """Take a directory offline if the log of a replica in it, or its future log, has failed."""
        for place in (self._places.get((topic, partition)), self._future.get((topic, partition))):
            if place is not None:
                with self._io(place.directory, "cannot be written"):
                    _demand_online(place.log)

    def _take_offline(self, directory: LogDirectory, reason: str) -> None:
        """Close the logs of a directory that has failed; the first failure counts."""
        with self._lock:
            if directory.failure is not None:
                return
            directory.failure = reason
            keys = [key for key, place in self._places.items() if place.directory is directory]
            for key in keys:
                self._places.pop(key).log.close_files()
                self._topic_ids.pop(key, None)
            for key in [key for key, place in self._future.items() if place.directory is directory]:
                self._future.pop(key).log.close_files()
            directory.close(clean=False)
        logger.error(
            "Log directory %s is offline, and %d replicas with it: %s", directory.path, len(keys), reason
        )
        if self._on_offline is not None:
            self.run_later(partial(self._on_offline, directory.path, keys))

    # -- replicas

    def log(self, topic: str, partition: int) -> Log | None:
        """Return the log of a replica, or None if it has no log that is online."""
        place = self._places.get((topic, partition))
        return None if place is None else place.log

    @property
    def has_logs(self) -> bool:
        """Whether there is a log. Takes no lock, so any lock may be held."""
        return bool(self._places)

    def logs(self) -> dict[tuple[str, int], Log]:
        """Return all logs by (topic, partition)."""
        with self._lock:
            return {key: place.log for key, place in self._places.items()}

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """Return the topic id of a replica's folder, or None."""
        return self._topic_ids.get((topic, partition))

    def open_log(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig | None = None,
        *,
        is_new: bool = False,
    ) -> Log:
        """Return the log of a replica; create it in the directory with the fewest logs where there is none.

        ``topic_id``: zero where it is not known. ``is_new``: the replica cannot be in a directory that is
        offline. Raises KafkaError: INCONSISTENT_TOPIC_ID, KAFKA_STORAGE_ERROR, INVALID_TOPIC_EXCEPTION.
        """
        key = topic, partition
        with self._stripe(key):
            place = self._places.get(key)
            if place is None:
                place = self._create(key, config or self.defaults, is_new=is_new)
            if topic_id != ZERO_ID:
                self._check_topic_id(key, place, topic_id)
            return place.log

    def _stripe(self, key: tuple[str, int]) -> threading.RLock:
        """Return the lock under which a replica is created and deleted; each replica has its own."""
        return self._stripes[hash(key) % len(self._stripes)]

    def _create(self, key: tuple[str, int], config: LogConfig, *, is_new: bool) -> Place:
        name = names.folder_name(*key)
        if why_invalid(key[0]) is not None or key[1] < 0:
            # Anybody can send the request, and the name becomes a path.
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} can be no folder")
        if not is_new and self.offline_dirs:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{name} may be in a log directory that is offline: {', '.join(map(str, self.offline_dirs))}",
            )
        with self._lock:
            wanted = self._wanted_dirs.get(key)
            if wanted is not None and wanted.failure is not None:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name}: {wanted.path} is offline")
            logs = dict.fromkeys(self._online() if wanted is None else [wanted], 0)
            if len(logs) > 1:
                for place in self._places.values():
                    logs[place.directory] += 1
        demand_spare_descriptors(f"{name} cannot be created")
        for directory in sorted(logs, key=lambda one: logs[one]):
            with self._io(directory, f"{name} cannot be created"):
                log = Log(
                    directory.path / name, config, producer_expiration_ms=self.settings.producer_expiration_ms
                )
                with self._lock:
                    if directory.failure is None:
                        place = self._places[key] = Place(log, directory)
                        self._wanted_dirs.pop(key, None)
                        # The settings may have changed since, when the log was not among all logs.
                        log.set_producer_expiration(self.settings.producer_expiration_ms)
                        logger.info("Created the log %s", log.folder)
                        return place
                log.close_files()
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{name}: no log directory is online")

    def _check_topic_id(self, key: tuple[str, int], place: Place, topic_id: bytes) -> None:
        """Write ``partition.metadata`` where there is none."""
        known = self._topic_ids.get(key)
        if known is None:
            with self._io(place.directory, "partition.metadata cannot be written"):
                checkpoints.write_topic_id(place.log.folder, topic_id)
            with self._lock:
                if place.directory.failure is not None:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, place.directory.failure)
                self._topic_ids[key] = topic_id
        elif known != topic_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{place.log.folder} belongs to topic id {id_to_text(known)}, not {id_to_text(topic_id)}",
            )

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Give the logs of a topic new settings."""
        for (name, _), log in (*self.logs().items(), *self.future_logs().items()):
            if name == topic:
                log.update_config(config)

    def truncate(self, offsets: Mapping[tuple[str, int], int], *, is_future: bool = False) -> None:
        """Remove the records at an offset and above from the log of each (topic, partition).

        The recovery points are written at once: what is appended afterwards is recovered after a crash. A
        disk that fails takes its directory offline. ``is_future``: the logs that are to replace those.
        """
        changed = set()
        for key, offset in offsets.items():
            # No log is replaced meanwhile.
            with self._stripe(key):
                place = (self._future if is_future else self._places).get(key)
                if place is not None:
                    with self._io(place.directory, f"{place.log.folder} cannot be truncated"):
                        if place.log.truncate_to(offset):
                            changed.add(place.directory)
        for directory in changed:
            self._write_recovery_points(directory)

    def delete_logs(self, replicas: Sequence[tuple[str, int]], *, stray: bool = False) -> None:
        """Rename the folders of (topic, partition) pairs; they are deleted after file.delete.delay.ms.

        ``stray``: they are only renamed. Raises KafkaError KAFKA_STORAGE_ERROR, after all others have been
        renamed, where a replica may be in a directory that is offline.
        """
        suffix = names.STRAY_SUFFIX if stray else names.DELETE_SUFFIX
        changed, missing = set(), []
        for key in replicas:
            with self._stripe(key), self._lock:
                if (future := self._future.pop(key, None)) is not None:
                    changed.add(future.directory)
                    self._rename(key, future, suffix)
                place = self._places.pop(key, None)
                if place is None:
                    missing.append(names.folder_name(*key))
                    continue
                self._topic_ids.pop(key, None)
                changed.add(place.directory)
                self._rename(key, place, suffix)
        self._cleaner.forget(replicas)
        self._write_checkpoints(changed)
        if missing and self.offline_dirs:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{', '.join(missing)} may be in a log directory that is offline",
            )

    def _rename(self, key: tuple[str, int], place: Place, suffix: str) -> None:
        """Rename the folder of a log that is used no more, and close it. Requires ``_lock``."""
        log, directory = place
        with self._io(directory, f"{log.folder} cannot be renamed"):
            log.rename(names.renamed_folder(*key, suffix))
            logger.info("Renamed to %s", log.folder)
            if suffix == names.DELETE_SUFFIX:
                due = _now_ms() + self.defaults.file_delete_delay_ms
                self._deleted.append((due, directory, log.folder))
        log.close_files()

    def _write_checkpoints(self, directories: Iterable[LogDirectory]) -> None:
        """Write all checkpoints of directories in which there are other logs now."""
        for directory in directories:
            with self._io(directory, "the cleaner's checkpoint cannot be written"):
                self._cleaner.write_checkpoint(directory)
            self._write_recovery_points(directory)
            self._write_start_offsets(directory)
            self._write_high_watermarks(directory)

    # -- moves to another log directory (KIP-113)

    def check_dir(self, path: str) -> None:
        """Raise KafkaError for a path that is no log directory (LOG_DIR_NOT_FOUND), or is offline."""
        if self._directory(path).failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {path} is offline")

    def want_dir(self, topic: str, partition: int, path: str) -> None:
        """Have a replica made in a log directory if it is not here yet."""
        directory, key = self._directory(path), (topic, partition)
        with self._lock:
            places = (self._places.get(key), self._future.get(key))
            if all(place is None or place.directory is not directory for place in places):
                if len(self._wanted_dirs) >= _MOST_WANTED:
                    self._wanted_dirs.pop(next(iter(self._wanted_dirs)))
                self._wanted_dirs[key] = directory

    def _directory(self, path: str) -> LogDirectory:
        for directory in self._directories:
            if str(directory.path) == path:
                return directory
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"{quoted(path)} is no log directory of this broker")

    def future_log(self, topic: str, partition: int) -> Log | None:
        """Return the log that is to take the place of a replica's, or None."""
        place = self._future.get((topic, partition))
        return None if place is None else place.log

    def future_logs(self) -> dict[tuple[str, int], Log]:
        """Return all logs that are to take the place of others, by (topic, partition)."""
        with self._lock:
            return {key: place.log for key, place in self._future.items()}

    def create_future(self, topic: str, partition: int, path: str) -> bool:
        """Make a log in another log directory, which is to take the place of a replica's.

        Return False if the replica is in that directory, or there is such a log already. Raises KafkaError.
        """
        key, directory = (topic, partition), self._directory(path)
        with self._stripe(key):
            place, future = self._places.get(key), self._future.get(key)
            if place is None:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{partition} has no log")
            if place.directory is directory or future is not None:
                with self._lock:
                    self._wanted_dirs.pop(key, None)
                return False
            if self.offline_dirs:
                # The log may be in one of them already.
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{topic}-{partition} cannot be moved: log directories are offline: "
                    + ", ".join(map(str, self.offline_dirs)),
                )
            name = names.renamed_folder(*key, names.FUTURE_SUFFIX)
            demand_spare_descriptors(f"{name} cannot be created")
            with self._io(directory, f"{name} cannot be created"):
                log = Log(
                    directory.path / name,
                    place.log.config,
                    producer_expiration_ms=self.settings.producer_expiration_ms,
                )
                # Its first record is that of the replica.
                log.truncate_fully(place.log.start_offset)
                if (topic_id := self._topic_ids.get(key)) is not None:
                    checkpoints.write_topic_id(log.folder, topic_id)
                with self._lock:
                    if directory.failure is None:
                        self._future[key] = Place(log, directory)
                        self._wanted_dirs.pop(key, None)
                        logger.info("Created the log %s: %s is moved there", log.folder, place.log.folder)
                        return True
                log.close_files()
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {path} is offline")

    def delete_future(self, topic: str, partition: int) -> None:
        """Delete the log that is to take the place of a replica's, if there is one."""
        key = topic, partition
        with self._stripe(key), self._lock:
            future = self._future.pop(key, None)
            if future is not None:
                self._rename(key, future, names.DELETE_SUFFIX)
        if future is not None:
            self._write_checkpoints([future.directory])

    def replace_log(self, topic: str, partition: int, use: Callable[[Log, str], bool]) -> bool:
        """Let the log in the other directory take the place of a replica's; return whether it does.

        ``use(log, name)``: gives the partition the log, whose folder gets this name, if both have the same
        end; returns whether it does. The former log is deleted after file.delete.delay.ms. A disk that fails
        takes its directory offline.
        """
        key = topic, partition
        is_used = False
        with self._stripe(key):
            with self._lock:
                place, future = self._places.get(key), self._future.get(key)
                if place is None or future is None or self._cleaner.is_cleaning(key):
                    return False
                with self._io(future.directory, f"{future.log.folder} cannot be renamed"):
                    is_used = use(future.log, names.folder_name(*key))
                if not is_used:
                    return False
                self._places[key] = self._future.pop(key)
            logger.info("Moved %s to %s", place.log.folder, future.log.folder)
            with self._io(future.directory, f"{future.log.folder} cannot be flushed"):
                # What was flushed in the former log is flushed in this one, too, before that is deleted.
                checkpoints.flush_folder(future.directory.path)
                future.log.flush()
                with self._lock:
                    self._rename(key, place, names.DELETE_SUFFIX)
        # What was clean when it was copied is not known.
        self._cleaner.forget([key])
        self._write_checkpoints([future.directory, place.directory])
        return True

    def folder_sizes(self) -> list[LogDirSizes]:
        """Return the sizes in each log directory (DescribeLogDirs)."""
        found = []
        for directory in self._directories:
            replicas, total, usable = [], -1, -1
            with self._io(directory, "cannot be read"):
                if directory.failure is None:
                    total, _, usable = shutil.disk_usage(directory.path)
                    replicas = self._sizes_in(directory)
            if directory.failure is not None:
                replicas, total, usable = [], -1, -1
            found.append(LogDirSizes(directory.path, directory.failure, total, usable, replicas))
        return found

    def _sizes_in(self, directory: LogDirectory) -> list[ReplicaSize]:
        with self._lock:
            own = [(key, one.log) for key, one in self._places.items() if one.directory is directory]
            future = [(key, one.log) for key, one in self._future.items() if one.directory is directory]
        found = [ReplicaSize(*key, log.size, max(log.high_watermark - log.end_offset, 0)) for key, log in own]
        for key, log in future:
            moved = self.log(*key)
            lag = _NO_LAG if moved is None else moved.end_offset - log.end_offset
            found.append(ReplicaSize(*key, log.size, lag, is_future=True))
        return found

    def _all_places(self) -> dict[tuple[str, int], Place]:
        with self._lock:
            return dict(self._places)

    def _logs_in(self, directory: LogDirectory) -> dict[tuple[str, int], Log]:
        """Return the logs in a directory, those included that are to take the place of others elsewhere."""
        with self._lock:
            places = (*self._places.items(), *self._future.items())
            return {key: place.log for key, place in places if place.directory is directory}

    # -- background work, each for one directory

    def _tick(self, directory: LogDirectory) -> None:
        """Flush the logs that are due, delete the files that are due, and look for failed logs."""
        now = _now_ms()
        with self._io(directory, "cannot be written"):
            for log in self._logs_in(directory).values():
                due = log.due(now)
                if due & DUE_OFFLINE:
                    _demand_online(log)
                if due & (DUE_FLUSH | DUE_FLUSH_ROLLED):
                    self._unless_removed(log, partial(log.flush, active=bool(due & DUE_FLUSH)))
                if due & DUE_DELETION:
                    log.delete_files(now)
            self._delete_folders(directory, now)

    def _unless_removed(self, log: Log, work: Callable[[], object]) -> None:
        """Do something with a log; ignore a failure if the log has been removed meanwhile."""
        try:
            work()
        except (KafkaError, FileNotFoundError):
            if not log.closed:
                raise

    def _delete_folders(self, directory: LogDirectory, now_ms: int) -> None:
        with self._lock:
            due = [one for one in self._deleted if one[1] is directory and one[0] <= now_ms]
            self._deleted = [one for one in self._deleted if one not in due]
        for _, _, path in due:
            shutil.rmtree(path)
            logger.info("Deleted %s", path)

    def _delete_old_segments(self, directory: LogDirectory) -> None:
        with self._io(directory, "cannot be written"):
            for log in self._logs_in(directory).values():
                if not log.config.cleanup_compact:
                    self._unless_removed(log, log.delete_old_segments)

    def _remove_expired_producers(self, directory: LogDirectory) -> None:
        for log in self._logs_in(directory).values():
            log.remove_expired_producers()

    def _write_recovery_points(self, directory: LogDirectory) -> None:
        offsets = {key: log.recovery_point for key, log in self._logs_in(directory).items()}
        self._write(directory, checkpoints.RECOVERY_POINT_CHECKPOINT, offsets)

    def _write_start_offsets(self, directory: LogDirectory) -> None:
        self._write(directory, checkpoints.LOG_START_CHECKPOINT, self._start_offsets(directory))

    def _start_offsets(self, directory: LogDirectory) -> dict[tuple[str, int], int]:
        """Return the start offsets that lie above the base offset of the first segment."""
        return {
            key: start
            for key, log in self._logs_in(directory).items()
            if (start := log.start_offset) > log.first_offset
        }

    def _write_high_watermarks(self, directory: LogDirectory) -> None:
        offsets = {key: log.high_watermark for key, log in self._logs_in(directory).items()}
        self._write(directory, checkpoints.HIGH_WATERMARK_CHECKPOINT, offsets)

    def _write(self, directory: LogDirectory, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        if directory.failure is None:
            with self._io(directory, f"{name} cannot be written"):
                directory.write_checkpoint(name, offsets)


def _demand_online(log: Log) -> None:
    if log.offline:
        raise OSError(errno.EIO, f"{log.folder} has failed: {log.failure_text}")


class _Count:
    """Counts on several threads."""

    def __init__(self, of: int) -> None:
        self.of = of
        self._done = 0
        self._lock = threading.Lock()

    def add(self) -> int:
        """Count one more and return the number."""
        with self._lock:
            self._done += 1
            return self._done


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
