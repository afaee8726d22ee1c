"""``ctrlchan log dump``: what is in the files of a log directory, and where they are damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.record_texts import text_of
from ctrlchan.broker.coordinator.transaction.records import record_of, tombstone_of
from ctrlchan.broker.coordinator.transaction.states import TransactionState
from ctrlchan.broker.coordinator.transaction.transaction import Transition
from ctrlchan.broker.log import checkpoints, dump
from ctrlchan.broker.log._batches import AppendRules, check
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.log.manager import LogManager
from ctrlchan.broker.replica._partitions import PartitionTable
from ctrlchan.cli.commands import app
from tests.unit.broker.log.batches import PlainRecord, batch_of
from tests.unit.broker.log.old_formats.entries import OldEntry
from tests.unit.broker.log.old_formats.old_logs import entries

CONFIG = LogConfig(segment_bytes=800, index_interval_bytes=100)
ZSTD, CONTROL, TRANSACTIONAL = 4, 0x20, 0x10


def plain(values: int, codec: int = 0, **fields: int) -> bytes:
    records = [
        PlainRecord(n, n, key=b"k%d" % n, value=b"\xff\nv", headers=((b"h", None),)) for n in range(values)
    ]
    return batch_of(records, codec, **fields).encoded()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log directory with one replica of two segments, written by a broker."""
    manager = LogManager([tmp_path], CONFIG, 1, "c")
    manager.start()
    log = manager.open_log("orders", 0, bytes(range(16)))
    for n in range(9):
        error, checked = check(
            plain(2, producer_id=7, producer_epoch=0, base_sequence=2 * n), AppendRules(now_ms=1000)
        )
        assert error == 0
        log.append_as_leader(checked, 3, now_ms=1000)
    assert log.segment_offsets() == [0, 16]
    manager.stop(broker_epoch=5)
    return tmp_path / "orders-0"


def rows(path: Path, *, records: bool = False) -> list[dict[str, Any]]:
    return list(dump.dump_file(path, records=records))


def damage(path: Path) -> list[tuple[str, int]]:
    return [(row["damage"], row.get("position", -1)) for row in rows(path) if "damage" in row]


def run(*arguments: str) -> tuple[int, list[str]]:
    ran = CliRunner().invoke(app, ["log", "dump", *arguments])
    return ran.exit_code, ran.stdout.splitlines()


def test_a_segment_and_its_records(folder: Path) -> None:
    start, *batches = rows(folder / "00000000000000000000.log")
    assert start == {"startingOffset": 0}
    assert [row["baseOffset"] for row in batches] == list(range(0, 16, 2))
    crc = batches[1].pop("crc")
    assert batches[1] == {
        "baseOffset": 2, "lastOffset": 3, "count": 2, "baseSequence": 2, "lastSequence": 3, "producerId": 7,
        "producerEpoch": 0, "partitionLeaderEpoch": 3, "isTransactional": False, "isControl": False,
        "position": batches[0]["size"], "CreateTime": 1001, "size": batches[0]["size"], "magic": 2,
        "compresscodec": "none", "isvalid": True,
    }  # fmt: skip
    assert crc > 0
    deep = rows(folder / "00000000000000000000.log", records=True)
    assert deep[3] == {
        "offset": 1, "CreateTime": 1001, "keySize": 2, "valueSize": 3, "sequence": 1, "headerKeys": ["h"],
        "key": "k1", "payload": "\\xff\nv",
    }  # fmt: skip


def test_compressed_and_control_batches(folder: Path) -> None:
    marker = PlainRecord(0, key=struct.pack(">hh", 0, 1), value=struct.pack(">hi", 0, 9))
    control = batch_of([marker], attributes=CONTROL | TRANSACTIONAL, base_offset=3)
    path = folder / "00000000000000000000.log"
    path.write_bytes(plain(3, ZSTD) + control.encoded())
    found = rows(path, records=True)
    assert (found[1]["compresscodec"], found[2]["key"], found[5]["isControl"]) == ("zstd", "k0", True)
    assert (found[6]["endTxnMarker"], found[6]["coordinatorEpoch"]) == ("COMMIT", 9)


