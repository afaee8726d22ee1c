"""The writer: every row once, in order, in whole files; errors of the disk cost rows and nothing else."""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.errors import ConfigError, JournalError
from ctrlchan.journal import Journal, files, journal_files, read_journal, writer
from ctrlchan.journal.check import check_journal
from ctrlchan.journal.rows import ROW, ChannelStatus
from ctrlchan.journal.table import table_of, wall_offset
from ctrlchan.state.storage.schemas import JOURNAL, JOURNAL_VERSION, JOURNAL_VERSION_KEY, TIMESTAMPS
from ctrlchan.storage import AnyPath, PathLike, replace
from tests.fault.channels import eventually
from tests.unit.journal.chunks import TEXTS, chunk_of, plain_chunk

#: A flush interval that never ends during a test.
NEVER = 3600.0


def sequences(path: PathLike) -> list[int | None]:
    return read_journal(path)["sequence"].to_pylist()


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                name: st.integers(1, 2**62) if ROW[name] == np.int64 else st.integers(0, 2**15 - 1)
                for name in ROW.names or ()
                if name not in ("kind", "detail", "state_id", "partitions", "dataset")
            }
            | {"kind": st.sampled_from([0, 2]), "detail": st.sampled_from([1, 3])}
            | {"state_id": st.sampled_from([-1, 3]), "partitions": st.sampled_from([-1, 1, 0, 4])}
            | {"dataset": st.sampled_from([-1, 2])}
        ),
        min_size=1,
        max_size=20,
    )
)
def test_a_table_has_the_values_of_the_rows(rows: list[dict[str, int]]) -> None:
    table = table_of([chunk_of(rows, sequence=5)], "here", 0)
    assert table.schema.equals(JOURNAL, check_metadata=True)
    for number, (row, written) in enumerate(zip(rows, table.to_pylist(), strict=True)):
        assert written["sequence"] == 5 + number
        assert (written["host"], written["channel"], written["controller_id"]) == ("here", "c", 3)
        assert (written["outcome"], written["detail"]) == (TEXTS[row["kind"]], TEXTS[row["detail"]])
        assert written["encoding_ns"] == row["encoding"]
        assert written["generation"] == (row["generation"] or None)
        assert written["state_id"] == (None if row["state_id"] < 0 else TEXTS[row["state_id"]])
        assert written["dataset"] == (None if row["dataset"] < 0 else TEXTS[row["dataset"]])
        named = {-1: None, 1: [], 0: ["acknowledged"], 4: ["orders-0", "pay.ments-12"]}
        assert written["partitions"] == named[row["partitions"]]
        for name, field in TIMESTAMPS.items():
            assert written[f"{name}_ns"] == row[field]
        for name in (
            "broker",
            "broker_epoch",
            "state_version",
            "from_version",
            "frame",
            "correlation_id",
            "bytes",
            "merged",
            "error_code",
        ):
            assert written[name] == row[name]


def test_missing_times_are_null_and_wall_times_follow_the_wall_clock() -> None:
    now, wall = time.monotonic_ns(), datetime.now(UTC)
    [row] = table_of(
        [chunk_of([{"enqueued": now, "ended": now, "correlation_id": -1}])], "here", wall_offset()
    ).to_pylist()
    assert abs(row["enqueue_at"] - wall) < timedelta(minutes=1)
    nulls = {name for name, value in row.items() if value is None}
    unknown = {"broker_epoch", "generation", "correlation_id", "encoding_ns"}
    assert nulls == unknown | {
        "state_version",
        "state_id",
        "from_version",
        "partitions",
        "dataset",
        "frame",
    } | {
        f"{name}_{unit}"
        for name in ("encode", "first_byte", "last_byte", "response", "callback")
        for unit in ("ns", "at")
    }


def test_flush_writes_the_pending_rows_into_one_file(tmp_path: Path) -> None:
    with Journal(tmp_path / "a" / "b", flush_interval=NEVER) as journal:
        journal.take(plain_chunk(3))
        journal.take(plain_chunk(2, 3))
        assert journal_files(journal.path) == []
        assert journal.flush()
        [file] = journal_files(journal.path)
        metadata = pq.read_schema(str(file)).metadata
        assert metadata is not None
        assert metadata[JOURNAL_VERSION_KEY] == str(JOURNAL_VERSION).encode()
        assert sequences(journal.path) == [0, 1, 2, 3, 4]
        described = journal.describe()
        assert (described["written_rows"], described["files"], described["pending_rows"]) == (5, 1, 0)
        # Without new rows there is no new file.
        assert journal.flush()
        assert len(journal_files(journal.path)) == 1


def test_rows_are_written_after_the_interval(tmp_path: Path) -> None:
    with Journal(tmp_path, flush_interval=0.02) as journal:
        for number in range(3):
            journal.take(plain_chunk(1, number))
            eventually(lambda expected=number: len(journal_files(tmp_path)) == expected + 1)  # type: ignore[misc]
        assert sequences(tmp_path) == [0, 1, 2]


