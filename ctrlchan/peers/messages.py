"""Requests to the controller and its answers through kio."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final

from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from ctrlchan.array_lengths import check_array_lengths
from ctrlchan.errors import DecodeError, ErrorCode
from ctrlchan.server.api_names import camel_case

__all__ = ["decode_answer", "encode_request", "is_refused", "part"]

_NOT_CONTROLLER: Final = ErrorCode.NOT_CONTROLLER.to_bytes(2)


def part(api: str, version: int, kind: str, /, **fields: Any) -> Any:
    """Return a part of a request. ``api``: kio's name, such as "create_topics"."""
    return getattr(_schema(api, version, "request"), kind)(**fields)


def encode_request(api: str, version: int, /, **fields: Any) -> bytes:
    """Return the body of a request."""
    buffer = io.BytesIO()
    message = part(api, version, camel_case(api) + "Request", **fields)
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def decode_answer(api: str, version: int, body: bytes) -> Any:
    """Return kio's object of a response. Raises DecodeError."""
    entity = getattr(_schema(api, version, "response"), camel_case(api) + "Response")
    try:
        check_array_lengths(entity, body)
        return entity_reader(entity)(memoryview(body), 0)[0]
    except (SerialError, ValueError, KeyError) as error:
        raise DecodeError(str(error) or type(error).__name__, api=api, version=version) from error


def is_refused(api_key: int, version: int, body: bytes) -> bool:
    """Return whether a response says NOT_CONTROLLER and nothing else. Raises DecodeError."""
    # Most responses do not have these bytes, and need no decoding.
    if _NOT_CONTROLLER not in body:
        return False
    return set(_error_codes(decode_answer(api_key_map[api_key], version, body))) == {ErrorCode.NOT_CONTROLLER}


def _error_codes(entity: Any) -> Iterator[int]:
    for field in fields(entity):
        value = getattr(entity, field.name)
        if field.name == "error_code":
            yield value.value
        elif isinstance(value, tuple):
            for one in value:
                if is_dataclass(one):
                    yield from _error_codes(one)


@cache
def _schema(api: str, version: int, direction: str) -> Any:
    return import_module(f"kio.schema.{api}.v{version}.{direction}")
