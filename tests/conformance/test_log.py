"""The checks of an append and the state of producers, beside Kafka's own classes for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from ctrlchan.broker.log import compression
from ctrlchan.broker.log._batches import AppendRules, Origin, check, read_header
from ctrlchan.broker.log._producer_snapshots import encode_snapshot, load_snapshot
from ctrlchan.broker.log._producers import ProducerStates
from ctrlchan.errors import ErrorCode
from tests.conformance.java_process import JavaProcess
from tests.kafka.requirement import require_kafka
from tests.unit.broker.log.batches import (
    CONTROL,
    TRANSACTIONAL,
    PlainBatch,
    PlainRecord,
    PlainRules,
    batch_of,
)
from tests.unit.broker.log.strategies import header_fields, records, rules, timestamps

NEXT_OFFSET, LEADER_EPOCH = 2**40, 7
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = [PlainRecord(0, 0, b"a", b"1"), PlainRecord(1, 7, None, None, ((b"h", b"x"),)), PlainRecord(2, -3)]

slow = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class LogOracle:
    """Kafka's classes in a Java process (LogOracle.java describes the protocol of lines)."""

    def __init__(self) -> None:
        self._java = JavaProcess("LogOracle")

    def ask(self, *words: object) -> list[str]:
        """Send one line; return the words of the answer."""
        kind, *answer = self._java.ask(" ".join(map(str, words))).split(" ")
        assert kind == "ok", answer
        return answer

    def check(
        self, data: bytes, rules: PlainRules, target: int = -1, origin: Origin = Origin.CLIENT
    ) -> tuple[int, int, bytes]:
        """Return (error code, largest timestamp, what is written)."""
        answer = self.ask(
            "check", 3 if rules.refuses_zstd else 11, origin.name, rules.now_ms, rules.before_max_ms,
            rules.after_max_ms, rules.max_message_bytes, int(rules.log_append_time), int(rules.compacted),
            "producer" if target < 0 else CODECS[target], NEXT_OFFSET, LEADER_EPOCH, data.hex(),
        )  # fmt: skip
        code, timestamp, *written = answer
        return int(code), int(timestamp), bytes.fromhex("".join(written))

    def close(self) -> None:
        """End the process."""
        self._java.close()


@pytest.fixture(scope="module")
def kafka() -> Iterator[LogOracle]:
    """Kafka's own classes; skipped without Java or Maven, failed in CI."""
    require_kafka()
    oracle = LogOracle()
    yield oracle
    oracle.close()


def both(
    kafka: LogOracle, data: bytes, rules: PlainRules, target: int = -1, origin: Origin = Origin.CLIENT
) -> tuple[int, bytes, bytes]:
    """Return (error, Kafka's bytes, our bytes). Fails if errors or largest timestamps differ."""
    rules = dataclasses.replace(rules, segment_bytes=2**31 - 1)
    code, timestamp, theirs = kafka.check(data, rules, target, origin)
    error, checked = check(data, AppendRules(**dataclasses.asdict(rules), compression=target, origin=origin))
    assert error == code
    if error:
        return error, b"", b""
    checked.assign_offsets(NEXT_OFFSET, LEADER_EPOCH)
    assert checked.max_timestamp == timestamp
    return error, theirs, bytes(checked.data[: checked.size])


@slow
@given(
    records=records, rules=rules, base=timestamps, attributes=st.sampled_from([0, 8, 16, 32, 64, 5, 0x0780])
)
def test_records(
    kafka: LogOracle, records: list[PlainRecord], rules: PlainRules, base: int, attributes: int
) -> None:
    # Before version 7, Kafka answers the whole request with an error for a codec that it does not know.
    assume(attributes != 5 or not rules.refuses_zstd)
    batch = batch_of(records, base_timestamp=base, max_timestamp=1000, attributes=attributes)
    _, theirs, ours = both(kafka, batch.encoded(), rules)
    assert ours == theirs


@slow
@given(fields=header_fields, rules=rules, after=st.binary(max_size=5) | st.just(batch_of(RECORDS).encoded()))
def test_headers(kafka: LogOracle, fields: dict[str, int], rules: PlainRules, after: bytes) -> None:
    assume(fields.get("attributes", 0) < 5 or not rules.refuses_zstd)
    # Two lengths that only differ in the error: Java's int overflows at the largest one, and a batch shorter
    # than its header is always CORRUPT_MESSAGE here, where Kafka may find another error first.
    assume(fields.get("length", 0) not in (14, 48, 2**31 - 1))
    data = dataclasses.replace(batch_of(RECORDS), **fields).encoded() + after  # type: ignore[arg-type]
    _, theirs, ours = both(kafka, data, rules)
    assert ours == theirs


