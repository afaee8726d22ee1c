"""Clusters for tests, each behind the same few methods: ours, Kafka's JVM, kfake, librdkafka's mock cluster.

A cluster starts when it is made. Nothing of ctrlchan is imported before one of ours starts.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.peers.native import build_go
from bench.peers.process import ROOT, PeerProcess
from tests.kafka.jars import java_command
from tests.kafka.ports import free_port
from tests.kafka.waiting import wait_until
from tests.kafka.wire import answers_api_versions

__all__ = [
    "CANDIDATES",
    "COMMAND",
    "EMBEDDED",
    "KFAKE",
    "KRAFT",
    "MOCK",
    "Cluster",
    "MissingError",
    "Starter",
]

_HOST: Final = "127.0.0.1"
_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 60.0
_LOG4J: Final = Path(__file__).parents[1] / "peers" / "kafka" / "log4j.properties"
#: The heap and the collector of kafka-server-start.sh, which the container images run.
_KAFKA_JVM: Final = ("-Xmx1g", "-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
_ARCHIVES: Final = ROOT / "build" / "bench" / "class-archives"
#: Cleaning and retention often, so that a trial of them ends; names that Kafka and ours know.
_BACKGROUND: Final = {"log.cleaner.backoff.ms": "200", "log.retention.check.interval.ms": "500"}

Configs = Mapping[str, str] | None


class MissingError(Exception):
    """A cluster for tests has no way to do what is asked."""


class Cluster(Protocol):
    """A Kafka for tests."""

    #: ``host:port,host:port,…`` for clients.
    bootstrap_servers: str

    @property
    def pids(self) -> list[int]:
        """Process ids of the cluster, without this process."""

    def producer(self, **settings: Any) -> Producer:
        """Return a producer."""

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 1, configs: Configs = None
    ) -> None:
        """Create a topic. Raises KafkaException, and MissingError where topics are only created by use."""

    def kill_broker(self, broker_id: int) -> None:
        """Let a broker die. Raises MissingError."""

    def fail_produce(self, topic: str, error: str) -> None:
        """Answer the next Produce of a topic with an error (Kafka's name). Raises MissingError."""

    def delay_produce(self, topic: str, seconds: float) -> None:
        """Answer the next Produce of a topic later. Raises MissingError."""

    def close(self) -> None:
        """Stop the cluster, and return when it has stopped."""


class _Server:
    """What all clusters share to which clients connect by an address."""

    bootstrap_servers: str

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap_servers} | settings)

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 1, configs: Configs = None
    ) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        admin.create_topics([NewTopic(name, partitions, replicas, config=dict(configs or {}))])[name].result(
            30
        )

    def fail_produce(self, topic: str, error: str) -> None:
        raise MissingError("no faults on demand")

    def delay_produce(self, topic: str, seconds: float) -> None:
        raise MissingError("no faults on demand")


class Embedded(_Server):
    """Ours, in the process of the test: the brokers are its children."""

    def __init__(self, brokers: int, folder: Path | None = None) -> None:
        from ctrlchan import TEMPORARY, EmbeddedCluster

        log_dir = TEMPORARY if folder is None else folder
        self._cluster = EmbeddedCluster(brokers, log_dir=log_dir, configs=_BACKGROUND)
        self.bootstrap_servers = self._cluster.bootstrap_servers

    @property
    def pids(self) -> list[int]:
        return self._cluster.pids

    def kill_broker(self, broker_id: int) -> None:
        self._cluster.kill_broker(broker_id)

    def fail_produce(self, topic: str, error: str) -> None:
        for broker in self._cluster.brokers:
            self._cluster.broker(broker.id).fail("Produce", topic, error=error)

    def delay_produce(self, topic: str, seconds: float) -> None:
        for broker in self._cluster.brokers:
            self._cluster.broker(broker.id).delay("Produce", seconds, topic)

    def close(self) -> None:
        self._cluster.close()


