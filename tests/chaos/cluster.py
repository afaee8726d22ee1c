"""The cluster of a run: its hosts, its nodes, and what is known of all of them."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.chaos.hosts import make_hosts
from tests.chaos.nodes import BrokerNode, ServerNode, ZooKeeperNode, make_nodes
from tests.chaos.plan import BROKERS, CONTROLLERS, ZOOKEEPER
from tests.chaos.view import ClusterView
from tests.kafka.processes import Reaper

__all__ = ["Cluster", "History"]


class History:
    """Writes what happens to a file, a line of JSON for each event; for several threads."""

    def __init__(self, path: Path) -> None:
        self._begin = time.monotonic()
        self._file = path.open("w")
        self._lock = threading.Lock()

    def add(self, what: str, **more: Any) -> None:
        line = json.dumps({"at": round(time.monotonic() - self._begin, 3), "what": what, **more})
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


class Cluster:
    """All nodes of a run in ``folder``; a context manager. Its end kills what still runs.

    ``given_up``: set when nobody should wait for anything any more.
    """

    def __init__(self, folder: Path, history: History) -> None:
        self.folder = folder / "nodes"
        self.history = history
        self.given_up = threading.Event()
        self.folder.mkdir()
        self._reaper = Reaper()
        try:
            self.hosts = make_hosts(self.folder, self._reaper)
            self.nodes = make_nodes(self.folder, self.hosts, self._reaper)
        except BaseException:
            self._reaper.close()
            raise
        zookeeper = self.nodes[ZOOKEEPER]
        assert isinstance(zookeeper, ZooKeeperNode)
        self.view = ClusterView(zookeeper.address)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_up()
        self.view.close()
        self.hosts.close()
        self._reaper.close()

    @property
    def brokers(self) -> list[BrokerNode]:
        return [node for name in BROKERS if isinstance(node := self.nodes[name], BrokerNode)]

    @property
    def servers(self) -> list[ServerNode]:
        """Brokers and controllers."""
        return [node for node in self.nodes.values() if isinstance(node, ServerNode)]

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers of clients."""
        return ",".join(broker.reached_at for broker in self.brokers)

    def start(self) -> None:
        """Start everything. Raises ChaosError."""
        self.nodes[ZOOKEEPER].start(self.given_up)
        self.view.start()
        self.at_once([self.nodes[name] for name in CONTROLLERS], lambda node: node.start(self.given_up))
        self.at_once(self.brokers, lambda node: node.start(self.given_up))

    def stop(self) -> None:
        """Stop brokers, then controllers, with SIGTERM. Raises ChaosError where one does not end well."""
        self.at_once(self.brokers, lambda node: node.terminate())
        self.at_once([self.nodes[name] for name in CONTROLLERS], lambda node: node.terminate())

    def give_up(self) -> None:
        """Kill everything: who waits for a node does not wait any more."""
        self.given_up.set()
        for node in self.nodes.values():
            node.kill()

    def at_once(self, nodes: list[Any], do: Any) -> None:
        """Do the same to several nodes at a time. Raises the first error."""
        with ThreadPoolExecutor(len(nodes)) as pool:
            for done in [pool.submit(do, node) for node in nodes]:
                done.result()
