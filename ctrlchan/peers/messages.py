"""Requests to other nodes and their answers through kio."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

from kio.schema.index import api_key_map

from ctrlchan.errors import ErrorCode
from ctrlchan.server.kio_entities import decode, duration, encode, message_type, part_type

__all__ = ["decode_answer", "duration", "encode_request", "is_refused", "part", "says_not_controller"]

_NOT_CONTROLLER: Final = ErrorCode.NOT_CONTROLLER.to_bytes(2)


def part(api: str, version: int, kind: str, /, **fields: Any) -> Any:
    """Return a part of a request. ``api``: kio's name, such as "create_topics"."""
    return part_type(api, version, "request", kind)(**fields)


def encode_request(api: str, version: int, /, **fields: Any) -> bytes:
    """Return the body of a request."""
    return encode(message_type(api, version, "request")(**fields))


def decode_answer(api: str, version: int, answer: bytes, offset: int = 0) -> Any:
    """Return kio's object of a response whose body begins at the offset. Raises DecodeError."""
    return decode(message_type(api, version, "response"), answer, offset)


def is_refused(api_key: int, version: int, body: bytes) -> bool:
    """Return whether a response says NOT_CONTROLLER and nothing else. Raises DecodeError."""
    # Most responses do not have these bytes, and need no decoding.
    if _NOT_CONTROLLER not in body:
        return False
    return set(_error_codes(decode_answer(api_key_map[api_key], version, body))) == {ErrorCode.NOT_CONTROLLER}


def says_not_controller(api_key: int, version: int, body: bytes) -> bool:
    """Return whether a response says NOT_CONTROLLER of anything. Raises DecodeError."""
    if _NOT_CONTROLLER not in body:
        return False
    return ErrorCode.NOT_CONTROLLER in _error_codes(decode_answer(api_key_map[api_key], version, body))


def _error_codes(entity: Any) -> Iterator[int]:
    for field in fields(entity):
        value = getattr(entity, field.name)
        if field.name == "error_code":
            yield value.value
        elif isinstance(value, tuple):
            for one in value:
                if is_dataclass(one):
                    yield from _error_codes(one)
