"""Watches the cluster while it runs: every process must answer, and no epoch may go back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.acceptance.client_frames import metadata_frame
from tests.chaos.checks import Monotonic
from tests.chaos.cluster import Cluster
from tests.chaos.nodes import BrokerNode, ChaosError, Node
from tests.chaos.stacks import write_stacks
from tests.chaos.threads import make_thread
from tests.chaos.view import NotSeenError
from tests.kafka.wire import exchange

__all__ = ["Watch"]

#: Seconds between two questions, and in which a process that should run must answer one.
PAUSE: Final = 2.0
DEADLINE: Final = 40.0


class Watch:
    """Threads that ask each node and look at ZooKeeper. ``failures``: what they found."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self.failures: list[str] = []
        self._stopping = threading.Event()
        self._threads = [
            make_thread(f"watch of {node.name}", self.failures, self._ask, node)
            for node in cluster.nodes.values()
        ]
        self._threads.append(make_thread("watch of epochs", self.failures, self._look))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, node: Node) -> None:
        answered = 0.0
        while not self._stopping.wait(PAUSE):
            try:
                node.check_alive()
            except ChaosError as error:
                self.failures.append(f"{error}")
                return
            since = node.up_since
            if since is None:
                continue
            if _answers(node):
                answered = time.monotonic()
            # The node may have been stopped meanwhile.
            elif node.up_since == since and time.monotonic() - max(since, answered) > DEADLINE:
                if node.pid is not None:
                    write_stacks(node.pid, self._folder, node.name)
                stacks = f"stacks-{node.name}-*.txt"
                self.failures.append(f"{node.name} does not answer for {DEADLINE:g} s: {stacks}")
                return

    def _look(self) -> None:
        epochs = Monotonic()
        while not self._stopping.wait(1.0):
            try:
                self.failures += look_at_epochs(self._cluster, epochs.check)
            except NotSeenError:
                continue


def _answers(node: Node) -> bool:
    """Return whether the node answers, also a request that no processor answers by itself."""
    if not node.answers():
        return False
    if isinstance(node, BrokerNode):
        try:
            exchange(*node.endpoint, metadata_frame(12, ["orders"]), timeout=10.0)
        except OSError:
            return False
    return True


def look_at_epochs(cluster: Cluster, check: Callable[[str, int], list[str]]) -> list[str]:
    """Return the numbers that have gone back. Raises NotSeenError."""
    view = cluster.view
    lines = check("controller epoch", view.controller_epoch())
    for name in view.topics():
        topic = view.topic(name)
        for number, partition in topic.partitions.items():
            # A topic with the same name may be another one.
            place = f"{name}-{number} ({(topic.topic_id or b'').hex()[:8]})"
            lines += check(f"leader epoch of {place}", partition.state.leader_epoch)
            lines += check(f"partition epoch of {place}", partition.version)
            lines += check(f"controller epoch of {place}", partition.state.controller_epoch)
    return lines
