"""An archive of Spark's classes, from which a JVM takes them instead of looking through Spark's jars.

It is Java's own (class-data sharing, JEP 310): one file in the user's cache for each Java and Spark,
which a JVM maps read-only. Java does not use an archive of another version or of other jars.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyspark

from ctrlchan.errors import PipelineError
from ctrlchan.user_cache import user_cache

__all__ = ["archive_of", "listing_option", "options", "spark_settings", "write_archive"]

#: The JVM checks the archive's checksums, and says nothing of one that it does not use.
_USE: Final = ("-XX:+VerifySharedSpaces", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
#: Of what Java prints before it ends with an error.
_LINES: Final = 3
#: Seconds that writing an archive may take.
_TIMEOUT: Final = 600
#: How names of folders begin in which an archive is written. A writer that was killed leaves its own.
_UNFINISHED: Final = ".spark-classes-"


def archive_of(java: Path) -> Path:
    """Return the path of the archive for this JAVA_HOME. Raises RuntimeError for a user without a home.

    ``java``: of ``java_home``, whose name stands for the program wherever the user's cache is.
    """
    identity = f"{java.name}\n{_spark_home()}\n{pyspark.__version__}"
    return user_cache() / f"spark-classes-{hashlib.sha256(os.fsencode(identity)).hexdigest()[:16]}.jsa"


def spark_settings() -> list[Path]:
    """Return what is in Spark's folder of settings, which is the first of its class path."""
    folder = Path(os.environ.get("SPARK_CONF_DIR") or _spark_home() / "conf")
    return sorted(folder.iterdir()) if folder.is_dir() else []


def options(java: Path) -> list[str]:
    """Return the options of a JVM that uses the archive, if there is one."""
    try:
        archive = archive_of(java)
        there = archive.is_file()
    except (OSError, RuntimeError):
        # No home, or one that cannot be read.
        return []
    return [shlex.quote(f"-XX:SharedArchiveFile={archive}"), *_USE] if there else []


def listing_option(classes: Path) -> str:
    """Return the option of a JVM that writes the names of its classes to this file."""
    return shlex.quote(f"-XX:DumpLoadedClassList={classes}")


def write_archive(java: Path, classes: Path, class_path: str) -> Path:
    """Write the archive of these classes, and return its path; it appears whole.

    ``classes``: the file that ``listing_option`` names. ``class_path``: of the JVM that wrote it, its
    ``java.class.path``. Raises PipelineError with Java's reason, OSError.
    """
    archive = archive_of(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    for left in archive.parent.glob(f"{_UNFINISHED}*"):
        # Another process may remove it at the same time.
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > 2 * _TIMEOUT:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=_UNFINISHED) as folder:
        new = Path(folder) / archive.name
        command = [
            str(java / "bin" / "java"),
            "-Xshare:dump",
            f"-XX:SharedArchiveFile={new}",
            f"-XX:SharedClassListFile={classes}",
            # Of classes that cannot be in an archive, Java would warn one by one.
            "-Xlog:disable",
            "-Xlog:all=error:stderr",
            "-cp",
            class_path,
        ]
        try:
            ran = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            raise PipelineError(f"{java}: Java did not write its classes within {_TIMEOUT} s") from None
        if ran.returncode or not new.is_file():
            printed = "; ".join((ran.stderr + ran.stdout).strip().splitlines()[:_LINES]) or "nothing"
            raise PipelineError(
                f"{java}: Java does not write its classes; it ended with {ran.returncode}, and printed: "
                f"{printed}"
            )
        os.replace(new, archive)
    return archive


def _spark_home() -> Path:
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
