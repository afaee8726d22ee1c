"""Consumer groups that read and commit, with members that come and go; and a watcher of committed offsets."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.chaos.checks import Commit, CommittedRead
from tests.chaos.producing import TOPICS, Topic
from tests.chaos.quiet import QUIET
from tests.chaos.records import Partition
from tests.chaos.threads import make_thread

__all__ = ["Groups"]


@dataclass(frozen=True)
class Style:
    """How the members of a group are assigned partitions."""

    name: str
    topic: str
    strategy: str
    is_static: bool


GROUPS: Final = (
    Style("classic", "orders", "range", False),
    Style("cooperative", "orders", "cooperative-sticky", False),
    Style("static", "payments", "range", True),
)
MEMBERS: Final = 2
#: Seconds between commits, and least and most seconds of a member's life.
_COMMIT_EVERY: Final = 0.7
_LIFE: Final = (15.0, 40.0)


@dataclass
class _Group:
    """What the members of one group have done. ``consumed``: for each partition a byte for each offset."""

    style: Style
    topic: Topic
    lock: threading.Lock = field(default_factory=threading.Lock)
    consumed: dict[Partition, bytearray] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    reads: list[CommittedRead] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    records: int = 0
    reads_at_rest: int = 0

    def __post_init__(self) -> None:
        self.consumed = {(self.topic.name, number): bytearray() for number in range(self.topic.partitions)}

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(*partition) for partition in self.consumed]

    def note(self, partition: Partition, offset: int) -> None:
        consumed = self.consumed[partition]
        if offset >= len(consumed):
            consumed.extend(bytes(offset + 1 - len(consumed)))
        consumed[offset] = 1
        self.records += 1


class Groups:
    """All groups of a run, each with ``MEMBERS`` members, and the watcher; on threads."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        topics = {topic.name: topic for topic in TOPICS}
        self._bootstrap = bootstrap
        self.groups = [_Group(style, topics[style.topic]) for style in GROUPS]
        self.failures: list[str] = []
        #: Set while no fault is under way. At other times a former coordinator that was frozen may answer
        #: with old offsets, before it hears of its successor; Kafka's does, too.
        self.at_rest = threading.Event()
        self._stopping = threading.Event()
        self._threads = [
            make_thread(f"{group.style.name}-{member}", self.failures, self._live, group, member, seed)
            for group in self.groups
            for member in range(MEMBERS)
        ]
        self._threads += [
            make_thread(f"watcher-{group.style.name}", self.failures, self._watch, group)
            for group in self.groups
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        self.stop()
        for thread in self._threads:
            thread.join()

    @property
    def commits(self) -> list[Commit]:
        return [commit for group in self.groups for commit in group.commits]

    @property
    def reads(self) -> list[CommittedRead]:
        return [read for group in self.groups for read in group.reads]

    def rest(self) -> None:
        """Read committed offsets from now on: no fault is under way."""
        for group in self.groups:
            group.reads_at_rest = 0
        self.at_rest.set()

    def unread(self) -> list[str]:
        """Return the groups whose committed offsets were not read since ``rest``."""
        return [
            f"group {group.style.name}: {dict(group.errors)}"
            for group in self.groups
            if not group.reads_at_rest
        ]

    def behind(self, ends: dict[Partition, int]) -> list[str]:
        """Return the partitions that groups have not committed up to their ends."""
        lines = []
        for group in self.groups:
            committed = {}
            for read in list(group.reads):
                committed[read.partition] = read.offset
            lines += [
                f"group {group.style.name} is at {committed.get(partition, 0)} of {ends[partition]} of "
                f"{partition[0]}-{partition[1]}"
                for partition in group.consumed
                if committed.get(partition, 0) < ends[partition]
            ]
        return lines

    # -- threads

    def _live(self, group: _Group, number: int, seed: int) -> None:
        """Be one member after the other."""
        chance = random.Random(f"{seed} {group.style.name} {number}")
        while not self._stopping.is_set():
            with closing(_Member(self._bootstrap, group, number)) as member:
                end = time.monotonic() + chance.uniform(*_LIFE)
                while time.monotonic() < end and not self._stopping.is_set() and not member.is_fenced:
                    member.process()

    def _watch(self, group: _Group) -> None:
        with closing(_consumer(self._bootstrap, group.style.name, f"watcher-{group.style.name}")) as consumer:
            while not self._stopping.wait(1.0):
                begin = time.monotonic()
                if not self.at_rest.is_set():
                    continue
                try:
                    found = consumer.committed(group.partitions, timeout=10.0)
                except KafkaException as error:
                    group.errors[error.args[0].name()] += 1
                    continue
                group.reads_at_rest += 1
                with group.lock:
                    group.reads += [
                        CommittedRead(group.style.name, (one.topic, one.partition), one.offset, begin)
                        for one in found
                        if one.error is None and one.offset >= 0
                    ]


def _consumer(bootstrap: str, group: str, name: str, **more: object) -> Any:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
            "fetch.wait.max.ms": 100,
            "retry.backoff.ms": 50,
            "topic.metadata.refresh.fast.interval.ms": 100,
            **QUIET,
            **more,
        }
    )


class _Member:
    """One member of a group: commits what it has processed, now and then and before it loses partitions."""

    def __init__(self, bootstrap: str, group: _Group, number: int) -> None:
        self._group = group
        #: Next offsets of what was processed and is not committed.
        self._processed: dict[Partition, int] = {}
        #: A JoinGroup that a frozen broker answers late, after the client has sent another one, makes a
        #: static member of its own, as in Kafka; the client must begin again.
        self.is_fenced = False
        self._commit_at = time.monotonic() + _COMMIT_EVERY
        style = group.style
        more = {"group.instance.id": f"{style.name}-{number}"} if style.is_static else {}
        self._consumer = _consumer(
            bootstrap,
            style.name,
            f"{style.name}-{number}",
            **{"partition.assignment.strategy": style.strategy, **more},
        )
        self._consumer.subscribe([style.topic], on_revoke=self._revoked, on_lost=self._lost)

    def process(self) -> None:
        """Take some records, and commit when it is time."""
        for message in self._consumer.consume(500, 0.3):
            error = message.error()
            if error is not None:
                self._group.errors[error.name()] += 1
                self.is_fenced = self.is_fenced or error.fatal()
                continue
            partition = message.topic(), message.partition()
            self._group.note(partition, message.offset())
            self._processed[partition] = message.offset() + 1
        if time.monotonic() >= self._commit_at:
            self._commit()

    def close(self) -> None:
        self._commit()
        with suppress(KafkaException):
            self._consumer.close()

    def _commit(self) -> None:
        self._commit_at = time.monotonic() + _COMMIT_EVERY
        if not self._processed:
            return
        offsets = [TopicPartition(*partition, offset) for partition, offset in self._processed.items()]
        try:
            done: Sequence[TopicPartition] = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self._group.errors[error.args[0].name()] += 1
            self.is_fenced = self.is_fenced or error.args[0].fatal()
            return
        end = time.monotonic()
        for one in done:
            if one.error is None:
                partition = one.topic, one.partition
                with self._group.lock:
                    self._group.commits.append(Commit(self._group.style.name, partition, one.offset, end))
                if self._processed.get(partition) == one.offset:
                    del self._processed[partition]

    def _revoked(self, _consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        self._commit()
        self._lost(_consumer, partitions)

    def _lost(self, _consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            self._processed.pop((one.topic, one.partition), None)
