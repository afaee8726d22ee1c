"""Paths of this machine stay ``Path``; others are URLs that keep their form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ctrlchan.errors import ConfigError
from ctrlchan.storage import UrlPath, path_of


@pytest.mark.parametrize(
    ("given", "local"),
    [("a/b", "a/b"), ("/a", "/a"), ("file:/a/b", "/a/b"), ("file:///a/b", "/a/b"), ("c:/x", "c:/x")],
)
def test_paths_of_this_machine(given: str, local: str) -> None:
    assert path_of(given) == Path(local)


@pytest.mark.parametrize(
    ("given", "text", "name", "parent"),
    [
        ("s3://bucket/a//b/", "s3://bucket/a/b", "b", "s3://bucket/a"),
        ("hdfs://host:8020/a", "hdfs://host:8020/a", "a", "hdfs://host:8020"),
        ("hdfs:///a/b.parquet", "hdfs:///a/b.parquet", "b.parquet", "hdfs:///a"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x", "x", None),
    ],
)
def test_urls(given: str, text: str, name: str, parent: str | None) -> None:
    path = path_of(given)
    assert isinstance(path, UrlPath)
    assert (str(path), path.name) == (text, name)
    if parent is not None:
        assert str(path.parent) == parent
    assert str(path / "x" / "y") == f"{text}/x/y"
    assert str(path.with_name("z")) == f"{path.parent}/z"
    assert path == path_of(text)
    assert path < path / "0"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("ftp://host/x", "ftp is no storage that is known"),
        ("s3:///x", "no bucket or container"),
        ("s3:/bucket/x", "not a URL"),
        ("file://host/x", "this names a machine"),
    ],
)
def test_what_is_refused(given: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        path_of(given)


def test_a_url_in_a_path_is_refused() -> None:
    """It has lost a slash: ``hdfs:///x`` and ``hdfs://x`` look the same there."""
    with pytest.raises(ConfigError, match="give it as text"):
        path_of(Path("s3://bucket/x"))


def test_a_process_that_has_used_hdfs_starts_others() -> None:
    """Also by a fork, as PySpark starts its JVM."""
    code = (
        "import subprocess\n"
        "from ctrlchan.storage import path_of\n"
        "with path_of('hdfs://127.0.0.1:1/x').file_system(): pass\n"
        "subprocess.run(['echo', 'started'], preexec_fn=int)\n"
    )
    ran = subprocess.run([sys.executable, "-uc", code], capture_output=True, timeout=60, check=True)
    assert ran.stdout == b"started\n"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gcsfs", None)
    with pytest.raises(ConfigError, match=r"this needs gcsfs: pip install 'ctrlchan\[gcs\]'"):
        path_of("gs://bucket/x").exists()
