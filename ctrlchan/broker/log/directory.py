"""One log directory of a broker: its lock, its identity, its checkpoints, and the folders in it.

Sources: ``LogManager``, ``MetaPropertiesEnsemble``, ``OffsetCheckpointFile``.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from ctrlchan.broker.log import checkpoints, names
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.log.checkpoints import MetaProperties
from ctrlchan.broker.log.lock_file import DirectoryLock, RefusedError
from ctrlchan.errors import LogDirectoryError
from ctrlchan.text import quoted

__all__ = ["Folders", "LogDirectory", "Place", "read_identity"]

logger: Final = logging.getLogger(__name__)

_CHECKPOINTS: Final = (
    checkpoints.RECOVERY_POINT_CHECKPOINT,
    checkpoints.LOG_START_CHECKPOINT,
    checkpoints.HIGH_WATERMARK_CHECKPOINT,
    checkpoints.CLEANER_CHECKPOINT,
)


class Folders(NamedTuple):
    """What a log directory holds: replicas by (topic, partition), and folders that wait for deletion.

    ``future``: replicas that were being moved to this directory.
    """

    replicas: dict[tuple[str, int], Path]
    deleted: list[Path]
    future: list[tuple[tuple[str, int], Path]]


class LogDirectory:
    """One folder of ``log.dirs``. It can be used from ``open`` until ``close`` or a failure.

    ``failure``: why it is offline, None while it is online. ``was_clean``: a broker closed it in order.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: str | None = None
        self.was_clean = False
        self.is_loaded = False
        self._lock: DirectoryLock | None = None
        self._identity: MetaProperties | None = None
        #: The contents of each checkpoint file when loading began (empty after loading), and as last written.
        self._read: dict[str, dict[tuple[str, int], int]] = {}
        self._written: dict[str, dict[tuple[str, int], int]] = {}
        self._writing = threading.Lock()

    def open(self) -> None:
        """Create the folder where there is none, lock it and read ``meta.properties``.

        Raises RefusedError where another broker or KRaft uses it, LogDirectoryError where the file is
        malformed, OSError where the disk fails.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = DirectoryLock(self.path)
        self._identity = checkpoints.read_meta_properties(self.path)

    def check_identity(self, cluster_id: str, broker_id: int) -> None:
        """Raise RefusedError where the directory belongs to another cluster or broker."""
        if self._identity is None:
            return
        file = self.path / checkpoints.META_PROPERTIES
        if self._identity.cluster_id not in (None, cluster_id):
            raise RefusedError(
                f"{file}: cluster.id {self._identity.cluster_id}, but this broker's cluster is {cluster_id}"
            )
        if self._identity.broker_id not in (None, broker_id):
            raise RefusedError(
                f"{file}: broker.id {self._identity.broker_id}, but this broker's id is {broker_id}"
            )

    def write_identity(self, cluster_id: str, broker_id: int) -> None:
        """Write ``meta.properties`` where it is not there or not complete. Raises OSError."""
        known = self._identity or MetaProperties(None, None)
        if (known.cluster_id, known.broker_id) != (cluster_id, broker_id):
            checkpoints.write_meta_properties(self.path, cluster_id, broker_id, known.directory_id)

    def begin_loading(self) -> Folders:
        """Read the checkpoints, remove the clean-shutdown file and list the folders. Raises OSError."""
        self.was_clean = checkpoints.read_clean_shutdown(self.path) is not None
        if self.was_clean:
            # A crash from here on leaves a directory that must be recovered.
            (self.path / checkpoints.CLEAN_SHUTDOWN).unlink()
            checkpoints.flush_folder(self.path)
        for name in _CHECKPOINTS:
            try:
                self._read[name] = checkpoints.read_offsets(self.path / name)
            except LogDirectoryError as error:
                # Without it, recovery reads more, and a leader learns the high watermark again.
                logger.warning("The checkpoint is not used: %s", error)
                self._read[name] = {}
        return self._folders()

    def end_loading(self) -> None:
        """Forget what the checkpoints had: a replica of a later time begins without it."""
        self._read.clear()
        self.is_loaded = True

    def _folders(self) -> Folders:
        found = Folders({}, [], [])
        for path in sorted(self.path.iterdir()):
            if not path.is_dir():
                continue
            try:
                topic, partition, suffix = names.parse_folder_name(path.name)
            except LogDirectoryError as error:
                logger.warning("%s: not a replica's, so it is left alone: %s", self.path, error)
                continue
            if suffix == names.DELETE_SUFFIX:
                found.deleted.append(path)
            elif suffix == names.FUTURE_SUFFIX:
                found.future.append(((topic, partition), path))
            elif suffix:
                logger.warning("%s: a replica that is %s and not loaded", path, suffix[1:])
            elif path.name != names.folder_name(topic, partition):
                # orders-007 would be orders-7 a second time.
                logger.warning("%s: the folder %s is left alone", self.path, quoted(path.name))
            else:
                found.replicas[topic, partition] = path
        return found

    def offsets_of(self, checkpoint: str) -> Mapping[tuple[str, int], int]:
        """Return what a checkpoint file had, until loading ends."""
        return self._read.get(checkpoint, {})

    def offset_of(self, checkpoint: str, topic: str, partition: int) -> int:
        """Return the replica's offset in a checkpoint file, or 0."""
        return max(0, self._read.get(checkpoint, {}).get((topic, partition), 0))

    def write_checkpoint(self, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Write a checkpoint file if it would change. Raises OSError."""
        with self._writing:
            if self._written.get(name) != offsets:
                checkpoints.write_offsets(self.path / name, offsets)
                self._written[name] = dict(offsets)

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """Give the lock back; ``clean``: write the clean-shutdown file. Raises OSError."""
        try:
            if clean and self.failure is None:
                checkpoints.write_clean_shutdown(self.path, broker_epoch)
        finally:
            if self._lock is not None:
                self._lock.release()
                self._lock = None


class Place(NamedTuple):
    """A log and the log directory that it is in."""

    log: Log
    directory: LogDirectory


def read_identity(paths: Iterable[Path | str | os.PathLike[str]]) -> MetaProperties | None:
    """Return the ids that the log directories have, or None if no directory has been used.

    Raises LogDirectoryError where two of them differ, or one is KRaft's.
    """
    found: MetaProperties | None = None
    where: Sequence[Path] = [Path(path) for path in paths]
    for path in where:
        try:
            one = checkpoints.read_meta_properties(path)
        except RefusedError:
            raise
        except (OSError, LogDirectoryError):
            continue  # the directory will be offline
        if one is None:
            continue
        if found is not None and found[:2] != one[:2]:
            raise LogDirectoryError(
                f"{path / checkpoints.META_PROPERTIES}: cluster.id {one.cluster_id}, broker.id "
                f"{one.broker_id}, but another log directory has {found.cluster_id} and {found.broker_id}"
            )
        found = one
    return found
