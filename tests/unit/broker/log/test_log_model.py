"""A log beside a Python list: appends, rolls, reads, truncations, restarts with and without damage."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log._log import READ_HIGH_WATERMARK, READ_LOG_END, Log
from ctrlchan.errors import KafkaError
from tests.unit.broker.log.made_batches import batch, checked, headers

OFFSET_OUT_OF_RANGE = 1
#: From here on recovery must find a flipped bit; the CRC covers no leader epoch.
FIRST_CHECKED_BYTE = 17


class Stored(NamedTuple):
    first: int
    last: int
    timestamp: int
    data: bytes


class LogMachine(RuleBasedStateMachine):
    """``batches``: what the log must hold, in order. ``epochs``: (leader epoch, first offset) pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.folder = self.root / "orders-0"
        self.batches: list[Stored] = []
        self.start = self.end = self.high_watermark = 0
        self.epoch = 0
        self.epochs: list[tuple[int, int]] = []

    @initialize(
        segment=st.integers(300, 3000),
        interval=st.sampled_from([0, 100, 500]),
        index=st.sampled_from([24, 60, 4096]),
    )
    def open(self, segment: int, interval: int, index: int) -> None:
        self.config = LogConfig(
            segment_bytes=segment, index_interval_bytes=interval, segment_index_bytes=index, retention_ms=-1
        )
        self.log = Log(self.folder, self.config)

    def teardown(self) -> None:
        self.log.close_files()
        shutil.rmtree(self.root)

    @rule(sizes=st.lists(st.integers(0, 60), min_size=1, max_size=3), timestamp=st.integers(0, 50))
    def append_as_leader(self, sizes: list[int], timestamp: int) -> None:
        made = checked(batch([bytes(size) for size in sizes], timestamp=timestamp))
        assert self.log.append_as_leader(made, self.epoch) == (self.end, self.end + len(sizes) - 1)
        self.keep(bytes(made.data), len(sizes), timestamp)

    @rule(more=st.integers(1, 3))
    def elect(self, more: int) -> None:
        self.epoch += more

    @rule(gaps=st.lists(st.integers(0, 3), min_size=1, max_size=4), timestamp=st.integers(0, 50))
    def append_as_follower(self, gaps: list[int], timestamp: int) -> None:
        parts = []
        for gap in gaps:
            self.end += gap
            parts.append(batch([b"v"], base_offset=self.end, leader_epoch=self.epoch, timestamp=timestamp))
            self.keep(parts[-1], 1, timestamp)
        self.log.append_as_follower(b"".join(parts))

    def keep(self, data: bytes, count: int, timestamp: int) -> None:
        if not self.epochs or self.epochs[-1][0] < self.epoch:
            self.epochs.append((self.epoch, self.end))
        self.batches.append(Stored(self.end, self.end + count - 1, timestamp, data))
        self.end += count

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(position=st.floats(0, 1))
    def move_high_watermark(self, position: float) -> None:
        ends = [self.start, *(one.last + 1 for one in self.batches if one.last + 1 >= self.start)]
        self.high_watermark = self.log.update_high_watermark(ends[int(position * (len(ends) - 1))])

    @rule(position=st.floats(0, 1), size=st.integers(0, 1000), whole=st.booleans(), end=st.booleans())
    def read(self, position: float, size: int, whole: bool, end: bool) -> None:
        offset = self.start - 1 + round(position * (self.end - self.start + 2))
        isolation, limit = (READ_LOG_END, self.end) if end else (READ_HIGH_WATERMARK, self.high_watermark)
        if not self.start <= offset <= self.end:
            with pytest.raises(KafkaError) as raised:
                self.log.read_file_range(offset, size, isolation=isolation)
            assert raised.value.code == OFFSET_OUT_OF_RANGE
            return
        data = self.log.read_file_range(offset, size, isolation=isolation, whole_first=whole).read()
        there = (
            [one for one in self.batches if one.last >= offset and one.last < limit] if offset < limit else []
        )
        # A read ends with its segment.
        base = max(
            (base for base in self.log.segment_offsets() if there and base <= there[0].first), default=0
        )
        after = min((other for other in self.log.segment_offsets() if other > base), default=self.end)
        expected = b""
        for one in there:
            if one.first >= after or (len(expected) + len(one.data) > size and not (whole and not expected)):
                break
            expected += one.data
        assert data == expected

    @rule(timestamp=st.integers(0, 51))
    def find_timestamp(self, timestamp: int) -> None:
        segments = self.log.segment_offsets()
        for base, after in zip(segments, [*segments[1:], self.end + 1], strict=True):
            inside = [one for one in self.batches if base <= one.first < after]
            # As in Kafka one segment is searched. Kafka may search one without records, by its file's time.
            if inside and max(one.timestamp for one in inside) >= timestamp:
                found = next(
                    (one for one in inside if one.timestamp >= timestamp and one.last >= self.start), None
                )
                answer = found and (
                    max(found.first, self.start), found.timestamp, self.epoch_of(max(found.first, self.start))
                )  # fmt: skip
                assert self.log.list_offset(timestamp) == answer
                return
        assert self.log.list_offset(timestamp) is None

    @rule(position=st.floats(0, 1))
    def truncate(self, position: float) -> None:
        offset = self.start + round(position * (self.end - self.start))
        assert self.log.truncate_to(offset) == (offset < self.end)
        if offset < self.end:
            self.batches = [one for one in self.batches if one.last < offset]
            self.end = offset
            self.high_watermark = min(self.high_watermark, offset)
        self.cut_epochs_at_the_end()  # Also where nothing is cut, as in UnifiedLog.truncateTo.

    def epoch_of(self, offset: int) -> int:
        return max(epoch for epoch, first in self.epochs if first <= offset)

    def cut_epochs_at_the_end(self) -> None:
        """Forget the epochs that begin at the end or behind it."""
        self.epochs = [(epoch, first) for epoch, first in self.epochs if first < self.end]

    def cut_epochs_at_the_start(self) -> None:
        """The epoch that holds the start begins there, also that of a log without records."""
        before = [epoch for epoch, first in self.epochs if first <= self.start]
        if before:
            later = [one for one in self.epochs if one[1] > self.start]
            self.epochs = [(before[-1], self.start), *later]

    @rule(ahead=st.integers(0, 5))
    def truncate_fully(self, ahead: int) -> None:
        self.start = self.end = self.high_watermark = self.end + ahead
        self.log.truncate_fully(self.end)
        self.batches, self.epochs = [], []

    @rule(position=st.floats(0, 1))
    def delete_records(self, position: float) -> None:
        offset = self.start + round(position * (self.high_watermark - self.start))
        self.log.increment_start_offset(offset)
        self.start = offset
        self.retain()

    @rule(keep=st.integers(0, 3000))
    def retain_bytes(self, keep: int) -> None:
        self.retain(keep_bytes=keep)

    @rule(keep=st.integers(0, 20), now=st.integers(0, 70))
    def retain_time(self, keep: int, now: int) -> None:
        self.retain(keep_ms=keep, now=now)

    def retain(self, keep_bytes: int = -1, keep_ms: int = -1, now: int = 0) -> None:
        """Delete the first segments that nothing keeps and that all replicas have."""
        bases = self.log.segment_offsets()
        segments = [
            (after, [one for one in self.batches if base <= one.first < after])
            for base, after in zip(bases, [*bases[1:], self.end], strict=True)
        ]
        count = 0
        # An empty segment that is not the last one has the time of its file, which is later than ``now``.
        for after, inside in segments:
            excess = sum(len(one.data) for _, some in segments[count:] for one in some) - keep_bytes
            is_last, size = count == len(segments) - 1, sum(len(one.data) for one in inside)
            if after > self.high_watermark or (is_last and not inside):
                break
            is_old = inside and now - max(one.timestamp for one in inside) > keep_ms >= 0
            if not (is_old or (not is_last and after <= self.start) or excess - size >= 0 <= keep_bytes):
                break
            count += 1
        self.log.update_config(replace(self.config, retention_bytes=keep_bytes, retention_ms=keep_ms))
        assert self.log.delete_old_segments(now) == count
        self.log.update_config(self.config)
        if count:
            self.start = max(self.start, segments[count - 1][0])
        first = self.log.segment_offsets()[0]
        self.batches = [one for one in self.batches if one.first >= first]
        self.cut_epochs_at_the_start()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule()
    def restart_clean(self) -> None:
        self.log.close()
        self.log = self.opened(clean=True)

    @rule()
    def restart_unclean(self) -> None:
        point = self.log.recovery_point
        self.log.close_files()
        self.log = self.opened(clean=False, recovery_point=point)

    @rule(cut=st.integers(1, 200), garbage=st.binary(max_size=80))
    def restart_with_a_torn_end(self, cut: int, garbage: bytes) -> None:
        name = f"{self.log.segment_offsets()[-1]:020d}.log"
        base = self.log.segment_offsets()[-1]
        self.log.close_files()
        path = self.folder / name
        size = max(0, path.stat().st_size - cut)
        with path.open("r+b") as file:
            file.truncate(size)
        inside = [one for one in self.batches if one.first >= base]
        kept = 0
        for one in inside:
            kept += len(one.data)
            if kept > size:
                self.batches.remove(one)
        # Bytes that are not the lost ones: the last byte of a batch is 0.
        with path.open("ab") as file:
            file.write(b"\xff" * 17 + garbage)
        self.log = self.opened(clean=False)

    @precondition(lambda self: self.batches)
    @rule(which=st.floats(0, 1), at=st.integers(0, 10**6), bit=st.integers(0, 7))
    def restart_with_a_flipped_bit(self, which: float, at: int, bit: int) -> None:
        hit = self.batches[round(which * (len(self.batches) - 1))]
        base = max(one for one in self.log.segment_offsets() if one <= hit.first)
        position = sum(len(one.data) for one in self.batches if base <= one.first < hit.first)
        position += FIRST_CHECKED_BYTE + at % (len(hit.data) - FIRST_CHECKED_BYTE)
        self.log.close_files()
        with (self.folder / f"{base:020d}.log").open("r+b") as file:
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes([byte ^ 1 << bit]))
        self.batches = [one for one in self.batches if one.first < hit.first]
        self.log = self.opened(clean=False)

    @rule(
        which=st.floats(0, 1),
        kind=st.sampled_from(["index", "timeindex"]),
        clean=st.booleans(),
        cut=st.integers(0, 9),
    )
    def restart_without_an_index(self, which: float, kind: str, clean: bool, cut: int) -> None:
        bases = self.log.segment_offsets()
        path = self.folder / f"{bases[round(which * (len(bases) - 1))]:020d}.{kind}"
        if clean:
            self.log.close()
        else:
            self.log.close_files()
        if cut:
            # Not whole entries, or fewer.
            path.write_bytes(path.read_bytes()[:-cut])
        else:
            path.unlink()
        self.log = self.opened(clean=clean)

    def opened(self, *, clean: bool, recovery_point: int = 0) -> Log:
        log = Log(
            self.folder, self.config, start_offset=self.start, recovery_point=recovery_point, clean=clean
        )
        # Behind the last batch, or where the last segment begins that has none.
        end = max(log.segment_offsets()[-1], self.batches[-1].last + 1 if self.batches else 0)
        if end <= self.start:
            self.batches = [] if end < self.start else self.batches
        self.end = end
        self.high_watermark = self.start
        last = self.epochs[-1:]
        self.cut_epochs_at_the_end()
        self.cut_epochs_at_the_start()
        if end < self.start:
            self.epochs = []
        elif not clean and not self.epochs and log.leader_epochs() == [(epoch, end) for epoch, _ in last]:
            # The file is older than the start of the log: it has the last epoch, of which no record is left.
            self.epochs = log.leader_epochs()
        assert log.start_offset == self.start
        assert log.high_watermark == self.start
        return log

    @invariant()
    def offsets_are_those_of_the_model(self) -> None:
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        assert self.log.size == sum(len(one.data) for one in self.batches)
        assert not self.log.offline

    @invariant()
    def leader_epochs_are_those_of_the_model(self) -> None:
        assert self.log.leader_epochs() == self.epochs
        ends = [*(first for _, first in self.epochs), self.end][1:]
        for (epoch, _), end in zip(self.epochs, ends, strict=True):
            assert self.log.end_of_epoch(epoch) == (epoch, end)

    @invariant()
    def all_batches_are_read_in_order(self) -> None:
        offset, data = self.start, b""
        while part := self.log.read_file_range(offset, 700).read():
            data += part
            first, count = headers(part)[-1]
            offset = first + count
        assert data == b"".join(one.data for one in self.batches if one.last >= self.start)


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_the_epoch_of_deleted_records_is_found_again_after_a_crash() -> None:
    machine = LogMachine()
    machine.open(segment=300, interval=0, index=24)
    machine.append_as_follower(gaps=[0], timestamp=0)
    machine.move_high_watermark(position=1.0)
    machine.retain_time(keep=0, now=1)
    machine.restart_with_a_torn_end(cut=1, garbage=b"")
    machine.leader_epochs_are_those_of_the_model()
    assert machine.epochs == [(0, 1)]
    machine.teardown()


def test_the_epoch_of_deleted_records_stays_when_nothing_more_is_deleted() -> None:
    machine = LogMachine()
    machine.open(segment=300, interval=0, index=24)
    machine.append_as_follower(gaps=[0], timestamp=0)
    machine.move_high_watermark(position=1.0)
    machine.retain_bytes(keep=0)
    machine.delete_records(position=0.0)
    machine.leader_epochs_are_those_of_the_model()
    assert machine.epochs == [(0, 1)]
    machine.teardown()
