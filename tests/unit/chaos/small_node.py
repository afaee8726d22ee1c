"""A node with a small process in it."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Final

from tests.chaos.nodes import Node
from tests.kafka.processes import Reaper

__all__ = ["READY", "SmallNode"]

#: Says that it is ready in a file, and waits for a signal.
READY: Final = "import pathlib, signal; pathlib.Path('ready').touch(); signal.pause()"


class SmallNode(Node):
    """Runs Python code that makes the file ``ready``. ``asked``: set when it was asked whether it answers."""

    def __init__(self, name: str, folder: Path, reaper: Reaper) -> None:
        super().__init__(name, folder, reaper)
        self.code = READY
        self.asked = threading.Event()

    def answers(self) -> bool:
        self.asked.set()
        return (self.folder / "ready").exists()

    def command(self) -> list[str]:
        (self.folder / "ready").unlink(missing_ok=True)
        return [sys.executable, "-c", self.code]