@slow
@given(
    records=records,
    rules=rules,
    source=st.integers(0, 4),
    target=st.integers(-1, 4),
    fields=st.fixed_dictionaries(
        {"attributes": st.sampled_from([0, 8, 16, 64])},
        optional={
            "producer_id": st.sampled_from([-2, -1, 5]),
            "producer_epoch": st.sampled_from([-1, 0]),
            "base_sequence": st.sampled_from([-1, 0, 9]),
        },
    ),
)
def test_compressed_records(
    kafka: LogOracle,
    records: list[PlainRecord],
    rules: PlainRules,
    source: int,
    target: int,
    fields: dict[str, int],
) -> None:
    rules = dataclasses.replace(rules, max_message_bytes=1048588)
    # Java changes names that are not UTF-8 when it builds a batch again; here they are kept.
    assume(all((key or b"").isascii() for record in records for key, _ in record.headers))
    batch = batch_of(records, source, base_timestamp=1000, max_timestamp=2000, **fields)
    error, theirs, ours = both(kafka, batch.encoded(), rules, target)
    if error:
        return
    codec = read_header(ours).attributes & 7
    # Compressors differ, so the size and the CRC may.
    assert ours[:8] + ours[12:17] + ours[21:61] == theirs[:8] + theirs[12:17] + theirs[21:61]
    assert payload(codec, ours) == payload(codec, theirs)
    # Kafka reads what was compressed here.
    again = dataclasses.replace(PlainRules(), log_append_time=rules.log_append_time, now_ms=rules.now_ms)
    if not rules.log_append_time:
        assert kafka.check(bytes(8) + ours[8:], again)[0] == ErrorCode.NONE


def payload(codec: int, data: bytes) -> bytes:
    return compression.decompress(codec, data[61:]).tobytes() if codec else data[61:]


@pytest.mark.parametrize("source", range(5))
@pytest.mark.parametrize("target", range(5))
def test_large_batches_of_every_codec(kafka: LogOracle, source: int, target: int) -> None:
    """More than one block of snappy and of LZ4."""
    large = [PlainRecord(index, 0, b"%d" % index, b"%07d" % (index * 7919) * 20) for index in range(3000)]
    batch = batch_of(large, source).encoded()
    _, theirs, ours = both(kafka, batch, PlainRules(), target)
    assert payload(target, ours) == payload(target, theirs)
    assert kafka.check(bytes(8) + ours[8:], PlainRules(), 0)[0] == ErrorCode.NONE
    assert both(kafka, bytes(8) + theirs[8:], PlainRules())[0] == ErrorCode.NONE


steps = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.sampled_from(["next", "next", "next", "again", "first", "gap"]),
        st.integers(1, 3),
        st.sampled_from([0, 0, 0, 1, -1]),
        st.sampled_from([Origin.CLIENT, Origin.CLIENT, Origin.COORDINATOR, Origin.REPLICATION]),
        st.sampled_from([0, 0, 0, TRANSACTIONAL, CONTROL | TRANSACTIONAL]),
    ),
    max_size=60,
)


@slow
@given(steps=steps, stride=st.sampled_from([1, 17, 1000, 2**33]), expires=st.booleans())
# Nine producers of one bucket: Java's map grows.
@example(steps=[(n, "next", 1, 0, Origin.CLIENT, 0) for n in range(0, 20, 2)], stride=1000, expires=False)
def test_producers(
    kafka: LogOracle, steps: list[tuple[int, str, int, int, Origin, int]], stride: int, expires: bool
) -> None:
    """Answers and snapshots, byte for byte."""
    states = ProducerStates(500)
    kafka.ask("producers", 500)
    for index, (producer, kind, count, epoch_change, origin, attributes) in enumerate(steps):
        producer_id = producer * stride
        known = next((state for state in states.producers() if state.producer_id == producer_id), None)
        batches = known.batches if known else []
        sequence = 0
        if batches:
            sequence = {
                "next": batches[-1].last_sequence + 1,
                "again": batches[-1].first_sequence,
                "first": batches[0].first_sequence,
                "gap": batches[-1].last_sequence + 2,
            }[kind]
        epoch = max(0, (known.epoch if known else 0) + epoch_change)
        fields = {
            "base_offset": 10 * index, "producer_id": producer_id, "producer_epoch": epoch,
            "attributes": attributes, "base_timestamp": 10 * index,
        }  # fmt: skip
        if attributes & CONTROL:
            if origin == Origin.CLIENT:
                continue
            version_and_type, version_and_epoch = b"\0\0\0\1", b"\0\0\0\0\0" + bytes([count])
            batch = batch_of([PlainRecord(0, 0, version_and_type, version_and_epoch)], **fields)
        else:
            plain = [PlainRecord(each) for each in range(count)]
            batch = batch_of(plain, base_sequence=sequence, **fields)
        code, first_offset = map(int, kafka.ask("append", origin.name, batch.encoded().hex()))
        appended = states.append_batch(batch.encoded(), origin)
        duplicate = appended.duplicate.first_offset if appended.duplicate else -1
        assert (appended.error, duplicate) == (code, first_offset)
    if expires:
        states.remove_expired(10 * len(steps) + 300)
        kafka.ask("expire", 10 * len(steps) + 300)
    [snapshot] = kafka.ask("snapshot")
    assert encode_snapshot(states) == bytes.fromhex(snapshot)
    again = ProducerStates(500)
    load_snapshot(again, bytes.fromhex(snapshot), 0)
    assert len(again) == len(states)


def test_a_control_batch_of_kafka_is_kept(kafka: LogOracle) -> None:
    record = PlainRecord(0, 0, b"\0\0\0\1", b"\0\0\0\0\0\5")
    data = batch_of([record], attributes=CONTROL | TRANSACTIONAL, producer_id=1, producer_epoch=0).encoded()
    assert isinstance(data, bytes)
    _, theirs, ours = both(kafka, data, PlainRules(), 3, Origin.COORDINATOR)
    assert ours == theirs


def test_no_records(kafka: LogOracle) -> None:
    assert both(kafka, b"", PlainRules())[0] == both(kafka, PlainBatch().encoded(), PlainRules())[0] == 87
