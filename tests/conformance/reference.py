"""A slow, readable codec between JSON form and wire bytes, by the tables of ``ctrlchan.messages.schema``.

Tests without Kafka's jar compare the fast codec with it: the bytes of writing, the values of reading, and the
field and byte offset of errors. It handles one value at a time, as one Python object.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ctrlchan.messages.schema import MESSAGES, Field, Message, Struct

Json = Any
Tags = Iterable[tuple[int, bytes]]

LONGEST_STRING = 32_767
_INTEGERS = {"int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q"}


# ----------------------------------------------------------------------------------------------- writing


def encode(
    name: str, version: int, value: Json, more_tags: Callable[[str], Tags | Raw] = lambda struct: ()
) -> bytes:
    """Return the bytes of a message in JSON form, in which a Raw may replace any value.

    Each struct of a flexible version ends with ``more_tags(its name)`` too; a Raw is the whole section.
    """
    out = bytearray()
    _Writer(MESSAGES[name], version, out, more_tags).struct(MESSAGES[name].root, value)
    return bytes(out)


@dataclass
class Raw:
    """Bytes to write in place of a value; ``offset`` is where they were written."""

    data: bytes
    offset: int = -1


def uvarint(value: int) -> bytes:
    """Return an unsigned varint in its shortest form."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Writer:
    def __init__(
        self, table: Message, version: int, out: bytearray, more_tags: Callable[[str], Tags | Raw]
    ) -> None:
        self.version = version
        self.flexible = version in table.flexible
        self.out = out
        self.more_tags = more_tags

    def struct(self, struct_: Struct, value: Json) -> None:
        tagged: list[tuple[int, bytes]] = []
        for field in struct_.fields:
            if self.version not in field.versions:
                continue
            if field.tag is None:
                self.field(field, value[field.name])
            elif value.get(field.name, field.default) != field.default:
                tagged.append((field.tag, struct.pack(_INTEGERS[field.kind], value[field.name])))
        if self.flexible:
            more = self.more_tags(struct_.name)
            if isinstance(more, Raw):
                self.raw(more)
                return
            tagged = sorted([*tagged, *more])
            self.out += uvarint(len(tagged))
            for tag, content in tagged:
                self.out += uvarint(tag) + uvarint(len(content)) + content

    def raw(self, raw: Raw) -> None:
        raw.offset = len(self.out)
        self.out += raw.data

    def field(self, field: Field, value: Json) -> None:
        if isinstance(value, Raw):
            self.raw(value)
        elif field.is_array:
            self.out += uvarint(len(value) + 1) if self.flexible else struct.pack(">i", len(value))
            for element in value:
                self.single(field, element)
        else:
            self.single(field, value)

    def single(self, field: Field, value: Json) -> None:
        if field.struct is not None:
            self.struct(field.struct, value)
        elif field.kind == "string":
            text = None if value is None else value.encode()
            if self.flexible and field.compact:
                self.out += uvarint(0 if text is None else len(text) + 1)
            else:
                self.out += struct.pack(">h", -1 if text is None else len(text))
            self.out += text or b""
        elif field.kind == "uuid":
            self.out += base64.urlsafe_b64decode(value + "==")
        elif field.kind == "bool":
            self.out += b"\1" if value else b"\0"
        else:
            self.out += struct.pack(_INTEGERS[field.kind], value)


# ----------------------------------------------------------------------------------------------- reading


class Malformed(Exception):
    """Bytes that are not the message, with Kafka's name of the wrong field and the offset where it begins."""

    def __init__(self, field: str, offset: int, reason: str) -> None:
        super().__init__(f"{field} at {offset}: {reason}")
        self.field = field
        self.offset = offset


@dataclass
class Decoded:
    """A decoded message: ``value`` is in JSON form; ``size`` counts the bytes read."""

    value: Json
    unknown_tagged_fields: int
    size: int


def decode(name: str, version: int, data: bytes) -> Decoded:
    """Read a message that must fill ``data`` (a header: that begins it). Raises Malformed."""
    table = MESSAGES[name]
    reader = _Reader(table, version, data)
    value = reader.struct(table.root)
    if table.kind != "header" and reader.at != len(data):
        raise Malformed("", reader.at, "unread bytes")
    return Decoded(value, reader.unknown, reader.at)


