"""Lines of text files have the numbers that an editor shows, however Spark cuts the files."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.spark.text_lines import files, lines
from tests.spark.conftest import small_inputs

Numbered = dict[str, dict[int, bytes]]


@pytest.fixture
def small_pieces(spark: SparkSession) -> Iterator[None]:
    """Files are read in pieces of 4 kB, several in one task."""
    settings = {
        "spark.sql.files.maxPartitionBytes": "4000",
        "spark.sql.files.openCostInBytes": "0",
        "spark.sql.files.minPartitionNum": "3",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


def _numbered(found: DataFrame) -> Numbered:
    numbered: Numbered = {}
    for row in found.select("file", "line", F.col("text").cast("binary").alias("text")).collect():
        assert row["line"] not in numbered.setdefault(row["file"], {})
        numbered[row["file"]][row["line"]] = bytes(row["text"])
    return numbered


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


@pytest.mark.usefixtures("small_pieces")
def test_lines_of_many_pieces(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(5)
    wanted: Numbered = {}
    for at, ending in enumerate(("log", "log", "log.gz", "txt")):
        texts = [chance.choice([b"", b"a", b"\xff\xfe", b"x" * 300, b"last\r"]) for _ in range(300 * at + 7)]
        texts.append(b"last")
        path = tmp_path / "[a] folder" / f"b{at}" / f"c+%20 é{{}}*.{ending}"
        _write(path, b"\n".join(texts) + b"\n" * (at % 2))
        wanted[str(path)] = dict(enumerate(texts, 1))
    _write(tmp_path / "[a] folder" / "empty.log", b"")
    _write(tmp_path / "[a] folder" / "_hidden.log", b"not read\n")
    _write(tmp_path / "[a] folder" / ".git" / "other.log", b"not read\n")

    assert spark.read.text(str(tmp_path / "*" / "b3")).rdd.getNumPartitions() > 10
    assert _numbered(lines(spark, tmp_path)) == wanted
    with small_inputs(spark):
        assert _numbered(lines(spark, tmp_path)) == wanted
    assert lines(spark, tmp_path).dtypes == [("file", "string"), ("line", "bigint"), ("text", "string")]


def test_names_and_patterns(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("x/state.log", "x/state.log.1", "x/other.log", "y/state.log.gz"):
        _write(tmp_path / name, name.encode())

    def read(*paths: Path, name: str | list[str] = "*") -> set[str]:
        return {str(Path(file).relative_to(tmp_path)) for file in _numbered(lines(spark, paths, name=name))}

    assert read(tmp_path, name="state.log*") == {"x/state.log", "x/state.log.1", "y/state.log.gz"}
    assert read(tmp_path, name=["*.gz", "other*"]) == {"x/other.log", "y/state.log.gz"}
    # A file that is named is read, whatever the names of a folder's files are to be.
    assert read(tmp_path / "y", tmp_path / "x/other.log", name="state*") == {"x/other.log", "y/state.log.gz"}
    assert read(tmp_path / "*" / "state.log") == {"x/state.log"}
    # Named twice, read once.
    assert read(tmp_path / "x", tmp_path / "x" / "state.log", name="state.log") == {"x/state.log"}
    assert files(spark, tmp_path / "y") == [f"file://{tmp_path}/y/state.log.gz"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (lambda folder: folder / "nowhere", "no such file or folder"),
        (lambda folder: folder / "no*where", "no such file or folder"),
        (lambda folder: folder / "_hidden", "names begin with _ or ."),
        (lambda folder: folder / "empty", "no file named *.log there"),
        (lambda folder: "nosuchscheme://host/logs", "nosuchscheme"),
    ],
)
def test_paths_that_cannot_be_read(
    spark: SparkSession, tmp_path: Path, path: Callable[[Path], Path | str], message: str
) -> None:
    _write(tmp_path / "_hidden", b"x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(PipelineError) as caught:
        lines(spark, path(tmp_path), name="*.log")
    assert message in str(caught.value)
