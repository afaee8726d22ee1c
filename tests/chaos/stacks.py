"""Writes what the threads of a process that does not answer are doing."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

__all__ = ["write_stacks"]

_SECONDS: Final = 120
_OF_A_THREAD: Final = ("comm", "wchan", "syscall", "stack")


def write_stacks(pid: int, folder: Path, name: str) -> None:
    """Write the stacks of a process and its children to files in ``folder``: by gdb and py-spy if present."""
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            _write(one.pid, folder / f"stacks-{name}-{one.pid}.txt")


def _write(pid: int, path: Path) -> None:
    with path.open("w") as file:
        for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
            for what in _OF_A_THREAD:
                with suppress(OSError):
                    file.write(f"{task.name} {what}: {(task / what).read_text().strip()}\n")
        gdb = [
            "gdb",
            "-p",
            f"{pid}",
            "-batch",
            "-nx",
            "-ex",
            "set pagination off",
            "-ex",
            "thread apply all bt",
        ]
        for command in (["py-spy", "dump", "--pid", f"{pid}"], gdb):
            if shutil.which(command[0]) is not None:
                file.write(f"\n--- {' '.join(command)}\n")
                file.flush()
                with suppress(subprocess.TimeoutExpired):
                    subprocess.run(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        timeout=_SECONDS,
                    )