def test_a_file_is_no_larger_than_its_limit(tmp_path: Path) -> None:
    with Journal(tmp_path, flush_interval=NEVER, max_file_bytes=10 * ROW.itemsize) as journal:
        journal.take(plain_chunk(7))
        assert journal_files(tmp_path) == []
        journal.take(plain_chunk(25, 7))
        # A full file is written without a flush.
        eventually(lambda: journal.describe()["written_rows"] == 32)
        assert [read_journal(file).num_rows for file in journal_files(tmp_path)] == [10, 10, 10, 2]
        assert sequences(tmp_path) == list(range(32))


def test_close_writes_the_rest_and_a_second_close_does_nothing(tmp_path: Path) -> None:
    journal = Journal(tmp_path, flush_interval=NEVER)
    journal.take(plain_chunk(4))
    journal.close()
    journal.close()
    assert sequences(tmp_path) == [0, 1, 2, 3]
    journal.take(plain_chunk(2, 4))
    assert journal.describe()["lost_rows"] == 2
    with pytest.raises(JournalError, match="closed"):
        journal.attach(_Source())


class _Source:
    def __init__(self) -> None:
        self.asked = 0

    def flush(self) -> None:
        self.asked += 1

    def status(self, waited: int) -> ChannelStatus:
        return ChannelStatus("c", 3, False, 0, ())


def test_sources_are_flushed_before_a_write(tmp_path: Path) -> None:
    source = _Source()
    with Journal(tmp_path, flush_interval=NEVER) as journal:
        journal.attach(source)
        journal.flush()
        assert source.asked == 1
    assert source.asked == 2


def test_names_ascend_also_when_the_clock_goes_back(tmp_path: Path) -> None:
    future = tmp_path / "29990101T000000.000000Z-000041.parquet"
    pq.write_table(table_of([plain_chunk(1)], "host", 0), future)
    with Journal(tmp_path, flush_interval=NEVER) as journal:
        for number in range(3):
            journal.take(plain_chunk(1, number))
            journal.flush()
    # Without the marks of their writers.
    assert [re.sub(r"-[0-9a-f]{12}\.", ".", file.name) for file in journal_files(tmp_path)] == [
        f"29990101T000000.000000Z-{number:06}.parquet" for number in (41, 42, 43, 44)
    ]


def test_two_journals_write_at_the_same_time(tmp_path: Path) -> None:
    """The clock stands still, which has the same effect as one that goes back."""
    future = tmp_path / "29990101T000000.000000Z-000000.parquet"
    pq.write_table(table_of([plain_chunk(1, channel="before")], "host", 0), future)
    rounds, both = 50, threading.Barrier(2)

    def write(channel: str) -> None:
        with Journal(tmp_path, flush_interval=NEVER) as journal:
            for number in range(rounds):
                journal.take(plain_chunk(1, number, channel=channel))
                both.wait(30)
                assert journal.flush()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, ("one", "other")))
    rows = read_journal(tmp_path, ["channel", "sequence"]).to_pylist()
    for channel in ("one", "other"):
        assert [row["sequence"] for row in rows if row["channel"] == channel] == list(range(rounds))


def test_two_journals_share_a_folder(tmp_path: Path) -> None:
    with Journal(tmp_path, flush_interval=NEVER) as one, Journal(tmp_path, flush_interval=NEVER) as other:
        for number in range(10):
            one.take(plain_chunk(1, number, channel="one"))
            other.take(plain_chunk(1, number, channel="other"))
            one.flush()
            other.flush()
    rows = read_journal(tmp_path, ["channel", "sequence"]).to_pylist()
    for channel in ("one", "other"):
        assert [row["sequence"] for row in rows if row["channel"] == channel] == list(range(10))


def test_only_old_hidden_files_are_orphans(tmp_path: Path) -> None:
    young, old = tmp_path / ".young.tmp", tmp_path / ".old.tmp"
    for file in (young, old):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    Journal(tmp_path).close()
    assert young.exists()
    assert not old.exists()


def test_a_failed_write_is_tried_again_and_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with caplog.at_level(logging.ERROR), Journal(tmp_path, flush_interval=NEVER) as journal:
        with monkeypatch.context() as patch:
            patch.setattr(writer, "write_rows", full)
            for number in range(5):
                journal.take(plain_chunk(2, 2 * number))
                assert not journal.flush()
            assert "No space left" in journal.describe()["last_error"]
            assert journal.describe()["pending_rows"] == 10
            assert list(tmp_path.iterdir()) == []
        assert journal.flush()
        assert sequences(tmp_path) == list(range(10))
        assert journal.describe()["last_error"] == ""
        assert journal.describe()["lost_rows"] == 0
    [record] = caplog.records
    assert "No space left on device. 2 rows wait, 0 are lost so far" in record.getMessage()


