"""Record batches of coordinators: the log takes them, and kafka-python reads the same records."""

from __future__ import annotations

import contextlib
import struct
from concurrent.futures import Future

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrlchan.broker.coordinator.common.topic import Appended, Record, StoredBatch
from ctrlchan.broker.coordinator.record_batches import compressed, encode_batch, read_batches
from ctrlchan.broker.coordinator.topic_log import TopicLog
from ctrlchan.broker.log import compression
from ctrlchan.broker.log._batches import AppendRules, Origin, check, crc32c_of, read_key_values
from ctrlchan.broker.log.records import read_records
from ctrlchan.errors import DecodeError, ErrorCode, KafkaError
from tests.unit.broker.log.kafka_python import DefaultRecordBatch
from tests.unit.broker.log.old_formats.entries import OldEntry
from tests.unit.broker.log.old_formats.old_logs import CODECS, entries

TIMESTAMP = 1_700_000_000_000
RECORDS = [Record(b"one", b"1"), Record(b"two", None), Record(b"", b""), Record(b"k" * 300, b"v" * 70_000)]
PAIRS = [(record.key, record.value) for record in RECORDS]


def changed(batch: bytes, attributes: int, records: bytes) -> bytes:
    """The batch with other attributes and records."""
    rest = struct.pack(">h", attributes) + batch[23:61] + records
    return (
        batch[:8]
        + struct.pack(">i", 9 + len(rest))
        + batch[12:17]
        + struct.pack(">I", crc32c_of(rest))
        + rest
    )


def test_the_log_takes_a_batch_and_gives_its_records_back() -> None:
    rules = AppendRules(now_ms=TIMESTAMP, origin=Origin.COORDINATOR, compacted=True)
    error, checked = check(encode_batch(RECORDS, TIMESTAMP), rules)
    assert (error, checked.count, checked.max_timestamp) == (0, len(RECORDS), TIMESTAMP)
    checked.assign_offsets(7, 3)
    [(after, batch)] = read_batches(bytes(checked.data))
    assert (after, batch) == (7 + len(RECORDS), StoredBatch(7, PAIRS))


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=200)), min_size=1, max_size=5)
)
def test_kafka_python_reads_the_same_records(pairs: list[tuple[bytes, bytes | None]]) -> None:
    data = encode_batch([Record(*pair) for pair in pairs], TIMESTAMP)
    batch = DefaultRecordBatch(data)
    assert batch.validate_crc()
    assert [(record.key, record.value, record.timestamp) for record in batch] == [
        (*pair, TIMESTAMP) for pair in pairs
    ]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_batches_are_read(codec: int) -> None:
    """Kafka writes them with offsets.topic.compression.codec."""
    plain = encode_batch(RECORDS, TIMESTAMP)
    data = changed(plain, codec, compression.compress(codec, plain[61:]))
    assert [batch.records for _, batch in read_batches(data + plain)] == [PAIRS, PAIRS]


@pytest.mark.parametrize(("kind", "commits"), [(0, False), (1, True)])
def test_a_control_batch_ends_a_transaction(kind: int, commits: bool) -> None:
    marker = encode_batch([Record(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 5))], TIMESTAMP)
    [(_, batch)] = read_batches(changed(marker, 0x30, marker[61:]))
    assert batch == StoredBatch(0, [], -1, True, commits)


def test_a_compacted_control_batch_has_no_record() -> None:
    plain = encode_batch([], TIMESTAMP)
    [(_, batch)] = read_batches(changed(plain, 0x30, b""))
    assert batch == StoredBatch(0, [], -1, True, None)


