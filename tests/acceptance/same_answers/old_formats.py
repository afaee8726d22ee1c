"""What clients before Kafka 0.11 ask: records of formats 0 and 1, and what stands in their place."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from tests.acceptance.same_answers.grouping import ready
from tests.acceptance.same_answers.recorder import Broker
from tests.acceptance.same_answers.topics import create_topic, one_produce, plain, produce
from tests.unit.broker.log.batches import TRANSACTIONAL, PlainRecord, batch_of
from tests.unit.broker.log.old_formats.entries import APPEND_TIME, OldEntry, wrapped

__all__ = ["listed_segments", "offsets_in_zookeeper", "old_records_fetched", "old_records_produced"]

#: From this version on of Produce records have format 2.
_FORMAT_2_FROM: Final = 3
_NONE, _GZIP, _SNAPPY, _LZ4, _ZSTD = range(5)
#: What stored batches are read with, and from this version on of Fetch records have format 2.
_FETCH: Final = 10
_FETCHED_FORMAT_2_FROM: Final = 4


def old_records_produced(broker: Broker) -> None:
    """Records of formats 0 and 1, and what the log has of them afterwards."""
    create_topic(broker, "old")
    create_topic(broker, "old-append-time", message_timestamp_type="LogAppendTime")
    create_topic(broker, "old-compacted", cleanup_policy="compact")
    create_topic(broker, "old-plain", compression_type="uncompressed")
    create_topic(broker, "old-small", max_message_bytes="200")
    create_topic(broker, "old-small-segments", segment_bytes="300")
    create_topic(broker, "old-recent", message_timestamp_before_max_ms="10000")
    topics = ["old", "old-append-time", "old-compacted", "old-plain", "old-small", "old-small-segments"]
    for version in range(_FORMAT_2_FROM):
        for data in _records():
            for topic in [*topics, "old-recent"]:
                broker.ask("Produce", version, **one_produce(topic, data))
        for topic in ("unknown", "__consumer_offsets"):
            broker.ask("Produce", version, **one_produce(topic, OldEntry().encoded()))
        for data in (OldEntry().encoded(), b"", OldEntry(crc=1).encoded()):
            broker.send_without_answer("Produce", version, **one_produce("old", data, acks=0))
        for acks in (1, 2, -2):
            broker.ask("Produce", version, **one_produce("old", OldEntry(crc=acks & 1).encoded(), acks=acks))
    for topic in ("old", "old-compacted", "old-plain"):
        _read(broker, topic)


def _read(broker: Broker, topic: str) -> None:
    partition = {"Partition": 0, "FetchOffset": 0, "LogStartOffset": -1, "PartitionMaxBytes": 10**6}
    topics = [{"Topic": topic, "Partitions": [partition]}]
    broker.ask("Fetch", _FETCH, ReplicaId=-1, MaxWaitMs=0, MinBytes=1, MaxBytes=10**7, Topics=topics)


def _records() -> Iterator[bytes]:
    for magic in (0, 1):
        yield from _of_format(magic)
        yield from _refused(magic)
        yield from _wrong_wrappers(magic)
    zero, one = OldEntry(magic=0).encoded(), OldEntry().encoded()
    batch = batch_of([PlainRecord(0), PlainRecord(1)])
    yield zero + one
    yield one + zero
    yield one + batch.encoded()
    yield batch.encoded() + one
    yield batch.encoded()
    yield batch.encoded() + batch.encoded()
    yield batch.encoded() + replace(batch, crc=1).encoded()
    yield batch.encoded()[:-1]
    yield replace(batch, base_offset=3).encoded()
    yield replace(batch, attributes=5).encoded()
    yield replace(batch, attributes=TRANSACTIONAL).encoded()
    yield plain("zstd", codec=_ZSTD)
    yield b""
    yield b"short"


def _of_format(magic: int) -> Iterator[bytes]:
    """Entries that some topics take."""
    one = OldEntry(magic=magic)
    several = [
        replace(one, offset=number, timestamp=1000 + 7 * number, value=b"v" * number, key=key)
        for number, key in enumerate((b"a", b"", b"key"))
    ]
    data = b"".join(entry.encoded() for entry in several)
    yield one.encoded()
    yield data
    yield data[:-1]
    yield data + bytes(5)
    yield replace(one, key=None).encoded()
    yield replace(one, value=None).encoded()
    yield one.encoded() + replace(one, key=None).encoded()
    yield replace(one, timestamp=-1).encoded()
    yield replace(one, timestamp=-2).encoded()
    yield replace(one, offset=-5, value=b"x" * 300).encoded()
    yield replace(one, value=b"x" * 180).encoded() * 3
    yield replace(one, attributes=APPEND_TIME).encoded()
    yield replace(one, attributes=APPEND_TIME, timestamp=-1).encoded()
    yield replace(one, attributes=0x70).encoded()
    yield replace(one, pair=struct.pack(">i1si2s", 1, b"k", 1, b"vX")).encoded()
    for codec in (_GZIP, _SNAPPY, _LZ4):
        yield wrapped(several, codec).encoded()
        yield wrapped(several, codec, offset=0).encoded()
    yield wrapped(several, _GZIP, offset=100).encoded()
    yield wrapped(several, _GZIP, offset=1).encoded()
    yield wrapped(several, _GZIP, offset=-1).encoded()
    yield wrapped(several, _GZIP, timestamp=5).encoded()
    yield wrapped(several, _GZIP, attributes=APPEND_TIME, timestamp=5).encoded()
    yield wrapped(several, _GZIP, attributes=APPEND_TIME, timestamp=-1).encoded()
    yield wrapped([several[2], several[0]], _GZIP).encoded()
    yield wrapped([replace(one, attributes=APPEND_TIME)], _GZIP).encoded()
    yield wrapped([replace(one, timestamp=-1), one], _GZIP).encoded()
    yield wrapped([one], _GZIP, after=one.encoded()[:20]).encoded()
    yield wrapped([one, replace(one, key=None)], _GZIP).encoded()
    yield wrapped([replace(one, timestamp=-2)], _GZIP).encoded()
    yield wrapped([replace(one, value=b"x" * 400)], _GZIP).encoded()


def _refused(magic: int) -> Iterator[bytes]:
    """Entries that no topic takes."""
    one = OldEntry(magic=magic)
    yield replace(one, crc=1).encoded()
    yield one.encoded() + replace(one, crc=1).encoded()
    for size in (13, -1):
        yield replace(one, size=size).encoded()
        yield one.encoded() + replace(one, size=size).encoded()
    yield replace(one, size=10**6).encoded()
    for codec in (5, 6, 7):
        yield replace(one, attributes=codec).encoded()
    for sizes in ((5, 0), (-1, 5), (-9, -9), (2**31 - 1, 0), (0, 2**31 - 1), (-(2**31), -(2**31))):
        yield replace(one, pair=struct.pack(">ii", *sizes)).encoded()
        yield one.encoded() + replace(one, pair=struct.pack(">ii", *sizes)).encoded()
    # Too short for format 1.
    for length in range(9):
        yield replace(one, pair=bytes(length)).encoded()


def _wrong_wrappers(magic: int) -> Iterator[bytes]:
    """Entries with a codec that carry nothing, or something wrong."""
    one = OldEntry(magic=magic)
    other = replace(one, magic=1 - magic)
    good = wrapped([one], _GZIP)
    yield good.encoded() + good.encoded()
    yield one.encoded() + good.encoded()
    yield good.encoded() + one.encoded()
    yield replace(good, value=None).encoded()
    yield replace(good, key=b"key").encoded()
    yield replace(good, attributes=_ZSTD).encoded()
    yield replace(good, attributes=_SNAPPY).encoded()
    yield replace(good, attributes=_LZ4).encoded()
    yield wrapped([], _GZIP, magic=magic).encoded()
    yield wrapped([], _GZIP, magic=magic, after=b"cut").encoded()
    for codec in (_GZIP, _SNAPPY, _LZ4):
        yield wrapped([], codec, magic=magic, payload=b"").encoded()
        yield wrapped([], codec, magic=magic, payload=b"garbage").encoded()
    yield wrapped([one, other], _GZIP).encoded()
    yield wrapped([other], _GZIP, magic=magic).encoded()
    yield wrapped([replace(one, magic=2)], _GZIP, magic=magic).encoded()
    yield wrapped([replace(one, magic=7)], _GZIP, magic=magic).encoded()
    for codec in range(1, 8):
        yield wrapped([replace(one, attributes=codec)], _GZIP).encoded()
        yield wrapped([replace(one, crc=1), replace(one, attributes=codec)], _GZIP).encoded()
    yield wrapped([replace(one, crc=1)], _GZIP).encoded()
    yield wrapped([one, replace(one, crc=1)], _GZIP).encoded()
    yield wrapped([replace(one, size=13)], _GZIP).encoded()
    yield wrapped([one, replace(one, size=-1)], _GZIP).encoded()
    yield wrapped([one, replace(one, size=10**6)], _GZIP).encoded()
    yield wrapped(
        [replace(one, key=None, timestamp=5), replace(one, attributes=APPEND_TIME)], _GZIP
    ).encoded()
    for sizes in ((5, 0), (-1, 5), (-9, -9)):
        yield wrapped([replace(one, pair=struct.pack(">ii", *sizes))], _GZIP).encoded()
    for length in range(9):
        yield wrapped([replace(one, pair=bytes(length))], _GZIP).encoded()


def old_records_fetched(broker: Broker) -> None:
    """Records of format 2, and those of old clients, as old consumers read them."""
    for name, configs in {
        "mixed": {},
        "mixed-append-time": {"message_timestamp_type": "LogAppendTime"},
        "mixed-zstd": {"compression_type": "zstd"},
        "mixed-disabled": {"message_downconversion_enable": "false"},
    }.items():
        create_topic(broker, name, 2, **configs)
        _fill(broker, name)
    for version in range(_FETCHED_FORMAT_2_FROM):
        for topic in ("mixed", "mixed-append-time", "mixed-zstd", "mixed-disabled"):
            for offset in (*range(20), -1, 99):
                _fetch(broker, version, {topic: [{"FetchOffset": offset}]})
            for size in (0, 1, 30, 61, 80, 100, 150, 200, 300, 500):
                _fetch(broker, version, {topic: [{"PartitionMaxBytes": size}]})
                _fetch(broker, version, {topic: [{"PartitionMaxBytes": size, "FetchOffset": 3}]})
                _fetch(
                    broker, version, {topic: [{"PartitionMaxBytes": 600}, {"Partition": 1}]}, MaxBytes=size
                )
            _fetch(broker, version, {topic: [{"Partition": 1}]})
            _fetch(broker, version, {topic: [{"Partition": 1, "FetchOffset": 1}]})
            for index in (2, -1):
                _fetch(broker, version, {topic: [{"Partition": index}]})
        for replica in (1, 2, -2):
            _fetch(broker, version, {"mixed": [{}], "mixed-disabled": [{}]}, ReplicaId=replica)
        several: dict[str, list[dict[str, int]]] = {
            "unknown": [{}],
            "mixed": [{}, {"Partition": 7}, {"Partition": 1}],
            "not a topic": [{}],
        }
        _fetch(broker, version, several)
        _fetch(broker, version, {"mixed": [{}, {"FetchOffset": 4}]})
        _fetch(broker, version, {"mixed": [{"PartitionMaxBytes": -1}]})
        _fetch(broker, version, {"mixed": [{}]}, MaxBytes=-1)
        _fetch(broker, version, {"mixed": [{"FetchOffset": 5}]}, MinBytes=10**6, MaxWaitMs=1)
        _fetch(broker, version, {"mixed": []})
        _fetch(broker, version, {})


def _fill(broker: Broker, topic: str) -> None:
    records = [
        PlainRecord(0, 5, b"k", b"v"),
        PlainRecord(1, 1, None, b""),
        PlainRecord(2, 9, b"", None, ((b"header", b"x"),)),
    ]
    for codec in (_NONE, _GZIP, _SNAPPY, _LZ4):
        produce(broker, topic, batch_of(records, codec).encoded())
    produce(broker, topic, plain("idempotent", "two", producer_id=1, producer_epoch=0, base_sequence=0))
    produce(broker, topic, batch_of(records, _NONE, base_timestamp=-1).encoded())
    for magic in (0, 1):
        old = [OldEntry(magic=magic, offset=number, value=b"old %d" % number) for number in range(2)]
        answer = broker.look(
            "Produce", 2, **one_produce(topic, b"".join(one.encoded() for one in old) + b"cut")
        )
        assert answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"] == 0, answer
    for number in range(8):
        # Their headers leave room: else an answer ends where another compressor has written a byte more.
        produce(broker, topic, plain(f"{number}"))
    produce(broker, topic, plain("zstd", codec=_ZSTD), partition=1)


def _fetch(broker: Broker, version: int, topics: dict[str, list[dict[str, int]]], **fields: int) -> None:
    partition = {"Partition": 0, "FetchOffset": 0, "PartitionMaxBytes": 10**6}
    named = [
        {"Topic": name, "Partitions": [partition | one for one in partitions]}
        for name, partitions in topics.items()
    ]
    request = {"ReplicaId": -1, "MaxWaitMs": 0, "MinBytes": 1, "MaxBytes": 10**7} | fields
    broker.ask("Fetch", version, **request, Topics=named)


def listed_segments(broker: Broker) -> None:
    """Where segments begin (ListOffsets 0)."""
    create_topic(broker, "segments", 2, segment_bytes="200")
    for number in range(5):
        produce(broker, "segments", plain("x" * 100, "y", base_timestamp=1000 * number))
    for time in (*range(-8, 2), 5_000, 2**62):
        for most in (0, 1, 2, 3, 5, 100, -1):
            for partition in (0, 1):
                _list(broker, {"PartitionIndex": partition, "Timestamp": time, "MaxNumOffsets": most})
    broker.look(
        "DeleteRecords",
        2,
        Topics=[{"Name": "segments", "Partitions": [{"PartitionIndex": 0, "Offset": 3}]}],
        TimeoutMs=30_000,
    )
    for time in (-2, -1, 2**62):
        _list(broker, {"Timestamp": time, "MaxNumOffsets": 9})
    for replica in (1, 2, -2, -3):
        _list(broker, {"Timestamp": -1, "MaxNumOffsets": 2}, replica=replica)
    for topic in ("unknown", "not a topic"):
        _list(broker, {}, topic=topic)
    _list(broker, {"PartitionIndex": 7})
    _list(broker, {}, {}, {"PartitionIndex": 1})
    _list(broker)
    broker.ask("ListOffsets", 0, ReplicaId=-1, Topics=[])


def _list(broker: Broker, *partitions: dict[str, int], topic: str = "segments", replica: int = -1) -> None:
    one = {"PartitionIndex": 0, "Timestamp": -1, "MaxNumOffsets": 1}
    topics = [{"Name": topic, "Partitions": [one | partition for partition in partitions]}]
    broker.ask("ListOffsets", 0, ReplicaId=replica, Topics=topics)


def offsets_in_zookeeper(broker: Broker) -> None:
    """OffsetCommit 0 and OffsetFetch 0, and that the offsets are not those of the coordinator."""
    ready(broker)
    create_topic(broker, "in-zookeeper", 3)
    topics = [
        {"Name": "in-zookeeper", "Partitions": [{"PartitionIndex": index} for index in (0, 1, 2, 9, -1)]},
        {"Name": "unknown", "Partitions": [{"PartitionIndex": 0}]},
    ]
    asked = [
        {"Name": topic["Name"], "PartitionIndexes": [one["PartitionIndex"] for one in topic["Partitions"]]}
        for topic in topics
        if isinstance(topic["Partitions"], list)
    ]
    for group in (
        "group",
        "",
        "with/slash",
        ".",
        "..",
        "a/../b",
        "a//b",
        "/",
        "end/",
        "ü\u20ac",
        "\x01",
        "\uf000",
    ):
        broker.ask("OffsetFetch", 0, GroupId=group, Topics=asked)
        for offset in (7, 0, -1, -(2**63), 2**63 - 1):
            for metadata in ("", "text", None, "x" * 4096, "x" * 4097, "\U0001f600" * 2049):
                fields = {"CommittedOffset": offset, "CommittedMetadata": metadata}
                committed = [
                    topic | {"Partitions": [one | fields for one in topic["Partitions"]]}
                    for topic in topics
                    if isinstance(topic["Partitions"], list)
                ]
                broker.ask("OffsetCommit", 0, GroupId=group, Topics=committed)
            broker.ask("OffsetFetch", 0, GroupId=group, Topics=asked)
        broker.ask("OffsetFetch", 1, GroupId=group, Topics=asked)
        broker.ask("OffsetFetch", 0, GroupId=group, Topics=[])
        broker.ask("OffsetCommit", 0, GroupId=group, Topics=[])
