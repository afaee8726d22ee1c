"""One entry of a state-change log: its head (time, level, who speaks) and what it says.

An entry begins with Kafka's layout ``[%d] %p %m (%c)%n`` (config/log4j.properties of Kafka 3.9), or with
Python's ``%(asctime)s %(levelname)s %(message)s``, with which ``ctrlchan -v`` prints; both write
``2026-01-31 23:59:59,999``. Every further line, of a message or of a stack trace, is the entry's until the
next begins.

``parse`` never fails on what it does not know: an entry is one of the event "other" then, with what its words
let be seen. Only a head that names no moment is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from ctrlchan.pipeline.jobs.merge_logs.fields import (
    Answer,
    answers_of,
    error_code_of,
    int32,
    numbers,
    state_of,
)
from ctrlchan.pipeline.jobs.merge_logs.sentences import sentence_of

__all__ = ["OTHER", "BadLineError", "Entry", "begins_entry", "parse"]

#: The event of an entry whose sentence is not known.
OTHER: Final = "other"

_HEAD: Final = re.compile(
    r"\[?(?P<hour>\d{4}-\d\d-\d\d[ T]\d\d):(?P<minute>\d\d):(?P<second>\d\d)[,.](?P<milli>\d{3})\]? "
    r"(?P<level>TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL) ",
    re.ASCII,
)
#: What looks as if an entry were to begin.
_MOMENT: Final = re.compile(r"\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[,.]\d", re.ASCII)
#: The names that Python gives to log4j's levels.
_LEVELS: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_LOGGER: Final = re.compile(r" \(([\w.$-]+)\)$", re.MULTILINE | re.ASCII)
_PREFIX: Final = re.compile(
    r"\[(?P<role>Broker|Controller) id=(?P<id>-?\d+)(?: epoch=(?P<epoch>-?\d+))?\] ", re.ASCII
)
#: Kafka before 1.1 had no prefix, a sentence for each broker and partitions in brackets.
_OLD_SPEAKER: Final = re.compile(
    r"(?P<role>Broker|Controller) (?P<id>\d+)(?: epoch (?P<epoch>\d+))? ", re.ASCII
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
    """A line that ought to begin an entry and cannot; the message is the reason."""


@dataclass(slots=True)
class Entry:
    """An entry without its place. None: it does not say."""

    #: Microseconds since 1970, UTC.
    time: int
    level: str
    event: str
    #: Who wrote it, and whether as ``controller`` or as ``broker``.
    broker: int | None = None
    role: str | None = None
    #: LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA.
    api: str | None = None
    #: The controller that speaks, or that a broker was spoken to by.
    controller_id: int | None = None
    controller_epoch: int | None = None
    correlation_id: int | None = None
    #: The brokers that the controller speaks to, or that answered.
    to: list[int] | None = None
    topic: str | None = None
    partition: int | None = None
    #: As Kafka's Uuid prints itself.
    topic_id: str | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    isr: list[int] | None = None
    replicas: list[int] | None = None
    #: StopReplica's.
    delete: bool | None = None
    #: Whose state changed.
    replica: int | None = None
    from_state: str | None = None
    to_state: str | None = None
    #: What the broker knew better: a leader epoch, or the controller's.
    known_epoch: int | None = None
    #: Partitions of a request.
    count: int | None = None
    #: Of a whole response.
    error_code: int | None = None
    #: Why something was not done.
    error: str | None = None
    #: The partitions of a response with their error codes, or those of a list.
    partitions: list[Answer] = field(default_factory=list)


def begins_entry(line: str) -> bool:
    """Whether an entry begins with this line. Raises BadLineError when one ought to, and has no level."""
    if _HEAD.match(line) is not None:
        return True
    if _MOMENT.match(line) is not None:
        raise BadLineError("it begins with a time and no level follows")
    return False


def parse(text: str, zone: ZoneInfo) -> Entry:
    """``text``: a whole entry, its lines joined by ``\\n``. ``zone``: where its time was taken.

    Raises BadLineError when the first line is no head or its time is none.
    """
    head = _HEAD.match(text)
    if head is None:
        begins_entry(text)
        raise BadLineError("no entry begins with it")
    time = _time(head, zone)
    level = head["level"]
    message, rest = _message(text[head.end() :])
    entry = Entry(time, _LEVELS.get(level, level), OTHER)
    prefix = _PREFIX.match(message) or _OLD_SPEAKER.match(message)
    if prefix is not None:
        entry.role, entry.broker = prefix["role"].lower(), int32(prefix["id"])
        if entry.role == "controller":
            entry.controller_id = entry.broker
            entry.controller_epoch = int32(prefix["epoch"] or "")
        if prefix.re is _PREFIX:
            message = message[prefix.end() :]
    _tell(entry, message)
    if entry.event.endswith("failed") and entry.error is None and rest:
        entry.error = rest.split("\n", 1)[0].strip()
    return entry


def _message(text: str) -> tuple[str, str]:
    """What was logged, and the stack trace behind it; the logger's name stands between the two."""
    logger = _LOGGER.search(text)
    if logger is None:
        return text.rstrip(), ""
    return text[: logger.start()], text[logger.end() + 1 :]


def _tell(entry: Entry, message: str) -> None:
    found = sentence_of(message)
    if found is None:
        _tell_words(entry, message)
        return
    sentence, match = found
    told = match.groupdict()
    entry.event = sentence.event
    entry.api = sentence.api or told.get("api")
    if (state := told.get("state")) is not None:
        for name, value in state_of(state).items():
            if name in Entry.__slots__:
                setattr(entry, name, value)
    for name in _INTS:
        if (value := told.get(name)) is not None:
            setattr(entry, name, int32(value))
    for name in ("topic", "topic_id", "from_state", "to_state", "error"):
        if (value := told.get(name)) is not None:
            setattr(entry, name, value)
    for name in ("to", "isr", "replicas"):
        if (value := told.get(name)) is not None:
            setattr(entry, name, numbers(value))
    if (answer := told.get("answer")) is not None:
        entry.error_code = error_code_of(answer)
        entry.partitions = answers_of(answer)
    elif (listed := told.get("partitions")) is not None:
        for named in filter(None, map(_NAMED_PARTITION.fullmatch, listed.split(","))):
            if (number := int32(named[2])) is not None:
                entry.partitions.append(Answer(named[1], None, number, 0))


def _tell_words(entry: Entry, message: str) -> None:
    """What can be seen in a sentence that is not known."""
    partition = _PARTITION.search(message)
    if partition is not None:
        entry.topic = partition["topic"] or partition["old_topic"]
        entry.partition = int32(partition["partition"] or partition["old_partition"])
    correlation = _CORRELATION.search(message)
    if correlation is not None:
        entry.correlation_id = int32(correlation[1])


def _time(head: re.Match[str], zone: ZoneInfo) -> int:
    hour, minute, second = head["hour"], int(head["minute"]), int(head["second"])
    start = _start_of(hour.replace("T", " "), zone)
    if start is None or minute > 59 or second > 59:
        moment = head[0].split("]")[0].strip("[ ")
        raise BadLineError(f"there is no such time: {moment}")
    return start + (minute * 60 + second) * _MICROS + int(head["milli"]) * 1000


@lru_cache(maxsize=4096)
def _start_of(hour: str, zone: ZoneInfo) -> int | None:
    """When an hour of this place began, microseconds; of an hour that comes twice a year the first."""
    try:
        moment = datetime.strptime(hour, "%Y-%m-%d %H").replace(tzinfo=zone)
        return int(moment.timestamp()) * _MICROS
    except (ValueError, OverflowError):
        return None
