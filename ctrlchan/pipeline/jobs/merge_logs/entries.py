"""Parses one entry of a state-change log: its head (time, level, writer) and its message.

An entry begins with Kafka's layout ``[%d] %p %m (%c)%n`` (config/log4j.properties of Kafka 3.9), or with
Python's ``%(asctime)s %(levelname)s %(message)s``, which ``ctrlchan -v`` prints; both write the time as
``2026-01-31 23:59:59,999``. All lines up to the next head belong to the entry.

An unknown message is no error: its entry has the event "other". Only a head without a valid time is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from ctrlchan.pipeline.jobs.merge_logs.messages import message_of
from ctrlchan.pipeline.jobs.merge_logs.values import (
    Answer,
    answers_of,
    error_code_of,
    int32,
    numbers,
    state_of,
)

__all__ = ["OTHER", "BadLineError", "Entry", "begins_entry", "parse"]

#: The event of an entry with an unknown message.
OTHER: Final = "other"

_HEAD: Final = re.compile(
    r"\[?(?P<hour>\d{4}-\d\d-\d\d[ T]\d\d):(?P<minute>\d\d):(?P<second>\d\d)[,.](?P<milli>\d{3})\]? "
    r"(?P<level>TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL) ",
    re.ASCII,
)
#: A line that looks like the beginning of an entry.
_TIME: Final = re.compile(r"\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[,.]\d", re.ASCII)
#: Python's name of a level -> log4j's.
_LEVELS: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_LOGGER: Final = re.compile(r" \(([\w.$-]+)\)$", re.MULTILINE | re.ASCII)
_PREFIX: Final = re.compile(
    r"\[(?P<role>Broker|Controller) id=(?P<id>-?\d+)(?: epoch=(?P<epoch>-?\d+))?\] ", re.ASCII
)
#: The prefix before Kafka 1.0; the message went on with a small letter.
_OLD_PREFIX: Final = re.compile(
    r"^(?P<role>Broker|Controller) (?P<id>\d+)(?: epoch (?P<epoch>\d+))? ", re.ASCII
)
_PARTITION: Final = re.compile(
    r"\[(?P<old_topic>[a-zA-Z0-9._-]+),(?P<old_partition>\d+)\]"
    r"|\bpartition (?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)(?![\w-])",
    re.ASCII,
)
_CORRELATION: Final = re.compile(r"\bcorrelation ?[iI]d (-?\d+)", re.ASCII)
_NAMED_PARTITION: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)", re.ASCII)

_INTS: Final = (
    "controller_id",
    "controller_epoch",
    "correlation_id",
    "partition",
    "leader",
    "leader_epoch",
    "partition_epoch",
    "replica",
    "known_epoch",
    "count",
)
_MICROS: Final = 1_000_000


class BadLineError(ValueError):
    """Raised for a line that looks like the head of an entry and is none; the message is the reason."""


@dataclass(slots=True)
class Entry:
    """A parsed entry. A value that the entry does not contain is None."""

    #: Microseconds since 1970, UTC.
    time: int
    level: str
    event: str
    #: The broker that wrote the entry, as ``controller`` or as ``broker``.
    broker: int | None = None
    role: str | None = None
    #: LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA.
    api: str | None = None
    #: The controller that wrote the entry, or whose request the broker logs.
    controller_id: int | None = None
    controller_epoch: int | None = None
    correlation_id: int | None = None
    #: The brokers that the controller sends to, or that answered.
    to: list[int] | None = None
    topic: str | None = None
    partition: int | None = None
    #: In Kafka's text form: base64 without padding.
    topic_id: str | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    isr: list[int] | None = None
    replicas: list[int] | None = None
    #: Whether a StopReplica deletes the replica.
    delete: bool | None = None
    #: The broker whose replica changed its state.
    replica: int | None = None
    from_state: str | None = None
    to_state: str | None = None
    #: The newer epoch of the broker: a leader epoch or controller epoch.
    known_epoch: int | None = None
    #: Number of partitions in a request.
    count: int | None = None
    #: The error of a whole response.
    error_code: int | None = None
    #: The reason of a failure.
    error: str | None = None
    #: The partitions of a response with their error codes, or a list of partitions.
    partitions: list[Answer] = field(default_factory=list)


def begins_entry(line: str) -> bool:
    """Return whether an entry begins with this line; raises BadLineError for a time without a level."""
    if _HEAD.match(line) is not None:
        return True
    if _TIME.match(line) is not None:
        raise BadLineError("a time begins the line and no level follows")
    return False


def parse(text: str, zone: ZoneInfo) -> Entry:
    """Parse a whole entry, its lines joined by ``\\n``. ``zone``: the time zone of its time.

    Raises BadLineError when the first line is no head or its time is invalid.
    """
    head = _HEAD.match(text)
    if head is None:
        begins_entry(text)
        raise BadLineError("no entry begins with this line")
    time = _time(head, zone)
    level = head["level"]
    message, rest = _message(text[head.end() :])
    entry = Entry(time, _LEVELS.get(level, level), OTHER)
    prefix = _PREFIX.match(message) or _OLD_PREFIX.match(message)
    if prefix is not None:
        entry.role, entry.broker = prefix["role"].lower(), int32(prefix["id"])
        if entry.role == "controller":
            entry.controller_id = entry.broker
            entry.controller_epoch = int32(prefix["epoch"] or "")
        # Kafka 1.1 to 3.9 have both prefixes in some messages.
        message = _OLD_PREFIX.sub("", message[prefix.end() :], count=1)
        message = message[:1].upper() + message[1:]
    _fill(entry, message)
    if entry.event.endswith("failed") and entry.error is None and rest:
        entry.error = rest.split("\n", 1)[0].strip()
    return entry


def _message(text: str) -> tuple[str, str]:
    """Split into the message and the stack trace; the logger's name stands between the two."""
    logger = _LOGGER.search(text)
    if logger is None:
        return text.rstrip(), ""
    return text[: logger.start()], text[logger.end() + 1 :]


