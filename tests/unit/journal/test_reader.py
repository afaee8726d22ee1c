"""Reading: files that are no journal are named, unknown columns are kept, newer versions refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ctrlchan.errors import JournalError
from ctrlchan.journal import journal_dataset, journal_files, read_journal
from ctrlchan.journal.table import table_of
from ctrlchan.state.storage.schemas import JOURNAL, JOURNAL_VERSION_KEY
from tests.unit.journal.chunks import plain_chunk


def table(count: int = 3) -> pa.Table:
    return table_of([plain_chunk(count)], "host", 0)


def write(folder: Path, name: str, content: pa.Table) -> Path:
    file = folder / name
    pq.write_table(content, file)
    return file


def test_an_empty_folder_is_an_empty_journal(tmp_path: Path) -> None:
    assert read_journal(tmp_path).num_rows == 0
    assert read_journal(tmp_path).schema.names == JOURNAL.names


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="nowhere: no such journal folder"):
        read_journal(tmp_path / "nowhere")


def test_files_are_read_in_the_order_of_their_names_and_hidden_ones_not_at_all(tmp_path: Path) -> None:
    write(tmp_path, "b.parquet", table(2))
    write(tmp_path, "a.parquet", table(1))
    (tmp_path / ".0123.tmp").write_bytes(b"half")
    (tmp_path / ".hidden.parquet").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("not of the journal")
    assert [file.name for file in journal_files(tmp_path)] == ["a.parquet", "b.parquet"]
    assert read_journal(tmp_path)["broker"].to_pylist() == [0, 0, 1]


def test_one_file_can_be_read(tmp_path: Path) -> None:
    write(tmp_path, "b.parquet", table(2))
    assert read_journal(write(tmp_path, "a.parquet", table(1)), columns=["broker"]).to_pylist() == [
        {"broker": 0}
    ]


def test_a_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, "a.parquet", table())
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(JournalError, match=r"a\.parquet: not a whole Parquet file"):
        read_journal(tmp_path)


def test_a_file_with_garbled_pages_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path, "a.parquet", table(1000))
    data = bytearray(file.read_bytes())
    data[4:400] = bytes(396)
    file.write_bytes(data)
    with pytest.raises(JournalError, match="a file is broken"):
        read_journal(tmp_path)


def test_another_parquet_file_is_no_journal(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", pa.table({"broker": [1]}))
    with pytest.raises(JournalError, match="not a journal file"):
        journal_dataset(tmp_path)


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", table().replace_schema_metadata({JOURNAL_VERSION_KEY: b"2"}))
    with pytest.raises(JournalError, match=r"a\.parquet: journal version 2 is of a newer ctrlchan"):
        read_journal(tmp_path)


def test_a_version_that_is_no_number_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", table().replace_schema_metadata({JOURNAL_VERSION_KEY: b"new"}))
    with pytest.raises(JournalError, match="b'new' is no version"):
        read_journal(tmp_path)


def test_missing_columns_are_named(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", table().drop_columns(["broker", "bytes"]))
    with pytest.raises(JournalError, match="missing: broker, bytes"):
        read_journal(tmp_path)


def test_unknown_columns_are_kept(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", table(1))
    write(tmp_path, "b.parquet", table(1).append_column("zone", pa.array(["west"])))
    assert read_journal(tmp_path)["zone"].to_pylist() == [None, "west"]


def test_columns_of_another_type_do_not_fit(tmp_path: Path) -> None:
    at = JOURNAL.names.index("broker")
    write(tmp_path, "a.parquet", table(1).set_column(at, "broker", pa.array(["one"])))
    with pytest.raises(JournalError, match=r"a\.parquet: column broker has type string, expected int32"):
        read_journal(tmp_path)
