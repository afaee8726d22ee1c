"""A partition's folder as Kafka's own tool reads it: every segment, every entry of every index."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.log.cleaner import clean, dirty_part
from tests.kafka.dump_tool import complaints, dump
from tests.unit.broker.log.batches import CONTROL, TRANSACTIONAL, PlainBatch, PlainRecord, batch_of
from tests.unit.broker.log.made_batches import batch, checked

CONFIG = LogConfig(segment_bytes=20_000, index_interval_bytes=500, segment_index_bytes=1200)


def fill(log: Log) -> None:
    for n in range(400):
        data = batch(
            [bytes(n % 50)] * (1 + n % 4), timestamp=1000 + n, step=1, producer_id=7, producer_epoch=0,
            sequence=sum(1 + k % 4 for k in range(n)),
        )  # fmt: skip
        log.append_as_leader(checked(data), n // 100)


@pytest.mark.parametrize("end", ["closed", "recovered", "truncated"])
def test_kafka_finds_nothing_wrong_in_a_log(kafka_jars_ready: None, tmp_path: Path, end: str) -> None:
    folder = tmp_path / "orders-0"
    log = Log(folder, CONFIG, producer_expiration_ms=2**62)
    fill(log)
    assert len(log.segment_offsets()) > 2
    if end == "truncated":
        log.truncate_to(log.end_offset * 2 // 3)
    if end == "recovered":
        base = log.segment_offsets()[-1]
        log.close_files()
        with (folder / f"{base:020d}.log").open("ab") as file:
            file.write(b"torn")
        log = Log(folder, CONFIG, producer_expiration_ms=2**62)
    # A transaction that is aborted.
    first = log.end_offset
    record = PlainRecord(0, key=b"a").encoded()
    log.append_as_follower(
        PlainBatch(
            record, 1, base_offset=first, leader_epoch=4, producer_id=8, producer_epoch=0, base_sequence=0,
            attributes=TRANSACTIONAL,
        ).encoded()
    )  # fmt: skip
    marker = PlainRecord(0, key=bytes(4), value=struct.pack(">hi", 0, 1)).encoded()
    log.append_as_follower(
        PlainBatch(
            marker, 1, base_offset=first + 1, leader_epoch=4, producer_id=8, producer_epoch=0,
            attributes=TRANSACTIONAL | CONTROL,
        ).encoded()
    )  # fmt: skip
    segments, last = log.segment_offsets(), log.end_offset - 1
    log.close()
    files, output = dump(folder)
    assert complaints(output) == []
    for kind in ("log", "index", "timeindex"):
        assert [name for name in files if name.endswith(f".{kind}")] == [
            f"{base:020d}.{kind}" for base in segments
        ]
    assert f"{segments[-1]:020d}.txnindex" in files
    assert f"baseOffset: {last} lastOffset: {last} count: 1" in output
    assert "endTxnMarker: ABORT coordinatorEpoch: 1" in output
    assert f"producerId: 8 firstOffset: {first} lastOffset: {last} lastStableOffset: {last + 1}" in output
    _, output = dump(folder, "--index-sanity-check")
    assert output.count("passed sanity check.") == 2 * len(segments)
    assert complaints(output) == []


def test_kafka_finds_nothing_wrong_in_a_compacted_log(kafka_jars_ready: None, tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    config = replace(CONFIG, segment_bytes=4000, cleanup_compact=True, cleanup_delete=False)
    log = Log(folder, config, producer_expiration_ms=2**62)
    clean_up_to = 0
    for round_ in range(3):
        for n in range(200):
            record = PlainRecord(0, key=b"%d" % (n % (7 + 50 * round_)), value=None if n % 5 else bytes(n))
            data = batch_of([record], n % 5, base_offset=log.end_offset, base_timestamp=1000 + n)
            log.append_as_follower(data.encoded())
        log.update_high_watermark(log.end_offset)
        dirty = dirty_part(log, clean_up_to, 10**6)
        assert dirty is not None
        clean_up_to = clean(log, dirty, memory=1 << 20, now_ms=10**6)
    segments = log.segment_offsets()
    log.close()
    log.delete_files(2**62)
    files, output = dump(folder)
    assert [name for name in files if name.endswith(".log")] == [f"{base:020d}.log" for base in segments]
    assert "deleteHorizonMs: OptionalLong[" in output
    assert complaints(output) == []
    _, output = dump(folder, "--index-sanity-check")
    # A segment of which nothing is left has an index without an entry.
    assert len(re.findall(r"passed sanity check\.|index is empty\.", output)) == 2 * len(segments)
    assert complaints(output) == []


def test_kafka_reads_the_producers_of_a_log(kafka_jars_ready: None, tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    log = Log(folder, CONFIG)
    fill(log)
    log.close()
    files, output = dump(folder)
    assert f"{log.end_offset:020d}.snapshot" in files
    assert (
        "producerId: 7 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong.empty"
        in output
    )


def test_the_tool_does_complain(kafka_jars_ready: None, tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    log = Log(folder, CONFIG)
    fill(log)
    log.close()
    path = folder / f"{0:020d}.index"
    data = bytearray(path.read_bytes())
    data[3] ^= 1  # an offset
    path.write_bytes(data)
    _, output = dump(folder)
    assert complaints(output)
