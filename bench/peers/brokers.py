"""Brokers that store records, each as processes of its own: ours and Kafka 3.9.1's."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol

import psutil
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.cluster.zookeeper import ZooKeeperServer
from ctrlchan import EmbeddedCluster
from tests.kafka.jars import java_command
from tests.kafka.ports import free_port
from tests.kafka.processes import Child, Reaper
from tests.kafka.waiting import wait_until
from tests.kafka.wire import answers_api_versions

__all__ = ["HOST", "Kafka", "Ours", "StoringBroker", "create_topic"]

HOST: Final = "127.0.0.1"
_LOG4J: Final = Path(__file__).parent / "kafka" / "log4j.properties"
#: The heap and the options of kafka-server-start.sh and kafka-run-class.sh.
_KAFKA_JVM: Final = (
    "-Xmx1g",
    "-Xms1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_START_SECONDS: Final = 120.0


class StoringBroker(Protocol):
    """One broker of a cluster of its own, with topics of one partition."""

    port: int
    process: psutil.Process

    def close(self) -> None:
        """End the broker."""


class Ours:
    """An embedded broker in a child process; its controller is in this process."""

    def __init__(self, folder: Path) -> None:
        self._cluster = EmbeddedCluster(1, log_dir=folder / "logs")
        (self.port,) = (endpoint.port for broker in self._cluster.brokers for endpoint in broker.endpoints)
        self.process = psutil.Process(self._cluster.pids[0])

    def close(self) -> None:
        self._cluster.close()


class Kafka:
    """A Kafka broker with Kafka's default configuration, and the ZooKeeper that it needs."""

    def __init__(self, folder: Path) -> None:
        self._reaper = Reaper()
        self.port = free_port()
        self._children: list[ZooKeeperServer | Child] = []
        try:
            zookeeper = ZooKeeperServer(folder / "zookeeper", self._reaper)
            self._children.append(zookeeper)
            properties = {
                "broker.id": "1",
                "zookeeper.connect": zookeeper.address,
                "log.dirs": str(folder / "logs"),
                "listeners": f"PLAINTEXT://{HOST}:{self.port}",
                "offsets.topic.replication.factor": "1",
            }
            configuration = folder / "server.properties"
            configuration.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
            options = [*_KAFKA_JVM, f"-Dlog4j.configuration={_LOG4J.as_uri()}"]
            command = java_command("kafka.Kafka", str(configuration), options=options)
            child = Child("Kafka's broker", command, folder / "output.log", self._reaper)
            self._children.append(child)
            self.process = psutil.Process(child.pid)

            def answers() -> bool:
                child.check_alive()
                return answers_api_versions(HOST, self.port)

            wait_until(answers, timeout=_START_SECONDS, what="Kafka's broker answers")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for child in reversed(self._children):
            child.kill() if isinstance(child, Child) else child.close()
        self._reaper.close()


def create_topic(port: int, name: str) -> None:
    """Create a topic of one partition; return when clients can use it."""
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}"})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(_START_SECONDS)

    def has_leader() -> bool:
        topic = admin.list_topics(name, timeout=_START_SECONDS).topics[name]
        return topic.error is None and all(one.leader >= 0 for one in topic.partitions.values())

    wait_until(has_leader, what=f"a leader of {name}")
