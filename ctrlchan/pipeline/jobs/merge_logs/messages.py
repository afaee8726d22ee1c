"""Recognises the messages that Kafka's controllers and brokers write to a state-change log.

``wordings.py`` lists the messages as they are printed, with placeholders in braces:

=====================  ================================================================================
``{tp}``               ``orders-0`` or ``[orders,0]``. A topic may contain ``-`` and ``.``
``{controller}``       controller id; ``{epoch}``: controller epoch
``{broker}``           the broker that wrote it; ``{correlation}``: correlation id of the request
``{to}``               the broker a request was sent to; ``{tos}``: several, ``HashSet(1, 2)``
``{address}``          that broker with its address: ``kafka-1:9092 (id: 1 rack: null)``
``{state}``            ``Name(field=value, ...)`` or ``(Leader:1,ISR:1,2,...)``: see ``values.py``
``{answer}``           a response in one of its printing styles: see ``values.py``
``{count}``            number of partitions in the request; ``{delete}``: true or false
``{assignment}``       ``ReplicaAssignment(replicas=1,2, ...)``
``{leader}`` ...       the column of that name: a number, or a list of numbers
``{word}``             one word without a column; ``{any}``: any text
=====================  ================================================================================

An unknown message becomes an entry with the event "other".
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ctrlchan.pipeline.jobs.merge_logs.wordings import TABLE

__all__ = ["APPLIED_SINCE", "EVENTS_SINCE_APPLIED", "MESSAGES", "Message", "message_of"]

_NUMBER: Final = r"-?\d+"
_NUMBERS: Final = r"[\d, \-]*"
#: Placeholder -> regular expression.
_PLACEHOLDERS: Final = {
    # Greedy: the last "-" before a number separates topic and partition.
    "tp": r"\[?(?P<topic>[a-zA-Z0-9._-]+)[-,](?P<partition>\d+)\]?",
    "controller": rf"(?P<controller_id>{_NUMBER})",
    "epoch": rf"(?P<controller_epoch>{_NUMBER})",
    "correlation": rf"(?P<correlation_id>{_NUMBER})",
    "count": r"(?P<count>\d+)",
    "to": rf"(?P<to>{_NUMBER})",
    "tos": rf"\w*\((?P<to>{_NUMBERS})\)",
    "state": r"(?P<state>\w*\(.*\))",
    "address": rf"(?:\S+ )?\(id: (?P<to>{_NUMBER}) rack: .*\)",
    "answer": r"(?P<answer>\w+\(.*\)|\{.*\}|\S+)",
    "delete": r"(?P<delete>true|false)",
    "isr": rf"\[(?P<isr>{_NUMBERS})\]",
    "replicas": rf"(?P<replicas>{_NUMBERS})",
    "assignment": rf"(?:ReplicaAssignment\(replicas=(?P<replicas>{_NUMBERS}), .*\)|.*)",
    "topic_id": r"(?:Some\()?(?P<topic_id>[\w-]{22})\)?",
    "maybe_topic_id": r"(?:Some\((?P<topic_id>[\w-]{22})\)|None)",
    "from": r"(?P<from_state>\w+)",
    "target": r"(?P<to_state>\w+)",
    "api": r"(?P<api>[A-Z_]+)",
    "error": r"(?P<error>.*)",
    "offline": r"(?P<partitions>\S*)",
    "word": r"\S+",
    "any": r".*",
} | {
    name: rf"(?P<{name}>{_NUMBER})"
    for name in ("broker", "leader", "leader_epoch", "partition_epoch", "replica", "known_epoch")
}


class Message(NamedTuple):
    """A kind of message. ``api``: its control request, None if it has none or the text names it.

    ``first``, ``last``: the releases of Kafka that write it, as (3, 9).
    """

    event: str
    api: str | None
    first: tuple[int, ...]
    last: tuple[int, ...]
    #: With placeholders.
    text: str
    pattern: re.Pattern[str]


def _pattern(text: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", text)
    pattern = "".join(_PLACEHOLDERS[part] if at % 2 else re.escape(part) for at, part in enumerate(parts))
    return re.compile(pattern, re.DOTALL | re.ASCII)


def _message(line: str) -> Message:
    """Return the message of a line of the table."""
    event, api, first, last, text = line.split(maxsplit=4)
    return Message(event, None if api == "-" else api, _release(first), _release(last), text, _pattern(text))


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


#: The lines of the table.
MESSAGES: Final = [_message(line) for line in TABLE.splitlines() if line and line[0] != "#"]
_BY_FIRST_WORD: Final[dict[str, list[Message]]] = {}
for _one in MESSAGES:
    _BY_FIRST_WORD.setdefault(_one.text.split(" ", 1)[0], []).append(_one)

#: The first release that logs at level INFO that a broker applied a leader epoch. Releases before it log
#: "Completed LeaderAndIsr request" at level TRACE.
APPLIED_SINCE: Final = min(one.first for one in MESSAGES if one.event in ("became_leader", "became_follower"))
#: Events that only releases since then write.
EVENTS_SINCE_APPLIED: Final = frozenset(one.event for one in MESSAGES) - frozenset(
    one.event for one in MESSAGES if one.first < APPLIED_SINCE
)


def message_of(text: str) -> tuple[Message, re.Match[str]] | None:
    """Return the kind of a message and the match with its values; None for an unknown message.

    ``text``: without the prefix ``[Broker id=1] `` or ``Broker 1 ``, with a capital first letter.
    """
    for message in _BY_FIRST_WORD.get(text.split(" ", 1)[0], ()):
        match = message.pattern.fullmatch(text)
        if match is not None:
            return message, match
    return None
