"""The checks of an append, against a plain twin, and what an append changes in a batch."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ctrlchan.broker.log import compression
from ctrlchan.broker.log._batches import AppendRules, Origin, check, read_header
from ctrlchan.broker.log._batches import record_errors as record_errors_of
from ctrlchan.errors import ErrorCode
from tests.unit.broker.log.batches import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    PlainBatch,
    PlainRecord,
    PlainRules,
    batch_of,
    expected_error,
    read_records,
    signed,
    sized,
    varint,
)
from tests.unit.broker.log.kafka_python import DefaultRecordBatch, DefaultRecordBatchBuilder
from tests.unit.broker.log.strategies import header_fields, records, rules, timestamps

RECORDS = [
    PlainRecord(0, 0, b"a", b"1"),
    PlainRecord(1, 7, None, None, ((b"h", b"x"), (b"", None))),
    PlainRecord(2, -3, b"", b"v" * 200),
]
CODECS = (compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD)


def rules_of(plain: PlainRules | None = None, **more: Any) -> AppendRules:
    return AppendRules(**dataclasses.asdict(plain or PlainRules()) | more)


def error_of(batch: PlainBatch | bytes, **more: Any) -> int:
    data = batch if isinstance(batch, bytes) else batch.encoded()
    return check(data, rules_of(**more))[0]


# -- against the twin


@given(
    records=records, rules=rules, base=timestamps, attributes=st.sampled_from([0, 8, 16, 32, 64, 5, 0x0780])
)
def test_records_are_checked_like_the_twin(
    records: list[PlainRecord], rules: PlainRules, base: int, attributes: int
) -> None:
    data = batch_of(records, base_timestamp=base, max_timestamp=1000, attributes=attributes).encoded()
    assert check(data, rules_of(rules))[0] == expected_error(data, rules)


@given(fields=header_fields, rules=rules, after=st.binary(max_size=5) | st.just(batch_of(RECORDS).encoded()))
def test_headers_are_checked_like_the_twin(fields: dict[str, Any], rules: PlainRules, after: bytes) -> None:
    data = dataclasses.replace(batch_of(RECORDS), **fields).encoded() + after
    assert check(data, rules_of(rules))[0] == expected_error(data, rules)


@given(data=st.binary(max_size=200))
def test_garbage_gets_an_error(data: bytes) -> None:
    assert check(data, rules_of())[0] == expected_error(data, PlainRules()) != ErrorCode.NONE


def test_every_cut_and_every_flipped_bit() -> None:
    data = batch_of(RECORDS).encoded()
    assert error_of(data) == ErrorCode.NONE
    for size in range(len(data)):
        assert error_of(data[:size]) == expected_error(data[:size], PlainRules()) != ErrorCode.NONE
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        wanted = expected_error(bytes(flipped), PlainRules())
        assert error_of(bytes(flipped)) == wanted
        # The leader epoch is the broker's own field, which no CRC covers.
        assert (wanted == ErrorCode.NONE) == (12 <= bit // 8 < 16)


def test_every_cut_of_the_records() -> None:
    """The header and the CRC are right; the records end too early."""
    data = b"".join(record.encoded() for record in RECORDS)
    for size in range(len(data)):
        assert error_of(PlainBatch(data[:size], len(RECORDS))) == ErrorCode.INVALID_RECORD


@given(position=st.integers(0, 240), value=st.integers(0, 255))
def test_changed_records_with_a_right_crc(position: int, value: int) -> None:
    data = bytearray(b"".join(record.encoded() for record in RECORDS))
    data[position % len(data)] = value
    batch = PlainBatch(bytes(data), len(RECORDS)).encoded()
    assert error_of(batch) == expected_error(batch, PlainRules())


# -- each error


def test_formats_0_and_1_are_refused() -> None:
    for magic in (0, 1):
        assert error_of(dataclasses.replace(batch_of(RECORDS), magic=magic)) == ErrorCode.INVALID_RECORD
        legacy = bytes(8) + struct.pack(">iiB", 14, 0, magic) + bytes(9)
        assert error_of(legacy) == ErrorCode.INVALID_RECORD
    assert error_of(dataclasses.replace(batch_of(RECORDS), magic=3)) == ErrorCode.CORRUPT_MESSAGE


def test_no_batch_and_two_batches() -> None:
    data = batch_of(RECORDS).encoded()
    assert error_of(b"") == ErrorCode.INVALID_RECORD
    assert error_of(data + data) == ErrorCode.INVALID_RECORD
    # The length of a second batch is wrong.
    assert error_of(data + bytes(12)) == ErrorCode.CORRUPT_MESSAGE


def test_an_unfinished_second_batch_is_cut_off() -> None:
    data = batch_of(RECORDS).encoded()
    error, checked = check(data + data[:-1], rules_of())
    assert (error, checked.size) == (ErrorCode.NONE, len(data))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"crc": 5}, ErrorCode.CORRUPT_MESSAGE),
        ({"base_offset": 1}, ErrorCode.INVALID_RECORD),
        ({"attributes": CONTROL}, ErrorCode.INVALID_RECORD),
        ({"attributes": DELETE_HORIZON | TRANSACTIONAL}, ErrorCode.NONE),
        ({"attributes": 5}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"attributes": LOG_APPEND_TIME}, ErrorCode.NONE),
        ({"attributes": LOG_APPEND_TIME, "max_timestamp": -1}, ErrorCode.INVALID_TIMESTAMP),
        ({"count": 2}, ErrorCode.INVALID_RECORD),
        ({"count": 4}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 1}, ErrorCode.INVALID_RECORD),
        ({"count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 1}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 1, "base_sequence": 0}, ErrorCode.NONE),
    ],
)
def test_errors_of_headers(fields: dict[str, Any], error: int) -> None:
    assert error_of(dataclasses.replace(batch_of(RECORDS), **fields)) == error


def test_a_batch_that_is_too_large() -> None:
    size = len(batch_of(RECORDS).encoded())
    assert error_of(batch_of(RECORDS), max_message_bytes=size) == ErrorCode.NONE
    assert error_of(batch_of(RECORDS), max_message_bytes=size - 1) == ErrorCode.MESSAGE_TOO_LARGE
    assert error_of(batch_of(RECORDS), segment_bytes=size) == ErrorCode.NONE
    assert error_of(batch_of(RECORDS), segment_bytes=size - 1) == ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("codec", [0, *CODECS])
def test_timestamps_out_of_range(codec: int) -> None:
    batch = batch_of([PlainRecord(0, 0), PlainRecord(1, 10), PlainRecord(2, 20)], codec)
    wrong: dict[str, Any] = {"now_ms": 1010, "before_max_ms": 10, "after_max_ms": 9}
    error, checked = check(batch.encoded(), rules_of(**wrong))
    assert (error, checked.bad_records, checked.first_bad_record) == (ErrorCode.INVALID_TIMESTAMP, 1, 2)
    assert record_errors_of(batch.encoded(), rules_of(**wrong)) == [
        (
            2,
            "Timestamp 1020 of message with offset 2 is out of range. "
            "The timestamp should be within [1000, 1019]",
        )
    ]
    wrong["after_max_ms"] = 10
    assert error_of(batch, **wrong) == ErrorCode.NONE
    wrong["before_max_ms"] = 9
    assert error_of(batch, **wrong) == ErrorCode.INVALID_TIMESTAMP
    assert error_of(batch, **wrong, log_append_time=True) == ErrorCode.NONE


@pytest.mark.parametrize("codec", [0, *CODECS])
def test_a_compacted_topic_needs_keys(codec: int) -> None:
    data = batch_of([PlainRecord(0), PlainRecord(1, key=None), PlainRecord(2, key=b"")], codec).encoded()
    error, checked = check(data, rules_of(compacted=True))
    assert (error, checked.bad_records, checked.first_bad_record) == (ErrorCode.INVALID_RECORD, 1, 1)
    [(index, message)] = record_errors_of(data, rules_of(compacted=True))
    assert (index, "key" in message) == (1, True)
    # One wrong timestamp decides the error of all.
    error, checked = check(data, rules_of(compacted=True, before_max_ms=0))
    assert (error, checked.bad_records) == (ErrorCode.INVALID_TIMESTAMP, 3)
    errors = record_errors_of(data, rules_of(compacted=True, before_max_ms=0), 2)
    assert [index for index, _ in errors] == [0, 1]


def test_a_topic_with_log_append_time_sets_the_type_itself() -> None:
    batch = batch_of(RECORDS, attributes=LOG_APPEND_TIME)
    assert error_of(batch, log_append_time=True) == ErrorCode.INVALID_TIMESTAMP
    [(_, message), *_] = record_errors_of(batch.encoded(), rules_of(log_append_time=True))
    assert "LogAppendTime" in message


def test_headers_of_records() -> None:
    null_key = PlainRecord(0, headers=((None, b"x"),))
    assert error_of(batch_of([null_key])) == ErrorCode.INVALID_RECORD
    for wrong in (varint(-1), varint(2**31 - 1), varint(1)):
        body = b"\0" + varint(0) + varint(0) + sized(b"k") + sized(b"v") + wrong
        assert error_of(PlainBatch(varint(len(body)) + body, 1)) == ErrorCode.INVALID_RECORD


def test_long_varints() -> None:
    """Java reads five bytes and drops the bits that an int does not have; a sixth byte is an error."""
    for size, error in [
        (b"\x8c\x80\x80\x80\x70", 0),
        (b"\x8c\x80\x80\x80\x80\x00", ErrorCode.INVALID_RECORD),
    ]:
        assert error_of(PlainBatch(size + b"\0\0\0\1\1\0", 1)) == error


def test_zstd_before_version_7() -> None:
    assert error_of(batch_of(RECORDS, compression.ZSTD)) == ErrorCode.NONE
    batch = batch_of(RECORDS, compression.ZSTD)
    assert error_of(batch, refuses_zstd=True) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert error_of(batch_of(RECORDS, compression.LZ4), refuses_zstd=True) == ErrorCode.NONE


def test_the_coordinator_writes_control_batches() -> None:
    batch = batch_of(RECORDS[:1], attributes=CONTROL | TRANSACTIONAL, producer_id=5)
    assert error_of(batch, origin=Origin.CLIENT) == ErrorCode.INVALID_RECORD
    assert error_of(batch, origin=Origin.COORDINATOR) == ErrorCode.NONE
    # They stay as they are where the topic is compressed.
    error, checked = check(batch.encoded(), rules_of(origin=Origin.COORDINATOR, compression=compression.LZ4))
    assert (error, bytes(checked.data)) == (ErrorCode.NONE, batch.encoded())


# -- compressed batches


def test_the_level_of_the_topic_counts() -> None:
    batch = batch_of([dataclasses.replace(RECORDS[0], value=b"0123456789" * 2_000 + bytes(range(256)) * 20)])
    found = {}
    for level in (1, 9):
        rules = rules_of(compression=compression.GZIP, compression_level=level)
        error, checked = check(batch.encoded(), rules)
        assert error == ErrorCode.NONE
        payload = bytes(checked.data[61:])
        found[level] = payload
        plain = compression.decompress(compression.GZIP, payload).tobytes()
        assert payload == compression.compress(compression.GZIP, plain, level)
    assert found[1] != found[9]


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_batch_is_kept(codec: int) -> None:
    data = batch_of(RECORDS, codec).encoded()
    for target in (-1, codec):
        error, checked = check(data, rules_of(compression=target))
        assert (error, bytes(checked.data), checked.needs_decompression) == (ErrorCode.NONE, data, False)
        assert (checked.max_timestamp, checked.count) == (1007, 3)


@pytest.mark.parametrize("source", [0, *CODECS])
@pytest.mark.parametrize("target", [0, *CODECS])
def test_a_batch_gets_the_codec_of_the_topic(source: int, target: int) -> None:
    batch = batch_of(
        RECORDS, source, attributes=TRANSACTIONAL, producer_id=4, producer_epoch=1, base_sequence=9
    )
    error, checked = check(batch.encoded(), rules_of(compression=target))
    checked.assign_offsets(100, 3)
    assert error == ErrorCode.NONE
    header = read_header(checked.data)
    assert header.attributes == target | TRANSACTIONAL
    assert header.size == len(checked.data) == checked.size
    stored = bytes(checked.data[61:])
    records = compression.decompress(target, stored).tobytes() if target else stored
    # The timestamps of the twin count from the first record's, which is this batch's base.
    assert read_records(records, 3) == RECORDS
    assert check(checked.data, rules_of(origin=Origin.REPLICATION))[0] == ErrorCode.NONE
    if target in (0, compression.GZIP):  # kafka-python has no library for the others
        assert [record.offset for record in DefaultRecordBatch(bytes(checked.data))] == [100, 101, 102]


@pytest.mark.parametrize("codec", CODECS)
def test_wrong_offsets_of_records(codec: int) -> None:
    """Records that are not compressed are stored as they are, as in Kafka."""
    wrong = [dataclasses.replace(record, offset_delta=5, attributes=7) for record in RECORDS]
    assert error_of(batch_of(wrong, codec)) == ErrorCode.UNKNOWN_SERVER_ERROR
    error, checked = check(batch_of(wrong, codec).encoded(), rules_of(compression=0))
    assert (error, read_records(bytes(checked.data[61:]), 3)) == (ErrorCode.NONE, RECORDS)
    error, checked = check(batch_of(wrong).encoded(), rules_of())
    assert (error, bytes(checked.data)) == (ErrorCode.NONE, batch_of(wrong).encoded())


@given(records=records, source=st.sampled_from([0, *CODECS]), target=st.sampled_from([0, *CODECS]))
@example(records=[PlainRecord(0, -1), PlainRecord(1, 2**63 - 1)], source=0, target=compression.GZIP)
def test_recompression_keeps_records(records: list[PlainRecord], source: int, target: int) -> None:
    batch = batch_of(records, source, base_timestamp=0, max_timestamp=1000)
    plain = batch_of(records, base_timestamp=0, max_timestamp=1000)
    error, checked = check(batch.encoded(), rules_of(compression=target))
    wanted = expected_error(plain.encoded(), PlainRules())
    if source != target and wanted == 0 and min(record.timestamp_delta for record in records) < -1:
        wanted = ErrorCode.UNKNOWN_SERVER_ERROR  # MemoryRecordsBuilder refuses such timestamps
    if source == target != 0 and wanted == 0:
        return
    assert error == wanted
    if error or source == target:
        return
    header = read_header(checked.data)
    stored = bytes(checked.data[61:])
    out = read_records(compression.decompress(target, stored).tobytes() if target else stored, len(records))
    # Two timestamps may be further apart than the largest long: their delta and the sum wrap, as in Java.
    assert [signed(header.base_timestamp + record.timestamp_delta) for record in out] == [
        record.timestamp_delta for record in records
    ]
    assert [record.offset_delta for record in out] == list(range(len(records)))
    assert [(r.key, r.value, r.headers) for r in out] == [(r.key, r.value, r.headers) for r in records]


@pytest.mark.parametrize("codec", CODECS)
def test_bad_payloads(codec: int) -> None:
    good = batch_of(RECORDS, codec)
    undecodable = dataclasses.replace(good, records=b"\x99" * 50)
    assert error_of(undecodable) in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.MESSAGE_TOO_LARGE)
    encoded = b"".join(record.encoded() for record in RECORDS)
    for data in (b"", encoded[:-1], encoded + b"\0", encoded[:1]):
        batch = dataclasses.replace(good, records=compression.compress(codec, data))
        assert error_of(batch) == ErrorCode.INVALID_RECORD


def test_a_bomb_is_refused() -> None:
    bomb = compression.compress(compression.ZSTD, bytes(compression.MAX_DECOMPRESSED_BYTES + 1))
    batch = PlainBatch(bomb, 1, attributes=compression.ZSTD)
    assert len(batch.encoded()) < 50_000
    assert error_of(batch) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("fields", [{"attributes": TRANSACTIONAL}, {"producer_id": 1, "base_sequence": 0}])
def test_a_producer_that_kafka_rebuilds_no_batch_for(fields: dict[str, Any]) -> None:
    assert error_of(batch_of(RECORDS, **fields)) == ErrorCode.NONE
    assert error_of(batch_of(RECORDS, **fields), compression=1) == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_recompressed_batch_that_is_too_large() -> None:
    batch = batch_of([PlainRecord(0, value=bytes(1000))], compression.ZSTD)
    assert error_of(batch, compression=0, max_message_bytes=1000) == ErrorCode.MESSAGE_TOO_LARGE
    assert error_of(batch, compression=0, segment_bytes=1000) == ErrorCode.RECORD_LIST_TOO_LARGE


# -- what an append changes


def test_offsets_are_given_in_place() -> None:
    data = batch_of(RECORDS).encoded()
    error, checked = check(data, rules_of())
    assert error == ErrorCode.NONE
    checked.assign_offsets(2**40, 7)
    assert (checked.first_offset, checked.last_offset, checked.batches) == (2**40, 2**40 + 2, 1)
    assert (checked.max_timestamp, checked.offset_of_max_timestamp) == (1007, 2**40 + 2)
    assert bytes(checked.data) == struct.pack(">q", 2**40) + data[8:12] + struct.pack(">i", 7) + data[16:]


def test_a_wrong_largest_timestamp_is_corrected() -> None:
    error, checked = check(batch_of(RECORDS, max_timestamp=9, attributes=0x780).encoded(), rules_of())
    checked.assign_offsets(0, -1)
    assert (error, bytes(checked.data)) == (ErrorCode.NONE, batch_of(RECORDS).encoded())


@pytest.mark.parametrize("codec", [0, *CODECS])
def test_log_append_time(codec: int) -> None:
    rules = rules_of(log_append_time=True, now_ms=77)
    error, checked = check(batch_of(RECORDS, codec, attributes=DELETE_HORIZON).encoded(), rules)
    checked.assign_offsets(10, 0)
    assert error == ErrorCode.NONE
    assert (checked.max_timestamp, checked.offset_of_max_timestamp) == (77, 12)
    wanted = batch_of(RECORDS, codec, attributes=LOG_APPEND_TIME | DELETE_HORIZON, max_timestamp=77)
    assert bytes(checked.data) == dataclasses.replace(wanted, base_offset=10, leader_epoch=0).encoded()


def test_create_time_replaces_the_type_of_the_producer() -> None:
    error, checked = check(
        batch_of(RECORDS, attributes=LOG_APPEND_TIME, max_timestamp=50).encoded(), rules_of()
    )
    checked.assign_offsets(0, -1)
    assert (error, checked.max_timestamp) == (ErrorCode.NONE, 50)
    assert bytes(checked.data) == batch_of(RECORDS, max_timestamp=50).encoded()


def test_records_without_a_timestamp() -> None:
    error, checked = check(
        batch_of([PlainRecord(0), PlainRecord(1)], base_timestamp=-1).encoded(), rules_of()
    )
    checked.assign_offsets(5, 0)
    assert (error, checked.max_timestamp, checked.offset_of_max_timestamp) == (ErrorCode.NONE, -1, -1)


def test_what_is_not_checked_gets_no_offsets() -> None:
    _, checked = check(batch_of(RECORDS).encoded() * 2, rules_of())
    with pytest.raises(ValueError, match="not checked"):
        checked.assign_offsets(0, 0)


@pytest.mark.parametrize("codec", [0, compression.GZIP])
def test_batches_of_a_client_library(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1_000_000)
    for index in range(50):
        builder.append(index, 1000 + index, b"k%d" % index, b"v" * index, [("name", b"x")])
    error, checked = check(bytes(builder.build()), rules_of(compacted=True))
    assert (error, checked.count, checked.max_timestamp) == (ErrorCode.NONE, 50, 1049)
    checked.assign_offsets(1000, 1)
    batch = DefaultRecordBatch(bytes(checked.data))
    assert batch.validate_crc()
    assert [record.offset for record in batch] == list(range(1000, 1050))


# -- batches of a leader


def replicated(*offsets: int) -> list[PlainBatch]:
    return [batch_of(RECORDS, base_offset=offset, leader_epoch=2) for offset in offsets]


def test_batches_of_a_leader_keep_their_offsets() -> None:
    batches = replicated(10, 13, 20)
    batches[1] = dataclasses.replace(batches[1], max_timestamp=9999, attributes=CONTROL)
    data = b"".join(batch.encoded() for batch in batches)
    error, checked = check(data + data[:30], rules_of(origin=Origin.REPLICATION))
    assert (error, checked.size, checked.batches, checked.count) == (ErrorCode.NONE, len(data), 3, 9)
    assert (checked.first_offset, checked.last_offset) == (10, 22)
    assert (checked.max_timestamp, checked.offset_of_max_timestamp) == (9999, 15)
    error, checked = check(b"", rules_of(origin=Origin.REPLICATION))
    assert (error, checked.batches) == (ErrorCode.NONE, 0)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"base_offset": 12}, ErrorCode.UNKNOWN_SERVER_ERROR),
        ({"base_offset": -5}, ErrorCode.CORRUPT_MESSAGE),
        ({"base_offset": 2**63 - 1}, ErrorCode.CORRUPT_MESSAGE),
        ({"last_offset_delta": -1}, ErrorCode.CORRUPT_MESSAGE),
        ({"crc": 1}, ErrorCode.CORRUPT_MESSAGE),
        # The CRC is where format 2 has it.
        ({"magic": 1}, ErrorCode.CORRUPT_MESSAGE),
        ({"magic": 3}, ErrorCode.CORRUPT_MESSAGE),
        ({"length": 13}, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_errors_of_a_leaders_batches(changes: dict[str, Any], error: int) -> None:
    first, second = replicated(10, 13)
    data = first.encoded() + dataclasses.replace(second, **changes).encoded()
    assert error_of(data, origin=Origin.REPLICATION) == error


def test_a_header_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no batch header at 1 of 61 bytes"):
        read_header(bytes(17) + b"\2" + bytes(43), 1)
    # Formats 0 and 1 have shorter headers.
    for magic, size in ((0, 26), (1, 34)):
        data = bytes(16) + bytes([magic]) + bytes(size - 17)
        assert read_header(data).magic == magic
        with pytest.raises(ValueError, match=f"no batch header at 0 of {size - 1} bytes"):
            read_header(data[:-1])
    with pytest.raises(ValueError, match="no batch header at 0 of 16 bytes"):
        read_header(bytes(16))
