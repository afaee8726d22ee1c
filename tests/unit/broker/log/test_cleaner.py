"""Compaction beside a dict: what stays of each key, tombstones, producers, transactions, crashes."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.log_manager_settings import LogManagerSettings
from ctrlchan.broker.log import checkpoints, cleaner, dump
from ctrlchan.broker.log._batches import AppendRules, Origin, check, read_header
from ctrlchan.broker.log._cleaner import OffsetMap, add_keys
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.log.cleaner import clean, dirty_part
from ctrlchan.broker.log.directory import Place
from ctrlchan.broker.log.log_cleaner import LogCleaner
from ctrlchan.broker.log.manager import LogManager
from ctrlchan.broker.log.records import Record, read_records
from ctrlchan.errors import LogDirectoryError
from tests.kafka.waiting import wait_until
from tests.unit.broker.log.batches import PlainRecord, batch_of
from tests.unit.broker.log.old_formats.entries import OldEntry, read_entries, wrapped
from tests.unit.broker.log.old_formats.old_logs import CODECS, entries

COMPACT = LogConfig(
    segment_bytes=1000, index_interval_bytes=100, cleanup_compact=True, cleanup_delete=False,
    delete_retention_ms=1000, file_delete_delay_ms=0,
)  # fmt: skip
CONTROL, TRANSACTIONAL, DELETE_HORIZON = 0x20, 0x10, 0x40
NOW = 1_000_000
Pair = tuple[bytes, bytes | None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


def append(log: Log, pairs: Sequence[Pair], codec: int = 0, timestamp: int = 1000, **fields: int) -> int:
    """Append one batch of keys and values; return its first offset."""
    records = [
        PlainRecord(n, 3 * n, key=key, value=value, headers=((b"h", key),))
        for n, (key, value) in enumerate(pairs)
    ]
    data = batch_of(records, codec, base_timestamp=timestamp, **fields).encoded()
    if codec:
        return log.append_as_follower(with_offset(data, log.end_offset))[0]
    error, checked = check(data, AppendRules(now_ms=NOW))
    assert error == 0
    return log.append_as_leader(checked, 0, now_ms=NOW)[0]


def with_offset(data: bytes, offset: int) -> bytes:
    return offset.to_bytes(8) + data[8:]


def batches(log: Log) -> list[bytes]:
    """Return all batches of the log."""
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        part = log.read_file_range(offset, 1 << 20)
        data = part.read()
        part.close()
        if not data:
            break
        position = 0
        while position < len(data):
            header = read_header(data, position)
            found.append(data[position : position + header.size])
            position += header.size
            offset = header.base_offset + header.last_offset_delta + 1
    return found


def records(log: Log) -> list[Record]:
    return [record for one in batches(log) for record in read_records(one)]


def pairs_of(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(one.offset, one.key, one.value) for one in records(log)]


def clean_all(log: Log, now_ms: int = NOW, from_offset: int | None = None, memory: int = 1 << 20) -> int:
    """Clean all but the active segment, which is new; return up to where."""
    log.roll()
    log.update_high_watermark(log.end_offset)
    dirty = dirty_part(log, from_offset, now_ms)
    return 0 if dirty is None else clean(log, dirty, memory=memory, now_ms=now_ms)


def damage(folder: Path) -> list[str]:
    return [
        f"{path}: {row}" for path in dump.files_of(folder) for row in dump.dump_file(path) if "damage" in row
    ]


KEYS = st.sampled_from([b"", b"a", b"b", b"key-3", b"k" * 40])
VALUES = st.one_of(st.none(), st.binary(max_size=30))
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"), st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=8), st.integers(0, 4)
        ),
        st.tuples(st.just("clean"), st.integers(0, 3000), st.sampled_from([200, 1 << 16])),
        st.tuples(st.just("restart"), st.booleans(), st.none()),
    ),
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_compaction_keeps_what_a_dict_would(steps: list[tuple[str, object, object]]) -> None:
    root = Path(tempfile.mkdtemp())
    log = Log(root / "orders-0", COMPACT)
    appended: dict[int, tuple[Pair, int]] = {}
    now, clean_up_to = NOW, 0
    try:
        for name, first, second in steps:
            if name == "append":
                pairs: list[Pair] = first  # type: ignore[assignment]
                begin = append(log, pairs, codec=second, timestamp=1000 + log.end_offset)  # type: ignore[arg-type]
                for n, pair in enumerate(pairs):
                    appended[begin + n] = pair, 1000 + begin + 3 * n
            elif name == "clean":
                now += first  # type: ignore[operator]
                clean_up_to = clean_all(log, now, clean_up_to, memory=second)  # type: ignore[arg-type]
            else:
                (log.close if first else log.close_files)()
                log = Log(root / "orders-0", COMPACT, recovery_point=log.recovery_point, clean=bool(first))
            check_against(log, appended, clean_up_to)
        assert damage(root) == []
        log.close()
    finally:
        shutil.rmtree(root)


def check_against(log: Log, appended: dict[int, tuple[Pair, int]], clean_up_to: int) -> None:
    """Compare a log with all that was ever appended: by offset, and by key as a reader sees it."""
    assert log.end_offset == len(appended)
    found = records(log)
    offsets = [one.offset for one in found]
    assert offsets == sorted(set(offsets))
    latest: dict[bytes, int] = {}
    for offset, ((key, _), _) in appended.items():
        latest[key] = offset
    for one in found:
        (key, value), timestamp = appended[one.offset]
        assert (one.key, one.value, one.timestamp, one.headers) == (key, value, timestamp, [(b"h", key)])
    left = set(offsets)
    last_clean = {appended[offset][0][0]: offset for offset in appended if offset < clean_up_to}
    for offset, ((key, value), _) in appended.items():
        if latest[key] == offset and value is not None:
            assert offset in left
        if offset >= clean_up_to:
            assert offset in left
        elif last_clean[key] != offset:
            assert offset not in left


def test_a_tombstone_goes_when_its_time_is_over(folder: Path) -> None:
    log = Log(folder, COMPACT)
    append(log, [(b"a", b"1"), (b"b", b"2")])
    append(log, [(b"a", None), (b"c", b"3")])
    append(log, [(b"d", b"4")])
    up_to = clean_all(log)
    assert pairs_of(log) == [(1, b"b", b"2"), (2, b"a", None), (3, b"c", b"3"), (4, b"d", b"4")]
    header = read_header(batches(log)[1])
    assert header.attributes & DELETE_HORIZON
    assert (header.base_timestamp, header.max_timestamp) == (NOW + 1000, 1003)
    assert [one.timestamp for one in records(log)] == [1003, 1000, 1003, 1000]
    append(log, [(b"e", b"5")])
    up_to = clean_all(log, NOW + 999, up_to)
    assert (2, b"a", None) in pairs_of(log)
    append(log, [(b"f", b"6")])
    clean_all(log, NOW + 1000, up_to)
    assert [key for _, key, _ in pairs_of(log)] == [b"b", b"c", b"d", b"e", b"f"]
    assert damage(folder) == []


def test_the_last_batch_of_a_producer_stays_empty(folder: Path) -> None:
    log = Log(folder, COMPACT)
    now = time.time_ns() // 1_000_000
    for sequence, key in enumerate((b"a", b"b", b"a")):
        append(log, [(key, b"1")], timestamp=now, producer_id=7, producer_epoch=0, base_sequence=sequence)
    append(log, [(b"a", b"2"), (b"b", b"2")])
    clean_all(log)
    assert [(h.base_offset, h.record_count, h.base_sequence) for h in map(read_header, batches(log))] == [
        (2, 0, 2), (3, 2, -1),
    ]  # fmt: skip
    log.close_files()
    log = Log(folder, COMPACT)
    # The producer is known, so its last batch is not appended again.
    assert append(log, [(b"a", b"1")], producer_id=7, producer_epoch=0, base_sequence=2) == 2
    assert append(log, [(b"a", b"1")], producer_id=7, producer_epoch=0, base_sequence=3) == 5


def test_segments_are_grouped_and_the_end_of_the_round_is_kept(folder: Path) -> None:
    log = Log(folder, COMPACT)
    for n in range(60):
        append(log, [(b"key", b"%010d" % n)])
    before = log.segment_offsets()
    assert len(before) > 4
    clean_all(log)
    # Two full segments do not fit into one; what is left of them does.
    assert log.segment_offsets() == [*before, 60]
    assert pairs_of(log) == [(59, b"key", b"%010d" % 59)]
    append(log, [(b"key", b"x")])
    clean_all(log)
    assert log.segment_offsets() == [0, 61]
    assert pairs_of(log) == [(60, b"key", b"x")]
    assert log.delete_files(2**60) == 0
    assert not list(folder.glob("*.deleted"))
    names = {path.name for path in folder.iterdir()}
    again = Log(folder, COMPACT)
    assert again.end_offset == 61
    assert {path.name for path in folder.iterdir()} == names


def test_log_append_time_stays(folder: Path) -> None:
    log = Log(folder, COMPACT)
    data = batch_of(
        [PlainRecord(0, 5, key=b"a"), PlainRecord(1, 9, key=b"b")], 4, attributes=0x08, max_timestamp=2000
    )
    log.append_as_follower(data.encoded())
    append(log, [(b"a", b"2")])
    clean_all(log)
    assert [(one.offset, one.timestamp) for one in records(log)] == [(1, 2000), (2, 1000)]


def test_times_that_no_clock_has(folder: Path) -> None:
    log = Log(folder, replace(COMPACT, delete_retention_ms=2**63 - 1))
    far = 2**63 - 1
    data = batch_of([PlainRecord(0, far, key=b"a", value=None), PlainRecord(1, -far, key=b"b")])
    log.append_as_follower(with_offset(replace(data, base_timestamp=far, max_timestamp=far).encoded(), 0))
    append(log, [(b"c", b"1")])
    before = pairs_of(log)
    clean_all(log)
    assert pairs_of(log) == before
    assert read_header(batches(log)[0]).base_timestamp == far


def test_records_of_aborted_transactions_go_and_then_their_markers(folder: Path) -> None:
    log = Log(folder, COMPACT)

    def marker(producer: int, *, commit: bool) -> None:
        one = PlainRecord(0, key=struct.pack(">hh", 0, commit), value=struct.pack(">hi", 0, 0))
        data = batch_of(
            [one], attributes=CONTROL | TRANSACTIONAL, producer_id=producer, producer_epoch=0
        ).encoded()
        error, checked = check(data, AppendRules(now_ms=NOW, origin=Origin.COORDINATOR))
        assert error == 0
        log.append_as_leader(checked, 0, origin=Origin.COORDINATOR, now_ms=NOW)

    def write(producer: int, sequence: int, pairs: list[Pair]) -> None:
        append(
            log, pairs, attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=0,
            base_sequence=sequence,
        )  # fmt: skip

    append(log, [(b"a", b"before")])
    write(1, 0, [(b"a", b"aborted")])
    write(2, 0, [(b"b", b"committed")])
    marker(1, commit=False)
    marker(2, commit=True)
    append(log, [(b"c", b"3")])
    up_to = clean_all(log)
    # The aborted record is no value of its key; its batch stays empty for the producer.
    assert [(key, value) for _, key, value in pairs_of(log) if len(key or b"") == 1] == [
        (b"a", b"before"), (b"b", b"committed"), (b"c", b"3"),
    ]  # fmt: skip
    assert [one[:2] for one in log.aborted_entries(0, 10)] == [(1, 1)]
    log.remove_expired_producers(NOW * 10**6)
    append(log, [(b"b", b"4"), (b"d", b"4")])
    up_to = clean_all(log, NOW + 10, up_to)
    append(log, [(b"e", b"5")])
    up_to = clean_all(log, NOW + 20, up_to)
    append(log, [(b"f", b"6")])
    clean_all(log, NOW + 5000, up_to)
    assert [key for _, key, _ in pairs_of(log)] == [b"a", b"c", b"b", b"d", b"e", b"f"]
    assert [one[:2] for one in log.aborted_entries(0, 10)] == []
    assert damage(folder) == []


def test_a_change_of_the_log_ends_its_cleaning(folder: Path) -> None:
    log = Log(folder, COMPACT)
    for n in range(40):
        append(log, [(b"key", b"%010d" % n)])
    log.roll()
    log.update_high_watermark(40)
    dirty = dirty_part(log, None, NOW)
    assert dirty is not None
    calls = iter(range(10**6))

    def truncates() -> bool:
        if next(calls) == 50:
            log.truncate_to(35)
        return False

    with pytest.raises(cleaner.Stopped):
        clean(log, dirty, memory=1 << 20, now_ms=NOW, is_stopped=truncates)
    assert len(records(log)) == 35
    assert log.take_lowest_truncation() == 35
    assert log.take_lowest_truncation() is None
    with pytest.raises(cleaner.Stopped):
        clean(log, dirty, memory=1 << 20, now_ms=NOW, is_stopped=lambda: True)
    assert not list(folder.glob("*.cleaned"))


def test_a_damaged_batch_is_not_copied(folder: Path) -> None:
    log = Log(folder, COMPACT)
    for n in range(40):
        append(log, [(b"key", b"%010d" % n)])
    path = folder / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogDirectoryError, match=r"00000000000000000000\.log, byte \d+: a batch whose CRC"):
        clean_all(log)
    assert path.read_bytes() == data


@pytest.mark.parametrize("stage", ["cleaned", "swap", "half", "old deleted"])
def test_a_crash_while_segments_are_replaced(folder: Path, stage: str) -> None:
    log = Log(folder, COMPACT)
    for n in range(30):
        append(log, [(b"k%d" % (n % 3), b"%010d" % n)])
    log.roll()
    log.flush()
    before = folder.with_name("before")
    shutil.copytree(folder, before)
    clean_all(log)
    after = pairs_of(log)
    log.close_files()
    # The files as a crash leaves them: the new segment beside the old ones.
    crashed = folder.with_name("orders-1")
    shutil.copytree(before, crashed)
    suffix = {"cleaned": ".cleaned", "half": ".cleaned"}.get(stage, ".swap")
    for kind in (".log", ".index", ".timeindex"):
        shutil.copy(folder / f"{0:020d}{kind}", crashed / f"{0:020d}{kind}{suffix}")
        if stage == "half" and kind == ".index":
            (crashed / f"{0:020d}{kind}{suffix}").rename(crashed / f"{0:020d}{kind}.swap")
        if stage == "old deleted":
            (crashed / f"{0:020d}{kind}").rename(crashed / f"{0:020d}{kind}.deleted")
    again = Log(crashed, COMPACT)
    assert again.end_offset == 30
    latest = {key: value for _, key, value in pairs_of(again)}
    assert latest == {key: value for _, key, value in after}
    assert len(pairs_of(again)) == 30 if suffix == ".cleaned" else len(pairs_of(again)) < 30
    assert not [path for path in crashed.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]
    assert damage(crashed) == []


def test_what_may_be_cleaned(folder: Path) -> None:
    log = Log(folder, COMPACT)
    for n in range(30):
        append(log, [(b"key", b"%010d" % n)], timestamp=1000 + n)
    bases = log.segment_offsets()
    assert len(bases) > 2
    # Nothing above the high watermark, and never the active segment.
    assert dirty_part(log, None, NOW) is None
    log.update_high_watermark(30)
    whole = dirty_part(log, None, NOW)
    assert whole is not None
    assert (whole.first_dirty, whole.first_uncleanable, whole.ratio) == (0, bases[-1], 1.0)
    half = dirty_part(log, bases[1], NOW)
    assert half is not None
    assert 0 < half.ratio < 1
    # A checkpoint that cannot be true counts as none.
    assert dirty_part(log, 99, NOW) == whole
    log.update_config(replace(COMPACT, min_compaction_lag_ms=NOW - 1000 - bases[1]))
    young = dirty_part(log, None, NOW)
    assert young is not None
    assert young.first_uncleanable == bases[1]
    log.update_config(replace(COMPACT, max_compaction_lag_ms=NOW - 1001))
    overdue = dirty_part(log, None, NOW)
    assert overdue is not None
    assert (overdue.is_overdue, whole.is_overdue) == (True, False)


def test_a_map_of_keys() -> None:
    offsets = OffsetMap(2400)
    keys = [b"", *(b"x" * n for n in range(1, 60))]
    data = [PlainRecord(n, key=key).encoded() for n, key in enumerate(keys)]
    assert add_keys(offsets, b"".join(data), 60, 100, 103)
    assert [offsets.get(key) for key in keys] == [-1] * 3 + list(range(103, 160))
    assert (offsets.count, offsets.most, offsets.slots) == (57, 90, 100)
    more = b"".join(PlainRecord(n, key=b"y%d" % n).encoded() for n in range(40))
    assert not add_keys(offsets, more, 40, 200, 0)
    offsets.clear()
    assert (offsets.get(b"x"), offsets.count) == (-1, 0)
    for wrong in (more[:-1], b"\x80" * 20, b""):
        with pytest.raises(ValueError, match="do not fit"):
            add_keys(offsets, wrong, 40, 0, 0)
    with pytest.raises(ValueError, match="too little"):
        OffsetMap(24)


def test_a_broker_cleans_in_the_background(tmp_path: Path) -> None:
    settings = LogManagerSettings(initial_delay_ms=1, cleaner_backoff_ms=20)
    manager = LogManager([tmp_path], COMPACT, 1, "c", settings=settings)
    manager.start()
    log = manager.open_log("orders", 0, bytes(16))
    for n in range(30):
        append(log, [(b"k%d" % (n % 3), b"%010d" % n)])
    log.roll()
    log.update_high_watermark(30)
    file = tmp_path / checkpoints.CLEANER_CHECKPOINT
    expected = {("orders", 0): 30}
    wait_until(
        lambda: (file.exists() and checkpoints.read_offsets(file) == expected) or None, what="the cleaner"
    )
    assert len(records(log)) == 3
    # For metrics: nothing was clean before, and 3 of 30 batches were kept.
    status = manager.cleaner_status()
    assert 0 < status.recopied < 0.2
    assert status.damaged == frozenset()
    wait_until(lambda: manager.cleaner_status().dirtiest == 0, what="a run that finds nothing dirty")
    manager.stop()
    manager = LogManager([tmp_path], COMPACT, 1, "c", settings=settings)
    manager.start()
    manager.delete_logs([("orders", 0)])
    assert checkpoints.read_offsets(file) == {}
    manager.stop()


def test_all_logs_are_asked_for_without_the_cleaners_lock() -> None:
    """Their owner asks the cleaner with a lock of its own: each would wait for the other for ever."""
    written: list[Mapping[tuple[str, int], int]] = []
    directory: Any = SimpleNamespace(write_checkpoint=lambda _name, offsets: written.append(offsets))

    def places() -> dict[tuple[str, int], Place]:
        # As a thread that holds the owner's lock does.
        assert not one.is_cleaning(("orders", 0))
        return {}

    one = LogCleaner(places, lambda *_: nullcontext(), LogManagerSettings())
    work: list[Callable[[], None]] = [partial(one.write_checkpoint, directory), partial(one.run, 0)]
    threads = [threading.Thread(target=step, daemon=True) for step in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert written == [{}]


# -- formats 0 and 1; ``conformance/test_cleaner.py`` has Kafka beside them


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_what_stays_of_an_entry_has_its_format(folder: Path, magic: int, codec: int) -> None:
    log = Log(folder, COMPACT)
    first = entries(magic, codec, 0, [(b"a", b"1", 5), (b"b", b"2", 6), (b"c", b"3", 7), (None, b"4", 8)])
    log.append_as_follower(first)
    untouched = entries(magic, codec, 4, [(b"d", b"5", 9), (b"c", b"6", 9)])
    log.append_as_follower(untouched)
    append(log, [(b"a", b"7")])
    assert clean_all(log) == 7
    assert pairs_of(log) == [(1, b"b", b"2"), (4, b"d", b"5"), (5, b"c", b"6"), (6, b"a", b"7")]
    assert [one.timestamp for one in records(log)][:3] == ([6, 9, 9] if magic else [-1] * 3)
    headers = [read_header(one) for one in batches(log)]
    assert {one.magic for one in headers[:-1]} == {magic}
    assert headers[-1].magic == 2
    assert {one.attributes for one in headers[:-1]} == {codec}
    assert b"".join(batches(log)[-3:-1] if not codec else batches(log)[1:2]) == untouched
    if codec:
        # The header has the offset of the last record that is left, and the largest timestamp of those.
        assert (headers[0].base_offset, headers[0].max_timestamp) == (1, 6 if magic else -1)
    log.close()
    assert damage(folder) == []
    assert pairs_of(Log(folder, COMPACT, clean=True))[0] == (1, b"b", b"2")


@pytest.mark.parametrize(("later", "stays"), [(0.5, True), (2, False)])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_tombstones_stay_for_a_time(folder: Path, magic: int, later: float, *, stays: bool) -> None:
    """``delete.retention.ms``, here a second, counts to when the last clean segment was written."""
    log = Log(folder, replace(COMPACT, segment_bytes=200))
    log.append_as_follower(entries(magic, 0, 0, [(b"a", None, 5), (b"b", b"2" * 80, 6)]))
    log.roll()
    log.append_as_follower(entries(magic, 0, 2, [(b"c", b"3" * 100, 7)]))
    assert clean_all(log) == 3
    assert [key for _, key, _ in pairs_of(log)] == [b"a", b"b", b"c"]
    for base, written in ((0, 1000), (2, 1000 + later)):
        os.utime(folder / f"{base:020}.log", (written, written))
    log.append_as_follower(entries(magic, 0, 3, [(b"d", b"4", 8)]))
    assert clean_all(log, from_offset=3) == 4
    assert [key for _, key, _ in pairs_of(log)] == [*([b"a"] if stays else []), b"b", b"c", b"d"]


def test_records_of_another_format_than_their_entry_are_written_again(folder: Path) -> None:
    """Some releases of Kafka's cleaner wrote such entries (KAFKA-4298)."""
    log = Log(folder, COMPACT)
    carried = [OldEntry(b"1", b"a", 0, 0), OldEntry(b"2", b"b", 1, 1, 9)]
    log.append_as_follower(wrapped(carried, 1, magic=1, offset=1, timestamp=9).encoded())
    assert clean_all(log) == 2
    [one] = batches(log)
    assert [(found.magic, found.offset, found.timestamp) for found in read_entries(one)] == [
        (1, 0, -1),
        (1, 1, 9),
    ]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (
            OldEntry(b"garbage", b"k", offset=1, attributes=1).encoded(),
            "the entry at offset 1: what it carries",
        ),
        (
            wrapped([OldEntry(b"v", b"k", offset=0, attributes=1)], 1, offset=1).encoded(),
            "a compressed entry that",
        ),
    ],
)
def test_an_old_entry_that_cannot_be_read_ends_the_cleaning(folder: Path, bad: bytes, why: str) -> None:
    log = Log(folder, COMPACT)
    log.append_as_follower(entries(1, 0, 0, [(b"a", b"1", 5)]) + bad)
    with pytest.raises(LogDirectoryError, match=why):
        clean_all(log)
    assert read_header(batches(log)[0]).base_offset == 0


@pytest.mark.parametrize(
    ("at", "why"), [(12, "a batch whose CRC is wrong"), (16, "no batch"), (8, "no batch")]
)
def test_damage_of_an_old_segment_is_named(folder: Path, at: int, why: str) -> None:
    log = Log(folder, COMPACT)
    log.append_as_follower(entries(1, 0, 0, [(b"a", b"1", 5), (b"b", b"2", 6)]))
    log.roll()
    path = folder / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    size = len(data) // 2
    data[size + at] = 9
    path.write_bytes(data)
    with pytest.raises(LogDirectoryError, match=f"{path}, byte {size}: {why}"):
        clean_all(log)
