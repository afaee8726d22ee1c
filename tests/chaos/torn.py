"""What a crash of a machine does to logs: the unflushed end is cut, or followed by garbage.

What may be cut without loss of acknowledged records: only the log of a replica that is not in the ISR. Its
broker is dead, so it cannot come back into the ISR before it has copied everything again, and it cannot be
elected, as unclean elections are off. The last replica of an ISR stays in it when its broker dies; if such a
log were cut, Kafka would lose records too (KIP-966). A log of the ISR gets garbage behind its end, which is
never more than a write that was not finished. What is below the recovery point has been flushed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ctrlchan.broker.log import checkpoints
from ctrlchan.errors import LogDirectoryError
from tests.chaos.records import Partition
from tests.chaos.replicas import batches_in, logs_of, partition_folders

__all__ = ["tear_logs"]

#: Bytes of garbage: less than a batch has before its records.
_GARBAGE = 60


def tear_logs(log_dir: Path, is_in_sync: Callable[[Partition], bool], chance: random.Random) -> list[str]:
    """Tear about half of the logs of a broker that was killed; return what was done.

    ``is_in_sync``: whether the broker is in the ISR of a partition.
    """
    if (log_dir / checkpoints.CLEAN_SHUTDOWN).exists():
        # The broker was killed before it used what it had flushed.
        return []
    points: dict[Partition, int] = {}
    with suppress(LogDirectoryError):
        points = checkpoints.read_offsets(log_dir / checkpoints.RECOVERY_POINT_CHECKPOINT)
    done = []
    for partition, folder in partition_folders(log_dir):
        segments = logs_of(folder)
        if segments and chance.random() < 0.5:
            done.append(_tear(segments[-1], points.get(partition, 0), is_in_sync(partition), chance))
    return done


def _tear(log: Path, recovery_point: int, is_in_sync: bool, chance: random.Random) -> str:
    size = log.stat().st_size
    place = f"{log.parent.name}/{log.name}"
    if is_in_sync or chance.random() < 0.3:
        garbage = chance.choice((bytes(_GARBAGE), chance.randbytes(_GARBAGE), log.read_bytes()[:_GARBAGE]))
        garbage = garbage[: chance.randint(1, _GARBAGE)]
        with log.open("ab") as file:
            file.write(garbage)
        return f"{place}: {len(garbage)} bytes of garbage"
    flushed = 0
    for position, batch in batches_in(log):
        if batch.offset >= recovery_point:
            break
        flushed = position + batch.size
    cut = chance.randint(min(flushed, size), size)
    os.truncate(log, cut)
    return f"{place}: cut from {size} to {cut}"
