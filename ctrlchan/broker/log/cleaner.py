"""Compaction: of each key of a log only the last record stays, and in time no tombstone.

In: the segments of a log up to a point, and from where on they are dirty. Out: fewer and smaller segments
that replace them. Sources: ``LogCleaner``, ``LogCleanerManager``.
"""

from __future__ import annotations

import logging
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log import compression, names
from ctrlchan.broker.log._batches import BatchHeader, crc32c_of, read_header
from ctrlchan.broker.log._cleaner import OffsetMap, add_keys, kept_records, rebuilt
from ctrlchan.broker.log._compaction import CleanedSegment, SegmentInfo
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.log._reading import AbortedTransaction
from ctrlchan.broker.log.old_formats._as_batch import as_batch
from ctrlchan.broker.log.old_formats._down_conversion import carry
from ctrlchan.broker.log.records import (
    COMPRESSION,
    DELETE_HORIZON,
    FORMAT_2,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC_AT,
    as_format_2,
    checksum_of,
    read_records,
    records_of,
)
from ctrlchan.broker.log.throttle import Throttle
from ctrlchan.errors import ErrorCode, KafkaError, LogDirectoryError

__all__ = ["Dirty", "Stopped", "clean", "dirty_part"]

logger: Final = logging.getLogger(__name__)

TRANSACTIONAL, CONTROL = 0x10, 0x20
#: Bytes of a header up to the magic byte, and what the length does not count.
TO_MAGIC, OVERHEAD = 17, 12
MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
#: Base offset, length, leader epoch, magic, CRC; and what the CRC covers, up to the records.
HEAD, CHECKED = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")
ABORT, COMMIT = 0, 1


class Stopped(Exception):
    """The cleaning of a log was given up: the log has changed, or the broker stops. Nothing is changed."""


class Dirty(NamedTuple):
    """What of a log can be cleaned: records from ``first_dirty`` up to ``first_uncleanable``.

    ``ratio``: the dirty part of the bytes below ``first_uncleanable``. ``is_overdue``: max.compaction.lag.ms
    is over.
    """

    first_dirty: int
    first_uncleanable: int
    cleanable_bytes: int
    ratio: float
    is_overdue: bool


def dirty_part(log: Log, clean_up_to: int | None, now_ms: int) -> Dirty | None:
    """Return the part of a log that can be cleaned, or None. ``clean_up_to``: the cleaner's checkpoint."""
    config = log.config
    segments = log.describe_segments()
    start = log.start_offset
    first_dirty = start if clean_up_to is None or not start <= clean_up_to <= log.end_offset else clean_up_to
    active = segments[-1].base_offset
    # Segments but the active one that hold dirty records or follow them.
    dirty = segments[_floor(segments, first_dirty) : -1]
    limit = min(log.stable_offset, active)
    if config.min_compaction_lag_ms > 0:
        young = (one for one in dirty if one.largest_timestamp > now_ms - config.min_compaction_lag_ms)
        limit = min([limit, *(one.base_offset for one in young)])
    limit = max(limit, first_dirty)
    # Whole segments alone: up to the first one that holds the limit or begins above it.
    uncleanable = [one.base_offset for one in segments[max(0, _floor(segments, limit)) : -1]]
    first_uncleanable = uncleanable[0] if uncleanable else active
    cleanable = sum(
        one.size
        for one in segments[max(0, _floor(segments, min(first_dirty, first_uncleanable))) :]
        if one.base_offset < first_uncleanable
    )
    clean_bytes = sum(one.size for one in segments if one.base_offset < first_dirty)
    total = clean_bytes + cleanable
    if total == 0:
        return None
    times = [one.first_timestamp for one in dirty if one.first_timestamp > 0]
    is_overdue = bool(times) and min(times) < now_ms - config.max_compaction_lag_ms
    return Dirty(first_dirty, first_uncleanable, cleanable, cleanable / total, is_overdue)


def _floor(segments: Sequence[SegmentInfo], offset: int) -> int:
    """Return the index of the last segment that does not begin above the offset, 0 where all do."""
    index = 0
    while index + 1 < len(segments) and segments[index + 1].base_offset <= offset:
        index += 1
    return index