def test_formats_0_and_1(folder: Path) -> None:
    """The names are those of Kafka's DumpLogSegments, which shows of such an entry only its last offset."""
    path = folder / "00000000000000000000.log"
    pairs = [(b"k", b"a", 5), (None, None, 6)]
    data = entries(0, 1, 0, pairs) + entries(1, 0, 2, pairs[:1]) + entries(1, 3, 3, pairs, append_time=9)
    path.write_bytes(data)
    found = rows(path, records=True)
    assert all(row.pop("crc", 1) > 0 for row in found)
    sizes = [row["size"] for row in found if "size" in row]
    assert sum(sizes) == len(data)
    assert found == [
        {"startingOffset": 0},
        {"offset": 1, "position": 0, "NoTimestampType": -1, "size": sizes[0], "magic": 0,
         "compresscodec": "gzip", "isvalid": True},
        {"offset": 0, "NoTimestampType": -1, "keySize": 1, "valueSize": 1, "key": "k", "payload": "a"},
        {"offset": 1, "NoTimestampType": -1, "keySize": -1, "valueSize": -1, "key": None, "payload": None},
        {"offset": 2, "position": sizes[0], "CreateTime": 5, "size": sizes[1], "magic": 1,
         "compresscodec": "none", "isvalid": True},
        {"offset": 2, "CreateTime": 5, "keySize": 1, "valueSize": 1, "key": "k", "payload": "a"},
        {"offset": 4, "position": sizes[0] + sizes[1], "LogAppendTime": 9, "size": sizes[2], "magic": 1,
         "compresscodec": "lz4", "isvalid": True},
        {"offset": 3, "LogAppendTime": 9, "keySize": 1, "valueSize": 1, "key": "k", "payload": "a"},
        {"offset": 4, "LogAppendTime": 9, "keySize": -1, "valueSize": -1, "key": None, "payload": None},
    ]  # fmt: skip
    # Before Kafka 0.11 an index had first offsets, and the time index those of records inside.
    index, times = path.with_suffix(".index"), path.with_suffix(".timeindex")
    index.write_bytes(struct.pack(">ii", 3, sizes[0] + sizes[1]))
    times.write_bytes(struct.pack(">qi", 9, 3))
    assert damage(index) == damage(times) == []
    index.write_bytes(struct.pack(">ii", 3, sizes[0] + 1))
    assert damage(index) == [(f"offset 3, but at {sizes[0] + 1} of the segment no batch begins", 0)]
    path.write_bytes(OldEntry(b"garbage", offset=3, attributes=1).encoded() + OldEntry().encoded()[:-1])
    [_, _, bad, cut] = rows(path, records=True)
    assert "the entry at offset 3: what it carries" in bad["damage"]
    assert "of which the file has" in cut["damage"]


def test_small_files_and_indexes(folder: Path) -> None:
    name = folder / "00000000000000000016"
    assert rows(name.with_suffix(".snapshot")) == [
        {
            "producerId": 7, "producerEpoch": 0, "coordinatorEpoch": -1, "currentTxnFirstOffset": None,
            "lastTimestamp": 1001, "firstSequence": 14, "lastSequence": 15, "lastOffset": 15,
            "offsetDelta": 1, "timestamp": 1001,
        }
    ]  # fmt: skip
    first = folder / "00000000000000000000"
    assert rows(first.with_suffix(".index"))[0].keys() == {"offset", "position"}
    assert rows(first.with_suffix(".timeindex"))[-1] == {"timestamp": 1001, "offset": 1}
    assert rows(folder / checkpoints.LEADER_EPOCH_CHECKPOINT) == [{"leaderEpoch": 3, "startOffset": 0}]
    assert rows(folder / checkpoints.PARTITION_METADATA) == [{"topic_id": "AAECAwQFBgcICQoLDA0ODw"}]
    parent = folder.parent
    assert rows(parent / checkpoints.META_PROPERTIES) == [{"cluster.id": "c", "broker.id": 1}]
    assert rows(parent / checkpoints.CLEAN_SHUTDOWN) == [{"brokerEpoch": 5}]
    assert rows(parent / checkpoints.RECOVERY_POINT_CHECKPOINT) == [
        {"topic": "orders", "partition": 0, "offset": 18}
    ]
    aborted = folder / "00000000000000000000.txnindex"
    aborted.write_bytes(struct.pack(">hqqqq", 0, 7, 1, 2, 3) + b"x")
    [row, cut] = rows(aborted)
    assert row == {"version": 0, "producerId": 7, "firstOffset": 1, "lastOffset": 2, "lastStableOffset": 3}
    assert cut == {"damage": "the last entry is cut", "position": 34}