@settings(max_examples=60)
@given(st.data())
def test_other_bytes_are_a_decode_error(data: st.DataObject) -> None:
    batch = bytearray(encode_batch([Record(b"key", b"value"), Record(b"other", None)], TIMESTAMP))
    for _ in range(data.draw(st.integers(0, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    size = data.draw(st.integers(0, len(batch)))
    with contextlib.suppress(DecodeError):
        list(read_batches(bytes(batch[:size])))


class _Replica:
    """A partition with one batch whose record is longer than the batch, between two good ones."""

    start_offset, end_offset = 0, 6

    def __init__(self) -> None:
        good = encode_batch([Record(b"key", b"1"), Record(b"other", b"2")], TIMESTAMP)
        damaged = changed(good, 0, b"\x7f" + good[62:])
        batches = (good, damaged, good)
        self.data = b"".join(struct.pack(">q", 2 * at) + each[8:] for at, each in enumerate(batches))

    @property
    def log(self) -> _Replica:
        return self

    def append(self, data: bytes, **arguments: int) -> Future[tuple[int, int, int]]:
        raise NotImplementedError

    def read(self, offset: int, max_bytes: int, *, isolation: int) -> bytes:
        assert (offset, isolation) == (0, 0)
        return self.data


def test_a_damaged_batch_is_skipped_and_named(caplog: pytest.LogCaptureFixture) -> None:
    log = TopicLog("a-topic", lambda topic, partition: _Replica(), 1, 10_000, lambda work: work())
    read = list(log.read(3))
    assert [(batch.first_offset, len(batch.records)) for batch in read] == [(0, 2), (2, 0), (4, 2)]
    assert "a-topic-3: the batch at offset 2 is skipped" in caplog.text
    with pytest.raises(DecodeError):
        list(read_batches(_Replica().data))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_compressed_batch_is_read(codec: int) -> None:
    batch = compressed(encode_batch(RECORDS, TIMESTAMP), codec)
    assert len(batch) < len(encode_batch(RECORDS, TIMESTAMP))
    [(after, read)] = read_batches(batch)
    assert (after, read) == (len(RECORDS), StoredBatch(0, PAIRS))
    rules = AppendRules(now_ms=TIMESTAMP, origin=Origin.COORDINATOR, compacted=True)
    assert check(batch, rules)[0] == 0


class _Asked(_Replica):
    """Notes how batches are appended."""

    def __init__(self) -> None:
        super().__init__()
        self.appended: list[tuple[bytes, dict[str, int]]] = []

    def append(self, data: bytes, **arguments: int) -> Future[tuple[int, int, int]]:
        self.appended.append((data, arguments))
        stored: Future[tuple[int, int, int]] = Future()
        stored.set_result((0, 5, TIMESTAMP))
        return stored


def test_appends_have_the_codec_and_the_acks() -> None:
    replica = _Asked()
    log = TopicLog("a-topic", lambda *_: replica, 1, 10_000, lambda work: work(), codec=4)
    assert log.append(3, RECORDS, TIMESTAMP, 1) == Appended(0, 5)
    [(data, arguments)] = replica.appended
    assert data == compressed(encode_batch(RECORDS, TIMESTAMP), 4)
    assert arguments["required_acks"] == 1
    assert log.append(3, RECORDS, TIMESTAMP, 2) == Appended(ErrorCode.INVALID_REQUIRED_ACKS)
    assert len(replica.appended) == 1


@settings(max_examples=200)
@given(st.data())
def test_keys_and_values_are_those_of_whole_records(data: st.DataObject) -> None:
    pairs = data.draw(st.lists(st.tuples(st.binary(max_size=200), st.none() | st.binary(max_size=200))))
    batch = bytearray(encode_batch([Record(*pair) for pair in pairs], TIMESTAMP))
    for _ in range(data.draw(st.integers(0, 2))):
        if len(batch) > 61:
            batch[data.draw(st.integers(61, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        whole = [(record.key, record.value) for record in read_records(bytes(batch))]
    except KafkaError:
        assert read_key_values(batch[61:], len(pairs)) is None
    else:
        # A negative number of headers is refused here alone.
        assert read_key_values(batch[61:], len(pairs)) in (whole, None)
    assert read_key_values(b"", 0) == []
    assert read_key_values(b"", 1) is None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_former_versions_of_kafka(magic: int, codec: int) -> None:
    """``__consumer_offsets`` of Kafka 0.9 and 0.10 has formats 0 and 1."""
    old = entries(magic, codec, 5, [(key, value, TIMESTAMP) for key, value in PAIRS])
    found = list(read_batches(old + encode_batch([Record(b"last", None)], TIMESTAMP)))
    last = (1, StoredBatch(0, [(b"last", None)]))
    if codec:
        assert found == [(5 + len(PAIRS), StoredBatch(5, PAIRS)), last]
    else:
        assert found == [*((6 + n, StoredBatch(5 + n, [pair])) for n, pair in enumerate(PAIRS)), last]


def test_an_old_entry_that_cannot_be_read_is_left_out() -> None:
    bad = OldEntry(b"garbage", None, offset=6, attributes=compression.GZIP).encoded()
    good = entries(1, 0, 7, [(b"key", b"value", TIMESTAMP)])
    skipped: list[tuple[int, str]] = []
    found = list(read_batches(bad + good, lambda offset, error: skipped.append((offset, str(error)))))
    assert [(after, list(one.records)) for after, one in found] == [(7, []), (8, [(b"key", b"value")])]
    [(offset, why)] = skipped
    assert offset == 6
    assert "the entry at offset 6: what it carries cannot be decompressed" in why
    with pytest.raises(DecodeError, match="no batch at 0 of"):
        list(read_batches(good[:-1]))
