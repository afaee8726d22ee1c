"""What old clients produce, as one batch of format 2. ``same_answers`` compares the errors with Kafka's."""

from __future__ import annotations

import gzip
import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.broker.log import compression
from ctrlchan.broker.log._batches import AppendRules, read_header
from ctrlchan.broker.log.old_formats._up_conversion import check_old
from ctrlchan.broker.log.records import read_records
from ctrlchan.errors import ErrorCode
from tests.unit.broker.log.batches import PlainRecord, batch_of
from tests.unit.broker.log.kafka_python import LegacyRecordBatchBuilder
from tests.unit.broker.log.old_formats.entries import APPEND_TIME, OldEntry, wrapped

CODECS = (compression.GZIP, compression.SNAPPY, compression.LZ4)
NOW = 5000
LOG_APPEND_TIME = 8
HEADER_BYTES = 61
#: The errors that bytes of any kind may get.
ERRORS = {
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_RECORD,
}

pairs = st.none() | st.binary(max_size=40)
entries = st.builds(
    OldEntry,
    pairs,
    pairs,
    st.just(1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-1, 2**62),
)


def converted(data: bytes, **rules: Any) -> bytes:
    """Return the batch that is appended with the offsets from 0 on."""
    error, checked = check_old(data, AppendRules(now_ms=NOW, **rules))
    assert error == ErrorCode.NONE
    checked.assign_offsets(0, 7)
    return bytes(checked.data)


def error_of(entry: OldEntry | bytes, **rules: Any) -> int:
    data = entry if isinstance(entry, bytes) else entry.encoded()
    return check_old(data, AppendRules(now_ms=NOW, **rules))[0]


def seen(batch: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(one.offset, one.timestamp, one.key, one.value) for one in read_records(batch)]


@given(found=st.lists(entries, min_size=1, max_size=5), magic=st.sampled_from([0, 1]))
@pytest.mark.parametrize("codec", [0, *CODECS])
def test_entries_become_records(codec: int, found: list[OldEntry], magic: int) -> None:
    found = [replace(one, magic=magic) for one in found]
    data = b"".join(one.encoded() for one in found)
    batch = converted(wrapped(found, codec, offset=0).encoded() if codec else data)
    assert seen(batch) == [
        (number, one.timestamp if magic else -1, one.key, one.value) for number, one in enumerate(found)
    ]
    header = read_header(batch)
    assert (header.attributes, header.record_count, header.producer_id) == (codec, len(found), -1)
    assert header.max_timestamp == max(one.timestamp if magic else -1 for one in found)
    assert header.base_timestamp == (found[0].timestamp if magic else -1)


