"""Kafka's own classes in a Java process that answers each line with a line."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.kafka.jars import compile_java, java_command

__all__ = ["JavaProcess"]


class JavaProcess:
    """Runs ``NAME.java`` of this folder; the file describes its lines. It ends at the end of its input.

    ``parts``: names of other files that it needs.
    """

    def __init__(self, name: str, *parts: str, shows_errors: bool = False) -> None:
        self._name = name
        classes = compile_java(*(Path(__file__).with_name(f"{one}.java") for one in (name, *parts)))
        self._process = subprocess.Popen(
            java_command(name, classes=classes),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if shows_errors else subprocess.DEVNULL,
            encoding="utf-8",
        )

    def ask(self, line: str) -> str:
        """Send a line; return the line of the answer. Raises RuntimeError if the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process of {self._name}.java has ended")
        return answer.rstrip("\n")

    def close(self) -> None:
        """End the process, and wait for it."""
        self._process.communicate(timeout=30)