def test_nothing_is_damaged_in_what_a_broker_writes(folder: Path) -> None:
    status, lines = run(str(folder.parent), "--records")
    assert status == 0
    assert str(folder / "00000000000000000016.log") in lines
    assert f"{folder.parent}/.lock" not in lines
    # An index entry of several batches has the last offset of the last one.
    log = Log(folder, CONFIG, clean=True)
    for offset in (18, 22):
        log.append_as_follower(plain(2, base_offset=offset) + plain(2, base_offset=offset + 2))
    log.close()
    assert run(str(folder.parent))[0] == 0
    status, lines = run(str(folder), "--json", "--records")
    assert status == 0
    parsed = [json.loads(line) for line in lines]
    assert [row["key"] for row in parsed if row.get("offset") == 1 and "key" in row] == ["k1"]
    assert parsed[-1]["file"].startswith(str(folder))


def test_damage_is_named_with_its_place(folder: Path) -> None:
    path = folder / "00000000000000000000.log"
    whole = path.read_bytes()
    size = len(whole) // 8
    path.write_bytes(whole[: size + 70] + bytes([whole[size + 70] ^ 1]) + whole[size + 71 : -3])
    assert damage(path) == [
        ("the CRC is wrong", size),
        (f"a batch of {size} bytes, of which the file has {size - 3}", 7 * size),
    ]
    for at, byte, text in (
        # Format 1 has its CRC elsewhere.
        (16, 1, "the CRC is wrong"),
        (16, 9, "a batch of the unknown format 9"),
        (8, 0xFF, "too small"),
    ):
        data = bytearray(whole)
        data[size + at] = byte
        path.write_bytes(data)
        [(found, position)] = damage(path)
        assert text in found
        assert position == size
    path.write_bytes(whole + whole[:size] + b"x")
    assert damage(path) == [
        ("offset 0, where 16 or more should be", 8 * size),
        ("1 bytes are no whole batch", 9 * size),
    ]
    path.write_bytes(whole)
    index = folder / "00000000000000000000.index"
    good = index.read_bytes()
    index.write_bytes(good + struct.pack(">ii", 15, 1) + struct.pack(">ii", 15, 7 * size) + b"x")
    assert damage(index) == [
        ("offset 15, but at 1 of the segment no batch begins", len(good)),
        ("offset 15 is not above the one before it", len(good) + 8),
        ("the last entry is cut", len(good) + 16),
    ]
    times = folder / "00000000000000000000.timeindex"
    good = times.read_bytes()
    times.write_bytes(good + struct.pack(">qi", 1002, 3) + struct.pack(">qi", 1003, 4))
    assert damage(times) == [
        ("timestamp 1002, but offset 3 has 1001", len(good)),
        ("timestamp 1003, but offset 4 is the last of no batch", len(good) + 12),
    ]
    snapshot = folder / "00000000000000000016.snapshot"
    data = bytearray(snapshot.read_bytes())
    data[-1] ^= 1
    snapshot.write_bytes(data)
    assert damage(snapshot) == [("the CRC of a snapshot is wrong", 0)]
    (folder.parent / checkpoints.RECOVERY_POINT_CHECKPOINT).write_text("0\n1\na b 3\n")
    assert damage(folder.parent / checkpoints.RECOVERY_POINT_CHECKPOINT) == [
        ("line 3: partition 'b' is not an integer that fits", -1)
    ]
    status, lines = run(str(folder.parent))
    assert status == 1
    assert f"  DAMAGED {snapshot} at byte 0: the CRC of a snapshot is wrong" in lines
    assert damage(folder.parent / "other") == [("not a file of a log directory", -1)]


