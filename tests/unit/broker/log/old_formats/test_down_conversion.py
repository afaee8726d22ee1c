"""Batches as entries of older formats. ``same_answers`` compares them with Kafka's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.broker.log import compression
from ctrlchan.broker.log._batches import AppendRules
from ctrlchan.broker.log.old_formats._down_conversion import Converted, down_convert
from ctrlchan.broker.log.old_formats._up_conversion import check_old
from ctrlchan.broker.log.records import read_records
from ctrlchan.errors import ErrorCode
from tests.unit.broker.log.batches import CONTROL, LOG_APPEND_TIME, PlainRecord, batch_of
from tests.unit.broker.log.kafka_python import MemoryRecords
from tests.unit.broker.log.old_formats.entries import APPEND_TIME, OldEntry, read_entries
from tests.unit.broker.log.old_formats.old_logs import entries

CODECS = (compression.GZIP, compression.SNAPPY, compression.LZ4)
MUCH = 1 << 30

pairs = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.binary(max_size=3), pairs), max_size=2).map(tuple)
records = st.lists(
    st.builds(PlainRecord, st.just(0), st.integers(-999, 999), pairs, pairs, headers), max_size=5
)


def batch(found: list[PlainRecord], codec: int = 0, **fields: int) -> bytes:
    """Return a batch of records with the offsets 0, 1, 2 … from its own on."""
    numbered = [replace(one, offset_delta=number) for number, one in enumerate(found)]
    return batch_of(numbered, codec, **fields).encoded()


def values(*texts: bytes, codec: int = 0, **fields: int) -> bytes:
    return batch([PlainRecord(0, value=text) for text in texts], codec, **fields)


def convert(data: bytes, magic: int = 1, fetch_offset: int = 0, limit: int = MUCH) -> Converted:
    return down_convert(data, magic=magic, fetch_offset=fetch_offset, limit=limit)


def seen(data: bytes, magic: int = 1, **asked: Any) -> list[tuple[int, bytes | None]]:
    return [(one.offset, one.value) for one in read_entries(convert(data, magic, **asked).data)]


@given(found=records, base=st.integers(0, 2**40))
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, *CODECS])
def test_records_become_entries(codec: int, magic: int, found: list[PlainRecord], base: int) -> None:
    converted = convert(batch(found, codec, base_offset=base), magic, base)
    assert [
        (one.magic, one.offset, one.timestamp, one.key, one.value) for one in read_entries(converted.data)
    ] == [
        (magic, base + number, 1000 + one.timestamp_delta if magic else -1, one.key, one.value)
        for number, one in enumerate(found)
    ]
    assert (converted.error, converted.next_offset) == (0, base + len(found))
    assert converted.records == len(found)


@given(found=records.filter(bool))
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, *CODECS])
def test_there_and_back_again(codec: int, magic: int, found: list[PlainRecord]) -> None:
    entries = convert(batch(found, codec), magic).data
    error, checked = check_old(entries, AppendRules(now_ms=5000))
    assert error == ErrorCode.NONE
    checked.assign_offsets(0, 1)
    assert [(one.timestamp, one.key, one.value) for one in read_records(bytes(checked.data))] == [
        (1000 + one.timestamp_delta if magic else -1, one.key, one.value) for one in found
    ]


@pytest.mark.parametrize("codec", [0, compression.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_another_client_reads_them(magic: int, codec: int) -> None:
    data = convert(values(b"a", b"b", codec=codec, base_offset=7) + values(b"c", base_offset=9), magic).data
    read, found = MemoryRecords(data), []
    while read.has_next():
        old = read.next_batch()
        assert old.validate_crc()
        found += [(one.offset, one.timestamp, one.key, one.value) for one in old]
    timestamp = 1000 if magic else None
    assert found == [
        (7 + number, timestamp, b"key", value) for number, value in enumerate((b"a", b"b", b"c"))
    ]


def test_append_time_is_a_flag_of_format_1() -> None:
    for codec in (0, compression.GZIP):
        data = values(b"a", codec=codec, attributes=LOG_APPEND_TIME, max_timestamp=7)
        [one] = read_entries(convert(data, 1).data)
        assert (one.timestamp, one.attributes) == (7, APPEND_TIME | codec)
        [one] = read_entries(convert(data, 0).data)
        assert (one.timestamp, one.attributes) == (-1, codec)


def test_records_below_the_fetch_offset() -> None:
    data = values(b"a", b"b", b"c", base_offset=10)
    assert seen(data, fetch_offset=11) == [(11, b"b"), (12, b"c")]
    packed = values(b"a", b"b", codec=compression.GZIP, base_offset=10)
    assert seen(packed, fetch_offset=11) == [(10, b"a"), (11, b"b")]


def test_control_batches_are_left_out() -> None:
    control = values(b"end", base_offset=1, attributes=CONTROL)
    data = values(b"a") + control + values(b"b", base_offset=2)
    assert seen(data) == [(0, b"a"), (2, b"b")]
    nothing = convert(control)
    assert (nothing.data, nothing.error, nothing.next_offset) == (b"", 0, 2)
    # A batch whose records the cleaner has removed stays for its producer.
    assert convert(batch_of([], base_offset=4, last_offset_delta=2).encoded()).next_offset == 7


def test_zstd_ends_the_entries() -> None:
    packed = values(b"z", codec=compression.ZSTD, base_offset=1)
    assert convert(packed).error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    control = values(b"end", attributes=CONTROL)
    assert convert(control + packed).error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert seen(values(b"a") + packed + values(b"b", base_offset=2)) == [(0, b"a")]
    assert convert(values(b"a") + packed).error == ErrorCode.NONE


def test_limits() -> None:
    data = b"".join(values(b"x" * 100, b"y" * 100, base_offset=2 * number) for number in range(3))
    size = len(convert(data).data) // 6
    # The first batch is whole, others are cut between two entries.
    for limit in (0, 1, size, 2 * size, 3 * size - 1):
        assert len(seen(data, limit=limit)) == 2
    assert len(seen(data, limit=3 * size)) == 3
    assert len(seen(data, limit=5 * size)) == 5
    packed = b"".join(values(b"x" * 100, codec=compression.LZ4, base_offset=number) for number in range(3))
    size = len(convert(packed).data) // 3
    for limit, count in ((0, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size, 3)):
        assert len(seen(packed, limit=limit)) == count


def test_a_batch_that_is_cut_is_left_out() -> None:
    data = values(b"a") + values(b"b", base_offset=1)
    assert seen(data[:-1]) == [(0, b"a")]
    nothing = convert(data[:50])
    assert (nothing.data, nothing.error, nothing.next_offset) == (b"", 0, -1)


def test_a_negative_timestamp_becomes_none() -> None:
    [one] = read_entries(convert(values(b"a", base_timestamp=-7)).data)
    assert one.timestamp == -1


def test_damaged_batches() -> None:
    good = batch_of([PlainRecord(0), PlainRecord(1)])
    damaged = replace(good, records=good.records[:-3]).encoded()
    assert convert(damaged).error == ErrorCode.CORRUPT_MESSAGE
    assert seen(values(b"a") + damaged) == [(0, b"a")]
    for codec in CODECS:
        packed = replace(batch_of([PlainRecord(0)], codec), records=b"garbage").encoded()
        assert convert(packed).error == ErrorCode.CORRUPT_MESSAGE


def test_what_a_conversion_costs_is_counted() -> None:
    data = values(b"a", b"b")
    converted = convert(data)
    assert (converted.records, converted.temporary_bytes) == (2, len(data) + len(converted.data))
    assert converted.time_ns > 0
    # Of a wrapper, its head and what it carries.
    packed = values(b"a", b"b", codec=compression.GZIP)
    assert convert(packed).temporary_bytes == len(packed) + 34 + len(converted.data)


@given(at=st.integers(0, 10_000), value=st.integers(0, 255), codec=st.sampled_from([0, *CODECS]))
def test_changed_bytes_do_no_harm(at: int, value: int, codec: int) -> None:
    first = values(b"a" * 9, b"b", codec=codec)
    data = bytearray(first + values(b"c", base_offset=2))
    at %= len(data)
    data[at] = value
    for magic in (0, 1):
        converted = convert(bytes(data), magic, limit=200)
        assert converted.error in (
            ErrorCode.NONE,
            ErrorCode.CORRUPT_MESSAGE,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        )
        # With another size or format, what is there may look as an entry, which is copied as it is.
        if at % len(first) > 16:
            read_entries(converted.data)


@pytest.mark.parametrize("codec", [0, *CODECS])
@pytest.mark.parametrize(("there", "wanted"), [(0, 0), (0, 1), (1, 1)])
def test_entries_of_an_older_format_stay_as_they_are(there: int, wanted: int, codec: int) -> None:
    old = entries(there, codec, 5, [(b"k", b"a", 1000), (b"k", b"b", 1001)])
    # Those of compressed entries below the fetch offset, too, and after them a converted batch.
    converted = convert(old + values(b"c", base_offset=7), wanted, 6)
    assert converted.data.startswith(old)
    assert [(one.offset, one.value) for one in read_entries(converted.data)] == [
        (5, b"a"), (6, b"b"), (7, b"c"),
    ]  # fmt: skip
    assert (converted.records, converted.next_offset, converted.error) == (1, 8, ErrorCode.NONE)
    # An entry that has no room comes with the next request; the first one is always there.
    assert convert(old + old, wanted, limit=len(old) + 1).data == old
    assert convert(old, wanted, limit=1).data == (old if codec else old[: len(old) // 2])


@pytest.mark.parametrize("codec", [0, *CODECS])
def test_format_1_becomes_format_0(codec: int) -> None:
    old = entries(1, codec, 5, [(b"k", b"a", 1000), (None, b"b", 1001)])
    converted = convert(old + values(b"c", base_offset=7), 0, 6)
    found = [(5, b"k", b"a"), (6, None, b"b"), (7, b"key", b"c")]
    assert [
        (one.magic, one.timestamp, one.offset, one.key, one.value) for one in read_entries(converted.data)
    ] == [(0, -1, *one) for one in found[0 if codec else 1 :]]
    assert converted.temporary_bytes > len(old)


def test_an_entry_that_cannot_be_read_is_an_error() -> None:
    bad = OldEntry(b"garbage", None, attributes=compression.GZIP).encoded()
    assert convert(bad, 0).error == ErrorCode.CORRUPT_MESSAGE
    # A client gets it as it is, where nothing is converted.
    assert convert(bad, 1).data == bad
    good = OldEntry().encoded()
    assert seen(good + bad, 0) == [(0, b"value")]


@given(data=st.binary(max_size=150))
def test_garbage(data: bytes) -> None:
    converted = convert(data)
    assert converted.error in (ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE)
    # What looks as an entry is copied as it is.
    assert data.startswith(converted.data)
