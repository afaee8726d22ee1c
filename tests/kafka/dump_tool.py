"""Kafka's DumpLogSegments: every batch of every segment, every entry of every index, as Kafka reads it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.kafka.class_archive import JVM_OPTIONS
from tests.kafka.jars import SHORT_LIVED, java_command

__all__ = ["complaints", "dump", "dump_files"]

_TIMEOUT = 120.0  # s, for a JVM on a busy machine
_KINDS = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
_WRONG = (
    r"mismatch|Misaligned|doesn't match|out of order|Out of order|isvalid: false|not valid|corrupt|failed"
)


def dump(folder: Path, *options: str) -> tuple[list[str], str]:
    """Return the names of the files that the tool has read, and all that it has printed about the folder."""
    files, output = dump_files(
        (path for path in folder.iterdir() if path.suffix in _KINDS), "--deep-iteration", *options
    )
    return [Path(one).name for one in files], output


def dump_files(files: Iterable[Path], *options: str) -> tuple[list[str], str]:
    """Return the paths of the files that the tool has read, and all that it has printed."""
    command = java_command(
        "kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, sorted(files))),
        options=(*SHORT_LIVED, *JVM_OPTIONS),
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # What is wrong stands on standard error.
    output = done.stdout + done.stderr
    return re.findall(r"^Dumping (\S+)", output, re.MULTILINE), output


def complaints(output: str) -> list[str]:
    """Return what the tool says of entries that do not fit the log, and of records that are not valid."""
    return [line for line in output.splitlines() if re.search(_WRONG, line, re.IGNORECASE)]
