"""The files of a log directory as rows: what is in them, and where they are damaged.

In: a log directory, the folder of a replica, or one file. Out: one dict for each batch, record, index entry,
producer or line, with the names of Kafka's DumpLogSegments. No file is trusted, and none is changed. Damage
is a row too: its ``damage`` says what is wrong, ``position`` at which byte.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from ctrlchan.broker.log import checkpoints, names
from ctrlchan.broker.log._batches import BatchHeader, read_header
from ctrlchan.broker.log._producer_snapshots import load_snapshot
from ctrlchan.broker.log._producers import ProducerStates
from ctrlchan.broker.log.records import (
    COMPRESSION,
    DELETE_HORIZON,
    FORMAT_2,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC_AT,
    checksum_of,
    read_records,
)
from ctrlchan.errors import DecodeError, KafkaError, LogDirectoryError
from ctrlchan.topic_names import id_to_text

__all__ = ["BatchPlace", "RecordTexts", "Row", "batches_of", "dump_file", "files_of"]

Row: TypeAlias = dict[str, Any]
#: Returns key and value of a record as texts, or raises DecodeError.
RecordTexts: TypeAlias = Callable[[bytes | None, bytes | None], tuple[str, str | None]]

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
FORMAT_0: Final = 0
TRANSACTIONAL, CONTROL = 0x10, 0x20
#: Bytes of a header up to the magic byte, and what the length does not count.
TO_MAGIC, OVERHEAD = 17, 12
#: How small a batch may be, by its format.
LEAST_BYTES: Final = (26, 34, HEADER_BYTES)
INDEX_ENTRY, TIME_ENTRY, ABORTED_ENTRY = struct.Struct(">ii"), struct.Struct(">qi"), struct.Struct(">hqqqq")
MARKER: Final = struct.Struct(">hi")
#: No snapshot is so old that its producers have expired.
NEVER_MS: Final = 2**62


def files_of(path: Path) -> Iterator[Path]:
    """Yield the files that ``dump_file`` can read: for a folder, its files and those of its replicas."""
    if not path.is_dir():
        yield path
        return
    folders = []
    for inner in sorted(path.iterdir()):
        if inner.is_dir():
            folders.append(inner)
        elif _reader_of(inner.name) is not None:
            yield inner
    for folder in folders:
        try:
            names.parse_folder_name(folder.name)
        except LogDirectoryError:
            continue
        yield from files_of(folder)


def dump_file(
    path: Path, *, records: bool = False, texts: Mapping[str, RecordTexts] | None = None
) -> Iterator[Row]:
    """Yield the rows of one file. Raises OSError.

    ``records``: also a row for each record. ``texts``: how the records of some topics are shown.
    """
    reader = _reader_of(path.name)
    if reader is None:
        yield {"damage": "not a file of a log directory"}
        return
    try:
        if reader is _dump_segment:
            yield from _dump_segment(path, records, (texts or {}).get(_topic_of(path)))
        else:
            yield from reader(path, records)
    except LogDirectoryError as error:
        yield {"damage": str(error).removeprefix(f"{path}")[:1000].lstrip(":, ")}


def _topic_of(path: Path) -> str:
    """Return the topic of a replica's file, "" for a file that is elsewhere."""
    try:
        return names.parse_folder_name(path.absolute().parent.name)[0]
    except LogDirectoryError:
        return ""


def _reader_of(name: str) -> Callable[[Path, bool], Iterator[Row]] | None:
    if name in _BY_NAME:
        return _BY_NAME[name]
    for ending in (names.DELETED_SUFFIX, names.CLEANED_SUFFIX, names.SWAP_SUFFIX):
        name = name.removesuffix(ending)
    return _BY_SUFFIX.get(os.path.splitext(name)[1]) if names.offset_of(name) is not None else None


# -- segments


class BatchPlace(NamedTuple):
    """A batch and its place in a file. ``damage``: why the file cannot be read from here on."""

    position: int
    header: BatchHeader | None
    damage: str | None


