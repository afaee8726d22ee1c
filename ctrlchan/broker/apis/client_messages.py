"""Clients' messages through kio: every version of every message as typed Python, off the hot path."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import Any

from kio.schema.errors import ErrorCode as KioError
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i32Timedelta

from ctrlchan.broker.apis.api import Request
from ctrlchan.errors import DecodeError

__all__ = [
    "NOT_ASKED",
    "NOT_THROTTLED",
    "KioError",
    "api_name",
    "build",
    "only_known_fields",
    "read_body",
    "response_schema",
    "throttled",
    "write_body",
]

#: The default of the fields with authorized operations: the client did not ask for them.
NOT_ASKED = -(2**31)


def throttled(seconds: float) -> i32Timedelta:
    """Return the ``throttle_time`` that makes a client wait so long before its next request."""
    return i32Timedelta.parse(timedelta(seconds=seconds))


NOT_THROTTLED = throttled(0)


def api_name(key: int) -> str:
    """Return Kafka's name of an API key, such as "ListOffsets"."""
    return _camel_case(api_key_map.get(key, "unknown"))


def read_body(api: str, request: Request) -> Any:
    """Decode the request's body. `api`: kio's name, such as "describe_cluster".

    Bytes after the body are ignored, as by Kafka. Raises DecodeError.
    """
    name = _camel_case(api) + "Request"
    entity = getattr(_schema(api, request.version, "request"), name)
    try:
        body, _ = entity_reader(entity)(request.frame, request.offset)
    except (SerialError, ValueError, KeyError) as error:
        raise DecodeError(str(error) or type(error).__name__, api=name, version=request.version) from error
    return body


def write_body(entity: Any) -> bytes:
    """Return the bytes of a response body."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def response_schema(api: str, version: int) -> Any:
    """Return kio's module of the response and its parts."""
    return _schema(api, version, "response")


def build(entity: Any, **fields: Any) -> Any:
    """Return an `entity` with those of `fields` that its version has."""
    return entity(**only_known_fields(entity, fields))


def only_known_fields(entity: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `values` that this version of `entity` has."""
    known = _field_names(entity)
    return {name: value for name, value in values.items() if name in known}


def _camel_case(name: str) -> str:
    return "".join(map(str.capitalize, name.split("_")))


@cache
def _schema(api: str, version: int, direction: str) -> Any:
    return import_module(f"kio.schema.{api}.v{version}.{direction}")


@cache
def _field_names(entity: Any) -> frozenset[str]:
    return frozenset(entity.__dataclass_fields__)
