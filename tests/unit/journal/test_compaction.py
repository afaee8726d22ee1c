"""A compacted journal has the same rows in few files, and is a journal itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ctrlchan.cli.commands import app
from ctrlchan.errors import ConfigError, JournalError
from ctrlchan.journal import compact_journal, read_journal
from ctrlchan.journal import journal_files as files_of
from ctrlchan.journal.channels import CHANNELS_FOLDER
from ctrlchan.journal.check import check_journal
from ctrlchan.journal.files import write_rows
from ctrlchan.journal.names import next_file_name, writer_of
from ctrlchan.journal.table import table_of
from ctrlchan.storage import local_path
from tests.unit.journal.chunks import plain_chunk

ROWS = 10
MARKS = ("0123456789ab", "ba9876543210")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """20 files of two writers with two channels each; every fifth file is of an older or a newer version."""
    folder = tmp_path / "journal"
    folder.mkdir()
    name = ""
    for number in range(20):
        mark = MARKS[number % 2]
        chunks = [plain_chunk(ROWS, number * ROWS, channel=f"{mark}-{one}") for one in "ab"]
        table = table_of(chunks, "host", 0)
        if number % 10 == 4:
            table = table.drop_columns(["generation", "partitions"])
        if number % 10 == 9:
            table = table.append_column("owner", pa.array(["me"] * len(table)))
        name = next_file_name(name, mark)
        pq.write_table(table, folder / name)
    (folder / CHANNELS_FOLDER).mkdir()
    (folder / CHANNELS_FOLDER / "a.parquet").write_bytes(b"as it is")
    (folder / CHANNELS_FOLDER / ".half.tmp").touch()
    return folder


def journal_files(folder: Path) -> list[Path]:
    return [local_path(file) for file in files_of(folder)]


def by_key(folder: Path) -> pa.Table:
    return read_journal(folder).sort_by([("channel", "ascending"), ("sequence", "ascending")])


def test_all_rows_in_one_file(journal: Path, tmp_path: Path) -> None:
    compacted = compact_journal(journal, tmp_path / "out")
    assert (compacted.files_read, compacted.files_written, compacted.rows) == (20, 1, 20 * 2 * ROWS)
    [file] = journal_files(tmp_path / "out")
    assert (compacted.bytes_written, file.name) == (file.stat().st_size, journal_files(journal)[0].name)
    assert by_key(tmp_path / "out").equals(by_key(journal))
    assert check_journal(tmp_path / "out").equals(check_journal(journal))
    channels = tmp_path / "out" / CHANNELS_FOLDER
    assert [(one.name, one.read_bytes()) for one in channels.iterdir()] == [("a.parquet", b"as it is")]
    # A footer that shows which rows a channel has spares the check reading their keys.
    with pq.ParquetFile(file) as parquet:
        assert parquet.num_row_groups == 4


def test_rows_of_a_channel_keep_their_order(journal: Path, tmp_path: Path) -> None:
    compact_journal(journal, tmp_path / "out")
    table = read_journal(tmp_path / "out")
    for channel in table["channel"].unique().to_pylist():
        sequences = table.filter(pc.field("channel") == channel)["sequence"].to_numpy()
        assert (np.diff(sequences) > 0).all()


def test_files_are_limited(journal: Path, tmp_path: Path) -> None:
    assert compact_journal(journal, tmp_path / "same", max_file_bytes=1).files_written == 20
    size = read_journal(journal).nbytes
    some = compact_journal(journal, tmp_path / "some", max_file_bytes=size // 3)
    assert 3 <= some.files_written <= 5
    assert by_key(tmp_path / "some").equals(by_key(journal))
    names = [file.name for file in journal_files(journal)]
    assert {file.name for file in journal_files(tmp_path / "some")} <= set(names)


def test_a_compacted_journal_can_be_compacted(journal: Path, tmp_path: Path) -> None:
    compact_journal(journal, tmp_path / "once", max_file_bytes=1)
    assert compact_journal(tmp_path / "once", tmp_path / "twice").rows == 20 * 2 * ROWS
    assert by_key(tmp_path / "twice").equals(by_key(journal))


def test_an_empty_journal(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    compacted = compact_journal(tmp_path / "journal", tmp_path / "out")
    assert (compacted.files_read, compacted.files_written, compacted.rows) == (0, 0, 0)
    assert list((tmp_path / "out").iterdir()) == []


def test_errors_leave_nothing(journal: Path, tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="already there; name a new folder"):
        compact_journal(journal, journal)
    with pytest.raises(ConfigError, match="max_file_bytes must be at least 1, not 0"):
        compact_journal(journal, tmp_path / "out", max_file_bytes=0)
    with pytest.raises(JournalError, match="no such journal folder"):
        compact_journal(tmp_path / "none", tmp_path / "out")
    harmed = journal_files(journal)[7]
    table = pq.read_table(harmed)
    pq.write_table(table, harmed, write_page_checksum=True)
    whole = bytearray(harmed.read_bytes())
    # In a page, which has a checksum; the footer is whole.
    whole[200] ^= 1
    harmed.write_bytes(whole)
    with pytest.raises(JournalError, match=f"{harmed.name}: broken: .*restore it from a copy"):
        compact_journal(journal, tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(JournalError, match="out: not written: "):
        compact_journal(journal, tmp_path / "file" / "out")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["file", "journal"]


def test_of_two_compactions_one_succeeds(
    journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def write_with_another(*given: Any) -> None:
        monkeypatch.setattr(used, write_rows)
        compact_journal(journal, out)
        write_rows(*given)

    used = "ctrlchan.journal.compaction.write_rows"
    monkeypatch.setattr(used, write_with_another)
    with pytest.raises(JournalError, match="out: already there; name a new folder"):
        compact_journal(journal, out)
    assert by_key(out).equals(by_key(journal))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["journal", "out"]


def test_names_ascend_and_tell_their_writer() -> None:
    first = next_file_name("", MARKS[0])
    later = next_file_name("29991231T235959.000000Z-000041-ba9876543210.parquet", MARKS[0])
    assert later == "29991231T235959.000000Z-000042-0123456789ab.parquet"
    assert first < later
    assert [writer_of(name) for name in (first, later, "20260202T000000.000000Z-000001.parquet")] == [
        MARKS[0],
        MARKS[0],
        "",
    ]


def test_the_command(journal: Path, tmp_path: Path) -> None:
    arguments = ["pipeline", "compact", str(journal), str(tmp_path / "out")]
    ran = CliRunner().invoke(app, [*arguments, "--json"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["files_written"] == 1
    assert by_key(tmp_path / "out").equals(by_key(journal))
    with pytest.raises(JournalError, match="already there"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
