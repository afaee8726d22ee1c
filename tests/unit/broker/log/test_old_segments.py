"""Logs with segments of formats 0 and 1, as Kafka before 0.11 wrote them, and format 2 behind them."""

from __future__ import annotations

import logging
import os
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log._batches import read_header
from ctrlchan.broker.log._log import LATEST, MAX_TIMESTAMP, Log
from ctrlchan.broker.log.records import read_records
from ctrlchan.broker.replica.copied_records import append_copied
from ctrlchan.errors import ErrorCode, KafkaError, LogDirectoryError
from tests.unit.broker.log.made_batches import batch, checked
from tests.unit.broker.log.old_formats.entries import OldEntry
from tests.unit.broker.log.old_formats.old_logs import CODECS, entries, segment_file, with_offset

CONFIG = LogConfig(segment_bytes=4000, segment_index_bytes=4096, index_interval_bytes=100)
#: Records in an entry that carries others.
CARRIED = 4
BOTH = pytest.mark.parametrize("magic", [0, 1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "orders-0"


def old(magic: int, codec: int, number: int, first_offset: int = 0) -> bytes:
    """Return the entries of ``number`` records; record n has the timestamp 1000 + n."""
    step = CARRIED if codec else 1
    return b"".join(
        entries(magic, codec, offset, [(b"key", b"%d" % n, 1000 + n) for n in range(offset, offset + step)])
        for offset in range(first_offset, first_offset + number, step)
    )


def read_all(log: Log, offset: int = 0, size: int = 1 << 20) -> list[tuple[int, bytes | None]]:
    """Return offset and value of all records from an offset on, as a consumer reads them."""
    found: list[tuple[int, bytes | None]] = []
    while offset < log.end_offset:
        records = log.read_file_range(offset, size)
        data, position = records.read(), 0
        records.close()
        assert data
        while position < len(data):
            one = data[position : position + read_header(data, position).size]
            position += len(one)
            found += [(each.offset, each.value) for each in read_records(one) if each.offset >= offset]
        offset = found[-1][0] + 1
    return found


def without_room(offset: int = 0) -> bytes:
    """Return an entry of format 1 that is as small as one of format 0 may be."""
    body = b"\1\0" + bytes(8)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def values(first: int, end: int) -> list[tuple[int, bytes]]:
    return [(n, b"%d" % n) for n in range(first, end)]


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("codec", CODECS)
@BOTH
def test_a_log_is_opened_read_and_gets_batches_of_format_2(
    folder: Path, magic: int, codec: int, *, clean: bool
) -> None:
    path = segment_file(folder, 40, old(magic, codec, 40, 40))
    log = Log(folder, CONFIG, clean=clean, start_offset=40)
    assert (log.start_offset, log.end_offset) == (40, 80)
    for offset in range(40, 80):
        # From each offset, also one within an entry, and in small pieces.
        assert read_all(log, offset) == values(offset, 80)
    assert read_all(log, 40, 100) == values(40, 80)
    log.append_as_leader(checked(batch([b"80", b"81"], timestamp=5000)), 3)
    assert read_all(log, 41) == values(41, 82)
    assert log.leader_epochs() == [(3, 80)]
    log.close()
    # The indexes were written anew.
    assert os.path.getsize(path.with_suffix(".index")) > 0
    assert os.path.getsize(path.with_suffix(".timeindex")) > 0
    log = Log(folder, CONFIG, clean=True, start_offset=40)
    assert read_all(log, 50) == values(50, 82)


@pytest.mark.parametrize("codec", [0, 1])
@BOTH
def test_an_index_is_written_as_by_kafka(folder: Path, magic: int, codec: int) -> None:
    data = old(magic, codec, 40)
    path = segment_file(folder, 0, data)
    Log(folder, CONFIG).close()
    index, times, position, last = [], [], 0, 0
    while position < len(data):
        header = read_header(data, position)
        if position - last > 100:
            index.append((header.base_offset, position))
            times.append((1000 + header.base_offset, header.base_offset))
            last = position
        position += header.size
    times.append((1039, 39))
    assert path.with_suffix(".index").read_bytes() == b"".join(struct.pack(">ii", *one) for one in index)
    # Without timestamps there is no time index.
    expected = b"".join(struct.pack(">qi", *one) for one in dict(times).items()) if magic else b""
    assert path.with_suffix(".timeindex").read_bytes() == expected


def test_the_first_offsets_in_an_index_of_a_former_kafka_serve(folder: Path) -> None:
    """Before Kafka 0.11 an index had the first offset of what was appended."""
    data = old(1, 1, 400)
    path = segment_file(folder, 0, data)
    positions = [0]
    while positions[-1] < len(data):
        positions.append(positions[-1] + read_header(data, positions[-1]).size)
    index = [(CARRIED * n, position) for n, position in enumerate(positions[:-1])][2::3]
    path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", *one) for one in index))
    path.with_suffix(".timeindex").write_bytes(struct.pack(">qi", 1399, 399))
    log = Log(folder, CONFIG, clean=True)
    for offset in (0, 7, 8, 9, 11, 12, 200, 397, 399):
        assert read_all(log, offset) == values(offset, 400)
        log.append_as_leader(checked(batch([b"x"])), 0)
        log.truncate_to(400)


@BOTH
def test_a_log_without_a_time_index_gets_one(folder: Path, magic: int) -> None:
    """Kafka 0.10.0 and before had none."""
    path = segment_file(folder, 0, old(magic, 0, 20))
    path.with_suffix(".index").write_bytes(struct.pack(">ii", 9, len(old(magic, 0, 9))))
    log = Log(folder, CONFIG, clean=True)
    assert read_all(log, 10) == values(10, 20)
    log.close()
    assert path.with_suffix(".timeindex").exists()
    assert os.path.getsize(path.with_suffix(".timeindex")) % 12 == 0


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_found_by_their_time(folder: Path, codec: int) -> None:
    segment_file(folder, 0, old(1, codec, 40))
    log = Log(folder, CONFIG, clean=True)
    log.append_as_leader(checked(batch([b"40"], timestamp=1040)), 3)
    for n in range(40):
        assert log.list_offset(1000 + n) == (n, 1000 + n, -1)
    assert log.list_offset(0) == (0, 1000, -1)
    assert log.list_offset(1040) == log.list_offset(MAX_TIMESTAMP) == (40, 1040, 3)
    assert log.list_offset(1041) is None
    log.truncate_to(40)
    assert log.list_offset(MAX_TIMESTAMP) == (39, 1039, -1)
    assert log.list_offset(LATEST) == (40, -1, -1)


def test_records_of_format_0_have_no_time(folder: Path) -> None:
    segment_file(folder, 0, old(0, 1, 40))
    log = Log(folder, CONFIG, clean=True)
    assert log.list_offset(1000) is None
    assert log.list_offset(MAX_TIMESTAMP) is None


def test_the_time_of_appends(folder: Path) -> None:
    pairs = [(None, b"%d" % n, 5) for n in range(3)]
    data = b"".join(entries(1, 1, first, pairs, append_time=100 + first) for first in (0, 3, 6))
    segment_file(folder, 0, data)
    log = Log(folder, CONFIG, clean=True)
    assert log.list_offset(101) == (3, 103, -1)
    assert log.list_offset(MAX_TIMESTAMP) == (6, 106, -1)


@BOTH
def test_retention(folder: Path, magic: int) -> None:
    """Without timestamps the time of a segment is that of its file."""
    for base in (0, 10):
        path = segment_file(folder, base, old(magic, 0, 10, base))
        os.utime(path, (2 + base, 2 + base))
    config = LogConfig(retention_ms=1000)
    log = Log(folder, config, clean=True)
    log.update_high_watermark(20)
    age = 1009 if magic else 2000
    assert log.delete_old_segments(now_ms=age + 1000) == 0
    assert log.delete_old_segments(now_ms=age + 1001) == 1
    assert (log.start_offset, log.segment_offsets()) == (10, [10])
    log.append_as_leader(checked(batch([b"20"], timestamp=1020)), 0)
    log.roll()
    log.update_config(LogConfig(retention_ms=-1, retention_bytes=0))
    log.update_high_watermark(21)
    assert log.delete_old_segments() == 1
    assert log.start_offset == 21


DAMAGES = {
    "a wrong CRC": OldEntry(offset=20, crc=5).encoded(),
    "a cut entry": OldEntry(offset=20).encoded()[:-1],
    "no size of an entry": OldEntry(offset=20, size=13).encoded(),
    "a negative size": OldEntry(offset=20, size=-5).encoded(),
    "an entry without room for its timestamp": without_room(20),
    "a negative offset": OldEntry(offset=-20).encoded(),
    "an unknown format": OldEntry(offset=20, magic=3).encoded(),
    "few bytes": bytes(5),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@BOTH
def test_recovery_cuts_the_log_at_damage(
    folder: Path, magic: int, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    good = old(magic, 1, 20)
    path = segment_file(folder, 0, good + damage + OldEntry(offset=21).encoded())
    with caplog.at_level(logging.WARNING):
        log = Log(folder, CONFIG)
    assert log.end_offset == 20
    assert path.read_bytes() == good
    context = f"[LogLoader partition={folder.name}, dir={folder.parent}] "
    assert f"{context}{path}: the batch at byte {len(good)} is damaged or cut" in caplog.text
    assert read_all(log) == values(0, 20)


def test_an_undecodable_entry_is_kept_and_harms_its_records_alone(folder: Path) -> None:
    """As Kafka, recovery checks the CRC and decompresses nothing."""
    bad = OldEntry(b"garbage", None, 1, 20, 1020, attributes=1).encoded()
    segment_file(folder, 0, old(1, 1, 20) + bad + old(1, 1, 20, 21))
    log = Log(folder, CONFIG)
    assert log.end_offset == 41
    assert read_all(log, 21) == values(21, 41)
    with pytest.raises(KafkaError, match="the entry at offset 20: what it carries") as raised:
        log.list_offset(1020)
    assert raised.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.list_offset(1021) == (21, 1021, -1)
    assert not log.offline


@BOTH
def test_truncation_removes_whole_entries(folder: Path, magic: int) -> None:
    segment_file(folder, 0, old(magic, 1, 40))
    log = Log(folder, CONFIG)
    assert log.truncate_to(18)
    assert log.end_offset == 18
    log.append_as_leader(checked(batch([b"18"], timestamp=9)), 0)
    assert read_all(log) == [*values(0, 16), (18, b"18")]
    log.close()
    assert read_all(Log(folder, CONFIG, clean=True)) == [*values(0, 16), (18, b"18")]


# -- what a leader sends


@pytest.mark.parametrize("codec", CODECS)
@BOTH
def test_a_follower_appends_entries_as_they_are(folder: Path, magic: int, codec: int) -> None:
    data = old(magic, codec, 20)
    log = Log(folder, CONFIG)
    last = CARRIED - 1 if codec else 0
    assert log.append_as_follower(data) == (last, 19)
    later = batch([b"20"], base_offset=20, leader_epoch=4)
    log.append_as_follower(later)
    assert log.read_file_range(0, 1 << 20).read() == data + later
    assert log.leader_epochs() == [(4, 20)]
    assert read_all(log, 3) == values(3, 21)


def test_entries_of_old_formats_end_the_leader_epochs(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = Log(folder, CONFIG)
    log.append_as_follower(batch([b"0"], base_offset=0, leader_epoch=4))
    assert not caplog.records
    log.append_as_follower(old(1, 0, 1, 1))
    assert log.leader_epochs() == []
    assert "records of format 0 or 1 up to offset 1: the leader epochs before are forgotten" in caplog.text
    log.append_as_follower(old(1, 0, 1, 2) + batch([b"3"], base_offset=3, leader_epoch=5))
    assert log.leader_epochs() == [(5, 3)]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (OldEntry(crc=5).encoded(), ErrorCode.CORRUPT_MESSAGE),
        (OldEntry(offset=-1).encoded(), ErrorCode.CORRUPT_MESSAGE),
        (OldEntry(size=13).encoded(), ErrorCode.CORRUPT_MESSAGE),
        (without_room(), ErrorCode.CORRUPT_MESSAGE),
        (OldEntry(offset=5).encoded() + OldEntry(offset=5).encoded(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_a_leader_may_not_send(folder: Path, data: bytes, code: int) -> None:
    log = Log(folder, CONFIG)
    with pytest.raises(KafkaError) as raised:
        log.append_as_follower(data)
    assert raised.value.code == code
    assert log.end_offset == 0
    assert not log.offline


def test_a_new_segment_begins_at_the_end_of_the_log(folder: Path) -> None:
    """The first offset of an entry that carries others is not in its header."""
    log = Log(folder, CONFIG)
    log.append_as_follower(old(1, 1, 4))
    log.roll()
    log.append_as_follower(old(1, 1, 4, 4))
    far = with_offset(old(1, 1, 4, 8), 2**31 + 100)
    log.append_as_follower(far)
    # As far below the last offset as there can be records.
    assert log.segment_offsets() == [0, 4, 101]
    log.close()
    assert Log(folder, CONFIG, clean=True).end_offset == 2**31 + 101


def test_an_empty_log_begins_with_the_entry_that_has_its_first_offset(folder: Path) -> None:
    """Records at the start of the leader's first entry were deleted."""
    log = Log(folder, CONFIG, start_offset=24)
    append_copied(log, old(1, 1, 4, 24))
    log.truncate_fully(30)
    append_copied(log, old(1, 1, 8, 28))
    # Its last offset, the one in the header, is not below the end of the log.
    assert (log.start_offset, log.end_offset) == (30, 36)
    log.truncate_fully(34)
    with pytest.raises(KafkaError):
        append_copied(log, old(1, 0, 2, 31))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    magic=st.integers(0, 1),
    codec=st.sampled_from([0, 1]),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=3),
    which=st.sampled_from([".log", ".index", ".timeindex"]),
    clean=st.booleans(),
)
def test_changed_files_harm_their_own_log_alone(
    tmp_path: Path, magic: int, codec: int, changes: list[tuple[float, int]], which: str, *, clean: bool
) -> None:
    folder = tmp_path / f"orders-{len(os.listdir(tmp_path))}"
    path = segment_file(folder, 0, old(magic, codec, 24))
    Log(folder, CONFIG).close()
    data = bytearray(path.with_suffix(which).read_bytes())
    for where, byte in changes:
        if data:
            data[int(where * len(data))] ^= byte
    path.with_suffix(which).write_bytes(data)
    try:
        log = Log(folder, CONFIG, clean=clean)
        for offset in range(log.start_offset, min(log.end_offset, 30)):
            log.read_file_range(offset, 200).close()
            log.list_offset(1000 + offset)
        log.append_as_leader(checked(batch([b"x"])), 0)
        log.close()
    except (KafkaError, LogDirectoryError):
        pass