def batches_of(path: Path) -> Iterator[BatchPlace]:
    """Yield the headers of a segment's batches; the last one may be damage."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        position = 0
        while position < size:
            file.seek(position)
            head = file.read(min(HEADER_BYTES, size - position))
            length = int.from_bytes(head[8:OVERHEAD], signed=True)
            if len(head) < TO_MAGIC:
                damage = f"{size - position} bytes are no whole batch"
            elif head[MAGIC_AT] > FORMAT_2:
                damage = f"a batch of the unknown format {head[MAGIC_AT]}"
            elif length + OVERHEAD < LEAST_BYTES[head[MAGIC_AT]]:
                damage = f"a batch of length {length}, which is too small"
            elif position + OVERHEAD + length > size:
                damage = f"a batch of {length + OVERHEAD} bytes, of which the file has {size - position}"
            else:
                yield BatchPlace(position, read_header(head), None)
                position += OVERHEAD + length
                continue
            yield BatchPlace(position, None, damage)
            return


def _dump_segment(path: Path, records: bool, texts: RecordTexts | None = None) -> Iterator[Row]:
    next_offset = names.offset_of(path.name) or 0
    yield {"startingOffset": next_offset}
    with path.open("rb") as file:
        for position, header, damage in batches_of(path):
            if header is None:
                yield {"damage": damage, "position": position}
                return
            file.seek(position)
            data = file.read(header.size)
            is_valid = checksum_of(data) == header.crc
            last_offset = header.base_offset + header.last_offset_delta
            yield _batch_row(header, position, is_valid)
            if not is_valid:
                yield {"damage": "the CRC is wrong", "position": position}
            if header.base_offset < next_offset or header.last_offset_delta < 0:
                yield {
                    "damage": f"offset {header.base_offset}, where {next_offset} or more should be",
                    "position": position,
                }
            next_offset = max(next_offset, last_offset + 1)
            if records and is_valid:
                yield from _record_rows(header, data, position, texts)


def _batch_row(header: BatchHeader, position: int, is_valid: bool) -> Row:
    attributes = header.attributes
    codec = attributes & COMPRESSION
    place: Row = {
        "position": position,
        _time_name(header): header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": CODECS[codec] if codec < len(CODECS) else f"unknown ({codec})",
        "crc": header.crc,
        "isvalid": is_valid,
    }
    if header.magic < FORMAT_2:
        return {"offset": header.base_offset, **place}
    row: Row = {
        "baseOffset": header.base_offset,
        "lastOffset": header.base_offset + header.last_offset_delta,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": _sequence(header, header.last_offset_delta),
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": bool(attributes & TRANSACTIONAL),
        "isControl": bool(attributes & CONTROL),
    }
    if attributes & DELETE_HORIZON:
        row["deleteHorizonMs"] = header.base_timestamp
    return row | place


def _time_name(header: BatchHeader) -> str:
    if header.magic == FORMAT_0:
        return "NoTimestampType"
    return "LogAppendTime" if header.attributes & LOG_APPEND_TIME else "CreateTime"


def _sequence(header: BatchHeader, delta: int) -> int:
    """Return the sequence number of a record; they go from 2^31 - 1 to 0."""
    return -1 if header.base_sequence < 0 else (header.base_sequence + delta) & 0x7FFFFFFF


def _record_rows(header: BatchHeader, data: bytes, position: int, texts: RecordTexts | None) -> Iterator[Row]:
    try:
        for record in read_records(data):
            row: Row = {
                "offset": record.offset,
                _time_name(header): record.timestamp,
                "keySize": -1 if record.key is None else len(record.key),
                "valueSize": -1 if record.value is None else len(record.value),
            }
            if header.magic == FORMAT_2:
                row["sequence"] = _sequence(header, record.offset - header.base_offset)
                row["headerKeys"] = [_text(key) for key, _ in record.headers]
            if header.attributes & CONTROL:
                row |= _marker(record.key, record.value)
            else:
                row |= {"key": _text(record.key), "payload": _text(record.value)}
                if texts is not None:
                    try:
                        row["key"], row["payload"] = texts(record.key, record.value)
                    except DecodeError as error:
                        yield row
                        yield {
                            "damage": f"the record at offset {record.offset}: {error}",
                            "position": position,
                        }
                        continue
            yield row
    except KafkaError as error:
        yield {"damage": f"{error}", "position": position}


def _marker(key: bytes | None, value: bytes | None) -> Row:
    """Return what a control record says."""
    kind = int.from_bytes(key[2:4]) if key is not None and len(key) >= 4 else -1
    name = {0: "ABORT", 1: "COMMIT"}.get(kind, f"unknown ({kind})")
    row: Row = {"endTxnMarker": name}
    if value is not None and len(value) >= MARKER.size:
        row["coordinatorEpoch"] = MARKER.unpack_from(value)[1]
    return row


def _text(data: bytes | None) -> str | None:
    """Return bytes as text; what is not UTF-8 as ``\\xff``."""
    return None if data is None else data.decode(errors="backslashreplace")


# -- indexes


def _entries(path: Path, entry: struct.Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the position and the fields of each entry of an index, up to the room for new ones."""
    data = path.read_bytes()
    for position in range(0, len(data) - entry.size + 1, entry.size):
        raw = data[position : position + entry.size]
        if position and not any(raw):
            # Of the active segment, or of one that was not closed in order.
            break
        yield position, entry.unpack(raw)
    if len(data) % entry.size:
        yield len(data) - len(data) % entry.size, ()


