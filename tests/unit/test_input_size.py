"""Which inputs of a job are small."""

from __future__ import annotations

from pathlib import Path

import pytest

from ctrlchan.pipeline.spark import input_size
from ctrlchan.pipeline.spark.input_size import are_small


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of six bytes together."""
    monkeypatch.setattr(input_size, "_MOST_BYTES", 10)
    monkeypatch.setattr(input_size, "_MOST_FILES", 3)
    (tmp_path / "inner").mkdir()
    (tmp_path / "a[1].txt").write_text("1234")
    (tmp_path / "inner" / "b.txt").write_text("56")
    return tmp_path


def test_files_folders_and_patterns_are_added_up(folder: Path) -> None:
    assert are_small()
    assert are_small(None)
    assert are_small(folder, str(folder / "a[1].txt"))
    assert not are_small(folder, folder)
    assert are_small(str(folder / "*.txt"), folder / "inner" / "?.txt")
    assert not are_small(*[str(folder / "*.txt")] * 3)


def test_many_files_are_not_small(folder: Path) -> None:
    for name in "cd":
        (folder / name).touch()
    assert not are_small(folder)


@pytest.mark.parametrize("path", ["missing", "*.gz", "hdfs://host/logs", "s3a://bucket/a.txt"])
def test_inputs_that_are_not_here_are_not_small(folder: Path, path: str) -> None:
    assert not are_small(str(folder / path) if "://" not in path else path)


def test_compressed_texts_are_larger_than_they_look(folder: Path) -> None:
    (folder / "inner" / "c.txt.gz").write_bytes(b"7")
    assert not are_small(folder / "inner")
    (folder / "inner" / "c.txt.gz").rename(folder / "inner" / "c.txt")
    assert are_small(folder / "inner")


def test_folders_behind_symbolic_links_count(folder: Path) -> None:
    (folder / "linked").mkdir()
    (folder / "linked" / "here").symlink_to(folder / "inner")
    assert are_small(folder / "linked")
    (folder / "inner" / "large.txt").write_text("123456789")
    assert not are_small(folder / "linked")
    # A loop ends, at what cannot be seen.
    (folder / "loop").mkdir()
    (folder / "loop" / "again").symlink_to(folder / "loop")
    assert not are_small(folder / "loop")
