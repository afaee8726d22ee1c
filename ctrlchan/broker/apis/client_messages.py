"""Clients' messages through kio: every version of every message as typed Python, off the hot path."""

from __future__ import annotations

import io
from datetime import timedelta
from functools import cache
from typing import Any

from kio.schema.errors import ErrorCode as KioError
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i32Timedelta

from ctrlchan.broker.network.request import Request
from ctrlchan.errors import DecodeError

__all__ = ["NOT_THROTTLED", "KioError", "only_known_fields", "read_body", "write_body"]

NOT_THROTTLED = i32Timedelta.parse(timedelta())


def read_body(entity: type[Any], request: Request) -> Any:
    """The request's body as ``entity``. Bytes after it are ignored, as by Kafka. DecodeError."""
    try:
        body, _ = entity_reader(entity)(request.frame, request.offset)
    except (SerialError, ValueError, KeyError) as error:
        raise DecodeError(
            str(error) or type(error).__name__, api=entity.__name__, version=request.version
        ) from error
    return body


def write_body(entity: Any) -> bytes:
    """The bytes of a response body."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def only_known_fields(entity: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Those of ``values`` that this version of ``entity`` has: what a version lacks is not sent."""
    known = _field_names(entity)
    return {name: value for name, value in values.items() if name in known}


@cache
def _field_names(entity: Any) -> frozenset[str]:
    return frozenset(entity.__dataclass_fields__)
