"""The order in which a JVM broker iterates over its hash maps, which is that of partitions in responses.

Kafka collects the errors of LeaderAndIsr and StopReplica in a ``scala.collection.mutable.HashMap`` and
answers in the order of that map's table. Hash codes and table sizes depend on the keys alone, so the
order can be computed, and a response of ours equals the real broker's byte for byte.

One case cannot be computed: ``java.util.HashMap`` (StopReplica's partition states) turns a bucket of
eight or more entries into a tree whose order depends on the addresses of objects. It only decides
between keys of equal hash code; such responses can be compared as sets only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from ctrlchan._codec import Int32, Int64

__all__ = [
    "UInt32",
    "concurrent_map_order",
    "java_map_order",
    "long_hashes",
    "partition_hashes",
    "scala_map_order",
    "string_hashes",
    "topic_partition_hashes",
]

UInt32 = npt.NDArray[np.uint32]

_INITIAL_CAPACITY = 16  # of both maps; both double when three quarters are full


def string_hashes(strings: Sequence[str]) -> UInt32:
    """Return ``String.hashCode`` of each, as uint32: ``31 * hash + unit`` over the UTF-16 code units."""
    encoded = [string.encode("utf-16-le", "surrogatepass") for string in strings]
    units = np.frombuffer(b"".join(encoded), dtype="<u2").astype(np.uint32)
    lengths = np.array([len(data) // 2 for data in encoded], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    hashes = np.zeros(len(encoded), dtype=np.uint32)
    for position in range(int(lengths.max(initial=0))):
        longer = np.flatnonzero(lengths > position)
        hashes[longer] = hashes[longer] * np.uint32(31) + units[starts[longer] + position]
    return hashes


def long_hashes(values: Sequence[int]) -> UInt32:
    """Return ``Long.hashCode`` of each, as uint32."""
    longs = np.array(values, dtype=np.int64).view(np.uint64)
    return (longs ^ (longs >> np.uint64(32))).astype(np.uint32)


def topic_partition_hashes(topic_hashes: UInt32, partition: Int32) -> UInt32:
    """Return ``TopicPartition.hashCode``: of the keys of the response maps."""
    return (partition.view(np.uint32) + np.uint32(31)) * np.uint32(31) + topic_hashes


def partition_hashes(topic_hashes: UInt32, partition: Int32) -> UInt32:
    """Return ``kafka.cluster.Partition.hashCode``: of the keys of the maps of new leaders and followers."""
    return partition.view(np.uint32) * np.uint32(17) + topic_hashes + np.uint32(31)


def scala_map_order(keys: Int64, hashes: UInt32) -> Int64:
    """Return the order of a ``scala.collection.mutable.HashMap`` (2.13) after these puts.

    ``keys`` int64[n] distinguishes keys with the same hash code; ``hashes`` uint32[n]. The result is the
    index of each key's first put, in the order of the map's iterator: bucket by bucket, within a bucket
    by hash code (signed), within a hash code by first put.
    """
    count = len(keys)
    if count < 2:
        return np.arange(count, dtype=np.int64)
    first = np.zeros(count, dtype=bool)
    first[np.unique(keys, return_index=True)[1]] = True
    # A put grows the table when the entries before it, and one more, reach three quarters of it: also a
    # put that replaces a value.
    entries = int((np.cumsum(first) - first).max()) + 1
    size = _INITIAL_CAPACITY
    while entries >= size * 3 // 4:
        size *= 2
    puts = np.flatnonzero(first)
    spread = hashes[puts] ^ (hashes[puts] >> np.uint32(16))
    return puts[np.lexsort((spread.view(np.int32), spread & np.uint32(size - 1)))]


def concurrent_map_order(keys: Int64, hashes: UInt32) -> Int64:
    """Return the order of a ``java.util.concurrent.ConcurrentHashMap`` after these puts.

    That is the order of a ``HashMap``, whose table doubles one entry later. A bucket whose entries moved from
    a smaller table may have another order.
    """
    return _map_order(keys, hashes, full_at=0)


def java_map_order(keys: Int64, hashes: UInt32) -> Int64:
    """Return the order of a ``java.util.HashMap`` after these puts: within a bucket by first put."""
    return _map_order(keys, hashes, full_at=1)


def _map_order(keys: Int64, hashes: UInt32, *, full_at: int) -> Int64:
    """``full_at``: how many entries more than three quarters of its places double a table."""
    count = len(keys)
    if count < 2:
        return np.arange(count, dtype=np.int64)
    puts = np.sort(np.unique(keys, return_index=True)[1])
    size = _INITIAL_CAPACITY
    while len(puts) >= size * 3 // 4 + full_at:
        size *= 2
    spread = hashes[puts] ^ (hashes[puts] >> np.uint32(16))
    return puts[np.argsort(spread & np.uint32(size - 1), kind="stable")]
