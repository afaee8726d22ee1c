"""An archive of the classes of Spark: a JVM that has it starts in half the processor time.

``python -m tests.spark.class_archive`` (``make test`` runs it) makes the archive once for each checkout, by
class-data sharing of a JVM that runs the pipeline's demo. Without the archive, or with another Java or Spark
than it was made with, tests are slower and nothing else. ``JVM_OPTIONS`` are for SPARK_SUBMIT_OPTS.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["JVM_OPTIONS", "make"]

_ARCHIVE: Final = Path(__file__).parents[2] / "build" / "spark-classes.jsa"
#: A JVM of a test runs for seconds: what its optimizing compiler gains, it costs.
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
#: Of an archive that does not fit, the JVM would warn on standard output.
_USE: Final = f"-XX:SharedArchiveFile={_ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"

JVM_OPTIONS: Final = (
    f"{_SHORT_LIVED} {_USE}" if _ARCHIVE.exists() and " " not in str(_ARCHIVE) else _SHORT_LIVED
)


def make() -> None:
    """Make the archive, unless it is there. The JVM writes it when it ends."""
    if _ARCHIVE.exists() or " " in str(_ARCHIVE):
        return
    print("making an archive of Spark's classes for the tests (once; a minute)", file=sys.stderr, flush=True)
    _ARCHIVE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_ARCHIVE.parent) as folder:
        new = Path(folder) / _ARCHIVE.name
        os.environ["SPARK_SUBMIT_OPTS"] = (
            f"{_SHORT_LIVED} -XX:ArchiveClassesAtExit={new} -Xlog:disable -Xlog:all=error:stderr"
        )
        _run_jobs(Path(folder) / "demo")
        if new.exists():
            new.rename(_ARCHIVE)


def _run_jobs(output: Path) -> None:
    """Run the command that uses most of Spark; its report does not matter here."""
    from ctrlchan.pipeline.spark import jvm

    # The JVM writes the archive after the time that it has to end.
    jvm._PATIENCE = 600  # type: ignore[misc]
    sys.argv = ["ctrlchan", "pipeline", "demo", "--output", str(output)]
    with contextlib.suppress(SystemExit):
        runpy.run_module("ctrlchan", run_name="__main__")


if __name__ == "__main__":
    make()
