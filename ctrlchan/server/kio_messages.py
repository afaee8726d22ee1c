"""Clients' messages through kio: every version of every message as typed Python, off the hot path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from kio.schema.errors import ErrorCode as KioError

from ctrlchan.errors import DecodeError
from ctrlchan.server.api import Request
from ctrlchan.server.kio_entities import decode, duration, encode, message_type, part_type

__all__ = [
    "NOT_ASKED",
    "ClientMessages",
    "KioError",
    "only_known_fields",
]

#: The default of the fields with authorized operations: the client did not ask for them.
NOT_ASKED = -(2**31)


#: The request handler writes another number in its place (``throttle_time``).
_NOT_THROTTLED = duration(0)


class ClientMessages:
    """kio's request and response of one API in one version. `api`: kio's name, such as "describe_cluster"."""

    def __init__(self, api: str, version: int) -> None:
        self.version = version
        self.api = api

    def decode(self, request: Request) -> Any:
        """Decode the request's body. Bytes after it are ignored, as by Kafka. Raises DecodeError."""
        return self.decode_body(request.frame, request.offset)

    def decode_body(self, frame: memoryview, offset: int) -> Any:
        """Decode a request's body, ``frame[offset:]``, in the same way."""
        entity = message_type(self.api, self.version, "request")
        body = decode(entity, frame, offset)
        try:
            _refuse_null_arrays(body)
        except ValueError as error:
            raise DecodeError(str(error), api=entity.__name__, version=self.version) from error
        return body

    def part_type(self, name: str) -> Any:
        """Return kio's type of a part of the response."""
        return part_type(self.api, self.version, "response", name)

    def part(self, kind: str, /, **fields: Any) -> Any:
        """Return a part of the response with those of `fields` that this version has."""
        entity = self.part_type(kind)
        return entity(**only_known_fields(entity, fields))

    def encode(self, part: Any) -> bytes:
        """Return the bytes of a part of the response."""
        return encode(part)

    def response(self, **fields: Any) -> bytes:
        """Return the response's bytes with those of `fields` that this version has, and no throttle time."""
        entity = message_type(self.api, self.version, "response")
        return encode(entity(**only_known_fields(entity, {"throttle_time": _NOT_THROTTLED, **fields})))


def only_known_fields(entity: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `values` that this version of `entity` has."""
    known = _field_names(entity)
    return {name: value for name, value in values.items() if name in known}


def _refuse_null_arrays(entity: Any) -> None:
    """Raise ValueError if an array is null that cannot be. kio reads such an array as None."""
    kind: Any = type(entity)
    for name, nullable, has_arrays in _array_fields(kind):
        elements = getattr(entity, name)
        if elements is None:
            if not nullable:
                raise ValueError(f"{name} is null")
        elif has_arrays:
            for element in elements:
                _refuse_null_arrays(element)


@cache
def _array_fields(entity: Any) -> tuple[tuple[str, bool, bool], ...]:
    """Return each array of an entity: its name, whether it may be null, whether its elements have arrays."""
    found = []
    for name, hint in get_type_hints(entity).items():
        choices = [hint] if get_origin(hint) is tuple else get_args(hint)
        for choice in choices:
            if get_origin(choice) is tuple and name in _field_names(entity):
                element = get_args(choice)[0]
                has_arrays = hasattr(element, "__dataclass_fields__") and bool(_array_fields(element))
                found.append((name, len(choices) > 1, has_arrays))
    return tuple(found)


@cache
def _field_names(entity: Any) -> frozenset[str]:
    return frozenset(entity.__dataclass_fields__)
