"""Readers of whole topics: one that follows the end, one that reads again, one that reads all in the end."""

from __future__ import annotations

import random
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.chaos.producing import Topic
from tests.chaos.quiet import QUIET
from tests.chaos.records import Log, Partition, Record, read_value
from tests.chaos.threads import make_thread

__all__ = ["FinalRead", "Follower", "Rereader", "Seen", "end_offsets"]

#: What a reader must never meet: a record that was visible is gone.
_LOST: Final = {
    "_AUTO_OFFSET_RESET",
    "_LOG_TRUNCATION",
    "OFFSET_OUT_OF_RANGE",
    "_BAD_MSG",
    "_BAD_COMPRESSION",
}
#: Messages that are taken at once, and records that are read again at once.
_TAKEN: Final = 500
_AGAIN: Final = 3000
_STATISTICS_MS: Final = 5_000


def reader(bootstrap: str, name: str, **more: object) -> Any:
    """Return a consumer without a group that checks checksums and never jumps to another offset."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "group.id": "none",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 4096,
            "retry.backoff.ms": 50,
            "socket.timeout.ms": 10_000,
            "topic.metadata.refresh.fast.interval.ms": 100,
            **QUIET,
            **more,
        }
    )


def content_of(message: Any) -> int:
    """Return a hash of what must never change at an offset; it is not 0."""
    found = hash((message.value(), message.key(), message.timestamp(), message.leader_epoch()))
    return (found & 0x7FFF_FFFF_FFFF_FFFF) or 1


class Seen:
    """The content of each offset of a partition as it was read first. 0: not read."""

    def __init__(self) -> None:
        self._contents = array("q")

    def __len__(self) -> int:
        return len(self._contents)

    def at(self, offset: int) -> int:
        """Return the hash of what was read at this offset, 0 for nothing."""
        return self._contents[offset] if offset < len(self._contents) else 0

    def add(self, offset: int, content: int) -> None:
        """Note what was read."""
        if offset >= len(self._contents):
            self._contents.extend([0] * (offset + 1 - len(self._contents)))
        self._contents[offset] = content


class _Reader:
    """What readers share. ``failures``: what must never be seen."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures: list[str] = []
        self.records = 0
        #: Errors that a client gets over.
        self.errors: Counter[str] = Counter()
        #: What librdkafka says last of its brokers and partitions, as JSON.
        self.statistics = ""
        self.stopping = threading.Event()
        self._thread = make_thread(name, self.failures, self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()

    def join(self) -> None:
        self.stop()
        self._thread.join()

    def _run(self) -> None:
        raise NotImplementedError

    def consumer(self, bootstrap: str, name: str) -> Any:
        """Return a consumer that keeps its statistics here."""

        def keep(statistics: str) -> None:
            self.statistics = statistics

        more = {"statistics.interval.ms": _STATISTICS_MS, "stats_cb": keep}
        return reader(bootstrap, name, **more)

    def write_statistics(self, folder: Path) -> None:
        """Write them to a file in ``folder``, where there are any."""
        if self.statistics:
            name = self.name.replace(" ", "-")
            (folder / f"statistics-{name}.json").write_text(self.statistics)

    def messages(self, taken: Iterable[Any]) -> Iterator[Any]:
        """Yield messages without an error; errors are counted, or failures."""
        for message in taken:
            error = message.error()
            if error is None:
                yield message
            elif error.name() in _LOST or error.fatal():
                place = f"{message.topic()}-{message.partition()} at {message.offset()}"
                self.fail(f"{place}: {error.name()}: {error.str()}")
            else:
                self.errors[error.name()] += 1

    def fail(self, text: str) -> None:
        if len(self.failures) < 5:
            self.failures.append(f"{self.name}: {text}")

    def compare(self, seen: Seen, message: Any) -> None:
        """Fail where another record was read at this offset before."""
        if seen.at(message.offset()) not in (0, content_of(message)):
            place = f"{message.topic()}-{message.partition()} at {message.offset()}"
            self.fail(f"{place}: another record than before")


class Follower(_Reader):
    """Reads a topic from its begin on, as records come."""

    def __init__(self, bootstrap: str, topic: Topic) -> None:
        super().__init__(f"reader of {topic.name}")
        self.topic = topic
        self.seen = [Seen() for _ in range(topic.partitions)]
        self._bootstrap = bootstrap

    def behind(self, ends: Mapping[Partition, int]) -> list[str]:
        """Return the partitions of which the reader has not read all before an offset."""
        lines = []
        for number, seen in enumerate(self.seen):
            end = ends[self.topic.name, number]
            if len(seen) < end:
                lines.append(
                    f"{self.topic.name}-{number} is read up to {len(seen)} of {end} ({dict(self.errors)})"
                )
        return lines

    def _run(self) -> None:
        with closing(self.consumer(self._bootstrap, f"follower-{self.topic.name}")) as consumer:
            consumer.assign([TopicPartition(self.topic.name, one, 0) for one in range(self.topic.partitions)])
            while not self.stopping.is_set():
                for message in self.messages(consumer.consume(_TAKEN, 0.5)):
                    self.take(message)

    def take(self, message: Any) -> None:
        """Note a record, which must be the one behind the last one."""
        seen = self.seen[message.partition()]
        if message.offset() != len(seen):
            place = f"{message.topic()}-{message.partition()}"
            self.fail(f"{place}: offset {message.offset()}, where {len(seen)} comes next")
        seen.add(message.offset(), content_of(message))
        self.records += 1


class Rereader(_Reader):
    """Reads older records again, and compares them with what the follower read."""

    def __init__(self, bootstrap: str, followers: Sequence[Follower], seed: int) -> None:
        super().__init__("reader of old records")
        self._bootstrap = bootstrap
        self._followers = followers
        self._chance = random.Random(seed)

    def _run(self) -> None:
        with closing(self.consumer(self._bootstrap, "rereader")) as consumer:
            while not self.stopping.wait(0.2):
                follower = self._chance.choice(self._followers)
                partition = self._chance.randrange(follower.topic.partitions)
                seen = follower.seen[partition]
                if not len(seen):
                    continue
                begin = self._chance.randrange(len(seen))
                consumer.assign([TopicPartition(follower.topic.name, partition, begin)])
                self._read(consumer, seen, min(len(seen), begin + _AGAIN))

    def _read(self, consumer: Any, seen: Seen, end: int) -> None:
        # The partition may have no leader for a while: another one is read then.
        give_up = time.monotonic() + 5.0
        offset = -1
        while offset < end - 1 and time.monotonic() < give_up and not self.stopping.is_set():
            for message in self.messages(consumer.consume(_TAKEN, 0.5)):
                offset = message.offset()
                self.compare(seen, message)
                self.records += 1


class FinalRead(_Reader):
    """Reads whole topics once, up to the given end offsets, into ``logs``."""

    def __init__(
        self, bootstrap: str, ends: Mapping[Partition, int], seen: Mapping[Partition, Seen], seconds: float
    ) -> None:
        super().__init__("last reader")
        self.logs: dict[Partition, Log] = {partition: [] for partition in ends}
        self._bootstrap = bootstrap
        self._ends = ends
        self._seen = seen
        self._seconds = seconds

    def read(self) -> None:
        """Read everything; what is missing at the end is a failure."""
        self.start()
        self._thread.join()

    def _run(self) -> None:
        deadline = time.monotonic() + self._seconds
        left = {partition for partition, end in self._ends.items() if end > 0}
        with closing(self.consumer(self._bootstrap, "last-reader")) as consumer:
            consumer.assign([TopicPartition(*partition, 0) for partition in left])
            while left and time.monotonic() < deadline and not self.failures:
                for message in self.messages(consumer.consume(_TAKEN, 0.5)):
                    partition = message.topic(), message.partition()
                    offset = message.offset()
                    self.compare(self._seen[partition], message)
                    self.logs[partition].append(Record(offset, *read_value(message.value())))
                    self.records += 1
                    if offset >= self._ends[partition] - 1:
                        left.discard(partition)
        for topic, number in sorted(left):
            log = self.logs[topic, number]
            at = log[-1].offset if log else "nothing"
            self.fail(f"{topic}-{number}: read up to {at}, the end is {self._ends[topic, number]}")


def end_offsets(bootstrap: str, topics: Sequence[Topic], seconds: float) -> dict[Partition, int]:
    """Return the high watermark of each partition. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    found: dict[Partition, int] = {}
    wanted = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
    with closing(reader(bootstrap, "end-offsets")) as consumer:
        while len(found) < len(wanted):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the ends of {sorted(set(wanted) - set(found))} are not known")
            for partition in wanted:
                if partition not in found:
                    try:
                        _, found[partition] = consumer.get_watermark_offsets(TopicPartition(*partition), 5.0)
                    except KafkaException as error:
                        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                            raise
    return found