class _Reader:
    def __init__(self, table: Message, version: int, data: bytes) -> None:
        self.version = version
        self.flexible = version in table.flexible
        self.data = data
        self.at = 0
        self.unknown = 0

    def take(self, size: int, field: str) -> bytes:
        if size > len(self.data) - self.at:
            raise Malformed(field, self.at, "cut")
        self.at += size
        return self.data[self.at - size : self.at]

    def uvarint(self, field: str) -> int:
        start = self.at
        value = 0
        for i in range(5):
            if self.at >= len(self.data):
                raise Malformed(field, start, "cut")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                if value > 0xFFFFFFFF:
                    break
                return value
        raise Malformed(field, start, "varint does not fit 32 bits")

    def integer(self, kind: str, field: str) -> int:
        code = _INTEGERS[kind]
        (value,) = struct.unpack(code, self.take(struct.calcsize(code), field))
        return int(value)

    def struct(self, struct_: Struct) -> Json:
        out = {}
        tagged = {}
        for field in struct_.fields:
            if self.version in field.versions:
                if field.tag is None:
                    out[field.name] = self.field(field)
                else:
                    tagged[field.tag] = field
        if self.flexible:
            self.tags(tagged, out)
        return out

    def tags(self, known: dict[int, Field], out: dict[str, Json]) -> None:
        where = "_taggedFields"
        last = -1
        for _ in range(self.uvarint(where)):
            start = self.at
            tag = self.uvarint(where)
            size = self.uvarint(where)
            if tag <= last:
                raise Malformed(where, start, "tags do not ascend")
            last = tag
            if size > len(self.data) - self.at:
                raise Malformed(where, start, "size is larger than the rest")
            if tag in known:
                field = known[tag]
                if size != struct.calcsize(_INTEGERS[field.kind]):
                    raise Malformed(field.name, start, "size does not fit the content")
                value = self.integer(field.kind, field.name)
                if value != field.default:
                    out[field.name] = value
            else:
                self.take(size, where)
                self.unknown += 1

    def field(self, field: Field) -> Json:
        if not field.is_array:
            return self.single(field)
        start = self.at
        count = self.uvarint(field.name) - 1 if self.flexible else self.integer("int32", field.name)
        if count < 0:
            raise Malformed(field.name, start, "null or negative count")
        if count * _least(field, self.version, self.flexible) > len(self.data) - self.at:
            raise Malformed(field.name, start, "count is larger than the rest")
        return [self.single(field) for _ in range(count)]

    def single(self, field: Field) -> Json:
        if field.struct is not None:
            return self.struct(field.struct)
        match field.kind:
            case "string":
                return self.string(field)
            case "uuid":
                return base64.urlsafe_b64encode(self.take(16, field.name)).decode().rstrip("=")
            case "bool":
                return self.take(1, field.name) != b"\0"
            case kind:
                return self.integer(kind, field.name)

    def string(self, field: Field) -> str | None:
        start = self.at
        if self.flexible and field.compact:
            length = self.uvarint(field.name) - 1
        else:
            length = self.integer("int16", field.name)
        if length == -1 and field.nullable is not None and self.version in field.nullable:
            return None
        if length < 0:
            raise Malformed(field.name, start, "null or negative length")
        if length > LONGEST_STRING:
            raise Malformed(field.name, start, "string is too long")
        if length > len(self.data) - self.at:
            raise Malformed(field.name, start, "length is larger than the rest")
        start = self.at
        try:
            return self.take(length, field.name).decode()
        except UnicodeDecodeError:
            raise Malformed(field.name, start, "not UTF-8") from None


def _least(field: Field, version: int, flexible: bool) -> int:
    """Return the bytes of the smallest element of an array, or of the smallest field that is no array."""
    if field.struct is None:
        if field.kind == "string":
            return 1 if flexible and field.compact else 2
        return {"bool": 1, "uuid": 16}.get(field.kind) or struct.calcsize(_INTEGERS[field.kind])
    size = 1 if flexible else 0
    for inner in field.struct.fields:
        if version in inner.versions and inner.tag is None:
            size += (1 if flexible else 4) if inner.is_array else _least(inner, version, flexible)
    return size
