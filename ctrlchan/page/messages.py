"""Reads messages of a topic: a bounded number of them, each with the first bytes of its values.

Records of a control batch are no messages.
"""

from __future__ import annotations

import base64
import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, NamedTuple

from ctrlchan.broker.log._batches import read_header
from ctrlchan.broker.log.records import COMPRESSION, FORMAT_2, LOG_APPEND_TIME, MAGIC_AT, read_records
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.page.brokers import FETCH, Asked, Brokers, check
from ctrlchan.page.offsets import EARLIEST, LATEST, Partition, leaders_of, offsets_at
from ctrlchan.page.problems import words_of
from ctrlchan.peers.connection import Address
from ctrlchan.peers.messages import duration

__all__ = ["MAX_MESSAGES", "Shown", "Start", "read_message", "read_messages"]

#: Messages of one answer.
MAX_MESSAGES: Final = 500
#: Seconds, bytes of batches, and rounds of requests for one answer.
_SECONDS: Final = 4.0
_MAX_BYTES: Final = 2**25
_MAX_ROUNDS: Final = 200
_BYTES_OF_PARTITION: Final = 2**18
_BYTES_OF_ANSWER: Final = 2**22
#: Partitions of one request.
_PARTITIONS: Final = 50
#: The end is read of all partitions together: of so many the whole number of messages, of more a share.
_WHOLE_ENDS: Final = 20
_HEADERS: Final = 30
_NO_REPLICA: Final = -1

_CONTROL: Final = 0x20
_LENGTH_AT, _LENGTH_END = 8, 12
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class Shown(NamedTuple):
    """The bytes of a message that an answer has: of the key and of the value, and of each header."""

    data: int
    header: int


#: In a list, and of one message alone.
IN_LIST: Final = Shown(2_048, 256)
ALONE: Final = Shown(2**18, 2**12)


class Start(NamedTuple):
    """Where reading begins.

    ``kind``: "newest" (the last messages), "oldest", "offset" or "time"; ``at``: the offset, or milliseconds
    since 1970. ``positions``: go on from these offsets of partitions, whatever the kind.
    """

    kind: str
    at: int
    positions: Mapping[int, int]


@dataclass
class _Reading:
    """What is read of one partition. ``position``: the next offset to read."""

    number: int
    leader: Address
    begin: int
    end: int
    position: int
    wanted: int
    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return self.position < self.end and len(self.messages) < self.wanted


def read_messages(
    brokers: Brokers, topic: str, partition: int | None, start: Start, limit: int
) -> dict[str, Any]:
    """Return messages of one partition, or of all, in the order of their timestamps.

    The order of a partition's offsets is kept. ``positions``: where the next messages are; ``more``: whether
    there are any (for "newest": whether there are older ones). Raises KafkaError.
    """
    leaders, notes = _leaders(brokers, topic, partition)
    readings = _begin(brokers, leaders, start, limit, notes)
    _read(brokers, topic, readings, notes)
    merged = list(heapq.merge(*(one.messages for one in readings), key=_timestamp))
    newest = start.kind == "newest" and not start.positions
    taken = merged[-limit:] if newest else merged[:limit]
    positions = {one.number: one.position for one in readings}
    if newest:
        first = {one.number: one.end for one in readings}
        for message in reversed(taken):
            first[message["partition"]] = message["offset"]
        more = any(first[one.number] > one.begin for one in readings)
    else:
        for message in reversed(merged[limit:]):
            positions[message["partition"]] = message["offset"]
        more = any(positions[one.number] < one.end for one in readings)
    return {
        "topic": topic,
        "partitions": sorted(number for _, number in leaders),
        "messages": taken,
        "positions": ",".join(f"{number}:{offset}" for number, offset in sorted(positions.items())),
        "more": more,
        "empty": all(one.begin == one.end for one in readings),
        "notes": notes,
    }