def clean(
    log: Log,
    dirty: Dirty,
    *,
    memory: int,
    now_ms: int,
    load_factor: float = 0.9,
    read_bytes: int = 1 << 18,
    throttle: Throttle | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Clean a log and return the offset from which on it is dirty afterwards.

    ``memory``: for the map of keys; where they do not fit, a part of the log is cleaned. ``read_bytes``: so
    many are read at once. ``throttle``: of what is read and written; None: no limit. Raises Stopped,
    LogDirectoryError for a segment that is damaged, KafkaError and OSError where the disk fails.
    """
    state = log.change_count
    segments = [one for one in log.describe_segments() if one.base_offset < dirty.first_uncleanable]
    throttle = throttle or Throttle(math.inf)
    cleaning = _Cleaning(log, dirty, now_ms, state, is_stopped, max(read_bytes, HEADER_BYTES), throttle)
    # There cannot be more keys than offsets; a small map touches less memory.
    keys = dirty.first_uncleanable - dirty.first_dirty
    clean_before = [one for one in segments if one.base_offset < dirty.first_dirty]
    # In formats 0 and 1 a tombstone stays for a time after the last clean segment was written.
    tombstones_before_ms = (
        clean_before[-1].modified_ns // 1_000_000 - log.config.delete_retention_ms if clean_before else 0
    )
    offsets = OffsetMap(min(memory, int(24 * (keys + 2) / load_factor) + 48), load_factor)
    try:
        cleaning.map_keys(segments[_floor(segments, dirty.first_dirty) :], offsets)
        end = max(offsets.latest_offset + 1, dirty.first_dirty)
        for group in _groups([one for one in segments if one.base_offset < end], log.config, dirty):
            cleaning.clean_group(group, offsets, tombstones_before_ms)
    except (OSError, KafkaError, ValueError) as error:
        if log.change_count != state or log.closed:
            raise Stopped from None
        if isinstance(error, ValueError) or (
            isinstance(error, KafkaError) and error.code == ErrorCode.CORRUPT_MESSAGE
        ):
            raise LogDirectoryError(f"{log.folder}: {error}") from error
        raise
    return end


def _groups(
    segments: Sequence[SegmentInfo], config: LogConfig, dirty: Dirty
) -> Iterator[Sequence[SegmentInfo]]:
    """Yield neighbouring segments that fit into one together."""
    begin = 0
    while begin < len(segments):
        end = begin + 1
        sums = segments[begin]
        size, index, times = sums.size, sums.index_bytes, sums.time_index_bytes
        while end < len(segments):
            one = segments[end]
            size, index, times = size + one.size, index + one.index_bytes, times + one.time_index_bytes
            next_base = segments[end + 1].base_offset if end + 1 < len(segments) else dirty.first_uncleanable
            is_far = next_base - 1 - segments[begin].base_offset > MAX_INT32
            if (
                size > config.segment_bytes
                or max(index, times) > config.segment_index_bytes
                or (one.size and is_far)
            ):
                break
            end += 1
        yield segments[begin:end]
        begin = end


class _Cleaning:
    """One cleaning of one log."""

    def __init__(
        self,
        log: Log,
        dirty: Dirty,
        now_ms: int,
        state: int,
        is_stopped: Callable[[], bool],
        read_bytes: int,
        throttle: Throttle,
    ) -> None:
        self._log = log
        self._dirty = dirty
        self._now_ms = now_ms
        self._state = state
        self._is_stopped = is_stopped
        self._read_bytes = read_bytes
        self._throttle = throttle
        self._transactions = _Transactions()

    def map_keys(self, segments: Sequence[SegmentInfo], offsets: OffsetMap) -> None:
        """Put the last offset of each key of dirty records into the map, as far as there is room."""
        first, end = self._dirty.first_dirty, self._dirty.first_uncleanable
        if first >= end:
            return
        transactions = _Transactions()
        transactions.add(self._log.aborted_entries(first, end))
        for segment, after in zip(segments, [*(one.base_offset for one in segments[1:]), end], strict=True):
            for header, batch in self._batches(segment):
                last_offset = header.base_offset + header.last_offset_delta
                if header.magic < FORMAT_2 and last_offset >= first:
                    batch = as_format_2(batch)
                    header = read_header(batch)
                if header.attributes & CONTROL:
                    transactions.can_discard_marker(header, batch)
                elif not transactions.is_aborted(header) and header.record_count > 0 and last_offset >= first:
                    records = records_of(header, batch)
                    if not add_keys(offsets, records, header.record_count, header.base_offset, first):
                        return
                if last_offset >= first:
                    offsets.latest_offset = max(offsets.latest_offset, last_offset)
            # The last offsets of a segment may belong to no record.
            offsets.latest_offset = max(offsets.latest_offset, after - 1)

    def clean_group(
        self, segments: Sequence[SegmentInfo], offsets: OffsetMap, tombstones_before_ms: int
    ) -> None:
        """Write the records that stay into a new segment, which replaces these segments.

        ``tombstones_before_ms``: of segments that were not written since, those of formats 0 and 1 go.
        """
        cleaned = self._log.create_cleaned(segments[0].base_offset)
        try:
            self._transactions.cleaned = cleaned
            last_batches = _last_batches(self._log)
            for number, segment in enumerate(segments):
                after = (
                    segments[number + 1].base_offset if number + 1 < len(segments) else self._log.end_offset
                )
                self._transactions.add(self._log.aborted_entries(segment.base_offset, after))
                keeps_tombstones = segment.modified_ns // 1_000_000 > tombstones_before_ms
                for header, batch in self._batches(segment):
                    if header.magic < FORMAT_2:
                        kept = _kept_of_entry(header, batch, offsets, tombstones=keeps_tombstones)
                    else:
                        kept = self._kept(header, batch, offsets, last_batches)
                    if kept is not None:
                        written = read_header(kept)
                        last_offset = written.base_offset + written.last_offset_delta
                        cleaned.append(kept, written.base_offset, last_offset, written.max_timestamp)
                        self._throttle.take(len(kept), self._is_stopped)
            cleaned.finish(segments[-1].modified_ns)
            if not self._log.replace_segments(cleaned, [one.base_offset for one in segments], self._state):
                raise Stopped
        finally:
            cleaned.abandon()

    def _batches(self, segment: SegmentInfo) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield the batches of a segment. Raises LogDirectoryError where one is damaged."""
        path = self._log.folder / f"{names.segment_name(segment.base_offset)}{names.LOG_SUFFIX}"
        with path.open("rb", buffering=self._read_bytes) as file:
            position = 0
            while position < segment.size:
                if self._is_stopped() or self._log.change_count != self._state:
                    raise Stopped
                head = file.read(TO_MAGIC)
                length = int.from_bytes(head[8:OVERHEAD], signed=True) + OVERHEAD
                if (
                    len(head) < TO_MAGIC
                    or head[MAGIC_AT] > FORMAT_2
                    or not TO_MAGIC <= length <= segment.size - position
                ):
                    raise LogDirectoryError(f"{path}, byte {position}: no batch")
                batch = head + file.read(length - TO_MAGIC)
                try:
                    header = read_header(batch)
                except ValueError:
                    raise LogDirectoryError(f"{path}, byte {position}: no batch") from None
                if checksum_of(batch) != header.crc:
                    raise LogDirectoryError(f"{path}, byte {position}: a batch whose CRC is wrong")
                if header.last_offset_delta < 0 or not (
                    0 <= header.base_offset - segment.base_offset <= MAX_INT32
                ):
                    raise LogDirectoryError(f"{path}, byte {position}: offset {header.base_offset}")
                self._throttle.take(length, self._is_stopped)
                yield header, batch
                position += length

    def _kept(
        self,
        header: BatchHeader,
        batch: bytes,
        offsets: OffsetMap,
        last_batches: Mapping[int, tuple[int, int]],
    ) -> bytes | None:
        """Return what remains of a batch: the whole batch, a part, its header alone, or None."""
        attributes = header.attributes
        is_control = bool(attributes & CONTROL)
        horizon = header.base_timestamp if attributes & DELETE_HORIZON else None
        is_over = horizon is not None and horizon <= self._now_ms
        if is_control:
            can_discard = self._transactions.can_discard_marker(header, batch)
            drops_all = can_discard and is_over
        else:
            can_discard = drops_all = self._transactions.is_aborted(header)
        last_offset = header.base_offset + header.last_offset_delta
        # The last batch of a round keeps the end of what was cleaned, the last one of a producer its sequence
        # number.
        keeps_header = last_offset + 1 == self._dirty.first_uncleanable or self._is_last_of_producer(
            header, last_offset, last_batches
        )
        if drops_all and not keeps_header:
            return None
        records = records_of(header, batch) if header.record_count > 0 else memoryview(b"")
        count = max(header.record_count, 0)
        has_tombstone = False
        if drops_all:
            number, kept = 0, bytes(count)
        elif is_control:
            number, kept = count, b"\1" * count
        else:
            kept, number, has_tombstone = kept_records(
                offsets, records, count, header.base_offset, not is_over
            )
        if number == 0:
            return _with_records(header, b"", 0, -1, header.max_timestamp) if keeps_header else None
        needs_horizon = horizon is None and (has_tombstone or (can_discard and is_control))
        if number == count and not needs_horizon:
            return batch
        if needs_horizon:
            horizon = min(self._now_ms + self._log.config.delete_retention_ms, MAX_INT64)
        append_time = header.max_timestamp if attributes & LOG_APPEND_TIME else -1
        data, base, largest = rebuilt(
            records, kept, header.base_timestamp, append_time, -1 if horizon is None else horizon
        )
        return _with_records(header, data, number, base, largest, has_horizon=horizon is not None)

    @staticmethod
    def _is_last_of_producer(
        header: BatchHeader, last_offset: int, last_batches: Mapping[int, tuple[int, int]]
    ) -> bool:
        """Whether a producer's state is in this batch: its last records, or the marker of its last epoch."""
        if header.producer_id not in last_batches:
            return False
        offset, epoch = last_batches[header.producer_id]
        if offset >= 0:
            return last_offset == offset
        return bool(header.attributes & CONTROL) and header.producer_epoch == epoch


def _kept_of_entry(
    header: BatchHeader, entry: bytes, offsets: OffsetMap, *, tombstones: bool
) -> bytes | None:
    """Return what remains of an entry of format 0 or 1: the whole entry, one with fewer records, or None.

    Source: ``MemoryRecords.filterTo``.
    """
    batch, has_other_format = as_batch(entry)
    found = read_header(batch)
    records = memoryview(batch)[HEADER_BYTES:]
    kept, number, _ = kept_records(offsets, records, found.record_count, found.base_offset, tombstones)
    if number == 0:
        return None
    if number == found.record_count and not has_other_format:
        return entry
    append_time = found.max_timestamp if found.attributes & LOG_APPEND_TIME else -1
    data, base, largest = rebuilt(records, kept, found.base_timestamp, append_time, -1)
    return carry(
        _with_records(found, data, number, base, largest), header.attributes & COMPRESSION, header.magic
    )


def _last_batches(log: Log) -> Mapping[int, tuple[int, int]]:
    """Return the last offset of each producer's last batch, -1 for none, and its epoch, by producer id."""
    return {
        one.producer_id: (one.batches[-1].last_offset if one.batches else -1, one.epoch)
        for one in log.producer_states()
    }


def _with_records(
    header: BatchHeader, records: bytes, count: int, base: int, largest: int, *, has_horizon: bool = False
) -> bytes:
    """Return a batch with other records; base and last offset stay, and so do sequence numbers."""
    codec = header.attributes & COMPRESSION
    # An empty batch is not compressed.
    attributes = header.attributes & ~(DELETE_HORIZON | (0 if count else COMPRESSION))
    if has_horizon:
        attributes |= DELETE_HORIZON
    data = compression.compress(codec, records) if codec and count else records
    checked = CHECKED.pack(
        attributes, header.last_offset_delta, base, largest, header.producer_id, header.producer_epoch,
        header.base_sequence, count,
    ) + data  # fmt: skip
    head = (
        header.base_offset,
        HEAD.size - OVERHEAD + len(checked),
        header.leader_epoch,
        2,
        crc32c_of(checked),
    )
    return HEAD.pack(*head) + checked


class _Transactions:
    """Knows the aborted transactions, and the markers that may be removed: no record of theirs is left.

    Source: ``CleanedTransactionMetadata``. ``cleaned``: its transaction index gets the aborted transactions
    that have records left.
    """

    def __init__(self) -> None:
        self.cleaned: CleanedSegment | None = None
        self._committed: set[int] = set()
        #: By producer: the transaction, and whether one of its batches was there.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._coming: list[AbortedTransaction] = []

    def add(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Take the aborted transactions of a part of the log."""
        self._coming = sorted([*self._coming, *aborted], key=lambda one: one.first_offset)

    def _begin(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            one = self._coming.pop(0)
            self._aborted.setdefault(one.producer_id, (one, False))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of a batch belong to an aborted transaction."""
        self._begin(header.base_offset + header.last_offset_delta)
        if not header.attributes & TRANSACTIONAL:
            return False
        if header.producer_id not in self._aborted:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = self._aborted[header.producer_id][0], True
        return True

    def can_discard_marker(self, header: BatchHeader, batch: bytes) -> bool:
        """Whether the transaction that a control batch ends has no record left."""
        self._begin(header.base_offset + header.last_offset_delta)
        if header.record_count <= 0:
            return True
        kind = _marker_of(batch)
        if kind == ABORT:
            one, has_records = self._aborted.pop(header.producer_id, (None, False))
            if one is not None and has_records and self.cleaned is not None:
                self.cleaned.add_aborted(one)
            return not has_records
        if kind == COMMIT:
            found = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not found
        return False


def _marker_of(batch: bytes) -> int:
    """Return the type of the first control record, -1 for none."""
    for record in read_records(batch):
        if record.key is not None and len(record.key) >= 4:
            return int.from_bytes(record.key[2:4])
        break
    return -1
