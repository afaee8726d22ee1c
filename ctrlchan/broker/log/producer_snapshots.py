"""The snapshot files of one partition's producers: which are there, which one is loaded, which are removed.

The number in a file's name is the offset after the last batch that the snapshot knows. A log is opened from
its latest snapshot and the batches after it. Source: ProducerStateManager.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Final

from ctrlchan.broker.log._producers import ProducerStates

logger = logging.getLogger(__name__)

SUFFIX: Final = ".snapshot"


def snapshot_path(directory: Path, offset: int) -> Path:
    """Return the path of the snapshot of this offset."""
    return directory / f"{offset:020d}{SUFFIX}"


def snapshot_offsets(directory: Path) -> list[int]:
    """Return the offsets of all snapshot files, the smallest first."""
    names = [path.stem for path in directory.glob(f"*{SUFFIX}") if path.is_file()]
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def load_latest(states: ProducerStates, directory: Path, log_start: int, now_ms: int) -> None:
    """Load the latest snapshot that is not corrupt; delete those that are. ``states`` is empty.

    Without a snapshot, the states begin at ``log_start``.
    """
    for offset in reversed(snapshot_offsets(directory)):
        path = snapshot_path(directory, offset)
        try:
            states.load(path.read_bytes(), now_ms)
        except ValueError as error:
            logger.warning("Producer snapshot %s is corrupt and is deleted: %s", path, error)
            path.unlink()
        else:
            states.end_offset = states.snapshot_offset = offset
            return
    states.end_offset = states.snapshot_offset = log_start


def truncate_and_reload(
    states: ProducerStates, directory: Path, log_start: int, log_end: int, now_ms: int
) -> None:
    """Bring the states back to ``log_end`` or before: the caller appends the batches from ``end_offset`` on.

    Snapshots that are not between the two offsets are deleted.
    """
    for offset in snapshot_offsets(directory):
        if not log_start < offset <= log_end:
            snapshot_path(directory, offset).unlink(missing_ok=True)
    if log_end != states.end_offset:
        states.clear()
        load_latest(states, directory, log_start, now_ms)
    else:
        increment_log_start(states, directory, log_start)


def increment_log_start(states: ProducerStates, directory: Path, log_start: int) -> None:
    """Tell the states that the log begins at ``log_start`` now. Producers stay until they expire."""
    states.end_offset = max(states.end_offset, log_start)
    states.snapshot_offset = max(snapshot_offsets(directory), default=log_start)


def truncate_fully(states: ProducerStates, directory: Path, offset: int) -> None:
    """Forget all producers and delete all snapshots: the log begins again at ``offset``."""
    states.clear()
    delete_before(directory, 2**63)
    states.snapshot_offset = 0
    states.end_offset = offset


def delete_before(directory: Path, offset: int) -> None:
    """Delete the snapshots of smaller offsets."""
    for other in snapshot_offsets(directory):
        if other < offset:
            snapshot_path(directory, other).unlink(missing_ok=True)


def remove_stray(directory: Path, base_offsets: Collection[int]) -> None:
    """Delete the snapshots of no segment, except the latest one if it is after all segments.

    ``base_offsets``: of all segments. A clean shutdown leaves a snapshot after the last segment's begin.
    """
    stray = [offset for offset in snapshot_offsets(directory) if offset not in base_offsets]
    if stray and (not base_offsets or stray[-1] > max(base_offsets)):
        stray.pop()
    for offset in stray:
        snapshot_path(directory, offset).unlink(missing_ok=True)
