"""An archive of the classes of Spark: a JVM that has it starts in half the processor time.

``python -m tests.spark.class_archive`` (``make test`` runs it) makes the archive once for each checkout, with
``ctrlchan pipeline prepare``. Without the archive, or with another Java or Spark than it was made with,
tests are slower and nothing else. ``JVM_OPTIONS`` are for SPARK_SUBMIT_OPTS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__ = ["JVM_OPTIONS", "make"]

_CACHE: Final = Path(__file__).parents[2] / "build"
_ARCHIVE: Final = next(_CACHE.glob("ctrlchan/spark-classes-*.jsa"), None)
#: A JVM of a test runs for seconds: what its optimizing compiler gains, it costs.
_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
#: Of an archive that does not fit, the JVM would warn on standard output.
_USE: Final = f"-XX:SharedArchiveFile={_ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"

JVM_OPTIONS: Final = (
    f"{_SHORT_LIVED} {_USE}" if _ARCHIVE is not None and " " not in str(_ARCHIVE) else _SHORT_LIVED
)


def make() -> Path:
    """Return the archive; make it, unless it is there."""
    from ctrlchan.pipeline.spark.class_archive import archive_of
    from ctrlchan.pipeline.spark.java import java_home

    # The one of this Java and this Spark: there may be others.
    archive = _CACHE / "ctrlchan" / archive_of(java_home()).name
    if archive.is_file():
        return archive
    print("making an archive of Spark's classes for the tests (once; a minute)", file=sys.stderr, flush=True)
    ran = subprocess.run(
        [sys.executable, "-m", "ctrlchan", "pipeline", "prepare", "--json"],
        env={**os.environ, "XDG_CACHE_HOME": str(_CACHE)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return Path(json.loads(ran.stdout)["archive"])


if __name__ == "__main__":
    make()
