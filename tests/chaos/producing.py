"""Producers that write all along, and what was acknowledged to them."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from tests.chaos.quiet import QUIET
from tests.chaos.records import Numbers, value_of
from tests.chaos.threads import make_thread

__all__ = ["PRODUCERS", "TOPICS", "Load", "Style", "Topic", "make_loads"]


@dataclass(frozen=True)
class Topic:
    """A topic of the run."""

    name: str
    partitions: int
    replicas: int
    min_in_sync: int


#: The partitions of the last one are available with one broker of two. No acknowledged record of them is
#: lost either: no process loses what it wrote, but for torn logs, and only such are torn whose broker is not
#: in the ISR (``torn.py``).
TOPICS: Final = (Topic("orders", 12, 3, 2), Topic("payments", 4, 3, 2), Topic("events", 4, 2, 1))


@dataclass(frozen=True)
class Style:
    """How a producer produces."""

    topic: str
    compression: str
    is_idempotent: bool


PRODUCERS: Final = (
    Style("orders", "lz4", True),
    Style("orders", "none", True),
    Style("orders", "zstd", False),
    Style("payments", "gzip", True),
    Style("payments", "snappy", True),
    Style("events", "zstd", True),
    Style("events", "none", False),
)

#: Records of a burst to one partition, bytes of a value, and records that may be open.
_BURST: Final = 20
_BYTES: Final = (20, 300)
_MOST_OPEN: Final = 1000
#: Values that do not become small by compression.
_NOISE: Final = random.Random(0).randbytes(2000)
#: librdkafka gives records up, and what is queued for a partition (_DESTROY), when a broker does not know it.
#: One that was started without a controller does not for a moment: the first UpdateMetadata of a new
#: controller has the brokers alone, and the second one only partitions with a live replica, as Kafka's.
_NOT_KNOWN: Final = {"_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "_DESTROY", "UNKNOWN_TOPIC_OR_PART"}

#: What an idempotent producer hears of a former leader that was frozen and has not heard of its successor:
#: its log ends before the records that the successor has acknowledged. Kafka's broker answers the same, as a
#: Produce has no leader epoch. For librdkafka it is fatal: only another producer goes on.
_OUT_OF_ORDER: Final = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class Load:
    """One producer on a thread. Every record is sent until it is acknowledged, however long that takes.

    Records of a producer without idempotence may be there more than once, and in another order: librdkafka
    sends the next ones to a new leader while it still waits for the answer of a former one that is frozen.
    """

    def __init__(self, number: int, style: Style, topic: Topic, bootstrap: str, rate: float) -> None:
        self.number = number
        self.style = style
        self.partitions = [Numbers() for _ in range(topic.partitions)]
        #: What the producer cannot get over, and what librdkafka reports meanwhile.
        self.failures: list[str] = []
        self.reported: Counter[str] = Counter()
        self.acknowledged = 0
        self.refused = 0
        self.replaced = 0
        self._chance = random.Random(number)
        self._pause = _BURST / rate
        self._bootstrap = bootstrap
        self._producer = self._new_producer()
        self._finishing, self._stopping = threading.Event(), threading.Event()
        self._thread = make_thread(f"producer-{number}", self.failures, self._run)

    def _new_producer(self) -> Any:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": f"producer-{self.number}",
                "acks": "all",
                "enable.idempotence": self.style.is_idempotent,
                "compression.type": self.style.compression,
                "linger.ms": 2,
                "message.timeout.ms": 0,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 500,
                "socket.timeout.ms": 30_000,
                "topic.metadata.refresh.fast.interval.ms": 100,
                **QUIET,
                "error_cb": self._report,
            }
        )

    @property
    def name(self) -> str:
        """What it is, for people."""
        kind = "idempotent" if self.style.is_idempotent else "plain"
        return f"{kind} {self.style.compression} producer {self.number} of {self.style.topic}"

    @property
    def waiting(self) -> str:
        """What it waits for, for people."""
        return f"{self.name} has {self.open()} records that are not acknowledged ({dict(self.reported)})"

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Produce nothing more, and end when all is acknowledged."""
        self._finishing.set()

    def stop(self) -> None:
        """Produce nothing more, and wait for nothing."""
        self._finishing.set()
        self._stopping.set()

    def open(self) -> int:
        """Return how many records wait for their acknowledgement."""
        return sum(numbers.open() for numbers in self.partitions)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            if self._finishing.is_set():
                if not len(self._producer):
                    return
            elif len(self._producer) < _MOST_OPEN and time.monotonic() >= due:
                self._send_burst()
                due = max(due + self._pause, time.monotonic() - 1.0)
            try:
                self._producer.poll(0.01)
            except KafkaException as error:
                self._replace(error.args[0])

    def _replace(self, error: Any) -> None:
        """Go on with another producer, whose records have other numbers, where the error allows that."""
        if error.name() != _OUT_OF_ORDER:
            self._fail(error)
            return
        self.replaced += 1
        for numbers in self.partitions:
            self.refused += numbers.refuse_open()
        self._producer = self._new_producer()

    def _send_burst(self) -> None:
        partition = self._chance.randrange(len(self.partitions))
        for _ in range(_BURST):
            number = self.partitions[partition].add()
            start = self._chance.randrange(1000)
            padding = _NOISE[start : start + self._chance.randint(*_BYTES)]
            try:
                self._producer.produce(
                    self.style.topic,
                    value_of(self.number, number, padding),
                    partition=partition,
                    on_delivery=lambda error, message, number=number: self.delivered(error, message, number),
                )
            except KafkaException as exception:
                self._end(exception.args[0], partition, number)

    def delivered(self, error: Any, message: Any, number: int) -> None:
        """Note what became of a record."""
        if error is not None:
            self._end(error, message.partition(), number)
            return
        self.partitions[message.partition()].acknowledge(number, message.offset())
        self.acknowledged += 1

    def _end(self, error: Any, partition: int, number: int) -> None:
        """Note that a record is not sent any more. Only a topic that seems to be gone is no failure."""
        self.partitions[partition].refuse(number)
        self.refused += 1
        # What is fatal is reported by itself.
        if error.name() not in (*_NOT_KNOWN, _OUT_OF_ORDER, "_FATAL"):
            self._fail(error)

    def _report(self, error: Any) -> None:
        self.reported[error.name()] += 1
        if error.fatal() and error.name() != _OUT_OF_ORDER:
            self._fail(error)

    def _fail(self, error: Any) -> None:
        # What follows the end of the producer itself says nothing.
        if len(self.failures) < 3 and not self._stopping.is_set():
            self.failures.append(f"{self.name}: {error.name()}: {error.str()}")


def make_loads(bootstrap: str, rate: float) -> Sequence[Load]:
    """Return the producers of the run, which produce ``rate`` records a second together."""
    topics = {topic.name: topic for topic in TOPICS}
    return [
        Load(number, style, topics[style.topic], bootstrap, rate / len(PRODUCERS))
        for number, style in enumerate(PRODUCERS)
    ]
