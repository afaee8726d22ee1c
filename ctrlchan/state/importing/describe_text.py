"""The text that ``kafka-topics --describe`` prints -> a state.

Read is what the tool printed from 0.8 to 4.x: ``Name: value`` fields (``Name:value`` on the topic's line
before 2.4) between tabs, or between blanks once the text has been through a terminal. A topic's line has
Topic, TopicId (since 2.8), PartitionCount, ReplicationFactor, Configs, MarkedForDeletion; a partition's line
Topic, Partition, Leader (a number or ``none``), Replicas, Isr, Adding Replicas and Removing Replicas (while
it is reassigned), Elr and LastKnownElr (since 3.7, of no meaning in ZooKeeper mode), MarkedForDeletion. Lines
of neither kind are refused, and so is a topic with fewer partitions than its line counts: the text was cut.

The text tells no epochs and no endpoints: epochs are 0, and brokers are those that the caller names or,
without endpoints, those that lead or are in an ISR.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from ctrlchan.errors import InvalidStateError, SnapshotError
from ctrlchan.state.brokers import Broker
from ctrlchan.state.cluster_state import ClusterState
from ctrlchan.state.importing.row_builder import RowBuilder
from ctrlchan.state.new_rows import NO_LEADER
from ctrlchan.topic_names import id_from_text, why_invalid

__all__ = ["BETWEEN_FIELDS", "Progress", "import_describe"]

#: Told how many lines, or znodes, are done.
Progress = Callable[[int], None]

#: Lines, or znodes, between two calls of ``Progress``.
_PROGRESS_STEP: Final = 10_000
#: Bad lines that an error names.
_LISTED: Final = 5
#: Where one field ends and the next begins.
BETWEEN_FIELDS: Final = re.compile(
    r"(?<!Adding)(?<!Removing)\s+(?=(?:TopicId|PartitionCount|ReplicationFactor|Configs|MarkedForDeletion|Partition|Leader|Replicas|Isr"
    r"|Adding Replicas|Removing Replicas|Elr|LastKnownElr):)"
)


def import_describe(
    lines: Iterable[str],
    brokers: Iterable[Broker] | None = None,
    *,
    source: str = "describe",
    cluster_id: str = "",
    controller_id: int = -1,
    controller_epoch: int = 0,
    progress: Progress = lambda done: None,
) -> ClusterState:
    """The state that the lines describe; without ``brokers`` those seen leading or in sync are live.

    Raises SnapshotError that names ``source``, the first bad lines by number (from 1) with their reasons, and
    how many there are.
    """
    reader = _Reader(controller_epoch)
    bad: list[str] = []
    bad_lines = number = 0
    for number, line in enumerate(lines, 1):
        try:
            reader.read(line, number)
        except InvalidStateError as error:
            bad_lines += 1
            if len(bad) < _LISTED:
                bad.append(f"line {number}: {error}")
        if number % _PROGRESS_STEP == 0:
            progress(number)
    progress(number)
    if bad:
        more = f"; and {bad_lines - len(bad):,} more bad lines" if bad_lines > len(bad) else ""
        raise SnapshotError(f"{source}: {'; '.join(bad)}{more}")
    if not reader.lines_of:
        raise SnapshotError(f"{source}: no partition in {number:,} lines")
    reader.check_counts(source)
    live = [Broker(broker_id) for broker_id in sorted(reader.in_sync)] if brokers is None else brokers
    state = reader.rows.state(
        reader.topic_ids,
        live,
        cluster_id=cluster_id,
        controller_id=controller_id,
        controller_epoch=controller_epoch,
    )
    state.mark_topics_deleting(reader.deleting & reader.lines_of.keys())
    return state


class _Reader:
    """What has been read so far."""

    def __init__(self, controller_epoch: int) -> None:
        self.rows = RowBuilder()
        self.topic_ids: dict[str, bytes] = {}
        self.deleting: set[str] = set()
        self.in_sync: set[int] = set()
        #: topic -> partition -> the number of its line
        self.lines_of: dict[str, dict[int, int]] = {}
        #: topic -> (PartitionCount, the number of its line)
        self._counts: dict[str, tuple[int, int]] = {}
        self._controller_epoch = controller_epoch

    def read(self, line: str, number: int) -> None:
        """Raises InvalidStateError with the reason when the line cannot be read."""
        if not line.strip():
            return
        line = line.strip()
        fields = _fields(line)
        topic = fields.get("Topic")
        if topic is None:
            raise InvalidStateError(f"not a line of kafka-topics --describe: {_shortened(line)}")
        wrong = why_invalid(topic)
        if wrong is not None:
            raise InvalidStateError(f"{wrong} ({_shortened(topic)})")
        if fields.get("MarkedForDeletion") == "true":
            self.deleting.add(topic)
        if "PartitionCount" in fields:
            self._counts[topic] = (_int("PartitionCount", fields["PartitionCount"]), number)
            if "TopicId" in fields:
                self.topic_ids[topic] = id_from_text(fields["TopicId"])
        elif "Partition" in fields:
            self._read_partition(topic, fields, number)
        else:
            raise InvalidStateError(
                "neither a topic's line (no PartitionCount) nor a partition's (no Partition)"
            )

    def check_counts(self, source: str) -> None:
        """Raises SnapshotError for the first topic that has other partitions than its line counts."""
        for topic, (count, number) in self._counts.items():
            found = len(self.lines_of.get(topic, ()))
            if found != count:
                raise SnapshotError(
                    f"{source}: line {number}: topic {topic} has PartitionCount {count}, "
                    f"but there are {found} of its partitions"
                )

    def _read_partition(self, topic: str, fields: dict[str, str], number: int) -> None:
        partition = _int("Partition", fields["Partition"])
        numbers = self.lines_of.setdefault(topic, {})
        if partition in numbers:
            raise InvalidStateError(f"partition {topic}-{partition} is on line {numbers[partition]} already")
        leader = _required(fields, "Leader")
        replicas = _ints("Replicas", _required(fields, "Replicas"))
        if not replicas:
            raise InvalidStateError("Replicas is empty")
        isr = _ints("Isr", _required(fields, "Isr"))
        leader_id = NO_LEADER if leader in ("none", "-1") else _int("Leader", leader)
        self.rows.add(
            topic,
            partition,
            replicas,
            leader=leader_id,
            isr=isr,
            leader_epoch=0,
            partition_epoch=0,
            controller_epoch=self._controller_epoch,
            adding=_ints("Adding Replicas", fields.get("Adding Replicas", "")),
            removing=_ints("Removing Replicas", fields.get("Removing Replicas", "")),
        )
        numbers[partition] = number
        self.in_sync.update(isr if leader_id == NO_LEADER else (leader_id, *isr))


def _fields(line: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for field in BETWEEN_FIELDS.split(line):
        name, _, value = field.partition(":")
        fields[name.strip()] = value.strip()
    return fields


def _required(fields: dict[str, str], name: str) -> str:
    if name not in fields:
        raise InvalidStateError(f"no field {name}")
    return fields[name]


def _int(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InvalidStateError(f"{name} is {text!r}, not a number")
    return int(text)


def _ints(name: str, text: str) -> list[int]:
    return [_int(name, one.strip()) for one in text.split(",")] if text else []


def _shortened(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
