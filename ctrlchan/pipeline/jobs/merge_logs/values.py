"""Parses partition states and responses as Kafka prints them.

A partition state is ``Name(field=value, ...)``, or ``(Leader:1,ISR:1,2,...)`` of the controller's own.
Field names changed little between versions: ``zkVersion`` became ``partitionEpoch``, an ISR may contain
broker epochs (``isrWithBrokerEpoch``). Names are mapped to our columns; fields without a column are left out.

A response has one of four printing styles:

======================================================================================  ===================
``{error_code=0,partitions=[{topic=t,partition=0,error_code=56}]}``                     Kafka 0.10 to 2.3
``{error_code=0,partition_errors=[{topic_name=t,partition_index=0,error_code=56}]}``    2.4 to 2.7
``LeaderAndIsrResponseData(errorCode=0, partitionErrors=[Name(topicName='t', ...)])``   2.8 to 3.9
``LeaderAndIsrResponse(responses={t-0=KAFKA_STORAGE_ERROR}, error=NONE)``               1.1 to 2.3: errors
======================================================================================  ===================
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, TypedDict

from ctrlchan.errors import ErrorCode

__all__ = ["Answer", "PartitionState", "answers_of", "error_code_of", "int32", "numbers", "state_of"]


class PartitionState(TypedDict, total=False):
    """The fields of a printed partition state."""

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
    """One partition of a response, with the topic's name or id, depending on the version."""

    topic: str | None
    topic_id: str | None
    partition: int
    error_code: int


#: Printed name -> column. Capitalised names are LeaderIsrAndControllerEpoch's.
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
#: A value ends where the next name begins; a number in a list is no name.
_FIELD: Final = re.compile(r"(\w+)[=:](.*?)(?=, ?[A-Za-z]\w*[=:]|\)?$)", re.DOTALL | re.ASCII)
_BROKER_STATES: Final = re.compile(r"(?:List\(|\[)(BrokerState\(.*?\))?(?:\)|\])(?=,|\)?$)", re.ASCII)
_BROKER_ID: Final = re.compile(r"brokerId=(-?\d+)", re.ASCII)
_NUMBER: Final = re.compile(r"-?\d+", re.ASCII)

#: Kafka 0.10 and 0.11 put the state of a cached partition into brackets of its own.
_INNER_STATE: Final = re.compile(r"LeaderAndIsrInfo:\((.*?)\)", re.ASCII)
#: The whole response's error is the first.
_ERROR_CODE: Final = re.compile(r"(?:errorCode|error_code)=(-?\d+)", re.ASCII)
_ERROR_NAME: Final = re.compile(r"\berror=([A-Z_]+)\)$", re.ASCII)
#: A topic's id, or a partition's error.
_ANSWER: Final = re.compile(
    r"topicId=(?P<topic_id>[\w-]+)"
    r"|(?:topicName='(?P<topic>[^']*)', )?partitionIndex=(?P<partition>\d+), errorCode=(?P<error_code>-?\d+)",
    re.ASCII,
)
_STRUCT_ANSWER: Final = re.compile(
    r"\{topic(?:_name)?=([^,{}]*),partition(?:_index)?=(\d+),error_code=(-?\d+)", re.ASCII
)
_NAMED_ANSWER: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)=([A-Z_]+)", re.ASCII)


def state_of(text: str) -> PartitionState:
    """Parse ``Name(field=value, ...)`` or ``(Leader:1,ISR:1,2,...)``; ill-formed values are left out."""
    text = _INNER_STATE.sub(r"\1", text)
    # The fields of a BrokerState are not those of the partition state.
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
    """Return the partitions of a printed response with their error codes."""
    if text.startswith("{"):
        found = (_answer(match[1], None, *match.groups()[1:]) for match in _STRUCT_ANSWER.finditer(text))
        return [answer for answer in found if answer is not None]
    if "responses={" in text:
        found = (
            _answer(topic, None, partition, str(_code_of(name)))
            for topic, partition, name in _NAMED_ANSWER.findall(text)
        )
        return [answer for answer in found if answer is not None]
    topic_id: str | None = None
    answers: list[Answer] = []
    for match in _ANSWER.finditer(text):
        if match["topic_id"] is not None:
            topic_id = match["topic_id"]
        else:
            topic = match["topic"] if topic_id is None else None
            answer = _answer(topic, topic_id, match["partition"], match["error_code"])
            if answer is not None:
                answers.append(answer)
    return answers


def _answer(topic: str | None, topic_id: str | None, partition: str, error_code: str) -> Answer | None:
    number, code = int32(partition), int32(error_code)
    return None if number is None or code is None else Answer(topic, topic_id, number, code)


def error_code_of(text: str) -> int | None:
    """Return the error code of the whole response; None where the text does not show it."""
    if (name := _ERROR_NAME.search(text)) is not None:
        return _code_of(name[1])
    match = _ERROR_CODE.search(text)
    return None if match is None else int32(match[1])


def _code_of(name: str) -> int:
    """Return the number of an error that is printed by its name."""
    return ErrorCode.__members__.get(name, ErrorCode.UNKNOWN_SERVER_ERROR).value


def numbers(text: str) -> list[int]:
    """Return the broker ids in ``[1, 2]``, ``1,2`` or ``HashSet(1, 2)``."""
    found = (int32(number) for number in _NUMBER.findall(text))
    return [number for number in found if number is not None]


def int32(text: str) -> int | None:
    """Return ``text`` as a number; None if it is none or does not fit into int32."""
    if _NUMBER.fullmatch(text) is None or len(text) > 11:
        return None
    number = int(text)
    return number if -(2**31) <= number < 2**31 else None
