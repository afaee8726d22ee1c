"""Runs one thing under callgrind and returns its counts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.instructions import marks
from bench.instructions.child import label
from bench.instructions.profiles import OPTIONS, parse
from bench.peers.process import ROOT

__all__ = ["Count", "MeasureError", "Measurement", "measure", "missing_tools"]

_CHILD: Final = "bench.instructions.child"
#: Seconds for one thing; it takes 15 on an idle machine.
_TIMEOUT: Final = 600
#: Functions with less than this share of a thing are not in the baseline.
_LEAST_SHARE: Final = 0.005


class MeasureError(Exception):
    """A thing could not be measured; the text says why."""


@dataclass(frozen=True)
class Count:
    """Instructions of one repetition: of all, and by function."""

    instructions: float
    functions: Mapping[str, float]


@dataclass(frozen=True)
class Measurement:
    """The counts of one thing, by name, and what they depend on (``environment.py``)."""

    counts: dict[str, Count]
    environment: dict[str, str]


def missing_tools() -> str | None:
    """Return what to install where something is missing."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed: apt-get install valgrind"
    try:
        marks.compiled()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"valgrind's headers or a C compiler are missing ({error}): apt-get install valgrind gcc"
    return None


def measure(thing: str) -> Measurement:
    """Measure what ``things/THING.py`` has. Raises MeasureError."""
    with TemporaryDirectory() as folder:
        output, log = Path(folder, "out"), Path(folder, "valgrind.log")
        command = ["valgrind", "--tool=callgrind", *OPTIONS, f"--callgrind-out-file={output}"]
        command += [f"--log-file={log}", sys.executable, "-m", _CHILD, thing]
        # The order of sets and dicts of texts is the same in each run.
        environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)}
        try:
            ran = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT,
                check=True,
            )
        except subprocess.TimeoutExpired:
            raise MeasureError(f"{thing}: did not end within {_TIMEOUT} seconds") from None
        except subprocess.CalledProcessError as error:
            said = f"{error.stderr}{log.read_text() if log.exists() else ''}"
            raise MeasureError(f"{thing}: ended with status {error.returncode}\n{said}") from None
        dumps = {}
        for file in output.parent.glob("out.*"):
            with file.open() as dumped:
                dump = parse(dumped)
            dumps[dump.label] = dump.functions
        environment_line, *lines = ran.stdout.splitlines()
        counts = {}
        for line in lines:
            repetitions, name = line.split(maxsplit=1)
            counts[name] = _count(dumps[label(name, 1)], dumps[label(name, 2)], int(repetitions))
        return Measurement(counts, json.loads(environment_line))


def _count(once: Counter[str], twice: Counter[str], repetitions: int) -> Count:
    """Return the count of one repetition, of which the second dump has `repetitions` more."""
    more = twice.total() - once.total()
    functions = {
        name: round((twice[name] - once[name]) / repetitions, 1)
        for name, _ in twice.most_common()
        if twice[name] - once[name] >= _LEAST_SHARE * more
    }
    return Count(round(more / repetitions, 1), functions)
