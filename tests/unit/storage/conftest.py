"""One S3 server for the tests of this folder; folders on this machine and in a bucket of that server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ctrlchan.storage import AnyPath, path_of
from tests.storage.s3 import S3Server, serving_s3

_NUMBERS: Final = itertools.count()


@pytest.fixture(scope="package")
def s3_server() -> Iterator[S3Server]:
    with serving_s3() as server:
        server.bucket("tests")
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    import s3fs

    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    s3_server.requests.clear()
    yield s3_server
    s3_server.fault = None


@pytest.fixture
def bucket(s3: S3Server) -> AnyPath:
    """A folder of its own in an object store."""
    return path_of(f"s3://tests/{next(_NUMBERS)}")


@pytest.fixture(scope="package")
def hdfs() -> Iterator[str]:
    pytest.importorskip("pyspark", reason="HDFS runs with Spark's jars")
    from tests.storage.hdfs import serving_hdfs

    with serving_hdfs() as url:
        yield url


@pytest.fixture(params=["local", "s3", pytest.param("hdfs", marks=pytest.mark.long)])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> AnyPath:
    """A folder on this machine, in an object store, and in HDFS."""
    if request.param == "local":
        return tmp_path
    if request.param == "hdfs":
        return path_of(f"{request.getfixturevalue('hdfs')}/tests/{next(_NUMBERS)}")
    found: AnyPath = request.getfixturevalue("bucket")
    return found