def read_message(brokers: Brokers, topic: str, partition: int, offset: int) -> dict[str, Any]:
    """Return one message with more of its bytes. Raises KafkaError, also when it is not there any more."""
    leaders, notes = _leaders(brokers, topic, partition)
    start = Start("offset", offset, {})
    readings = _begin(brokers, leaders, start, 1, notes)
    _read(brokers, topic, readings, notes, ALONE)
    for one in readings:
        for message in one.messages:
            if message["offset"] == offset:
                return message
    what = f"{topic}-{partition} has no message with offset {offset} any more. {' '.join(notes)}".strip()
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)


def _timestamp(message: Mapping[str, Any]) -> int:
    timestamp: int = message["timestamp"]
    return timestamp


def _leaders(
    brokers: Brokers, topic: str, partition: int | None
) -> tuple[dict[Partition, Address | None], list[str]]:
    """Return the leaders of the partitions to read, and a note of those without one. Raises KafkaError."""
    metadata = brokers.metadata([topic])
    check(metadata.topics[0].error_code.value, topic)
    leaders = leaders_of(metadata)
    if partition is not None:
        if (topic, partition) not in leaders:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {partition}")
        leaders = {(topic, partition): leaders[topic, partition]}
    without = sorted(number for (_, number), leader in leaders.items() if leader is None)
    notes = []
    if without:
        notes.append(f"Partitions without a leader are left out: {_listed(without)}.")
    return leaders, notes


def _begin(
    brokers: Brokers,
    leaders: Mapping[Partition, Address | None],
    start: Start,
    limit: int,
    notes: list[str],
) -> list[_Reading]:
    """Return where each partition is read from. Partitions that do not answer are noted."""
    timestamps = [EARLIEST, LATEST, *([start.at] if start.kind == "time" else [])]
    found = offsets_at(brokers, leaders, timestamps)
    wanted = limit if len(leaders) <= _WHOLE_ENDS else max(1, limit * _WHOLE_ENDS // len(leaders))
    readings = []
    for key, leader in sorted(leaders.items()):
        if leader is None:
            continue
        offsets: list[int] = []
        for one in found:
            offset = one[key]
            if isinstance(offset, KafkaError):
                notes.append(f"Partition {key[1]}: {words_of(offset)}.")
                break
            offsets.append(offset)
        if len(offsets) < len(found):
            continue
        begin, end = offsets[:2]
        if start.positions:
            position = start.positions.get(key[1], end)
        elif start.kind == "newest":
            position = end - wanted
        elif start.kind == "time":
            position = end if offsets[2] < 0 else offsets[2]
        else:
            position = start.at if start.kind == "offset" else begin
        most = wanted if start.kind == "newest" and not start.positions else limit
        readings.append(_Reading(key[1], leader, begin, end, min(max(position, begin), end), most))
    return readings


def _read(
    brokers: Brokers, topic: str, readings: list[_Reading], notes: list[str], shown: Shown = IN_LIST
) -> None:
    """Read until each partition has its messages or its end, within the bounds of time and bytes."""
    deadline = monotonic() + _SECONDS
    read = 0
    for _ in range(_MAX_ROUNDS):
        waiting = [one for one in readings if one.is_open]
        if not waiting:
            return
        if read > _MAX_BYTES or monotonic() > deadline:
            break
        by_leader: defaultdict[Address, list[_Reading]] = defaultdict(list)
        # Those of which the least is read come first: a request may have no space for the last ones.
        for one in sorted(waiting, key=lambda one: len(one.messages)):
            if len(by_leader[one.leader]) < _PARTITIONS:
                by_leader[one.leader].append(one)
        answers = brokers.ask_all(
            [Asked(leader, FETCH, _fetch_fields(topic, some)) for leader, some in by_leader.items()]
        )
        before = read
        for some, answer in zip(by_leader.values(), answers, strict=True):
            read += _take(some, answer, notes, shown)
        if read == before:
            break
    left = [one.number for one in readings if one.is_open]
    if left:
        notes.append(f"Not everything could be read in time from partitions {_listed(left)}.")


def _take(readings: list[_Reading], answer: Any, notes: list[str], shown: Shown) -> int:
    """Put the records of an answer into the readings. Return its bytes."""
    by_number = {one.number: one for one in readings}
    size = 0
    try:
        if isinstance(answer, KafkaError):
            raise answer
        check(answer.error_code.value, "Fetch")
        found = [one for topic in answer.responses for one in topic.partitions]
    except KafkaError as error:
        for reading in readings:
            _give_up(reading, error, notes)
        return 0
    for one in found:
        reading = by_number[int(one.partition_index)]
        try:
            check(one.error_code.value, "")
            data = bytes(one.records or b"")
            size += len(data)
            for batch in _batches(data):
                _take_batch(reading, batch, shown)
        except (KafkaError, ValueError) as error:
            _give_up(reading, error, notes)
    return size


def _give_up(reading: _Reading, error: KafkaError | ValueError, notes: list[str]) -> None:
    """Note why no more of a partition is read."""
    words = words_of(error) if isinstance(error, KafkaError) else str(error)
    notes.append(f"Partition {reading.number} from offset {reading.position}: {words}.")
    reading.wanted = 0


def _take_batch(reading: _Reading, batch: bytes, shown: Shown) -> None:
    if batch[MAGIC_AT] > FORMAT_2:
        offset = int.from_bytes(batch[:_LENGTH_AT])
        raise ValueError(f"the records at offset {offset} have the unknown format {batch[MAGIC_AT]}")
    try:
        header = read_header(batch)
    except ValueError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE) from error
    if not header.attributes & _CONTROL:
        codec = header.attributes & COMPRESSION
        common = {
            "compression": _CODECS[codec] if codec < len(_CODECS) else f"codec {codec}",
            "timestamp_type": "LogAppendTime" if header.attributes & LOG_APPEND_TIME else "CreateTime",
        }
        for record in read_records(batch):
            if reading.position <= record.offset < reading.end:
                if not reading.is_open:
                    return
                reading.messages.append(
                    {
                        "partition": reading.number,
                        "offset": record.offset,
                        "timestamp": record.timestamp,
                        "key": _cut(record.key, shown.data),
                        "value": _cut(record.value, shown.data),
                        "headers": [
                            [_cut(name, shown.header), _cut(value, shown.header)]
                            for name, value in record.headers[:_HEADERS]
                        ],
                        "more_headers": max(0, len(record.headers) - _HEADERS),
                        **common,
                    }
                )
                reading.position = record.offset + 1
    reading.position = max(reading.position, header.base_offset + header.last_offset_delta + 1)


