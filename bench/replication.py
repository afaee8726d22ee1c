"""Clusters of two brokers on two hosts: ours and Kafka's, with the leader here and the follower there.

All have Kafka's own settings, and one real ZooKeeper, each in a chroot. Broker 1 starts first, so it is the
controller. ``Replication`` measures what the follower makes clients and reassignments wait for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from bench.peers.kafka_command import kafka_command
from bench.peers.place import Place
from bench.peers.record_load import Connection, batch_of
from ctrlchan.zookeeper import nodes, paths
from tests.kafka.ports import free_port
from tests.kafka.processes import Child, Reaper
from tests.kafka.waiting import wait_until
from tests.kafka.wire import answers_api_versions

__all__ = ["KAFKA_LARGE_BUFFERS", "TwoBrokers", "kafka_broker", "our_broker"]

LEADER, FOLLOWER = 1, 2
#: Kafka's fixed buffers allow 64 KiB a round trip; with these the kernel sizes them, as with ours.
KAFKA_LARGE_BUFFERS: Final = {
    "socket.send.buffer.bytes": "-1",
    "socket.receive.buffer.bytes": "-1",
    "replica.socket.receive.buffer.bytes": "-1",
}
_SETTINGS: Final = {
    "zookeeper.session.timeout.ms": "60000",
    "offsets.topic.replication.factor": "1",
    "auto.create.topics.enable": "false",
    # A lossy link delays a fetch by seconds; the follower has to stay in the ISR.
    "replica.lag.time.max.ms": "120000",
}
_SECONDS: Final = 300.0
_POLL_SECONDS: Final = 0.002
#: A record of 100 bytes; a batch of 256 KB.
_ONE: Final = batch_of(1, 100)
_LARGE: Final = batch_of(2_400, 100)


def kafka_broker(properties: Path) -> list[str]:
    """Return the command of Kafka's broker. Raises KafkaUnavailableError."""
    return kafka_command(properties, "-Xmx1g", "-Xms1g")


def our_broker(properties: Path) -> list[str]:
    """Return the command of our broker."""
    return [sys.executable, "-m", "ctrlchan", "broker", "--config", str(properties)]


class TwoBrokers:
    """A cluster of the leader at ``here`` and the follower at ``there``; ends with its ``with`` block.

    ``command``: of a broker, from its file of settings. ``zookeeper``: address and a chroot of this cluster.
    """

    def __init__(
        self,
        folder: Path,
        command: Callable[[Path], list[str]],
        zookeeper: str,
        here: Place,
        there: Place,
        configs: Mapping[str, str],
    ) -> None:
        self._folder = folder
        self._command = command
        self._zookeeper = zookeeper
        self._places = {LEADER: here, FOLLOWER: there}
        self._configs = configs
        self._topics = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            reaper = Reaper()
            stack.callback(reaper.close)
            address, _, chroot = self._zookeeper.partition("/")
            with _zookeeper_session(address) as root:
                root.ensure_path(f"/{chroot}")
            self._nodes = stack.enter_context(_zookeeper_session(self._zookeeper))
            for broker_id, place in self._places.items():
                port = free_port()
                child = self._start(broker_id, place, port, reaper)
                stack.callback(child.kill)
                self._wait_for_answer(child, place.address, port)
                if broker_id == LEADER:
                    self.host, self.port = place.address, port
            self._admin = AdminClient({"bootstrap.servers": f"{self.host}:{self.port}"})
            wait_until(
                lambda: len(self._admin.list_topics(timeout=_SECONDS).brokers) == len(self._places),
                timeout=_SECONDS,
                what="both brokers are known",
            )
            self._client = stack.enter_context(closing(Connection(self.port, self.host)))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def _start(self, broker_id: int, place: Place, port: int, reaper: Reaper) -> Child:
        folder = self._folder / f"broker-{broker_id}"
        folder.mkdir(parents=True)
        properties = {
            "broker.id": str(broker_id),
            "zookeeper.connect": self._zookeeper,
            "log.dirs": str(folder / "logs"),
            "listeners": f"PLAINTEXT://{place.address}:{port}",
            **_SETTINGS,
            **self._configs,
        }
        file = folder / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = [*place.prefix, *self._command(file)]
        return Child(f"broker {broker_id}", command, folder / "output.log", reaper)

    @staticmethod
    def _wait_for_answer(child: Child, host: str, port: int) -> None:
        def answers() -> bool:
            child.check_alive()
            return answers_api_versions(host, port)

        wait_until(answers, timeout=_SECONDS, what=f"{child.name} answers")

    # -- the measured work; each method makes a topic of its own

    def produce_one(self, requests: int) -> list[float]:
        """Return the milliseconds of each of so many Produce requests with acks=all, one after another."""
        topic = self._topic([LEADER, FOLLOWER])
        took = self._client.produce(topic, _ONE, requests, in_flight=1, acks=-1)
        return [seconds * 1e3 for seconds in took]

    def produce_many(self, size: int) -> float:
        """Return the seconds until ``size`` bytes are acknowledged with acks=all; five requests in flight."""
        topic = self._topic([LEADER, FOLLOWER])
        begin = time.perf_counter()
        self._client.produce(topic, _LARGE, size // len(_LARGE), acks=-1)
        return time.perf_counter() - begin

    def catch_up(self, size: int) -> float:
        """Return the seconds from a reassignment that adds the follower until it is in the ISR.

        ``size``: bytes that it has to copy.
        """
        topic = self._topic([LEADER])
        if size:
            self._client.produce(topic, _LARGE, size // len(_LARGE))
        wanted = nodes.encode_reassignments({(topic, 0): [LEADER, FOLLOWER]})
        begin = time.perf_counter()
        self._nodes.create(paths.REASSIGN_PARTITIONS, wanted)
        self._wait_for_isr(topic, [LEADER, FOLLOWER])
        took = time.perf_counter() - begin
        wait_until(
            lambda: self._nodes.exists(paths.REASSIGN_PARTITIONS) is None,
            timeout=_SECONDS,
            what="the reassignment is over",
        )
        return took

    def _topic(self, replicas: Sequence[int]) -> str:
        self._topics += 1
        name = f"topic-{self._topics}"
        new = NewTopic(name, num_partitions=1, replica_assignment=[list(replicas)])
        self._admin.create_topics([new], request_timeout=_SECONDS)[name].result(_SECONDS)
        wait_until(
            lambda: self._isr(name) == sorted(replicas), timeout=_SECONDS, what=f"{name} has its replicas"
        )
        # The first request with acks=all is acknowledged when the follower follows.
        self._client.produce(name, _ONE, 1, acks=-1)
        return name

    def _wait_for_isr(self, topic: str, wanted: Sequence[int]) -> None:
        deadline = time.monotonic() + _SECONDS
        while self._isr(topic) != wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the ISR of {topic} is {self._isr(topic)} after {_SECONDS:g} s")
            time.sleep(_POLL_SECONDS)

    def _isr(self, topic: str) -> list[int]:
        try:
            data, _ = self._nodes.get(paths.partition_state(topic, 0))
        except NoNodeError:
            return []
        return sorted(nodes.parse_partition_state(data).isr)


@contextmanager
def _zookeeper_session(address: str) -> Iterator[Any]:
    session = KazooClient(hosts=address, timeout=_SECONDS)
    session.start(timeout=_SECONDS)
    try:
        yield session
    finally:
        session.stop()
        session.close()
