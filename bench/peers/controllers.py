"""Our channel and Kafka's as processes that do the same work on command.

``Controller`` sends the commands; ``ours`` and ``kafka`` start the two programs. Both have the cluster of
``bench/workload.py``, with one sink as the address of all brokers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.memory import settle
from bench.peers.place import LOCAL, LOOPBACK, Place
from bench.peers.process import PeerProcess
from bench.workload import PARTITIONS_PER_TOPIC
from tests.kafka.jars import compile_java, java_command

__all__ = ["KAFKA_HEAP", "UNMERGED", "Controller", "Push", "kafka", "ours"]

_KAFKA: Final = Path(__file__).parent / "kafka"
#: Every request is sent, as with Kafka.
UNMERGED: Final = {"merge_update_metadata": False}
#: Enough for every workload; the JVM does not touch memory that it does not use.
KAFKA_HEAP: Final = "12g"


class Push(NamedTuple):
    """Milliseconds from the beginning of a push to three points.

    ``build``: its rows are added. ``send``: its requests are handed to the channel. ``total``: its last
    outcome has arrived.
    """

    build: float
    send: float
    total: float


class Controller(PeerProcess):
    """A controller process; each command returns milliseconds by the process's own clock."""

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(command)
        self.read_line()

    def start(self) -> float:
        """Make the channel and wait until all brokers have acknowledged an update without partitions."""
        return float(self.ask("start"))

    def push(self) -> Push:
        """Send every partition to every broker and wait for all outcomes."""
        return Push(*map(float, self.ask("push").split()))

    def awaited(self, rounds: int) -> float:
        """Send one partition to every broker ``rounds`` times, each time after all have answered."""
        return float(self.ask(f"awaited {rounds}"))

    def queued(self, rounds: int) -> float:
        """Send one partition to every broker ``rounds`` times without waiting in between; then wait."""
        return float(self.ask(f"queued {rounds}"))

    def settle(self) -> None:
        """Wait until the process is idle, for example after collecting garbage."""
        settle(self.pid)


def ours(
    port: int,
    brokers: int,
    partitions: int,
    config: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
    host: str = LOOPBACK,
    place: Place = LOCAL,
) -> Controller:
    """Start our controller at ``place``; ``host``: of the sink.

    ``config``: fields of ChannelConfig; ``options``: of ``bench/controller.py``.
    """
    given = json.dumps(dict(config or {}))
    shape = _shape(port, brokers, partitions)
    command = [sys.executable, "-m", "bench.controller", *shape, "--host", host, "--config", given, *options]
    return Controller([*place.prefix, *command])


def kafka(
    port: int,
    brokers: int,
    partitions: int,
    heap: str = KAFKA_HEAP,
    host: str = LOOPBACK,
    place: Place = LOCAL,
) -> Controller:
    """Start Kafka 3.9.1's controller channel. Raises KafkaUnavailableError without Java or Maven."""
    options = [f"-Xmx{heap}", f"-Dlog4j.configuration={(_KAFKA / 'log4j.properties').as_uri()}"]
    classes = compile_java(_KAFKA / "ControllerPeer.java")
    shape = _shape(port, brokers, partitions)
    command = java_command("ControllerPeer", *shape, host, classes=classes, options=options)
    return Controller([*place.prefix, *command])


def _shape(port: int, brokers: int, partitions: int) -> list[str]:
    topics = partitions // PARTITIONS_PER_TOPIC
    return [str(number) for number in (port, brokers, topics, PARTITIONS_PER_TOPIC)]
