"""Compaction beside Kafka's own Cleaner: the same segments, batches and records, round after round."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log import dump
from ctrlchan.broker.log._batches import BatchHeader, read_header
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.log.cleaner import clean, dirty_part
from ctrlchan.broker.log.records import FORMAT_2, HEADER_BYTES, read_records, records_of
from tests.conformance.java_process import JavaProcess
from tests.kafka.requirement import require_kafka
from tests.unit.broker.log.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, PlainRecord, batch_of
from tests.unit.broker.log.old_formats.old_logs import entries

SMALL_SEGMENTS = LogConfig(
    segment_bytes=1500, segment_index_bytes=65536, index_interval_bytes=100, cleanup_compact=True,
    cleanup_delete=False, delete_retention_ms=1000,
)  # fmt: skip
#: Compressed batches are of another size than Kafka's, so segments must not end by size.
LARGE_SEGMENTS = replace(SMALL_SEGMENTS, segment_bytes=1 << 20)
#: Producers do not expire.
TODAY = time.time_ns() // 1_000_000
FOREVER = 2**62


class Cleaned(NamedTuple):
    """How far a log could be cleaned, and how far it is clean now."""

    uncleanable: int
    end: int


class Kafka:
    """Kafka's Cleaner in a Java process (CleanerOracle.java describes the protocol of lines)."""

    def __init__(self) -> None:
        self._java = JavaProcess("CleanerOracle")

    def clean(self, folder: Path, config: LogConfig, first_dirty: int, now_ms: int) -> Cleaned | None:
        """Clean the log in the folder as far as that is possible; None: there is nothing that may be."""
        words = ("clean", first_dirty, now_ms, config.segment_bytes, config.delete_retention_ms, folder)
        kind, _, answer = self._java.ask(" ".join(map(str, words))).partition(" ")
        assert kind == "ok", answer
        return None if answer == "nothing" else Cleaned(*map(int, answer.split()))

    def close(self) -> None:
        self._java.close()


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    """Kafka's own cleaner; skipped without Java or Maven, failed in CI."""
    require_kafka()
    oracle = Kafka()
    yield oracle
    oracle.close()


class Writer:
    """Appends the same batches to two logs; producers have right sequence numbers and transactions."""

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self.sequences: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        self.open: set[int] = set()
        self.written: list[bytes] = []
        self.end = 0

    def add(self, kind: str, producer: int, pairs: list[tuple[bytes, bytes | None]], codec: int) -> None:
        codec = codec if self.config is LARGE_SEGMENTS else 0
        if kind == "old":
            old = [(key, value, TODAY + self.end + n % 3) for n, (key, value) in enumerate(pairs)]
            append_time = TODAY if codec % 4 and producer == 3 else -1
            self.written.append(entries(producer % 2, codec % 4, self.end, old, append_time=append_time))
            self.end += len(old)
            return
        fields = {"base_timestamp": TODAY + self.end, "base_offset": self.end, "leader_epoch": 0}
        records = [PlainRecord(n, n % 3, key=key, value=value) for n, (key, value) in enumerate(pairs)]
        if kind == "marker":
            if producer not in self.open:
                return
            self.open.discard(producer)
            key, value = struct.pack(">hh", 0, codec % 2), struct.pack(">hi", 0, 0)
            records = [PlainRecord(0, key=key, value=value)]
            if codec > 2:  # the producer was fenced
                self.epochs[producer] = self.epochs.get(producer, 0) + 1
                self.sequences[producer] = 0
            fields |= {
                "attributes": TRANSACTIONAL | CONTROL,
                "producer_id": producer,
                "producer_epoch": self.epochs.get(producer, 0),
            }
            codec = 0
        elif kind != "plain":
            fields |= {"producer_id": producer, "producer_epoch": self.epochs.get(producer, 0)}
            fields["base_sequence"] = self.sequences.get(producer, 0)
            self.sequences[producer] = fields["base_sequence"] + len(pairs)
            if kind == "transaction":
                self.open.add(producer)
                fields["attributes"] = TRANSACTIONAL
            elif producer in self.open:
                return
        elif producer == 3:
            fields |= {"attributes": LOG_APPEND_TIME, "max_timestamp": TODAY + self.end + 7}
        self.written.append(batch_of(records, codec, **fields).encoded())
        self.end += len(records)

    def end_transactions(self) -> None:
        """Abort what is open, so that everything may be cleaned."""
        for producer in sorted(self.open):
            self.add("marker", producer, [], 0)

    def append_to(self, folder: Path) -> None:
        """Append what is new, begin a segment and close the log."""
        log = Log(folder, self.config, clean=folder.exists(), producer_expiration_ms=FOREVER)
        for one in self.written:
            log.append_as_follower(one)
        log.roll()
        log.close()


