"""Makes a message fit for kio: checks the lengths of its arrays, and leaves out tagged fields unknown to kio.

kio takes memory for as many elements as an array announces, and ends the process when there is not so much.
So an array may not announce more elements than bytes follow it. And kio refuses a message with a tagged field
that its schema does not have. Newer peers send such fields, which Kafka skips (KIP-482). The fields of a
message come from kio's own schema.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

from typing_extensions import Buffer

from ctrlchan.varints import encode_uvarint

__all__ = ["check_array_lengths", "readable_by_kio"]


class _Change(NamedTuple):
    """Tagged fields from ``begin`` to ``end``, some unknown to kio, and in ``data`` those that it knows."""

    begin: int
    end: int
    data: bytes


#: Returns the position after a value that begins at a position, and adds what must change for kio.
_Skip = Callable[[memoryview, int, list[_Change]], int]

_I8: Final = struct.Struct(">b")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
#: Bytes of a type of kio's schema.
_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}


def check_array_lengths(entity: type[Any], data: Buffer, offset: int = 0) -> int:
    """Return the position after the message of this type that begins at ``offset``.

    Raises ValueError when an array announces more elements than bytes are left, and when the message is not
    whole.
    """
    return _checked(entity, memoryview(data), offset, [])


def readable_by_kio(entity: type[Any], data: Buffer, offset: int = 0) -> tuple[Buffer, int]:
    """Return bytes and the position in them from which kio can read the message that begins at ``offset``.

    They are `data` unless the message has tagged fields that kio does not know. Raises as
    ``check_array_lengths``.
    """
    view = memoryview(data)
    changes: list[_Change] = []
    end = _checked(entity, view, offset, changes)
    return (_changed(view, offset, end, changes), 0) if changes else (data, offset)


def _checked(entity: type[Any], data: memoryview, offset: int, changes: list[_Change]) -> int:
    try:
        return _skip_entity(entity)(data, offset, changes)  # type: ignore[arg-type]
    except (struct.error, IndexError):
        raise ValueError("the message ends too early") from None


def _changed(data: memoryview, begin: int, end: int, changes: list[_Change]) -> bytes:
    """Return the bytes between two positions with the changes there."""
    parts: list[Buffer] = []
    for change in changes:
        parts += (data[begin : change.begin], change.data)
        begin = change.end
    return b"".join((*parts, data[begin:end]))


@cache
def _skip_entity(entity: type[Any]) -> _Skip:
    flexible = bool(entity.__flexible__)
    types = get_type_hints(entity)
    skips: list[_Skip] = []
    tagged: dict[int, _Skip] = {}
    for field in fields(entity):
        skip = _skip_field(types[field.name], field.metadata.get("kafka_type"), flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = skip
        else:
            skips.append(skip)

    def skip_entity(data: memoryview, at: int, changes: list[_Change]) -> int:
        for skip in skips:
            at = skip(data, at, changes)
        return _skip_tags(data, at, changes, tagged) if flexible else at

    return skip_entity


def _skip_field(kind: Any, kafka_type: str | None, flexible: bool) -> _Skip:
    if get_origin(kind) in (Union, UnionType):
        (inner,) = (one for one in get_args(kind) if one is not NoneType)
        if is_dataclass(inner):
            return _skip_nullable(_skip_entity(inner))  # type: ignore[arg-type]
        return _skip_field(inner, kafka_type, flexible)
    if get_origin(kind) is tuple:
        return _skip_array(_skip_field(get_args(kind)[0], kafka_type, flexible), flexible)
    if is_dataclass(kind):
        return _skip_entity(kind)  # type: ignore[arg-type]
    if kafka_type in ("string", "bytes", "records"):
        if flexible:
            return _skip_compact
        return _skip_sized(_I16 if kafka_type == "string" else _I32)
    return _skip_fixed(_SIZES[kafka_type or ""])


def _skip_fixed(size: int) -> _Skip:
    def skip(data: memoryview, at: int, changes: list[_Change]) -> int:
        return _within(data, at + size)

    return skip


def _skip_sized(form: struct.Struct) -> _Skip:
    def skip(data: memoryview, at: int, changes: list[_Change]) -> int:
        (size,) = form.unpack_from(data, at)
        return _within(data, at + form.size + max(size, 0))

    return skip


def _skip_compact(data: memoryview, at: int, changes: list[_Change]) -> int:
    size, at = _uvarint(data, at)
    return _within(data, at + max(size - 1, 0))


def _skip_nullable(skip: _Skip) -> _Skip:
    def skip_nullable(data: memoryview, at: int, changes: list[_Change]) -> int:
        (marker,) = _I8.unpack_from(data, at)
        return at + 1 if marker < 0 else skip(data, at + 1, changes)

    return skip_nullable


def _skip_array(skip: _Skip, flexible: bool) -> _Skip:
    def skip_array(data: memoryview, at: int, changes: list[_Change]) -> int:
        if flexible:
            count, at = _uvarint(data, at)
            count -= 1
        else:
            (count,) = _I32.unpack_from(data, at)
            at += _I32.size
        # No element is empty.
        if count > len(data) - at:
            raise ValueError(f"an array of {count} elements in {len(data) - at} bytes")
        for _ in range(count):
            at = skip(data, at, changes)
        return at

    return skip_array


def _skip_tags(data: memoryview, at: int, changes: list[_Change], tagged: dict[int, _Skip]) -> int:
    begin = at
    count, at = _uvarint(data, at)
    known: list[bytes] = []
    is_changed = False
    for _ in range(count):
        tag, at = _uvarint(data, at)
        size, at = _uvarint(data, at)
        end = _within(data, at + size)
        skip = tagged.get(tag)
        if skip is None:
            is_changed = True
        else:
            inner: list[_Change] = []
            # kio reads a field that it knows without looking at its size.
            if skip(data, at, inner) != end:
                raise ValueError(f"the tagged field {tag} has not {size} bytes")
            is_changed = is_changed or bool(inner)
            field = _changed(data, at, end, inner)
            known.append(encode_uvarint(tag) + encode_uvarint(len(field)) + field)
        at = end
    if is_changed:
        changes.append(_Change(begin, at, encode_uvarint(len(known)) + b"".join(known)))
    return at


def _uvarint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise ValueError("a number of more than five bytes")


def _within(data: memoryview, at: int) -> int:
    if at > len(data):
        raise ValueError("the message ends too early")
    return at