def _headers(path: Path, suffix: str) -> Mapping[int, BatchHeader] | None:
    """Return the headers of the segment that an index belongs to by position, None without the segment."""
    name = path.name.replace(suffix, names.LOG_SUFFIX)
    try:
        return {at: header for at, header, _ in batches_of(path.with_name(name)) if header is not None}
    except FileNotFoundError:
        return None


def _dump_index(path: Path, _records: bool) -> Iterator[Row]:
    base = names.offset_of(path.name) or 0
    batches = _headers(path, names.INDEX_SUFFIX)
    last_offsets = {one.base_offset + one.last_offset_delta for one in (batches or {}).values()}
    previous = -1
    for at, fields in _entries(path, INDEX_ENTRY):
        if not fields:
            yield {"damage": "the last entry is cut", "position": at}
            return
        offset, position = base + fields[0], fields[1]
        if not at and not any(fields):
            return
        yield {"offset": offset, "position": position}
        if fields[0] <= previous or fields[0] < 0:
            yield {"damage": f"offset {offset} is not above the one before it", "position": at}
        previous = fields[0]
        if batches is not None:
            header = batches.get(position)
            # An append of several batches has one entry: the last offset of all, and where the first one
            # begins.
            # Before Kafka 0.11 it had the first offset of them, which the header of an entry does not have.
            is_old = header is not None and header.magic < FORMAT_2
            if header is None or (header.base_offset > offset and not is_old):
                what = "no batch begins" if header is None else f"offset {header.base_offset} begins"
                yield {"damage": f"offset {offset}, but at {position} of the segment {what}", "position": at}
            elif offset not in last_offsets and not is_old:
                yield {"damage": f"offset {offset} is the last of no batch", "position": at}


def _dump_time_index(path: Path, _records: bool) -> Iterator[Row]:
    base = names.offset_of(path.name) or 0
    batches = _headers(path, names.TIME_INDEX_SUFFIX)
    times = {one.base_offset + one.last_offset_delta: one.max_timestamp for one in (batches or {}).values()}
    # Kafka before 0.11 may have written the offset of a record inside of an entry.
    old_offsets = [one.base_offset for one in (batches or {}).values() if one.magic < FORMAT_2]
    exact_from = max(old_offsets, default=-1)
    previous = -2
    for at, fields in _entries(path, TIME_ENTRY):
        if not fields:
            yield {"damage": "the last entry is cut", "position": at}
            return
        timestamp, offset = fields[0], base + fields[1]
        if not at and not any(fields):
            return
        yield {"timestamp": timestamp, "offset": offset}
        if timestamp <= previous:
            yield {"damage": f"timestamp {timestamp} is not above the one before it", "position": at}
        previous = timestamp
        if batches is not None and times.get(offset, timestamp if offset < exact_from else None) != timestamp:
            found = f"has {times[offset]}" if offset in times else "is the last of no batch"
            yield {"damage": f"timestamp {timestamp}, but offset {offset} {found}", "position": at}


