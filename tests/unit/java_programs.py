"""Programs that look like a Java, for tests of the choice between them."""

from __future__ import annotations

import stat
from pathlib import Path


def a_java(
    folder: Path, prints: str, status: int = 0, *, home: Path | None = None, whole: bool = True
) -> Path:
    """Return a program ``bin/java`` that prints this, and ``home`` as its own home.

    ``whole``: it has the module that Spark starts Java with.
    """
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    lines = [
        "#!/bin/sh",
        f"printf '%s\\n' '{prints}' >&2",
        *([] if home is None else [f"printf '%s\\n' '    java.home = {home}' >&2"]),
        *([] if whole else ['case "$*" in *--add-modules*) exit 1;; esac']),
        # What it was started with.
        'printf "%s\\n" "$@"',
        f"exit {status}",
    ]
    program.write_text("\n".join(lines) + "\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return folder