def _fill(entry: Entry, text: str) -> None:
    """Set the fields of ``entry`` from the text of its message."""
    found = message_of(text)
    if found is None:
        _fill_unknown(entry, text)
        return
    message, match = found
    values = match.groupdict()
    entry.event = message.event
    entry.api = message.api or values.get("api")
    if (state := values.get("state")) is not None:
        for name, value in state_of(state).items():
            if name in Entry.__slots__:
                setattr(entry, name, value)
    if (broker := values.get("broker")) is not None:
        entry.role, entry.broker = "broker", int32(broker)
    if (delete := values.get("delete")) is not None:
        entry.delete = delete == "true"
    for name in _INTS:
        if (value := values.get(name)) is not None:
            setattr(entry, name, int32(value))
    for name in ("topic", "topic_id", "from_state", "to_state", "error"):
        if (value := values.get(name)) is not None:
            setattr(entry, name, value)
    for name in ("to", "isr", "replicas"):
        if (value := values.get(name)) is not None:
            setattr(entry, name, numbers(value))
    if entry.event == "stale_leader_epoch" and entry.leader_epoch == entry.known_epoch:
        # Kafka before 2.3 had one message for both.
        entry.event = "already_known"
    if (answer := values.get("answer")) is not None:
        entry.error_code = error_code_of(answer)
        entry.partitions = answers_of(answer)
    elif (listed := values.get("partitions")) is not None:
        for named in filter(None, map(_NAMED_PARTITION.fullmatch, listed.split(","))):
            if (number := int32(named[2])) is not None:
                entry.partitions.append(Answer(named[1], None, number, 0))


def _fill_unknown(entry: Entry, text: str) -> None:
    """Set partition and correlation id from an unknown message."""
    partition = _PARTITION.search(text)
    if partition is not None:
        entry.topic = partition["topic"] or partition["old_topic"]
        entry.partition = int32(partition["partition"] or partition["old_partition"])
    correlation = _CORRELATION.search(text)
    if correlation is not None:
        entry.correlation_id = int32(correlation[1])


def _time(head: re.Match[str], zone: ZoneInfo) -> int:
    """Return the time of a head in microseconds since 1970."""
    hour, minute, second = head["hour"], int(head["minute"]), int(head["second"])
    start = _start_of(hour.replace("T", " "), zone)
    if start is None or minute > 59 or second > 59:
        shown = head[0].split("]")[0].strip("[ ")
        raise BadLineError(f"there is no such time: {shown}")
    return start + (minute * 60 + second) * _MICROS + int(head["milli"]) * 1000


@lru_cache(maxsize=4096)
def _start_of(hour: str, zone: ZoneInfo) -> int | None:
    """Return the start of an hour in microseconds since 1970; of an hour that occurs twice, the first."""
    try:
        start = datetime.strptime(hour, "%Y-%m-%d %H").replace(tzinfo=zone)
        return int(start.timestamp()) * _MICROS
    except (ValueError, OverflowError):
        return None
