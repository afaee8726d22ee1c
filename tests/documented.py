"""Does what a document shows: writes its files, and runs its commands in the order in which they stand there.

A fenced block with a name in a comment on its first line is a file. An indented line is a command.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final, NamedTuple

__all__ = ["ROOT", "Reader", "Shown", "shown_by"]

ROOT: Final = Path(__file__).parents[1]
_SHOWN: Final = re.compile(
    r"^```\w+\n(?://|#) (?P<name>\S+)\n(?P<text>.*?)^```$|^```.*?^```$|^ {4}(?P<command>\S[^\n]*)$",
    re.MULTILINE | re.DOTALL,
)
#: What the programs are that commands name: those of this checkout.
_PROGRAMS: Final = {"ctrlchan": "-m ctrlchan", "pip": "-m pip", "pytest": "-m pytest", "python": ""}


class Shown(NamedTuple):
    """A file with its name and text, or a command with its words."""

    name: str
    text: str
    words: list[str]


def shown_by(document: Path) -> Iterator[Shown]:
    """Yield the files and the commands of a document, in their order."""
    for found in _SHOWN.finditer(document.read_text()):
        command = found["command"] and found["command"].partition(" #")[0]
        if found["name"] or command:
            yield Shown(found["name"] or "", found["text"] or "", shlex.split(command or ""))


class Reader:
    """Types what documents show, in a folder. ``replaced``: what is another address here."""

    def __init__(self, folder: Path, replaced: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.replaced = dict(replaced or {})
        programs = folder / "programs"
        programs.mkdir()
        for name, words in _PROGRAMS.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
            (programs / name).chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        #: Of commands.
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}

    def write(self, shown: Shown) -> None:
        """Write a file."""
        (self.folder / shown.name).write_text(self._here(shown.text))

    def words(self, shown: Shown) -> list[str]:
        """Return the words of a command, to run in the folder and the environment."""
        return [self._here(word) for word in shown.words]

    def run(self, shown: Shown, timeout: float = 250) -> CompletedProcess[str]:
        """Run a command until it ends, and return its output. ``pip install`` only says what it would do."""
        words, folder, environment = self.words(shown), self.folder, self.environment
        if words[:2] == ["pip", "install"]:
            words[2:2] = ["--dry-run", "--no-deps", "--no-build-isolation"]
            folder, environment = ROOT, environment | {"CTRLCHAN_PREBUILT": "1"}
        return subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False
        )

    def _here(self, text: str) -> str:
        for shown, here in self.replaced.items():
            text = text.replace(shown, here)
        return text
