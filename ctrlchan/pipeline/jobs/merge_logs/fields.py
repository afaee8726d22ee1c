"""The states and answers inside Kafka's sentences: ``Name(field=value, ...)`` -> fields.

What classes print has changed little: ``zkVersion`` became ``partitionEpoch``, an ISR may carry broker epochs
(``isrWithBrokerEpoch``). Names are mapped to those of our columns; what has no column is left out.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypedDict

__all__ = ["Answer", "PartitionState", "answers_of", "error_code_of", "int32", "numbers", "state_of"]


class PartitionState(TypedDict, total=False):
    """What a printed state says of its partition."""

    topic: str
    partition: int
    state_controller_epoch: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: list[int]
    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
    offline_replicas: list[int]
    is_new: bool
    delete: bool


class Answer(NamedTuple):
    """One partition in a response; by name or by id, as the version has it."""

    topic: str | None
    topic_id: str | None
    partition: int
    error_code: int


#: Printed name -> column. Those with capitals are LeaderIsrAndControllerEpoch's.
_NAMES: Final = {
    "topicName": "topic",
    "partitionIndex": "partition",
    "controllerEpoch": "state_controller_epoch",
    "ControllerEpoch": "state_controller_epoch",
    "leader": "leader",
    "Leader": "leader",
    "leaderEpoch": "leader_epoch",
    "LeaderEpoch": "leader_epoch",
    "partitionEpoch": "partition_epoch",
    "zkVersion": "partition_epoch",
    "ZkVersion": "partition_epoch",
    "isr": "isr",
    "ISR": "isr",
    "isrWithBrokerEpoch": "isr",
    "replicas": "replicas",
    "addingReplicas": "adding_replicas",
    "removingReplicas": "removing_replicas",
    "offlineReplicas": "offline_replicas",
    "isNew": "is_new",
    "deletePartition": "delete",
}
_LISTS: Final = {"isr", "replicas", "adding_replicas", "removing_replicas", "offline_replicas"}
_FLAGS: Final = {"is_new", "delete"}
#: A value ends where the next name begins. A list's numbers are no names.
_FIELD: Final = re.compile(r"(\w+)[=:](.*?)(?=, ?[A-Za-z]\w*[=:]|\)?$)", re.DOTALL | re.ASCII)
_BROKER_STATES: Final = re.compile(r"(?:List\(|\[)(BrokerState\(.*?\))?(?:\)|\])(?=,|\)?$)", re.ASCII)
_BROKER_ID: Final = re.compile(r"brokerId=(-?\d+)", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d+", re.ASCII)

_ERROR_CODE: Final = re.compile(r"errorCode=(-?\d+)", re.ASCII)
#: A topic's id, or a partition's error: in the order in which they are printed.
_ANSWER: Final = re.compile(
    r"topicId=(?P<topic_id>[\w-]+)"
    r"|(?:topicName='(?P<topic>[^']*)', )?partitionIndex=(?P<partition>\d+), errorCode=(?P<error_code>-?\d+)",
    re.ASCII,
)


def state_of(text: str) -> PartitionState:
    """``text``: ``Name(field=value, ...)`` or ``(Leader:1,ISR:1,2,...)``; an ill-formed value is left out."""
    # Their own fields would be taken for the state's.
    text = _BROKER_STATES.sub(lambda states: f"[{', '.join(_BROKER_ID.findall(states[0]))}]", text)
    found: PartitionState = {}
    for name, value in _FIELD.findall(text[text.find("(") + 1 :]):
        column = _NAMES.get(name)
        if column is None:
            continue
        if column in _LISTS:
            found[column] = numbers(value)  # type: ignore[literal-required]
        elif column in _FLAGS:
            found[column] = value == "true"  # type: ignore[literal-required]
        elif column == "topic":
            found["topic"] = value.strip("'")
        elif (number := int32(value)) is not None:
            found[column] = number  # type: ignore[literal-required]
    return found


def answers_of(text: str) -> list[Answer]:
    """The partitions that a printed response names, with their error codes."""
    topic_id: str | None = None
    answers: list[Answer] = []
    for match in _ANSWER.finditer(text):
        if match["topic_id"] is not None:
            topic_id = match["topic_id"]
        else:
            partition, error_code = int32(match["partition"]), int32(match["error_code"])
            if partition is not None and error_code is not None:
                topic = match["topic"] if topic_id is None else None
                answers.append(Answer(topic, topic_id, partition, error_code))
    return answers


def error_code_of(text: str) -> int | None:
    """The error of the whole response."""
    match = _ERROR_CODE.search(text)
    return None if match is None else int32(match[1])


def numbers(text: str) -> list[int]:
    """``[1, 2]``, ``1,2``, ``HashSet(1, 2)``: the broker ids in it."""
    found = (int32(number) for number in _NUMBER.findall(text))
    return [number for number in found if number is not None]


def int32(text: str) -> int | None:
    """None: it is no number, or none that Kafka could have meant."""
    if _NUMBER.fullmatch(text) is None or len(text) > 11:
        return None
    number = int(text)
    return number if -(2**31) <= number < 2**31 else None
