"""Brokers that store records, each as processes of its own: ours, Kafka 3.9.1's, kfake, and a limit in C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import psutil
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.cluster.zookeeper import ZooKeeperServer
from bench.peers.kafka_command import kafka_command
from bench.peers.native import build, build_go
from bench.peers.process import PeerProcess
from ctrlchan import EmbeddedCluster
from tests.kafka.ports import free_port
from tests.kafka.processes import Child, Reaper
from tests.kafka.waiting import wait_until
from tests.kafka.wire import answers_api_versions

__all__ = [
    "HOST",
    "DurableBroker",
    "Kafka",
    "Kfake",
    "Ours",
    "Store",
    "StoringBroker",
    "create_topic",
    "wait_for_leaders",
]

HOST: Final = "127.0.0.1"
#: That of kafka-server-start.sh.
_KAFKA_HEAP: Final = "1g"
_START_SECONDS: Final = 300.0


class StoringBroker(Protocol):
    """One broker of a cluster of its own."""

    port: int
    process: psutil.Process

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic; return when clients can use it."""

    def close(self) -> None:
        """End the broker."""


class DurableBroker(StoringBroker, Protocol):
    """A broker that can be stopped in order and started again, in its cluster."""

    #: The log directory.
    logs: Path

    def stop(self) -> None:
        """Stop the broker as its users do."""

    def start(self) -> None:
        """Start the broker; return when it answers."""


class Store:
    """The limit: ``store.c``. A topic is created by the first request that names it.

    ``tls_store``: a PEM file, with which it speaks TLS alone.
    """

    def __init__(self, folder: Path, tls_store: Path | None = None) -> None:
        folder.mkdir()
        stores = [] if tls_store is None else [str(tls_store)]
        self._child = PeerProcess([str(build("store")), str(folder), *stores])
        self.port = int(self._child.read_line().removeprefix("ready "))
        self.process = psutil.Process(self._child.pid)

    def create_topic(self, name: str, partitions: int = 1) -> None:
        pass

    def close(self) -> None:
        self._child.__exit__(None, None, None)


class Kfake:
    """franz-go's broker for tests, which keeps its records on the disk: ``kfake/main.go``. Needs Go."""

    def __init__(self, folder: Path) -> None:
        self._child = PeerProcess([str(build_go("kfake")), "1", str(folder)])
        self.port = int(self._child.read_line().removeprefix("ready "))
        self.process = psutil.Process(self._child.pid)

    def create_topic(self, name: str, partitions: int = 1) -> None:
        create_topic(self.port, name, partitions)

    def close(self) -> None:
        self._child.__exit__(None, None, None)


class Ours:
    """An embedded broker in a child process; its controller is in this process."""

    def __init__(self, folder: Path, configs: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._configs = configs or {}
        self.logs = folder / "broker-1"
        self.start()

    def start(self) -> None:
        self._cluster = EmbeddedCluster(1, log_dir=self._folder, configs=self._configs)
        (self.port,) = (endpoint.port for broker in self._cluster.brokers for endpoint in broker.endpoints)
        self.process = psutil.Process(self._cluster.pids[0])

    def create_topic(self, name: str, partitions: int = 1) -> None:
        create_topic(self.port, name, partitions)

    def stop(self) -> None:
        self._cluster.close()

    close = stop


class Kafka:
    """A Kafka broker with Kafka's default configuration, and the ZooKeeper that it needs.

    Its internal topics have one replica: with the default, three, one broker cannot create them. With a
    ``tls_store`` (a PEM file) it listens at ``tls_port`` too. ``configs``: more settings. ``prepare`` is
    called with the address of ZooKeeper before the broker starts. ``heap``: the most, for -Xmx.
    """

    def __init__(
        self,
        folder: Path,
        tls_store: Path | None = None,
        configs: Mapping[str, str] | None = None,
        prepare: Callable[[str], None] = lambda _: None,
        heap: str = _KAFKA_HEAP,
    ) -> None:
        self._folder = folder
        self._heap = heap
        self.logs = folder / "logs"
        self._reaper = Reaper()
        self.port, self.tls_port = free_port(), free_port()
        self._children: list[ZooKeeperServer | Child] = []
        try:
            zookeeper = ZooKeeperServer(folder / "zookeeper", self._reaper)
            self._children.append(zookeeper)
            self.zookeeper = zookeeper.address
            prepare(self.zookeeper)
            properties = {
                "broker.id": "1",
                "zookeeper.connect": zookeeper.address,
                "log.dirs": str(self.logs),
                "listeners": f"PLAINTEXT://{HOST}:{self.port}",
                "offsets.topic.replication.factor": "1",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                **(configs or {}),
            }
            if tls_store is not None:
                properties["listeners"] += f",SSL://{HOST}:{self.tls_port}"
                properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tls_store)}
            text = "".join(f"{key}={value}\n" for key, value in properties.items())
            (folder / "server.properties").write_text(text)
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        command = kafka_command(self._folder / "server.properties", f"-Xmx{self._heap}", "-Xms1g")
        child = Child("Kafka's broker", command, self._folder / "output.log", self._reaper)
        self._children.append(child)
        self.process = psutil.Process(child.pid)

        def answers() -> bool:
            child.check_alive()
            return answers_api_versions(HOST, self.port)

        wait_until(answers, timeout=_START_SECONDS, what="Kafka's broker answers")

    def create_topic(self, name: str, partitions: int = 1) -> None:
        create_topic(self.port, name, partitions)

    def stop(self) -> None:
        child = self._children.pop()
        assert isinstance(child, Child)
        child.terminate(_START_SECONDS)

    def close(self) -> None:
        for child in reversed(self._children):
            child.kill() if isinstance(child, Child) else child.close()
        self._reaper.close()


def create_topic(port: int, name: str, partitions: int = 1) -> None:
    """Create a topic with the broker at `port`; return when clients can use it."""
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}"})
    # A broker that has just started knows no controller, and librdkafka asks it again after minutes.
    wait_until(
        lambda: admin.list_topics(timeout=_START_SECONDS).controller_id >= 0,
        timeout=_START_SECONDS,
        what="the broker knows its controller",
    )
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(_START_SECONDS)
    wait_for_leaders(port, name)


def wait_for_leaders(port: int, name: str) -> None:
    """Return when all partitions of a topic have a leader."""
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}"})

    def has_leaders() -> bool:
        topic = admin.list_topics(name, timeout=_START_SECONDS).topics[name]
        return topic.error is None and all(one.leader >= 0 for one in topic.partitions.values())

    wait_until(has_leaders, timeout=_START_SECONDS, what=f"leaders of {name}")