def ours(folder: Path, config: LogConfig, first_dirty: int, now_ms: int) -> Cleaned | None:
    log = Log(folder, config, clean=True, producer_expiration_ms=FOREVER)
    log.update_high_watermark(log.end_offset)
    dirty = dirty_part(log, first_dirty, now_ms)
    cleaned = None
    if dirty is not None:
        end = clean(log, dirty, memory=1 << 20, now_ms=now_ms) if dirty.cleanable_bytes else first_dirty
        cleaned = Cleaned(dirty.first_uncleanable, end)
    log.close()
    return cleaned


def contents(folder: Path) -> dict[str, object]:
    """Return the batches of each segment, decompressed, and the transaction indexes."""
    found: dict[str, object] = {}
    for path in sorted(folder.glob("*.log")):
        data, position = path.read_bytes(), 0
        batches: list[tuple[BatchHeader, Any]] = []
        while position < len(data):
            header = read_header(data, position)
            batch = data[position : position + header.size]
            records = (
                bytes(records_of(header, batch)) if header.magic == FORMAT_2 else list(read_records(batch))
            )
            batches.append((header._replace(size=0, crc=0), records))
            if not header.attributes & 7 and header.magic == FORMAT_2:
                assert len(batch) == HEADER_BYTES + len(batches[-1][1])
            position += header.size
        found[path.name] = batches
    for path in folder.glob("*.txnindex"):
        if path.stat().st_size:
            found[path.name] = path.read_bytes()
    return found


PAIRS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"dd"]), st.none() | st.binary(max_size=40)),
    min_size=1, max_size=5,
)  # fmt: skip
BATCHES = st.lists(
    st.tuples(
        st.sampled_from(["plain", "plain", "producer", "transaction", "marker"]),
        st.integers(1, 3), PAIRS, st.integers(0, 4),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


class TwoLogs:
    """The same log twice: our cleaner and Kafka's clean it, and must leave the same."""

    def __init__(self, kafka: Kafka, config: LogConfig) -> None:
        self._kafka = kafka
        self._config = config
        self._root = Path(tempfile.mkdtemp())
        self.folders = self._root / "ours" / "orders-0", self._root / "kafka" / "orders-0"
        self.writer = Writer(config)
        self.now_ms = TODAY
        self._clean_up_to = 0

    def __enter__(self) -> TwoLogs:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._root)

    def append(self) -> None:
        """Append what the writer has."""
        for folder in self.folders:
            self.writer.append_to(folder)
        self.writer.written.clear()

    def clean(self, later_ms: int) -> Cleaned | None:
        """Clean both logs so much later; return how far they are clean, None if nothing was to be cleaned."""
        self.now_ms += later_ms
        cleaned = ours(self.folders[0], self._config, self._clean_up_to, self.now_ms)
        assert cleaned == self._kafka.clean(self.folders[1], self._config, self._clean_up_to, self.now_ms)
        assert contents(self.folders[0]) == contents(self.folders[1])
        if cleaned is not None:
            self._clean_up_to = cleaned.end
        return cleaned

    def check_damage(self) -> None:
        """Assert that a dump finds no damage in our files."""
        folder = self._root / "ours"
        damage = [row for path in dump.files_of(folder) for row in dump.dump_file(path) if "damage" in row]
        assert damage == []


@pytest.mark.parametrize("config", [SMALL_SEGMENTS, LARGE_SEGMENTS], ids=["small", "compressed"])
@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(BATCHES, st.sampled_from([0, 500, 1500])), min_size=1, max_size=3))
def test_our_segments_are_kafkas(
    kafka: Kafka,
    config: LogConfig,
    rounds: list[tuple[list[tuple[str, int, list[tuple[bytes, bytes | None]], int]], int]],
) -> None:
    with TwoLogs(kafka, config) as logs:
        for batches, later in rounds:
            logs.writer.add("plain", 1, [(b"a", b"1")], 0)
            for batch in batches:
                logs.writer.add(*batch)
            logs.writer.end_transactions()
            logs.append()
            assert logs.clean(later) is not None
        logs.check_damage()


