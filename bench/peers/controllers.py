"""Our channel and Kafka's as processes that do the same work on command.

``Controller`` is the conversation; ``ours`` and ``kafka`` are the two programs that hold it: both know the
cluster of ``bench/workload.py``, all of whose brokers live at one sink.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.memory import settle
from bench.peers.process import PeerProcess
from bench.workload import PARTITIONS_PER_TOPIC
from tests.kafka.jars import compile_java, java_command

__all__ = ["KAFKA_HEAP", "UNMERGED", "Controller", "Push", "kafka", "ours"]

_KAFKA: Final = Path(__file__).parent / "kafka"
#: Every request travels, as with Kafka.
UNMERGED: Final = {"merge_update_metadata": False}
#: Enough for every workload; what is not used is not touched.
KAFKA_HEAP: Final = "12g"


class Push(NamedTuple):
    """Milliseconds from the beginning of one push until its rows were added, its requests handed to the
    channel, and its last outcome there."""

    build: float
    send: float
    total: float


class Controller(PeerProcess):
    """Milliseconds for each command, by the process's own clock."""

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(command)
        self.read_line()

    def start(self) -> float:
        """Make the channel, until every broker has acknowledged an update without partitions. Once, first."""
        return float(self.ask("start"))

    def push(self) -> Push:
        """Every partition to every broker."""
        return Push(*map(float, self.ask("push").split()))

    def awaited(self, rounds: int) -> float:
        """``rounds`` times one partition to every broker, each time until all have answered."""
        return float(self.ask(f"awaited {rounds}"))

    def queued(self, rounds: int) -> float:
        """The same without waiting in between; until all have answered everything."""
        return float(self.ask(f"queued {rounds}"))

    def settle(self) -> None:
        """Wait until it does nothing more of its own accord, such as collecting garbage."""
        settle(self.pid)


def ours(
    port: int,
    brokers: int,
    partitions: int,
    config: Mapping[str, Any] | None = None,
    options: Sequence[str] = (),
) -> Controller:
    """``config``: fields of ChannelConfig; ``options``: of ``bench/controller.py``."""
    given = json.dumps(dict(config or {}))
    shape = _shape(port, brokers, partitions)
    return Controller([sys.executable, "-m", "bench.controller", *shape, "--config", given, *options])


def kafka(port: int, brokers: int, partitions: int, heap: str = KAFKA_HEAP) -> Controller:
    """Kafka 3.9.1's. Raises KafkaUnavailableError without Java or Maven."""
    options = [f"-Xmx{heap}", f"-Dlog4j.configuration={(_KAFKA / 'log4j.properties').as_uri()}"]
    classes = compile_java(_KAFKA / "ControllerPeer.java")
    shape = _shape(port, brokers, partitions)
    return Controller(java_command("ControllerPeer", *shape, classes=classes, options=options))


def _shape(port: int, brokers: int, partitions: int) -> list[str]:
    topics = partitions // PARTITIONS_PER_TOPIC
    return [str(number) for number in (port, brokers, topics, PARTITIONS_PER_TOPIC)]
