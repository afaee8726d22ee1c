"""The log of one partition: appends, rolls, reads, retention, truncation, recovery, files of Kafka."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import cramjam
import pytest

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log import _log
from ctrlchan.broker.log._batches import crc32c_of
from ctrlchan.broker.log._log import DUE_FLUSH_ROLLED, Log
from ctrlchan.errors import ConfigError, KafkaError, LogDirectoryError
from tests.unit.broker.descriptors import no_descriptors
from tests.unit.broker.log.made_batches import batch, checked, headers

#: A batch of one 12-byte value has 80 bytes.
SMALL = LogConfig(segment_bytes=800, segment_index_bytes=400, index_interval_bytes=150)
VALUE = b"0123456789ab"
BATCH = 80
OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR = 1, 2, 18, 56


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


def filled(folder: Path, number: int, config: LogConfig = SMALL) -> Log:
    """Return a log of ``number`` batches of one record; record n has timestamp 1000 + n."""
    log = Log(folder, config)
    fill(log, number)
    return log


def fill(log: Log, number: int) -> None:
    for n in range(number):
        log.append_as_leader(checked(batch([VALUE], timestamp=1000 + n)), 0)


def read(
    log: Log,
    offset: int,
    size: int = 1 << 20,
    *,
    isolation: int = _log.READ_LOG_END,
    whole_first: bool = True,
) -> list[tuple[int, int]]:
    found = log.read_file_range(offset, size, isolation=isolation, whole_first=whole_first)
    data = found.read()
    found.close()
    return headers(data)


def code(raised: pytest.ExceptionInfo[KafkaError]) -> int:
    return raised.value.code


def test_an_index_has_an_entry_per_interval_as_kafka_writes_it(folder: Path) -> None:
    log = filled(folder, 11)
    assert log.segment_offsets() == [0, 10]
    # Batches 2, 4, 6 and 8 begin more than 150 bytes after the last entry.
    assert (folder / "00000000000000000000.index").read_bytes() == b"".join(
        struct.pack(">ii", n, n * BATCH) for n in (2, 4, 6, 8)
    )
    # The largest timestamp goes in when the segment is rolled.
    assert (folder / "00000000000000000000.timeindex").read_bytes() == b"".join(
        struct.pack(">qi", 1000 + n, n) for n in (2, 4, 6, 8, 9)
    )
    # An index gets its room when it is first used.
    assert os.path.getsize(folder / "00000000000000000010.index") == 0
    fill(log, 3)
    assert os.path.getsize(folder / "00000000000000000010.index") == 400
    assert os.path.getsize(folder / "00000000000000000010.timeindex") == 396
    log.close()
    assert (folder / "00000000000000000010.index").read_bytes() == struct.pack(">ii", 2, 2 * BATCH)
    assert (folder / "00000000000000000010.timeindex").read_bytes() == struct.pack(">qi", 1010, 0)


def test_a_log_that_nobody_uses_has_one_descriptor(folder: Path) -> None:
    def descriptors() -> int:
        return len(os.listdir("/dev/fd"))

    before = descriptors()
    log = Log(folder, SMALL)
    assert descriptors() == before + 1
    fill(log, 5)
    log.close()
    assert descriptors() == before
    log = Log(folder, SMALL, clean=True)
    assert descriptors() == before + 1
    log.close()


def test_appends_and_reads_do_without_an_index_when_no_file_can_be_opened(folder: Path) -> None:
    filled(folder, 5).close()
    log = Log(folder, SMALL, clean=True)
    with no_descriptors():
        # The third one asks for an entry in the indexes.
        for n in range(3):
            log.append_as_leader(checked(batch([VALUE], timestamp=2000 + n)), 0)
        assert read(log, 3) == [(n, 1) for n in range(3, 8)]
        found = log.list_offset(2001)
        assert found is not None
        assert found[0] == 6
    assert not log.offline
    fill(log, 5)
    assert read(log, 0) == [(n, 1) for n in range(10)]
    log.close()


def test_many_readers_go_on_where_they_were(folder: Path) -> None:
    log = filled(folder, 8, LogConfig(segment_bytes=30 * BATCH, index_interval_bytes=5 * BATCH))
    # More readers than a segment remembers, each with steps of its own; two stay side by side.
    steps = [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 60]
    offsets = [0] * len(steps)
    for turn in range(1, 80):
        if turn == 40:
            log.truncate_to(20)
            offsets = [min(offset, 20) for offset in offsets]
        fill(log, turn % 4)
        for reader, step in enumerate(steps):
            found = read(log, offsets[reader], step * BATCH)
            first = offsets[reader]
            assert found == [(offset, 1) for offset in range(first, first + len(found))]
            assert found or first == log.end_offset
            offsets[reader] += len(found)
    assert log.segment_count > 2
    log.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_is_the_same_after_a_restart(folder: Path, clean: bool) -> None:
    log = filled(folder, 25)
    before = read(log, 0), log.segment_offsets(), log.size
    log.close()
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = Log(folder, SMALL, clean=clean)
    assert (read(again, 0), again.segment_offsets(), again.size) == before
    assert again.end_offset == 25
    assert again.recovery_point == (25 if clean else 0)
    again.close()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


def test_reads_are_whole_batches(folder: Path) -> None:
    log = filled(folder, 10, LogConfig(index_interval_bytes=150))
    assert read(log, 3) == [(n, 1) for n in range(3, 10)]
    assert read(log, 3, 3 * BATCH - 1) == [(3, 1), (4, 1)]
    assert read(log, 3, 1) == [(3, 1)]
    assert read(log, 3, BATCH - 1, whole_first=False) == []
    assert read(log, 10) == []
    log.update_high_watermark(5)
    assert read(log, 3, isolation=_log.READ_HIGH_WATERMARK) == [(3, 1), (4, 1)]
    assert read(log, 5, isolation=_log.READ_HIGH_WATERMARK) == []
    assert read(log, 9, isolation=_log.READ_HIGH_WATERMARK) == []
    for offset in (-1, 11):
        with pytest.raises(KafkaError) as raised:
            read(log, offset)
        assert code(raised) == OFFSET_OUT_OF_RANGE


def test_the_high_watermark_stays_within_the_log(folder: Path) -> None:
    log = filled(folder, 25)
    assert log.update_high_watermark(99) == 25
    log.increment_start_offset(7)
    assert log.update_high_watermark(3) == 7
    # In each position: at the begin and the end of segments too.
    for high_watermark in range(7, 26):
        log.update_high_watermark(high_watermark)
        found, offset = [], 7
        while part := read(log, offset, isolation=_log.READ_HIGH_WATERMARK):
            found += part
            offset = part[-1][0] + 1
        assert found == [(n, 1) for n in range(7, high_watermark)]


def test_segments_are_rolled_by_time(folder: Path) -> None:
    log = Log(folder, LogConfig(segment_ms=100))
    for timestamp in (1000, 1100, 1101, 1050):
        log.append_as_leader(checked(batch([VALUE], timestamp=timestamp)), 0)
    assert log.segment_offsets() == [0, 2]


def test_new_segments_reserve_their_disk_space(folder: Path) -> None:
    size = 4 * 2**20

    def reserved(base_offset: int) -> int:
        return (folder / f"{base_offset:020}.log").stat().st_blocks * 512

    log = filled(folder, 3, LogConfig(segment_bytes=size, preallocate=True))
    active = folder / f"{0:020}.log"
    # The file ends with its records, so that a crash leaves no zeros.
    assert active.stat().st_size == 3 * BATCH
    if reserved(0) < size:
        pytest.skip("the file system reserves nothing")
    log.roll()
    fill(log, 1)
    assert log.segment_offsets() == [0, 3]
    assert reserved(0) < size <= reserved(3)
    log.close()
    assert reserved(3) < size
    again = Log(folder, LogConfig(segment_bytes=size, preallocate=True), clean=True)
    assert read(again, 0) + read(again, 3) == [(n, 1) for n in range(4)]
    # A crash: the reserved space stays, and recovery reads what was written.
    again.roll()
    fill(again, 2)
    again.close_files()
    assert Log(folder, LogConfig(segment_bytes=size)).end_offset == 6


def test_segments_are_rolled_when_an_index_is_full(folder: Path) -> None:
    # Two entries of the offset index; the time index keeps its last place for the roll.
    log = filled(folder, 9, LogConfig(segment_index_bytes=24, index_interval_bytes=0))
    # The first append has no entry: its offset is the segment's own.
    assert log.segment_offsets() == [0, 2, 4, 6, 8]
    log.close()
    assert Log(folder, LogConfig(), clean=True).end_offset == 9


def test_an_offset_that_is_too_far_begins_a_segment(folder: Path) -> None:
    log = Log(folder, LogConfig())
    log.append_as_follower(batch([VALUE], base_offset=5, leader_epoch=0))
    log.append_as_follower(batch([VALUE], base_offset=2**31 - 1, leader_epoch=0))
    log.append_as_follower(batch([VALUE], base_offset=2**31, leader_epoch=0))
    assert log.segment_offsets() == [0, 2**31]
    assert log.end_offset == 2**31 + 1
    assert read(log, 6) == [(2**31 - 1, 1)]


def test_a_follower_keeps_offsets_and_epochs(folder: Path) -> None:
    log = Log(folder, LogConfig())
    data = batch([VALUE] * 2, base_offset=4, leader_epoch=1) + batch([VALUE], base_offset=9, leader_epoch=3)
    assert log.append_as_follower(data) == (4, 9)
    assert log.read_file_range(0, 1000).read() == data
    assert log.leader_epochs() == [(1, 4), (3, 9)]
    assert log.end_of_epoch(1) == (1, 9)
    with pytest.raises(KafkaError):
        log.append_as_follower(batch([VALUE], base_offset=9, leader_epoch=3))
    damaged = bytearray(batch([VALUE], base_offset=10, leader_epoch=3))
    damaged[-1] ^= 1
    with pytest.raises(KafkaError) as raised:
        log.append_as_follower(damaged)
    assert code(raised) == CORRUPT_MESSAGE
    assert log.end_offset == 10


def test_an_append_may_not_be_larger_than_a_segment(folder: Path) -> None:
    log = Log(folder, SMALL)
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(checked(batch([bytes(800)])), 0)
    assert code(raised) == RECORD_LIST_TOO_LARGE
    assert not log.offline


def test_offsets_by_timestamp(folder: Path) -> None:
    log = Log(folder, SMALL)
    assert log.list_offset(_log.MAX_TIMESTAMP) is None
    for n in range(20):
        log.append_as_leader(checked(batch([VALUE] * 3, timestamp=1000 + 10 * n, step=3)), 2)
    log.update_high_watermark(60)
    assert log.list_offset(_log.EARLIEST) == (0, -1, 2)
    assert log.list_offset(_log.LATEST) == (60, -1, 2)
    assert log.list_offset(_log.MAX_TIMESTAMP) == (59, 1196, 2)
    assert log.list_offset(0) == (0, 1000, 2)
    for timestamp in range(1000, 1197):
        found = log.list_offset(timestamp)
        expected = next(
            (3 * n + k, 1000 + 10 * n + 3 * k, 2)
            for n in range(20)
            for k in range(3)
            if 1000 + 10 * n + 3 * k >= timestamp
        )
        assert found == expected
    assert log.list_offset(1197) is None
    log.increment_start_offset(31)
    # As Kafka: a segment that is not deleted yet is the one that is searched.
    assert log.list_offset(0) is None
    log.delete_old_segments(now_ms=0)
    assert log.list_offset(0) == (31, 1103, 2)
    assert log.list_offset(_log.EARLIEST_LOCAL) == (31, -1, 2)


def test_retention_by_start_offset_size_and_time(folder: Path) -> None:
    log = filled(folder, 45, replace(SMALL, retention_ms=-1))
    log.update_high_watermark(45)
    log.increment_start_offset(20)
    assert log.delete_old_segments() == 2
    assert log.segment_offsets() == [20, 30, 40]
    log.update_config(replace(SMALL, retention_bytes=1300, retention_ms=-1))
    # 25 batches of 80 bytes are 2,000: one segment fits into what is too much, two do not.
    assert log.delete_old_segments() == 0
    log.update_config(replace(SMALL, retention_bytes=1200, retention_ms=-1))
    assert log.delete_old_segments() == 1
    assert (log.start_offset, log.segment_offsets()) == (30, [30, 40])
    log.update_config(replace(SMALL, retention_ms=100))
    assert log.delete_old_segments(now_ms=1139) == 0
    assert log.delete_old_segments(now_ms=1140) == 1
    # The active segment too, when nothing in it is kept; a new one begins.
    assert log.delete_old_segments(now_ms=9999) == 1
    assert (log.start_offset, log.segment_offsets(), log.end_offset) == (45, [45], 45)
    assert log.delete_old_segments(now_ms=9999) == 0
    assert len([path for path in folder.iterdir() if path.suffix == ".deleted"]) == 15 + 4  # snapshots
    assert log.delete_files(now_ms=0) > 0
    assert log.delete_files(now_ms=2**62) == 0
    assert not [path for path in folder.iterdir() if path.suffix == ".deleted"]


def test_nothing_above_the_high_watermark_is_deleted(folder: Path) -> None:
    log = filled(folder, 25, replace(SMALL, retention_ms=0))
    log.update_high_watermark(19)
    assert log.delete_old_segments() == 1
    assert log.segment_offsets() == [10, 20]
    with pytest.raises(KafkaError) as raised:
        log.increment_start_offset(20)
    assert code(raised) == OFFSET_OUT_OF_RANGE


def test_a_range_is_readable_after_its_segment_is_deleted(folder: Path) -> None:
    log = filled(folder, 15)
    found = log.read_file_range(0, 10 * BATCH)
    log.update_high_watermark(15)
    log.increment_start_offset(15)
    log.delete_old_segments()
    log.delete_files(now_ms=2**62)
    assert headers(found.read()) == [(n, 1) for n in range(10)]
    descriptor = found.fd
    log.close()
    assert os.fstat(descriptor).st_nlink == 0
    found.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_the_largest_timestamp_may_lie_before_the_start(folder: Path) -> None:
    log = filled(folder, 8)
    log.append_as_leader(checked(batch([VALUE], timestamp=9_000)), 0)
    log.append_as_leader(checked(batch([VALUE], timestamp=20)), 0)
    log.update_high_watermark(log.end_offset)
    log.increment_start_offset(log.end_offset)
    assert log.list_offset(_log.MAX_TIMESTAMP) == (8, 9_000, 0)
    assert log.list_offset(9_000) is None


def test_truncation(folder: Path) -> None:
    log = filled(folder, 25)
    assert not log.truncate_to(25)
    log.update_high_watermark(25)
    assert log.truncate_to(14)
    assert (log.end_offset, log.high_watermark, log.segment_offsets()) == (14, 14, [0, 10])
    assert read(log, 10) == [(n, 1) for n in range(10, 14)]
    assert log.list_offset(_log.MAX_TIMESTAMP) == (13, 1013, 0)
    log.append_as_leader(checked(batch([VALUE], timestamp=5)), 4)
    assert log.leader_epochs() == [(0, 0), (4, 14)]
    assert log.truncate_to(14)
    assert log.leader_epochs() == [(0, 0)]
    log.truncate_fully(100)
    assert (log.start_offset, log.end_offset, log.high_watermark) == (100, 100, 100)
    assert log.segment_offsets() == [100]
    assert log.append_as_leader(checked(batch([VALUE])), 4) == (100, 100)
    # Below the first segment nothing is left either.
    assert log.truncate_to(50)
    assert (log.start_offset, log.end_offset, log.segment_offsets()) == (50, 50, [50])


@pytest.mark.parametrize("cut", [1, 30, 79])
def test_recovery_cuts_a_torn_batch(folder: Path, cut: int) -> None:
    log = filled(folder, 25)
    log.close_files()
    with (folder / "00000000000000000020.log").open("r+b") as file:
        file.truncate(5 * BATCH - cut)
    log = Log(folder, SMALL)
    assert (log.end_offset, log.segment_offsets()) == (24, [0, 10, 20])


def test_recovery_begins_at_the_recovery_point(folder: Path) -> None:
    log = filled(folder, 35)
    log.close_files()
    for name, position in (("00000000000000000000.log", 100), ("00000000000000000020.log", 3 * BATCH + 79)):
        with (folder / name).open("r+b") as file:
            file.seek(position)
            file.write(b"\xff")
    log = Log(folder, SMALL, recovery_point=12)
    # The damage before the recovery point is not looked for; what follows the other one is gone.
    assert (log.end_offset, log.recovery_point, log.segment_offsets()) == (23, 12, [0, 10, 20])
    assert len(list(folder.glob("00000000000000000030.*.deleted"))) == 3
    again = Log(folder, SMALL, recovery_point=12)
    assert not list(folder.glob("*.deleted"))
    assert again.end_offset == 23


def test_missing_and_damaged_indexes_are_written_anew(folder: Path) -> None:
    log = filled(folder, 25)
    log.close()
    index, times = folder / "00000000000000000000.index", folder / "00000000000000000000.timeindex"
    before = index.read_bytes(), times.read_bytes()
    for damage in (
        index.unlink,
        lambda: index.write_bytes(before[0] + b"x"),
        lambda: index.write_bytes(before[0][:-4] + struct.pack(">i", 900)),
        lambda: times.write_bytes(before[1][:-12] + struct.pack(">qi", 1, 9)),
    ):
        damage()
        Log(folder, SMALL, clean=True).close()
        assert (index.read_bytes(), times.read_bytes()) == before
    (folder / "00000000000000000007.index").write_bytes(b"")
    Log(folder, SMALL, clean=True).close()
    assert not (folder / "00000000000000000007.index").exists()


def test_a_wrong_index_leads_no_reader_astray(folder: Path) -> None:
    log = filled(folder, 10, LogConfig(index_interval_bytes=150))
    log.close()
    index = folder / "00000000000000000000.index"
    entries = [list(pair) for pair in struct.iter_unpack(">ii", index.read_bytes())]
    entries[1][1] += 3
    entries[2][1] = -5
    index.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    log = Log(folder, LogConfig(), clean=True)
    for offset in range(10):
        assert read(log, offset) == [(n, 1) for n in range(offset, 10)]
        assert read(log, offset, 200)[:2] == [(n, 1) for n in range(offset, min(offset + 2, 10))]


def test_interrupted_swaps_are_finished_and_interrupted_cleans_undone(folder: Path) -> None:
    filled(folder, 35).close()
    files = {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.name.startswith("00000000000000000010")
    }
    # The cleaner has replaced segments 10 and 20 by one, and was stopped before it had renamed all files.
    for name, data in files.items():
        (folder / name).unlink()
        (folder / f"{name}.swap").write_bytes(data)
    (folder / "00000000000000000011.log").write_bytes(b"")
    (folder / "00000000000000000000.log.deleted").write_bytes(b"x")
    log = Log(folder, SMALL, clean=True)
    assert log.segment_offsets() == [0, 10, 20, 30]
    assert read(log, 10) == [(n, 1) for n in range(10, 20)]
    log.close()
    # A segment that is not renamed yet: those above it were not complete.
    (folder / "00000000000000000005.log.cleaned").write_bytes(b"")
    (folder / "00000000000000000010.log.swap").write_bytes(b"")
    log = Log(folder, SMALL, clean=True)
    assert log.segment_offsets() == [0, 10, 20, 30]
    assert not [path for path in folder.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]


@pytest.mark.parametrize("name", ["x.log", "7.log", "y.log.swap"])
def test_other_files_are_refused_by_name(folder: Path, name: str) -> None:
    folder.mkdir()
    (folder / name).write_bytes(b"")
    with pytest.raises(LogDirectoryError, match=name):
        Log(folder, SMALL)


def test_a_start_offset_above_the_log_empties_it(folder: Path) -> None:
    filled(folder, 25).close()
    log = Log(folder, SMALL, start_offset=40, clean=True)
    assert (log.start_offset, log.end_offset, log.segment_offsets()) == (40, 40, [40])


@pytest.mark.parametrize("damage", [b"torn", bytes(200)])
def test_a_closed_log_that_was_damaged_is_recovered(folder: Path, damage: bytes) -> None:
    filled(folder, 25).close()
    with (folder / "00000000000000000020.log").open("ab") as file:
        file.write(damage)
    log = Log(folder, SMALL, clean=True)
    assert log.end_offset == 25
    fill(log, 1)
    log.close()
    assert Log(folder, SMALL, clean=True).end_offset == 26


def test_flush_moves_the_recovery_point(folder: Path) -> None:
    log = filled(folder, 25, replace(SMALL, flush_messages=30))
    assert log.due(0) == DUE_FLUSH_ROLLED  # a segment was rolled
    log.flush(active=False)
    assert (log.recovery_point, log.due(0)) == (20, 0)
    for _ in range(5):
        log.append_as_leader(checked(batch([VALUE])), 0)
    log.flush()
    assert log.recovery_point == 30
    flushes, time_ns = log.flush_times
    log.flush()  # there is nothing to flush
    assert (flushes, log.flush_times) == (2, (2, time_ns))
    assert time_ns > 0
    log.truncate_to(22)
    assert log.recovery_point == 22


def test_a_disk_that_fails_takes_the_log_offline(folder: Path) -> None:
    log = filled(folder, 5)
    # The next segment cannot be created.
    (folder / "00000000000000000010.log").mkdir()
    with pytest.raises(KafkaError) as raised:
        fill(log, 10)
    assert code(raised) == KAFKA_STORAGE_ERROR
    assert log.offline
    assert log.end_offset == 10
    for call in (lambda: read(log, 0), lambda: log.append_as_leader(checked(batch([VALUE])), 0), log.flush):
        with pytest.raises(KafkaError) as raised:
            call()
        assert code(raised) == KAFKA_STORAGE_ERROR


def test_a_closed_log_answers_with_an_error(folder: Path) -> None:
    log = filled(folder, 5)
    log.close()
    log.close()
    with pytest.raises(KafkaError) as raised:
        read(log, 0)
    assert code(raised) == KAFKA_STORAGE_ERROR


def test_a_renamed_log_goes_on(folder: Path) -> None:
    log = filled(folder, 9)
    log.rename("orders-0.0123-delete")
    for _ in range(5):
        log.append_as_leader(checked(batch([VALUE])), 1)
    assert log.segment_offsets() == [0, 10]
    assert not folder.exists()
    log.delete()
    assert not list(folder.parent.iterdir())


def test_settings_that_kafka_refuses() -> None:
    for wrong in (
        LogConfig(segment_bytes=13),
        LogConfig(retention_ms=-2),
        LogConfig(segment_index_bytes=2**31),
    ):
        with pytest.raises(ConfigError):
            wrong.check()


def test_timestamps_in_compressed_batches(folder: Path) -> None:
    log = Log(folder, LogConfig())
    plain = batch([VALUE] * 3, timestamp=1000, step=5, leader_epoch=0)
    body = bytearray(plain[21:61]) + cramjam.gzip.compress(plain[61:])
    body[1] |= 1
    data = plain[:8] + struct.pack(">iibI", 9 + len(body), 0, 2, crc32c_of(body)) + body
    log.append_as_follower(data)
    assert log.list_offset(1001) == (1, 1005, 0)
    assert log.list_offset(_log.MAX_TIMESTAMP) == (2, 1010, 0)
    # A batch whose CRC is right and whose records are none.
    wrong = bytes(body[:40]) + b"nothing"
    data = struct.pack(">qiibI", 3, 9 + len(wrong), 0, 2, crc32c_of(wrong)) + wrong
    log.append_as_follower(data)
    log.update_high_watermark(6)
    log.increment_start_offset(3)
    with pytest.raises(KafkaError) as raised:
        log.list_offset(1010)
    assert code(raised) == CORRUPT_MESSAGE