OLD_STEPS = st.lists(
    st.tuples(st.sampled_from(["old", "old", "old", "plain"]), st.integers(1, 3), PAIRS, st.integers(0, 4)),
    min_size=1, max_size=12,
)  # fmt: skip


@pytest.mark.parametrize("config", [SMALL_SEGMENTS, LARGE_SEGMENTS], ids=["small", "compressed"])
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(OLD_STEPS, st.sampled_from([500, 3000])), min_size=1, max_size=4))
def test_segments_of_old_formats_are_kafkas(
    kafka: Kafka,
    config: LogConfig,
    rounds: list[tuple[list[tuple[str, int, list[tuple[bytes, bytes | None]], int]], int]],
) -> None:
    """Tombstones of formats 0 and 1 stay for a time after the last clean segment was written."""
    with TwoLogs(kafka, config) as logs:
        for number, (batches, later) in enumerate(rounds):
            for batch in batches:
                logs.writer.add(*batch)
            logs.writer.add("old", number, [(b"a", b"1")], 0)
            files = [path for folder in logs.folders for path in folder.glob("*.log")]
            before = {path: path.stat().st_mtime_ns for path in files}
            logs.append()
            for folder in logs.folders:
                for path in folder.glob("*.log"):
                    # The files are as old as the records, so that tombstones become old.
                    mtime = before.get(path, logs.now_ms * 10**6)
                    os.utime(path, ns=(mtime, mtime))
            logs.clean(later)
        logs.check_damage()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["plain", "producer", "transaction", "transaction", "marker"]),
        st.integers(1, 5), PAIRS, st.integers(0, 4),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(STEPS, st.sampled_from([0, 500, 1500])), min_size=2, max_size=6))
def test_transactions_that_go_on_while_the_log_is_cleaned(
    kafka: Kafka, rounds: list[tuple[list[tuple[str, int, list[tuple[bytes, bytes | None]], int]], int]]
) -> None:
    """Open ones stop the cleaner; aborted data goes, markers later; the last batches of producers stay."""
    with TwoLogs(kafka, SMALL_SEGMENTS) as logs:
        for steps, later in [*rounds, ([], 1500), ([], 1500), ([], 1500)]:
            for step in steps:
                logs.writer.add(*step)
            if not steps:
                # Everything may be cleaned now, and once more when markers and tombstones are old.
                logs.writer.end_transactions()
            logs.writer.add("plain", 1, [(b"a", b"1")], 0)
            logs.append()
            before = committed(logs.folders[0])
            logs.clean(later)
            assert committed(logs.folders[0]) == before


def committed(folder: Path) -> dict[bytes | None, bytes | None]:
    """Return the newest value of each key that a reader of committed records sees, without tombstones."""
    log = Log(folder, SMALL_SEGMENTS, clean=True, producer_expiration_ms=FOREVER)
    log.update_high_watermark(log.end_offset)
    stable = log.stable_offset
    aborted = log.aborted_entries(0, log.end_offset)
    log.close()
    newest: dict[bytes | None, bytes | None] = {}
    for path in sorted(folder.glob("*.log")):
        data, position = path.read_bytes(), 0
        while position < len(data):
            header = read_header(data, position)
            batch = data[position : position + header.size]
            position += header.size
            if header.attributes & CONTROL or header.base_offset >= stable:
                continue
            if header.attributes & TRANSACTIONAL and any(
                one.producer_id == header.producer_id
                and one.first_offset <= header.base_offset <= one.last_offset
                for one in aborted
            ):
                continue
            newest |= {record.key: record.value for record in read_records(batch)}
    return {key: value for key, value in newest.items() if value is not None}
