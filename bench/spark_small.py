"""Small jobs of the command line, each a process of its own, beside a session that starts and ends."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.journals import write_journal
from bench.peers.process import ROOT
from bench.spark import DATA

__all__ = ["SESSION", "commands", "prepare", "processor_ms"]

#: Starts a session as the commands do, and ends it.
SESSION: Final = (
    sys.executable,
    "-c",
    "from ctrlchan.pipeline.sessions import session, stop; stop(session(small=True, source=False))",
)
_TOPICS: Final = """\
Topic: orders|TopicId: dVYtbxg8RRmPJBPeZs0tbw|PartitionCount: 3|ReplicationFactor: 2|Configs:
|Topic: orders|Partition: 0|Leader: 1|Replicas: 1,2|Isr: 1,2
|Topic: orders|Partition: 1|Leader: none|Replicas: 2,3|Isr: 2
|Topic: orders|Partition: 2|Leader: 1|Replicas: 3,1|Isr: 1
Topic: old|PartitionCount: 1|ReplicationFactor: 1|Configs:
|Topic: old|Partition: 0|Leader: 2|Replicas: 2|Isr: 2
""".replace("|", "\t")
_OUTCOMES: Final = 400


def commands() -> Mapping[str, tuple[str, ...]]:
    """Write the inputs, and return the commands by what they do."""
    folder = DATA / "small"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    topics, journal = folder / "topics.txt", folder / "journal"
    topics.write_text(_TOPICS)
    write_journal(journal, _OUTCOMES, brokers=4, partitions=40)
    return {
        "`ingest` of six lines": _pipeline("ingest", folder / "snapshot", "--describe", topics),
        f"`report` of {_OUTCOMES} outcomes": _pipeline("report", journal, "-o", folder / "report"),
    }


def _pipeline(*words: str | Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "ctrlchan", "pipeline", *map(str, words), "--overwrite")


def prepare() -> None:
    """Keep Spark's classes, as ``ctrlchan pipeline prepare`` does, in a cache of these jobs."""
    subprocess.run(
        (sys.executable, "-m", "ctrlchan", "pipeline", "prepare"), env=_environment(True), check=True
    )


def processor_ms(command: tuple[str, ...], *, prepared: bool) -> float:
    """Return the processor time of a command and of all that it started, milliseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=ROOT, env=_environment(prepared), check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1e3


def _environment(prepared: bool) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(DATA / ("prepared" if prepared else "not-prepared"))}