def test_records_of_the_transaction_coordinator(tmp_path: Path) -> None:
    """The words are those of ``kafka-dump-log.sh --transaction-log-decoder``."""
    replica = tmp_path / "__transaction_state-7"
    replica.mkdir()
    partitions = frozenset({TopicPartition("orders", 10), TopicPartition("orders", 9)})
    ongoing = Transition(TransactionState.ONGOING, 4000, -1, 3, -1, 60_000, partitions, 1000, 1005)
    empty = Transition(TransactionState.EMPTY, 4000, -1, 0, -1, 60_000, frozenset(), -1, 999)
    stored = [record_of("tx", ongoing), record_of("tx", empty), tombstone_of("tx")]
    pairs = [(one.key, one.value) for one in stored]
    pairs += [(b"\0\7later", b"v"), (pairs[0][0], b"\0\0damaged"), (b"\0", b"v")]
    records = [PlainRecord(n, n, key=key, value=value) for n, (key, value) in enumerate(pairs)]
    file = replica / "00000000000000000000.log"
    file.write_bytes(batch_of(records).encoded())

    shown = list(dump.dump_file(file, records=True, texts={"__transaction_state": text_of}))
    assert [(row["key"], row["payload"]) for row in shown if "key" in row] == [
        (
            "transaction_metadata::transactionalId=tx",
            "producerId:4000,producerEpoch:3,state=Ongoing,partitions=[orders-9,orders-10],"
            "txnLastUpdateTimestamp=1005,txnTimeoutMs=60000",
        ),
        (
            "transaction_metadata::transactionalId=tx",
            "producerId:4000,producerEpoch:0,state=Empty,partitions=[],"
            "txnLastUpdateTimestamp=999,txnTimeoutMs=60000",
        ),
        ("transaction_metadata::transactionalId=tx", "<DELETE>"),
        ("unknown::version=7", None),
        ("\0\0\0\2tx", "\0\0damaged"),
        ("\0", "v"),
    ]
    damages = [row["damage"] for row in shown if "damage" in row]
    assert [text.split(":")[0] for text in damages] == [
        "the record at offset 4",
        "the record at offset 5",
    ]
    code, lines = run("--records", str(replica))
    assert code == 1
    assert sum("transaction_metadata::transactionalId=tx" in line for line in lines) == 3
    # The records of another topic are shown as they are.
    other = tmp_path / "orders-0"
    replica.rename(other)
    code, lines = run("--records", str(other))
    assert code == 0
    assert not any("transaction_metadata" in line for line in lines)


def test_markers_of_transactions(tmp_path: Path) -> None:
    manager = LogManager([tmp_path], CONFIG, 1, "c")
    manager.start()
    log = manager.open_log("orders", 0, bytes(16))
    table = PartitionTable(1)
    partition = table.open("orders", 0)
    partition.make_leader(log, 0, 0, (1,), (1,))
    for epoch, commit in enumerate((True, False)):
        data = plain(1, producer_id=7, producer_epoch=epoch, base_sequence=0, attributes=TRANSACTIONAL)
        assert partition.append(data).result()[0] == 0
        assert not partition.append_marker(7, epoch, commit, 5, timeout_ms=1).result().error_code
    table.close()
    manager.stop(broker_epoch=5)
    shown = [
        row
        for file in sorted((tmp_path / "orders-0").glob("*.log"))  # the old records are alone in theirs
        for row in rows(file, records=True)
    ]
    markers = [row for row in shown if "endTxnMarker" in row]
    assert [(row["offset"], row["endTxnMarker"], row["coordinatorEpoch"]) for row in markers] == [
        (1, "COMMIT", 5),
        (3, "ABORT", 5),
    ]
    batches = [row for row in shown if "baseOffset" in row]
    assert [(row["isTransactional"], row["isControl"]) for row in batches] == 2 * [
        (True, False),
        (True, True),
    ]
