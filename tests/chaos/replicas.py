"""Logs of replicas as they are on the disk, read without the code that wrote them.

Layout of a batch: base offset int64, length int32 (of what follows), leader epoch int32, magic int8, …
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.chaos.checks import Batch
from tests.chaos.records import Partition

__all__ = ["StoredBatch", "batches_in", "logs_of", "partition_folders", "read_replicas"]

_HEAD: Final = struct.Struct(">qii")
#: Bytes that the length does not count.
_OVERHEAD: Final = 12
#: A topic has no name that ends like a folder that waits for its deletion.
_FOLDER: Final = re.compile(r"(.+)-(\d+)")


class StoredBatch(NamedTuple):
    """A batch in a file. ``size``: of all its bytes."""

    offset: int
    leader_epoch: int
    size: int


def batches_in(log: Path) -> Iterator[tuple[int, StoredBatch]]:
    """Yield the position and the header of each whole batch of a segment."""
    data = log.read_bytes()
    position = 0
    while position + _HEAD.size <= len(data):
        offset, length, epoch = _HEAD.unpack_from(data, position)
        size = length + _OVERHEAD
        if length <= 0 or position + size > len(data):
            return
        yield position, StoredBatch(offset, epoch, size)
        position += size


def logs_of(folder: Path) -> list[Path]:
    """Return the segments of a replica in the order of their offsets."""
    return sorted(folder.glob("*.log"))


def partition_folders(log_dir: Path) -> Iterator[tuple[Partition, Path]]:
    """Yield the partition and the folder of each replica."""
    for folder in sorted(log_dir.iterdir()):
        match = _FOLDER.fullmatch(folder.name)
        if match and folder.is_dir():
            yield (match[1], int(match[2])), folder


def read_replica(folder: Path) -> list[Batch]:
    """Return all batches of a replica."""
    batches = []
    for log in logs_of(folder):
        data = log.read_bytes()
        for position, head in batches_in(log):
            content = hashlib.blake2b(data[position : position + head.size], digest_size=8).digest()
            batches.append(Batch(head.offset, head.leader_epoch, content))
    return batches


def read_replicas(log_dirs: Mapping[str, Sequence[Path]]) -> dict[Partition, dict[str, Path]]:
    """Return the folders of all replicas by partition and broker. ``log_dirs``: those of each broker."""
    found: defaultdict[Partition, dict[str, Path]] = defaultdict(dict)
    for broker, folders in log_dirs.items():
        for log_dir in folders:
            for partition, folder in partition_folders(log_dir):
                found[partition][broker] = folder
    return dict(found)