def _dump_txn_index(path: Path, _records: bool) -> Iterator[Row]:
    data = path.read_bytes()
    for at in range(0, len(data), ABORTED_ENTRY.size):
        raw = data[at : at + ABORTED_ENTRY.size]
        if len(raw) < ABORTED_ENTRY.size:
            yield {"damage": "the last entry is cut", "position": at}
            return
        keys = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
        row: Row = dict(zip(keys, ABORTED_ENTRY.unpack(raw), strict=True))
        yield row
        if row["version"] != 0:
            yield {"damage": f"version {row['version']}, where only 0 is known", "position": at}


# -- small files


def _dump_snapshot(path: Path, _records: bool) -> Iterator[Row]:
    states = ProducerStates(NEVER_MS)
    try:
        load_snapshot(states, path.read_bytes(), 0)
    except ValueError as error:
        yield {"damage": str(error), "position": 0}
        return
    for state in states.producers():
        row: Row = {
            "producerId": state.producer_id,
            "producerEpoch": state.epoch,
            "coordinatorEpoch": state.coordinator_epoch,
            "currentTxnFirstOffset": None if state.txn_first_offset < 0 else state.txn_first_offset,
            "lastTimestamp": state.last_timestamp,
        }
        for batch in state.batches[:1]:
            row |= {
                "firstSequence": batch.first_sequence,
                "lastSequence": batch.last_sequence,
                "lastOffset": batch.last_offset,
                "offsetDelta": batch.last_offset - batch.first_offset,
                "timestamp": batch.timestamp,
            }
        yield row


def _dump_offsets(path: Path, _records: bool) -> Iterator[Row]:
    for (topic, partition), offset in checkpoints.read_offsets(path).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def _dump_epochs(path: Path, _records: bool) -> Iterator[Row]:
    for epoch, offset in checkpoints.read_epochs(path):
        yield {"leaderEpoch": epoch, "startOffset": offset}


def _dump_meta(path: Path, _records: bool) -> Iterator[Row]:
    found = checkpoints.read_meta_properties(path.parent)
    if found is not None:
        named = zip(("cluster.id", "broker.id", "directory.id"), found, strict=True)
        yield {key: value for key, value in named if value is not None}


def _dump_topic_id(path: Path, _records: bool) -> Iterator[Row]:
    topic_id = checkpoints.read_topic_id(path.parent)
    if topic_id is not None:
        yield {"topic_id": id_to_text(topic_id)}


def _dump_clean_shutdown(path: Path, _records: bool) -> Iterator[Row]:
    found = checkpoints.read_clean_shutdown(path.parent)
    if found is not None:
        yield {"brokerEpoch": found.broker_epoch}


_BY_NAME: Final = {
    checkpoints.META_PROPERTIES: _dump_meta,
    checkpoints.CLEAN_SHUTDOWN: _dump_clean_shutdown,
    checkpoints.RECOVERY_POINT_CHECKPOINT: _dump_offsets,
    checkpoints.HIGH_WATERMARK_CHECKPOINT: _dump_offsets,
    checkpoints.LOG_START_CHECKPOINT: _dump_offsets,
    checkpoints.CLEANER_CHECKPOINT: _dump_offsets,
    checkpoints.LEADER_EPOCH_CHECKPOINT: _dump_epochs,
    checkpoints.PARTITION_METADATA: _dump_topic_id,
}
_BY_SUFFIX: Final[Mapping[str, Callable[[Path, bool], Iterator[Row]]]] = {
    names.LOG_SUFFIX: _dump_segment,
    names.INDEX_SUFFIX: _dump_index,
    names.TIME_INDEX_SUFFIX: _dump_time_index,
    names.TXN_INDEX_SUFFIX: _dump_txn_index,
    names.SNAPSHOT_SUFFIX: _dump_snapshot,
}
