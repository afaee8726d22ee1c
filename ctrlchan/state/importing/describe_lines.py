"""Lines of ``kafka-topics --describe`` -> fields.

Every version from 0.8 to 4.x is read: ``Name: value`` fields (``Name:value`` on the topic's line before 2.4)
between tabs, or between blanks once the text has been through a terminal. A topic's line has Topic, TopicId
(since 2.8), PartitionCount, ReplicationFactor, Configs, MarkedForDeletion; a partition's line has Topic,
Partition, Leader (a number or ``none``), Replicas, Isr, Adding Replicas and Removing Replicas (while it is
reassigned), Elr and LastKnownElr (since 3.7, without meaning in ZooKeeper mode), MarkedForDeletion.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ctrlchan.errors import InvalidStateError, MalformedError
from ctrlchan.protocol import NO_LEADER
from ctrlchan.text import parse_number, quoted
from ctrlchan.topic_names import ZERO_ID, id_from_text

__all__ = ["PartitionLine", "TopicLine", "parse_line"]

_BLANKS: Final = " \t\r\n\f\v"
_BETWEEN_FIELDS: Final = re.compile(
    r"(?<!Adding)(?<!Removing)\s+"
    r"(?=(?:TopicId|PartitionCount|ReplicationFactor|Configs|MarkedForDeletion|Partition|Leader|Replicas|Isr"
    r"|Adding Replicas|Removing Replicas|Elr|LastKnownElr):)",
    re.ASCII,
)


class TopicLine(NamedTuple):
    """The line of a topic. ``topic_id``: 16 bytes, None before Kafka 2.8.

    ``reasons``: everything that is malformed in the line; the fields concerned are -1 or None.
    """

    topic: str
    partition_count: int
    topic_id: bytes | None
    marked_for_deletion: bool
    reasons: tuple[str, ...] = ()


class PartitionLine(NamedTuple):
    """The line of a partition. ``leader``: -1 for none.

    ``reasons``: everything that is malformed in the line; the fields concerned are -1 or empty.
    """

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    adding: list[int]
    removing: list[int]
    marked_for_deletion: bool
    reasons: tuple[str, ...] = ()


def parse_line(line: str) -> TopicLine | PartitionLine | None:
    """Return the fields of a line, None for a blank line.

    Topic names and the range of numbers are for the caller to check. Raises MalformedError for a line of
    neither kind.
    """
    line = line.strip(_BLANKS)
    if not line:
        return None
    fields: dict[str, str] = {}
    for field in _BETWEEN_FIELDS.split(line):
        name, _, value = field.partition(":")
        fields[name] = value.strip(_BLANKS)
    topic = fields.get("Topic")
    if topic is None:
        raise MalformedError(f"not a line of kafka-topics --describe: {quoted(line)}")
    deleted = fields.get("MarkedForDeletion") == "true"
    reasons: list[str] = []
    if "PartitionCount" in fields:
        count = _number("PartitionCount", fields["PartitionCount"], reasons)
        topic_id = _topic_id(fields.get("TopicId"), reasons)
        return TopicLine(topic, count, topic_id, deleted, tuple(reasons))
    if "Partition" not in fields:
        raise MalformedError("neither a topic's line (no PartitionCount) nor a partition's (no Partition)")
    partition = _number("Partition", fields["Partition"], reasons)
    leader = fields.get("Leader", "none")
    leader_id = NO_LEADER if leader in ("none", "-1") else _number("Leader", leader, reasons)
    replicas, isr, adding, removing = (
        _numbers(name, fields.get(name, ""), reasons)
        for name in ("Replicas", "Isr", "Adding Replicas", "Removing Replicas")
    )
    reasons += [f"no field {name}" for name in ("Leader", "Replicas", "Isr") if name not in fields]
    return PartitionLine(
        topic, partition, leader_id, replicas, isr, adding, removing, deleted, tuple(reasons)
    )


def _number(name: str, text: str, reasons: list[str]) -> int:
    try:
        return parse_number(name, text)
    except MalformedError as error:
        reasons += error.reasons
        return -1


def _numbers(name: str, text: str, reasons: list[str]) -> list[int]:
    if not text:
        return []
    values = []
    for one in text.split(","):
        one = one.strip(_BLANKS)
        try:
            values.append(parse_number(name, one))
        except MalformedError:
            reasons.append(f"{name} has {quoted(one)}, not a number")
            return []
    return values


def _topic_id(text: str | None, reasons: list[str]) -> bytes | None:
    if text is None:
        return None
    try:
        topic_id = id_from_text(text)
        if topic_id == ZERO_ID:
            # The tool leaves it out.
            reasons.append(f"{quoted(text)} is the id of no topic")
            return None
        return topic_id
    except InvalidStateError:
        reasons.append(f"{quoted(text)} is not a topic id (22 base64url characters)")
        return None