class Command(_Server):
    """Ours as a command, for tests in any language: ``ctrlchan cluster``."""

    def __init__(self, brokers: int, folder: Path | None = None) -> None:
        options = [] if folder is None else ["--log-dir", str(folder)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ctrlchan", "cluster", "--brokers", str(brokers), "--json", *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self._described = json.loads(self._process.stdout.readline())
        self.bootstrap_servers = self._described["bootstrap_servers"]

    @property
    def pids(self) -> list[int]:
        return [self._process.pid]

    def kill_broker(self, broker_id: int) -> None:
        raise MissingError("tried with the cluster in the process")

    def close(self) -> None:
        self._process.terminate()
        with self._process:
            self._process.wait(_STOP_SECONDS)


class KRaft(_Server):
    """Kafka 3.9.1 in KRaft's combined mode, which a container of Testcontainers runs too.

    Its settings are those of Testcontainers: an offsets topic of one partition, no delay of the first
    rebalance. As in the image apache/kafka the storage is formatted at the start, and both JVMs have an
    archive of their classes, which is made once.
    """

    def __init__(self, brokers: int, folder: Path | None = None) -> None:
        self._temporary = None if folder is not None else tempfile.mkdtemp(prefix="kraft-")
        self._folder = folder or Path(str(self._temporary))
        self._processes: list[subprocess.Popen[bytes]] = []
        ports = [(free_port(), free_port()) for _ in range(brokers)]
        voters = ",".join(f"{one}@{_HOST}:{port}" for one, (_, port) in enumerate(ports, 1))
        self.bootstrap_servers = ",".join(f"{_HOST}:{port}" for port, _ in ports)
        try:
            for one, (port, controller) in enumerate(ports, 1):
                self._start(one, port, controller, voters, min(3, brokers))
            for process, (port, _) in zip(self._processes, ports, strict=True):
                _wait_for_answers(process, port)
        except BaseException:
            self.close()
            raise

    def _start(self, node: int, port: int, controller: int, voters: str, replicas: int) -> None:
        properties = {
            "node.id": str(node),
            "process.roles": "broker,controller",
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{_HOST}:{port},CONTROLLER://{_HOST}:{controller}",
            "log.dirs": str(self._folder / f"broker-{node}"),
            "offsets.topic.replication.factor": str(replicas),
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "log.initial.task.delay.ms": "500",
            "log.cleaner.dedupe.buffer.size": str(2 << 20),
            **_BACKGROUND,
        }
        file = self._folder / f"server-{node}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        cluster_id = ["--cluster-id", "bTIlu1XYSpGNpkNGMLcXnQ", "--ignore-formatted"]
        subprocess.run(
            _java("kafka.tools.StorageTool", "format", "--config", str(file), *cluster_id),
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        command = _java("kafka.Kafka", str(file), options=_KAFKA_JVM)
        null = subprocess.DEVNULL
        self._processes.append(subprocess.Popen(command, stdin=null, stdout=null, stderr=null))

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def kill_broker(self, broker_id: int) -> None:
        self._processes[broker_id - 1].kill()

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._temporary is not None:
            shutil.rmtree(self._temporary)


class Kfake(_Server):
    """franz-go's cluster for tests, as a program: ``bench/peers/kfake``. Go programs have it inside."""

    def __init__(self, brokers: int, folder: Path | None = None) -> None:
        self._process = PeerProcess(
            [str(build_go("kfake")), str(brokers), *([] if folder is None else [str(folder)])]
        )
        ports = self._process.read_line().removeprefix("ready ").split()
        self.bootstrap_servers = ",".join(f"{_HOST}:{port}" for port in ports)

    @property
    def pids(self) -> list[int]:
        return [self._process.pid]

    def kill_broker(self, broker_id: int) -> None:
        self._process.ask(f"remove {broker_id}")

    def fail_produce(self, topic: str, error: str) -> None:
        self._process.ask(f"fail {topic} {error}")

    def delay_produce(self, topic: str, seconds: float) -> None:
        self._process.ask(f"delay {topic} {int(seconds * 1000)}")

    def close(self) -> None:
        self._process.__exit__(None, None, None)


class Mock:
    """librdkafka's mock cluster: inside a producer with that setting, and other clients take its address."""

    def __init__(self, brokers: int, folder: Path | None = None) -> None:
        if folder is not None:
            raise MissingError("records are in memory alone")
        self._settings = {"test.mock.num.brokers": brokers, "log_level": 3}
        self._owner: Producer | None = Producer(self._settings)
        found = self._owner.list_topics(timeout=_START_SECONDS).brokers
        self.bootstrap_servers = ",".join(f"{one.host}:{one.port}" for one in found.values())

    @property
    def pids(self) -> list[int]:
        return []

    def producer(self, **settings: Any) -> Producer:
        if settings:
            return Producer({"bootstrap.servers": self.bootstrap_servers} | settings)
        assert self._owner is not None
        return self._owner

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 1, configs: Configs = None
    ) -> None:
        raise MissingError("topics are created by use")

    def kill_broker(self, broker_id: int) -> None:
        raise MissingError("C programs alone: rd_kafka_mock_broker_set_down")

    def fail_produce(self, topic: str, error: str) -> None:
        raise MissingError("C programs alone: rd_kafka_mock_push_request_errors")

    def delay_produce(self, topic: str, seconds: float) -> None:
        raise MissingError("C programs alone; test.mock.broker.rtt delays all answers from the start")

    def close(self) -> None:
        self._owner = None


def _java(main_class: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    """Return the command of a JVM with its archive of classes, which the first such JVM writes at its end."""
    archive = _ARCHIVES / f"{main_class}.jsa"
    option = "SharedArchiveFile" if archive.exists() else "ArchiveClassesAtExit"
    archive.parent.mkdir(parents=True, exist_ok=True)
    silent = ("-Xlog:disable", "-Xlog:all=error:stderr")
    return java_command(
        main_class,
        *arguments,
        options=[*options, f"-XX:{option}={archive}", *silent, f"-Dlog4j.configuration={_LOG4J.as_uri()}"],
    )


def _wait_for_answers(process: subprocess.Popen[bytes], port: int) -> None:
    def answers() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"Kafka has ended with status {process.returncode}")
        return answers_api_versions(_HOST, port)

    wait_until(answers, timeout=_START_SECONDS, what="Kafka answers")


Starter = Callable[[int, Path | None], Cluster]

EMBEDDED: Final = "ours"
COMMAND: Final = "ctrlchan-cluster"
KRAFT: Final = "kafka"
KFAKE: Final = "kfake"
MOCK: Final = "mock"
#: Name -> what starts it: the number of brokers, and a folder for their records (None: a temporary one).
CANDIDATES: Final[Mapping[str, Starter]] = {
    EMBEDDED: Embedded,
    COMMAND: Command,
    KRAFT: KRaft,
    KFAKE: Kfake,
    MOCK: Mock,
}
