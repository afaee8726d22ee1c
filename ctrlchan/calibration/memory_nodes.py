"""Nodes in memory, in a process of their own, where no ZooKeeper server is given.

``main`` prints the address and serves until standard input ends.
"""

from __future__ import annotations

import sys

from ctrlchan.calibration.child import ChildProcess

__all__ = ["MemoryNodes", "main"]


def main() -> None:
    """Serve nodes in memory until standard input ends."""
    from ctrlchan.zookeeper.memory.server import MemoryZooKeeper

    with MemoryZooKeeper() as server:
        print(server.address, flush=True)
        sys.stdin.read()


class MemoryNodes(ChildProcess):
    """The process; ``address``: ``HOST:PORT``."""

    def __init__(self) -> None:
        super().__init__("the process with nodes in memory", "ctrlchan.calibration.memory_nodes")
        self.address = self.first_line.strip()