def _batches(data: bytes) -> Iterator[bytes]:
    """Yield the whole batches."""
    at = 0
    while at + MAGIC_AT < len(data):
        end = at + _LENGTH_END + int.from_bytes(data[at + _LENGTH_AT : at + _LENGTH_END], signed=True)
        if not at + MAGIC_AT < end <= len(data):
            return
        yield data[at:end]
        at = end


def _cut(data: bytes | None, most: int) -> dict[str, Any] | None:
    """Return the first bytes in base64, and how many bytes there are."""
    if data is None:
        return None
    return {"size": len(data), "base64": base64.b64encode(data[:most]).decode()}


def _fetch_fields(topic: str, readings: list[_Reading]) -> dict[str, Any]:
    partitions = tuple(
        FETCH.part(
            "FetchPartition",
            partition=one.number,
            fetch_offset=one.position,
            partition_max_bytes=_BYTES_OF_PARTITION,
        )
        for one in readings
    )
    return {
        "replica_id": _NO_REPLICA,
        "max_wait": duration(0),
        "min_bytes": 0,
        "max_bytes": _BYTES_OF_ANSWER,
        "topics": (FETCH.part("FetchTopic", topic=topic, partitions=partitions),),
        "forgotten_topics_data": (),
    }


def _listed(numbers: list[int]) -> str:
    more = f" and {len(numbers) - 10:,} more" if len(numbers) > 10 else ""
    return ", ".join(map(str, numbers[:10])) + more