def test_rows_whose_write_was_not_confirmed_are_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store has written the file, and its answer is lost; more rows come before the next try."""

    def put_in_silence(path: AnyPath, content: bytes) -> None:
        replace(path, content)
        raise OSError(errno.EIO, "no answer")

    with Journal(tmp_path, flush_interval=NEVER) as journal:
        monkeypatch.setattr(writer, "replace", put_in_silence)
        for number in range(2):
            journal.take(plain_chunk(10, 10 * number))
            assert not journal.flush()
        monkeypatch.setattr(writer, "replace", replace)
        journal.take(plain_chunk(10, 20))
        assert journal.flush()
    assert sequences(tmp_path) == list(range(30))
    check_journal(tmp_path)
    described = journal.describe()
    assert (described["written_rows"], described["lost_rows"], described["files"]) == (30, 0, 2)


def test_pending_rows_are_limited_and_lost_rows_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    ten = 10 * ROW.itemsize
    with caplog.at_level(logging.ERROR):
        journal = Journal(tmp_path, flush_interval=NEVER, max_file_bytes=ten, max_pending_bytes=ten)
        monkeypatch.setattr(writer, "write_rows", full)
        for number in range(8):
            journal.take(plain_chunk(4, 4 * number))
        journal.flush()
        described = journal.describe()
        assert described["lost_rows"] + described["pending_rows"] == 32
        assert described["pending_rows"] <= 10
        journal.close()
        assert journal.describe()["lost_rows"] == 32
    assert "is closed, and 8 rows with it" in caplog.records[-1].getMessage()


class Disk:
    """Refuses files of more than ``room`` rows, as a disk that is nearly full does."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.room = 0
        self._write_rows = files.write_rows
        patch.setattr(writer, "write_rows", self.write_rows)

    def write_rows(self, row_groups: Sequence[pa.Table], file: BinaryIO) -> None:
        if sum(map(len, row_groups)) > self.room:
            file.write(b"half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        self._write_rows(row_groups, file)


def test_after_a_full_disk_a_backlog_is_written_into_the_room_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(monkeypatch)
    with caplog.at_level(logging.WARNING), Journal(tmp_path, flush_interval=NEVER) as journal:
        for number in range(10):
            journal.take(plain_chunk(100, 100 * number))
            assert not journal.flush()
        assert journal.describe()["pending_rows"] == 1000
        assert list(tmp_path.iterdir()) == []
        # Room for some rows at a time, never for all that wait.
        disk.room = 150
        assert journal.flush()
        assert sequences(tmp_path) == list(range(1000))
        assert max(pq.read_metadata(str(file)).num_rows for file in journal_files(tmp_path)) <= 150
        described = journal.describe()
        assert (described["pending_rows"], described["lost_rows"], described["last_error"]) == (0, 0, "")
        # With room for all of it again, files are as large as before.
        disk.room = 10_000
        for number in range(4):
            journal.take(plain_chunk(1000, 1000 + 1000 * number))
            assert journal.flush()
        assert sequences(tmp_path) == list(range(5000))
        assert pq.read_metadata(str(journal_files(tmp_path)[-1])).num_rows == 1000
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"The journal {tmp_path} cannot keep up",
        f"The journal {tmp_path} is written again; 0 rows are lost so far.",
    ]


def test_rows_beyond_the_limit_are_lost_while_the_disk_is_full_and_the_rest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    limit = 1000 * ROW.itemsize
    with Journal(tmp_path, flush_interval=NEVER, max_file_bytes=limit, max_pending_bytes=limit) as journal:
        for number in range(15):
            journal.take(plain_chunk(100, 100 * number))
            journal.flush()
        assert journal.describe()["lost_rows"] == 500
        disk.room = 300
        assert journal.flush()
        assert sequences(tmp_path) == list(range(500, 1500))
        assert journal.describe()["lost_rows"] == 500


@pytest.mark.parametrize(
    "settings",
    [{"flush_interval": 0}, {"max_file_bytes": 1}, {"max_file_bytes": 2000, "max_pending_bytes": 1999}],
)
def test_invalid_settings(tmp_path: Path, settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        Journal(tmp_path, **settings)


def test_a_folder_that_was_moved_away_is_made_again(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal", flush_interval=NEVER) as journal:
        journal.take(plain_chunk(1))
        journal.flush()
        (tmp_path / "journal").rename(tmp_path / "old")
        journal.take(plain_chunk(1, 1))
        journal.flush()
    assert (sequences(tmp_path / "old"), sequences(tmp_path / "journal")) == ([0], [1])


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(JournalError, match="no folder for a journal"):
        Journal(tmp_path / "file" / "journal")