@pytest.mark.parametrize("codec", [0, compression.GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_what_another_client_writes(magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, codec, 10_000)
    for number in range(100):
        builder.append(number, 1000 + number, b"key", b"%d" % number)
    batch = converted(bytes(builder.build()))
    assert seen(batch) == [
        (number, 1000 + number if magic else -1, b"key", b"%d" % number) for number in range(100)
    ]


@pytest.mark.parametrize("codec", [0, *CODECS])
def test_a_topic_may_have_a_codec_of_its_own(codec: int) -> None:
    several = [OldEntry(value=b"%d" % number) for number in range(3)]
    for data in (b"".join(one.encoded() for one in several), wrapped(several, compression.GZIP).encoded()):
        batch = converted(data, compression=codec)
        assert read_header(batch).attributes == codec
        assert [value for _, _, _, value in seen(batch)] == [b"0", b"1", b"2"]


def test_a_topic_may_have_a_level_of_its_own() -> None:
    data = b"".join(OldEntry(value=b"%d" % (7 * number)).encoded() for number in range(500))
    fast, best = (converted(data, compression=compression.GZIP, compression_level=level) for level in (1, 9))
    assert len(best) < len(fast)
    assert seen(best) == seen(fast)


def test_append_time_is_that_of_the_broker() -> None:
    header = read_header(converted(OldEntry().encoded() * 2, log_append_time=True))
    assert (header.attributes, header.max_timestamp) == (LOG_APPEND_TIME, NOW)
    # What a producer says of append times is ignored but for the wrapper's.
    inner = [OldEntry(timestamp=1, attributes=APPEND_TIME), OldEntry(timestamp=2)]
    outer = wrapped(inner, compression.GZIP, timestamp=9, attributes=APPEND_TIME)
    assert [timestamp for _, timestamp, _, _ in seen(converted(outer.encoded()))] == [9, 9]


def test_an_entry_that_is_cut_is_not_appended() -> None:
    data = OldEntry().encoded()
    assert len(seen(converted(data + data[:-1]))) == 1
    for size in range(len(data)):
        error, checked = check_old(data[:size], AppendRules(now_ms=NOW))
        assert (error, checked.size, checked.batches) == (ErrorCode.NONE, 0, 0)


def test_one_batch_of_format_2_is_appended_as_it_is() -> None:
    batch = batch_of([PlainRecord(0), PlainRecord(1)])
    assert converted(batch.encoded())[:8] == bytes(8)
    assert error_of(batch.encoded() * 2) == ErrorCode.INVALID_RECORD
    assert error_of(batch.encoded() + OldEntry().encoded()) == ErrorCode.INVALID_RECORD
    assert error_of(OldEntry().encoded() + batch.encoded()) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("entry", "rules", "error"),
    [
        (OldEntry(crc=1), {}, ErrorCode.CORRUPT_MESSAGE),
        (OldEntry(size=13), {}, ErrorCode.CORRUPT_MESSAGE),
        (OldEntry(attributes=5), {}, ErrorCode.UNKNOWN_SERVER_ERROR),
        (OldEntry(key=None), {"compacted": True}, ErrorCode.INVALID_RECORD),
        (OldEntry(timestamp=NOW + 11), {"after_max_ms": 10}, ErrorCode.INVALID_TIMESTAMP),
        (OldEntry(timestamp=NOW - 11), {"before_max_ms": 10}, ErrorCode.INVALID_TIMESTAMP),
        (OldEntry(timestamp=-2), {}, ErrorCode.UNKNOWN_SERVER_ERROR),
        (OldEntry(attributes=APPEND_TIME), {"log_append_time": True}, ErrorCode.INVALID_TIMESTAMP),
        (OldEntry(b"x" * 200), {"max_message_bytes": 100}, ErrorCode.MESSAGE_TOO_LARGE),
        (OldEntry(b"x" * 200), {"segment_bytes": 100}, ErrorCode.RECORD_LIST_TOO_LARGE),
        (OldEntry(pair=struct.pack(">ii", 9, 0)), {}, ErrorCode.UNKNOWN_SERVER_ERROR),
        (wrapped([OldEntry(crc=1)], compression.GZIP), {}, ErrorCode.CORRUPT_MESSAGE),
        (wrapped([OldEntry(magic=0)], compression.GZIP, magic=1), {}, ErrorCode.INVALID_RECORD),
        (wrapped([OldEntry(attributes=1)], compression.GZIP), {}, ErrorCode.INVALID_RECORD),
        (wrapped([], compression.GZIP), {}, ErrorCode.INVALID_RECORD),
        (wrapped([], compression.LZ4, payload=b"garbage"), {}, ErrorCode.UNKNOWN_SERVER_ERROR),
        (OldEntry(attributes=compression.ZSTD), {}, ErrorCode.INVALID_RECORD),
    ],
)
def test_errors(entry: OldEntry, rules: dict[str, Any], error: int) -> None:
    assert error_of(entry, **rules) == error


def test_many_small_entries_may_be_too_large_together() -> None:
    one = OldEntry(b"x" * 60).encoded()
    assert error_of(one * 3, max_message_bytes=100) == ErrorCode.MESSAGE_TOO_LARGE


def test_a_bomb_is_refused() -> None:
    bomb = gzip.compress(bytes(compression.MAX_DECOMPRESSED_BYTES + 1), 1)
    entry = wrapped([], compression.GZIP, payload=bomb)
    assert error_of(entry) == ErrorCode.MESSAGE_TOO_LARGE


def test_what_a_conversion_costs_is_counted() -> None:
    data = OldEntry(b"v", b"k").encoded()
    _, checked = check_old(data * 2, AppendRules(now_ms=NOW))
    records_bytes = len(checked.data) - HEADER_BYTES
    assert checked.converted_records == 2
    assert checked.temporary_bytes == HEADER_BYTES + records_bytes
    _, checked = check_old(
        wrapped([OldEntry(b"v", b"k")], compression.GZIP).encoded(), AppendRules(now_ms=NOW)
    )
    assert checked.temporary_bytes == HEADER_BYTES + len(data) + HEADER_BYTES + records_bytes // 2


@given(data=st.binary(max_size=120))
def test_garbage(data: bytes) -> None:
    assert error_of(data) in ERRORS


@given(
    at=st.integers(0, 10_000),
    value=st.integers(0, 255),
    codec=st.sampled_from([0, *CODECS]),
    outer=st.booleans(),
)
def test_changed_bytes_with_a_right_crc(at: int, value: int, codec: int, outer: bool) -> None:
    several = [OldEntry(b"v" * 10), OldEntry(None), OldEntry(b"", None)]
    data = bytearray(wrapped(several, codec).encoded() if codec and outer else b"".join(
        one.encoded() for one in several
    ))  # fmt: skip
    data[at % len(data)] = value
    if codec and not outer:
        payload = bytes(data)
        assert error_of(wrapped([], codec, after=payload)) in ERRORS
    else:
        assert error_of(bytes(data)) in ERRORS


def test_every_flipped_bit_is_found() -> None:
    data = OldEntry().encoded()
    for bit in range(8 * 8, 8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        error, checked = check_old(flipped, AppendRules(now_ms=NOW))
        # A size that is too large is that of a cut entry.
        assert error == ErrorCode.CORRUPT_MESSAGE or checked.size == 0
