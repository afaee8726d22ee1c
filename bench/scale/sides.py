"""The two brokers of the suite, ours and Kafka's, each in a cluster of its own.

Kafka 3.9.1 at its best settings: options of its own start script, a heap of 1 to 4 GB, a backlog of 4,096
connections, and no log file. Both: quotas off, groups rebalance at once when all have joined.
"""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import psutil
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.figures import processor_seconds
from bench.peers.brokers import HOST, Kafka, Ours
from bench.peers.record_load import batch_of
from bench.scale import messages
from bench.scale.crowd import Crowd
from ctrlchan.memory import MIB
from tests.kafka.waiting import wait_until

__all__ = ["KAFKA", "OURS", "MeasuredBroker", "create_topics", "raise_limits", "running", "wait_for_topics"]

OURS: Final = "ours"
KAFKA: Final = "kafka"
#: A heap that holds whatever these questions ask of it.
_HEAP: Final = "4g"
_CONFIGS: Final = {
    "socket.listen.backlog.size": "4096",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "3600000",
    "connections.max.idle.ms": "3600000",
}
#: Descriptors of this process and of brokers, if the machine lets us.
_DESCRIPTORS: Final = 300_000
#: Requests of each kind before Kafka's broker is measured, and their topic.
_WARMUPS: Final = 30_000
_WARM: Final = "warm"
_CREATION_SECONDS: Final = 180.0
#: Topics of one CreateTopics request: Kafka takes half a minute for the partitions of 100.
_TOPICS_AT_ONCE: Final = 10


class _Broker(Protocol):
    port: int
    process: psutil.Process

    def stop(self) -> None: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


class MeasuredBroker:
    """A broker, its processor time and its memory."""

    def __init__(self, side: str, broker: _Broker) -> None:
        self.side = side
        self._broker = broker

    @property
    def port(self) -> int:
        return self._broker.port

    def stop(self) -> None:
        self._broker.stop()

    def start(self) -> None:
        self._broker.start()

    def processor_seconds(self) -> float:
        return processor_seconds(self._broker.process)

    def descriptors(self) -> int:
        return self._broker.process.num_fds()

    def pss_mib(self) -> float:
        """Return the broker's proportional set size, MiB."""
        return float(self._broker.process.memory_full_info().pss) / MIB

    def needed_bytes(self) -> float:
        """Return what the broker needs: its memory, or the live objects of a JVM's heap.

        The heap of a JVM hides what one more costs: it grows before it has to. Its threads, buffers outside
        the heap and code are left out, to its advantage.
        """
        return self._live_heap() if self.side == KAFKA else self.pss_mib() * MIB

    def _live_heap(self) -> float:
        # Its histogram of live objects collects garbage first; the last line has their sum.
        command = ["jcmd", str(self._broker.process.pid), "GC.class_histogram"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return float(answer.rstrip().rsplit("\n", 1)[-1].split()[2])


@contextmanager
def running(side: str, folder: Path, configs: Mapping[str, str] | None = None) -> Iterator[MeasuredBroker]:
    """Start a broker in an empty cluster. ``configs``: more settings, for either side."""
    given = {**_CONFIGS, **(configs or {})}
    broker: Kafka | Ours
    folder.mkdir(parents=True)
    broker = Kafka(folder, configs=given, heap=_HEAP) if side == KAFKA else Ours(folder / OURS, configs=given)
    try:
        if side == KAFKA:
            _warm_up(broker.port)
        yield MeasuredBroker(side, broker)
    finally:
        broker.close()


def _warm_up(port: int) -> None:
    """Let a JVM compile what requests run through: for tens of thousands it takes ten times as long."""
    create_topics(port, {_WARM: 1})
    produce = messages.produce({_WARM: [0]}, batch_of(1, 100))
    frames = (produce, messages.fetch({_WARM: [0]}, max_bytes=1), messages.metadata([_WARM]))
    with Crowd(port, 20) as crowd:
        for frame in frames:
            crowd.ask_in_turn([frame] * _WARMUPS)


def raise_limits() -> int:
    """Raise the limit of descriptors as far as the machine allows; return it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for limit in (max(hard, _DESCRIPTORS), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        except (ValueError, PermissionError):
            continue
        return limit
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def create_topics(port: int, topics: Mapping[str, int], seconds: float = _CREATION_SECONDS) -> None:
    """Create topics with so many partitions each; return when all have leaders. Raises TimeoutError."""
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}"})
    wait_until(
        lambda: admin.list_topics(timeout=seconds).controller_id >= 0,
        timeout=seconds,
        what="the broker knows its controller",
    )
    names = list(topics)
    for begin in range(0, len(names), _TOPICS_AT_ONCE):
        new = [NewTopic(name, topics[name], 1) for name in names[begin : begin + _TOPICS_AT_ONCE]]
        created = admin.create_topics(new, operation_timeout=seconds, request_timeout=seconds)
        for each in created.values():
            each.result(seconds)
    wait_for_topics(port, topics, seconds)


def wait_for_topics(port: int, topics: Mapping[str, int], seconds: float = _CREATION_SECONDS) -> None:
    """Return when all partitions of all topics have a leader. Raises TimeoutError."""
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{port}"})

    def have_leaders() -> bool:
        known = admin.list_topics(timeout=seconds).topics
        for name, partitions in topics.items():
            topic = known.get(name)
            if topic is None or topic.error is not None or len(topic.partitions) < partitions:
                return False
            if any(one.leader < 0 for one in topic.partitions.values()):
                return False
        return True

    wait_until(have_leaders, timeout=seconds, what="leaders of all partitions")
