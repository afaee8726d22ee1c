"""A journal is checked before its rows are counted; every error names a file and what to do about it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ctrlchan.errors import JournalError
from ctrlchan.journal import Journal, read_journal
from ctrlchan.journal.check import check_journal
from ctrlchan.journal.table import table_of
from ctrlchan.state.storage.schemas import JOURNAL
from tests.unit.journal.chunks import plain_chunk


def table(first: int = 0, *, channel: str = "c") -> pa.Table:
    return table_of([plain_chunk(10, first, channel=channel)], "host", 0)


def with_column(of: pa.Table, name: str, values: pa.Array[Any]) -> pa.Table:
    return of.set_column(of.schema.get_field_index(name), name, values)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Two files of one channel, one file of two others; hidden files and folders are not of the journal."""
    pq.write_table(table(0), tmp_path / "1.parquet")
    pq.write_table(table(10), tmp_path / "2.parquet")
    both = pa.concat_tables([table(0, channel="a"), table(0, channel="b"), table(10, channel="a")])
    pq.write_table(both, tmp_path / "3.parquet")
    for name in (".half.tmp", "_SUCCESS"):
        (tmp_path / name).touch()
    for name in ("_channels", "report"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_a_good_journal(journal: Path) -> None:
    assert check_journal(journal).names == JOURNAL.names
    assert check_journal(journal, []).names == JOURNAL.names


HARMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (
        lambda folder: (folder / "9.parquet").touch(),
        "9.parquet: empty, which no journal writes: delete it",
    ),
    "cut off": (
        lambda folder: (folder / "9.parquet").write_bytes((folder / "2.parquet").read_bytes()[:-30]),
        "9.parquet: not a whole Parquet file: .*; restore it from a copy, or move it out of the folder",
    ),
    "stray": (
        lambda folder: (folder / "notes.txt").write_text("x"),
        "notes.txt: not a file of a journal: move it out of the folder",
    ),
    "a folder like a partition of Spark": (
        lambda folder: (folder / "day=1").mkdir(),
        "day=1: not of a journal: move it out of the folder",
    ),
    "another table": (
        lambda folder: pq.write_table(pa.table({"broker": [1]}), folder / "9.parquet"),
        "9.parquet: not a journal file .*: move it out of the folder",
    ),
    "another type": (
        lambda folder: pq.write_table(
            with_column(table(30), "bytes", pa.array(["1"] * 10)), folder / "9.parquet"
        ),
        "9.parquet: column bytes has type string, expected int64; restore it",
    ),
    "a null": (
        lambda folder: pq.write_table(
            with_column(table(30), "outcome", pa.array([None, *["fenced"] * 9])), folder / "9.parquet"
        ),
        "9.parquet: 1 of its rows have no outcome, which no journal writes; restore it",
    ),
    "a copy": (
        lambda folder: shutil.copy(folder / "2.parquet", folder / "2-copy.parquet"),
        "2.parquet: 10 requests of the journal are there twice, also in .*2-copy.parquet: move one of the",
    ),
    "a copy of many channels": (
        lambda folder: shutil.copy(folder / "3.parquet", folder / "9.parquet"),
        "9.parquet: 30 requests of the journal are there twice, also in .*3.parquet: move one of the",
    ),
    "rows twice in a file": (
        lambda folder: pq.write_table(pa.concat_tables([table(30), table(35)]), folder / "9.parquet"),
        "9.parquet: 5 requests of the journal are there twice; restore it",
    ),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_harmed_journal(journal: Path, harm: str) -> None:
    change, message = HARMS[harm]
    change(journal)
    with pytest.raises(JournalError, match=message) as caught:
        check_journal(journal)
    assert str(journal) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rows_without_order_are_no_copies(tmp_path: Path) -> None:
    """Files of one channel whose sequences lie between each other's."""
    whole = table(0)
    pq.write_table(whole.take(pa.array([8, 0, 4])), tmp_path / "1.parquet")
    pq.write_table(whole.take(pa.array([1, 9])), tmp_path / "2.parquet")
    check_journal(tmp_path)


def test_a_bit_that_changed_in_a_page_is_noticed(tmp_path: Path) -> None:
    """Unpacked, most changed bytes of a page would be other values without an error."""
    with Journal(tmp_path) as journal:
        journal.take(plain_chunk(200))
    [file] = tmp_path.glob("*.parquet")
    whole = file.read_bytes()
    column = pq.read_metadata(file).row_group(0).column(JOURNAL.names.index("sequence"))
    place = column.data_page_offset + column.total_compressed_size - 1
    file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(JournalError, match="a file is broken"):
        read_journal(tmp_path)
