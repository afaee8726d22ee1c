"""Parts of answers that several APIs share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from ctrlchan.errors import KafkaError
from ctrlchan.server.kio_messages import KioError
from ctrlchan.topic_names import ZERO_ID
from ctrlchan.varints import encode_uvarint

__all__ = ["answer_fields", "by_topic", "compact_count", "error_fields", "seconds", "topic_uuid"]

T = TypeVar("T")


def error_fields(error: KafkaError | None, no_error: str | None = None) -> dict[str, Any]:
    """Return the fields ``error_code`` and ``error_message``; an empty message is null.

    ``no_error``: the message without an error. Some answers of Kafka leave the field as it is then: empty.
    """
    if error is None:
        return {"error_code": KioError.none, "error_message": no_error}
    return {"error_code": KioError(error.code), "error_message": error.message or None}


def answer_fields(answer: tuple[int, str | None]) -> dict[str, Any]:
    """Return the fields ``error_code`` and ``error_message`` of (code, message)."""
    code, message = answer
    return {"error_code": KioError(code), "error_message": message or None}


def by_topic(values: Mapping[tuple[str, int], T]) -> Iterable[tuple[str, list[tuple[int, T]]]]:
    """Return the values of partitions grouped by topic, in the order of the topics."""
    grouped: dict[str, list[tuple[int, T]]] = {}
    for (topic, partition), value in values.items():
        grouped.setdefault(topic, []).append((partition, value))
    return grouped.items()


def compact_count(count: int) -> bytes:
    """Return the number of elements before a compact array: an unsigned varint of one more (KIP-482)."""
    return encode_uvarint(count + 1)


def seconds(timeout: timedelta) -> float:
    """Return a request's timeout in seconds."""
    return timeout.total_seconds()


def topic_uuid(topic_id: bytes) -> UUID | None:
    """Return a topic id as kio has it."""
    return None if topic_id == ZERO_ID else UUID(bytes=topic_id)
