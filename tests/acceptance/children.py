"""Processes that a test starts and that end with it."""

from __future__ import annotations

from pathlib import Path

from tests.kafka.processes import Child, Reaper

__all__ = ["Children"]


class Children:
    """Processes that end with a test; their output goes to ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reaper = Reaper()
        self._children: list[Child] = []

    def start(self, name: str, command: list[str]) -> Child:
        """Start a process, whose output is the file of this name."""
        self._children.append(Child(name, command, self.folder / name, self._reaper))
        return self._children[-1]

    def close(self) -> None:
        for child in self._children:
            child.kill()
        self._reaper.close()
