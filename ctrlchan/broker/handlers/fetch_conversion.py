"""Answers Fetch of versions 0 to 3: converts what the processor has read to records of format 0 or 1.

Source: ``KafkaApis.handleFetchRequest`` (``maybeConvertFetchedData``) of Kafka 3.9.
"""

from __future__ import annotations

import struct
from contextlib import closing
from itertools import groupby
from typing import Final, NamedTuple

from ctrlchan.broker.log._log import READ_HIGH_WATERMARK
from ctrlchan.broker.log.old_formats._down_conversion import Converted, down_convert
from ctrlchan.broker.log.old_formats.fetched import Fetched, FetchedPartition
from ctrlchan.broker.replica._partitions import Partition
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.api import Reply

__all__ = ["CONVERTED_BELOW", "convert"]

#: From this version on records have format 2, and from these the response a throttle time, records format 1.
CONVERTED_BELOW: Final = 4
_THROTTLE_FROM: Final = 1
_FORMAT_1_FROM: Final = 2
_FETCH: Final = 1
_NO_OFFSET: Final = -1
#: How much is read at once to find records behind markers of transactions.
_READ_BYTES: Final = 1 << 20

#: Index, error, high watermark, size of the records; -1: null.
_PARTITION: Final = struct.Struct(">ihqi")


class _Answer(NamedTuple):
    """What one partition is answered with. ``has_read``: the processor has read something.

    ``source``: where ``records`` are from.
    """

    topic: bytes
    partition: int
    error: int
    high_watermark: int
    records: bytes | None
    has_read: bool
    source: Partition | None = None


def convert(core: StoringCore, version: int, fetched: Fetched) -> Reply | None:
    """Return the response, or None if the request may wait and only markers of transactions were read."""
    answers = [_convert_partition(core, version, fetched.is_follower, one) for one in fetched.partitions]
    if (
        fetched.may_wait
        and any(one.has_read for one in answers)
        and not any(one.error or one.records for one in answers)
    ):
        return None
    # The request handler writes another throttle time in its place.
    parts = [bytes(4)] if version >= _THROTTLE_FROM else []
    topics = [(topic, list(found)) for topic, found in groupby(answers, key=lambda one: one.topic)]
    parts.append(struct.pack(">i", len(topics)))
    for topic, found in topics:
        parts.append(struct.pack(">h", len(topic)) + topic + struct.pack(">i", len(found)))
        for one in found:
            size = -1 if one.records is None else len(one.records)
            parts.append(_PARTITION.pack(one.partition, one.error, one.high_watermark, size))
            parts.append(one.records or b"")
    _count_bytes(core, answers, fetched.is_follower)
    errors = sum(one.error != ErrorCode.NONE for one in answers)
    return Reply(b"".join(parts), partition_errors=errors, rows=len(answers))


def _count_bytes(core: StoringCore, answers: list[_Answer], is_follower: bool) -> None:
    for one in answers:
        if one.records and one.source is not None and not is_follower:
            one.source.count_bytes_out(len(one.records))
        elif one.records and is_follower and core.old_fetches is not None:
            core.old_fetches.count_replicated(len(one.records))


def _convert_partition(
    core: StoringCore, version: int, is_follower: bool, fetched: FetchedPartition
) -> _Answer:
    """Return the answer of one partition. Its file range is closed."""
    partition = core.partitions.get(fetched.topic.decode(errors="replace"), fetched.partition)
    log = None if partition is None else partition.log
    refusal = ErrorCode.NONE
    if fetched.is_zstd:
        refusal = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    elif log is not None and not (is_follower or log.config.message_downconversion_enable):
        refusal = ErrorCode.UNSUPPORTED_VERSION
    if fetched.records is None:
        if refusal:
            return _refused(fetched, refusal)
        return _Answer(fetched.topic, fetched.partition, fetched.error, fetched.high_watermark, b"", False)
    with closing(fetched.records) as records:
        if refusal:
            return _refused(fetched, refusal)
        magic = 1 if version >= _FORMAT_1_FROM else 0
        found = _converted(partition, fetched, magic, records.read())
    if found.error:
        return _refused(fetched, found.error)
    return _Answer(
        fetched.topic, fetched.partition, ErrorCode.NONE, fetched.high_watermark, found.data, True, partition
    )


def _refused(fetched: FetchedPartition, error: int) -> _Answer:
    return _Answer(fetched.topic, fetched.partition, error, _NO_OFFSET, None, True)


def _converted(partition: Partition | None, fetched: FetchedPartition, magic: int, data: bytes) -> Converted:
    """Return converted records from the fetch offset on, behind markers of transactions if there are such.

    Kafka answers a range of markers alone with an entry that is cut, at which clients stop.
    """
    limit = fetched.most_bytes
    while True:
        found = down_convert(data, magic=magic, fetch_offset=fetched.fetch_offset, limit=limit)
        if partition is not None and found.temporary_bytes:
            partition.count_conversion(_FETCH, found.records, found.time_ns, found.temporary_bytes)
        if found.data or found.error or found.next_offset < 0 or partition is None:
            return found
        try:
            data = partition.read(found.next_offset, max(limit, _READ_BYTES), isolation=READ_HIGH_WATERMARK)
        except KafkaError:
            # The partition has changed meanwhile: the next request gets the error.
            return found
