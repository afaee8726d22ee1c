"""The answer to a request that fails as a whole: every error field of the response has the error.

Kafka writes ``getErrorResponse`` for each request by hand. Here the response follows the request: an array of
the response whose entries can have an error has one entry for each entry of the request's array.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

from ctrlchan.server.kio_entities import duration
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["NamedPartition", "error_response", "named_partitions"]

_TOPIC: Final = ("name", "topic", "topic_name")
_PARTITION: Final = ("partition_index", "partition", "index", "partition_id")
#: Parts of responses that have no error, and repeat what was asked all the same.
_REPEATED: Final = frozenset({"OngoingTopicReassignment", "OngoingPartitionReassignment", "EntityData"})
#: APIs whose answers have no text with such an error, though they have a field for it.
_WITHOUT_TEXT: Final = frozenset(
    {"describe_client_quotas", "describe_user_scram_credentials", "alter_user_scram_credentials"}
)
#: The part of a response that answers two arrays of its request.
_OF_USER: Final = "AlterUserScramCredentialsResult"
#: Arrays that are null in the answer to a request that fails.
_NULL: Final = frozenset({("DescribeClientQuotasResponse", "entries")})
#: Numbers that Kafka leaves at 0.
_ZEROS: Final = frozenset(
    {"assignment_epoch", "group_epoch", "member_epoch", "producer_id_len", "producer_id_start"}
)
#: Responses that repeat nothing of what was asked, though their entries can have errors.
_WITHOUT_ENTRIES: Final = frozenset({"AlterPartitionResponse", "UpdateFeaturesResponse"})
#: Fields that say the same in a request and in its response, under one of these names.
_KEYS: Final = (
    _TOPIC,
    _PARTITION,
    ("group_id",),
    ("key",),
    ("transactional_id",),
    ("entity_type",),
    ("entity_name",),
)
#: Arrays of a request that name nothing which is answered.
_DETAILS: Final = frozenset({"assignments", "configs", "configuration_keys", "protocols", "replicas"})
_NO_TIME: Final = datetime.fromtimestamp(0, UTC)
_NUMBERS: Final = frozenset({"int8", "int16", "int32", "int64", "uint16"})


class NamedPartition(NamedTuple):
    """What a request names. ``topic``: None where ``topic_id`` stands for it, or the request names none."""

    topic: str | None
    topic_id: bytes | None
    partition: int | None


def error_response(messages: ClientMessages, body: Any, error: KioError, text: str | None = None) -> bytes:
    """Return the bytes of the response to ``body`` with this error. ``text``: for the field of a message."""
    response = "".join(map(str.capitalize, messages.api.split("_"))) + "Response"
    if messages.api in _WITHOUT_TEXT:
        text = None
    return messages.encode(_answer(messages.part_type(response), body, error, text, is_part=False))


def named_partitions(body: Any) -> list[NamedPartition]:
    """Return the topics and partitions that a request names, in its order."""
    return list(_named(body, None, None))


def _answer(entity: Any, asked: Any, error: KioError, text: str | None, *, is_part: bool = True) -> Any:
    values: dict[str, Any] = {}
    for field in _fields(entity):
        if field.kind == "error_code":
            values[field.name] = error
        elif field.name == "error_message" and field.nullable:
            values[field.name] = text
        elif (entity.__name__, field.name) in _NULL:
            values[field.name] = None
        elif entity.__name__ == _OF_USER and field.name == "user":
            values[field.name] = asked
        elif field.nested is not None:
            entries: Iterable[Any] = ()
            if entity.__name__ in _WITHOUT_ENTRIES:
                pass
            elif field.nested.__name__ == _OF_USER:
                # One for each user, whether credentials were to be deleted, changed, or both.
                changes = () if asked is None else (*asked.deletions, *asked.upsertions)
                entries = sorted({one.name for one in changes})
            elif _is_flat(field.nested):
                entries = named_partitions(asked)
            elif _has_error(field.nested) or field.nested.__name__ in _REPEATED:
                entries = _entries(asked)
            values[field.name] = tuple(_answer(field.nested, one, error, text) for one in entries)
        else:
            value = _same(field.name, asked)
            if is_part and field.name == "producer_id":
                value = getattr(asked, field.name, None)
            if value is not None:
                values[field.name] = value
            elif not field.has_default:
                values[field.name] = _empty(field)
    return entity(**values)


def _named(asked: Any, topic: str | None, topic_id: bytes | None) -> Iterable[NamedPartition]:
    for one in _entries(asked):
        if isinstance(one, int):
            yield NamedPartition(topic, topic_id, one)
            continue
        name, uuid, partition = _same("topic", one), getattr(one, "topic_id", None), _same("partition", one)
        if partition is not None:
            # Old requests have no topics, but partitions with the name of theirs.
            own_name = name if topic is None and isinstance(name, str) else topic
            yield NamedPartition(own_name, topic_id, partition)
        elif isinstance(name, str) or uuid is not None:
            own_id = None if uuid is None else uuid.bytes
            yield from list(_named(one, name, own_id)) or [NamedPartition(name, own_id, None)]
        elif not isinstance(one, str):
            yield from _named(one, topic, topic_id)


def _entries(asked: Any) -> tuple[Any, ...]:
    """Return the first array in a part of the request whose elements the response answers."""
    for name in getattr(type(asked), "__dataclass_fields__", ()):
        value = getattr(asked, name)
        if isinstance(value, tuple) and name not in _DETAILS:
            return value
    return ()


def _same(name: str, asked: Any) -> Any:
    """Return the value that the request has for a field of the response, or None if it has no such field."""
    for names in _KEYS:
        if name in names:
            if isinstance(asked, int):
                return asked if names is _PARTITION else None
            if isinstance(asked, str):
                return None if names is _PARTITION else asked
            return next((getattr(asked, one) for one in names if hasattr(asked, one)), None)
    if isinstance(asked, int | str):
        return None
    return getattr(asked, name, None) if name in ("topic_id", "resource_type", "resource_name") else None


class _Field(NamedTuple):
    name: str
    kind: str | None
    nested: Any  # the type of an array's entries
    nullable: bool
    has_default: bool


@cache
def _fields(entity: Any) -> tuple[_Field, ...]:
    found = []
    hints = get_type_hints(entity)
    for name, field in entity.__dataclass_fields__.items():
        if name.startswith("__"):
            continue
        arguments = get_args(hints[name])
        nested = next((one for one in _flattened(arguments) if hasattr(one, "__dataclass_fields__")), None)
        has_default = field.default is not field.default_factory  # both are MISSING without one
        is_array = nested is not None and any(get_origin(one) is tuple for one in (hints[name], *arguments))
        found.append(
            _Field(
                name,
                field.metadata.get("kafka_type"),
                nested if is_array else None,
                NoneType in arguments,
                has_default,
            )
        )
    return tuple(found)


def _flattened(arguments: Iterable[Any]) -> Iterable[Any]:
    for one in arguments:
        yield one
        yield from _flattened(get_args(one))


@cache
def _has_error(entity: Any) -> bool:
    return any(
        field.kind == "error_code" or (field.nested is not None and _has_error(field.nested))
        for field in _fields(entity)
    )


@cache
def _is_flat(entity: Any) -> bool:
    """Return whether a part of a response has both a topic and a partition, unlike parts of requests."""
    names = {field.name for field in _fields(entity)}
    return bool(names & {*_TOPIC}) and bool(names & {*_PARTITION}) and _has_error(entity)


def _empty(field: _Field) -> Any:
    if field.nullable:
        return None
    if field.kind in _NUMBERS:
        return 0 if field.name in _ZEROS else -1
    if field.kind == "timedelta_i32":
        return duration(0)
    if field.kind == "datetime_i64":
        return _NO_TIME
    return {"string": "", "bytes": b"", "bool": False}.get(field.kind or "", ())
