"""Reads and writes any message of Kafka by the tables in the kafka-clients jar, ``common/message/*.json``.

A message is a dictionary with Kafka's names. No code is shared with the brokers under test. What is read and
then written gives the same bytes: a tagged field that was absent stays absent.
"""

from __future__ import annotations

import json
import re
import struct
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.conformance.reference import uvarint

__all__ = ["UNKNOWN_TAGS", "Field", "Message", "Messages", "Versions"]

_NUMBERS: Final = {
    "bool": struct.Struct(">?"),
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "uint16": struct.Struct(">H"),
    "int32": struct.Struct(">i"),
    "uint32": struct.Struct(">I"),
    "int64": struct.Struct(">q"),
    "float64": struct.Struct(">d"),
}
_SAMPLE: Final = "sample"
_ZERO: Final = {"string": "", "bytes": b"", "records": None, "uuid": uuid.UUID(int=0)}
#: Tagged fields that the table does not name.
UNKNOWN_TAGS: Final = "unknown tags"


class Versions:
    """A range of versions as the tables write it: "3+", "1-4", "2", "none"."""

    def __init__(self, text: str) -> None:
        low, _, high = text.removesuffix("+").partition("-")
        self.lowest = 2**15 if text == "none" else int(low)
        self.highest = 2**15 if text.endswith("+") else int(high or low) if text != "none" else -1

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest


class Field:
    """One field of a message or of a struct in it."""

    def __init__(self, table: Mapping[str, Any], shared: Mapping[str, Any]) -> None:
        self.name: str = table["name"]
        self.is_array = table["type"].startswith("[]")
        self.kind: str = table["type"].removeprefix("[]")
        self.versions = Versions(table["versions"])
        self.nullable = Versions(table.get("nullableVersions", "none"))
        self.tagged = Versions(table.get("taggedVersions", "none"))
        self.tag: int = table.get("tag", -1)
        #: What the value names: "topicName", "groupId", …; empty: nothing that the tables have a word for.
        self.entity: str = table.get("entityType", "")
        #: The client id of a request header has never a compact length.
        self.is_never_flexible = table.get("flexibleVersions") == "none"
        self.fields: tuple[Field, ...] = ()
        if self.kind[0].isupper():
            self.fields = _fields(table.get("fields") or shared[self.kind], shared)
        self.default = self._default(table.get("default"))

    def _default(self, text: Any) -> Any:
        if text == "null":
            return None
        if self.is_array:
            return ()
        if self.fields:
            return {}
        if self.kind == "bool":
            return str(text).lower() == "true"
        if self.kind in _NUMBERS:
            return 0 if text is None else int(str(text), 0)
        return text or _ZERO[self.kind]


def _fields(tables: list[Any], shared: Mapping[str, Any]) -> tuple[Field, ...]:
    return tuple(Field(table, shared) for table in tables)


class Message:
    """One request, response or header."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.name: str = table["name"]
        self.api_key: int = table.get("apiKey", -1)
        self.versions = Versions(table["validVersions"])
        self.flexible = Versions(table["flexibleVersions"])
        shared = {one["name"]: one["fields"] for one in table.get("commonStructs", ())}
        self.fields = _fields(table["fields"], shared)

    def write(self, version: int, values: Mapping[str, Any]) -> bytes:
        """Return the bytes of a version. Fields that are missing have their defaults, others are left out."""
        return b"".join(_write_struct(self.fields, version, version in self.flexible, values))

    def sample(self, version: int) -> dict[str, Any]:
        """Return values with one element in each array, and a word as each text."""
        return _sample(self.fields, version)

    def read(self, version: int, data: bytes) -> tuple[dict[str, Any], int]:
        """Return the values, and how many bytes they have."""
        reader = _Reader(data, version, version in self.flexible)
        return reader.read_struct(self.fields), reader.at


class Messages:
    """All messages of a Kafka version. ``clients``: its kafka-clients jar."""

    def __init__(self, clients: Path) -> None:
        self._by_name: dict[str, Message] = {}
        with zipfile.ZipFile(clients) as files:
            for path in files.namelist():
                if path.startswith("common/message/") and path.endswith(
                    ("Request.json", "Response.json", "Header.json")
                ):
                    text = re.sub(r"^\s*//.*$", "", files.read(path).decode(), flags=re.MULTILINE)
                    message = Message(json.loads(text))
                    self._by_name[message.name] = message

    def __getitem__(self, name: str) -> Message:
        return self._by_name[name]

    def api_names(self) -> dict[int, str]:
        """Return the name of each API by its key."""
        return {
            one.api_key: name.removesuffix("Request")
            for name, one in self._by_name.items()
            if name.endswith("Request") and one.api_key >= 0
        }


def _sample(fields: tuple[Field, ...], version: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in fields:
        if version in field.versions and version not in field.tagged:
            value = _sample(field.fields, version) if field.fields else field.default
            if field.kind == "string":
                value = _SAMPLE
            if field.is_array:
                value = [value or 0] if field.kind in _NUMBERS else [value or _ZERO.get(field.kind)]
            values[field.name] = value
    return values


def _write_struct(
    fields: tuple[Field, ...], version: int, flexible: bool, values: Mapping[str, Any]
) -> Iterator[bytes]:
    tags: dict[int, bytes] = dict(values.get(UNKNOWN_TAGS, {}))
    for field in fields:
        if version not in field.versions:
            continue
        if version in field.tagged:
            if field.name in values:
                tags[field.tag] = b"".join(_write_field(field, version, flexible, values[field.name]))
        else:
            yield from _write_field(field, version, flexible, values.get(field.name, field.default))
    if flexible:
        yield uvarint(len(tags))
        for tag, data in sorted(tags.items()):
            yield uvarint(tag) + uvarint(len(data)) + data


def _write_field(field: Field, version: int, flexible: bool, value: Any) -> Iterator[bytes]:
    flexible = flexible and not field.is_never_flexible
    if field.is_array:
        yield _length(flexible, ">i", None if value is None else len(value))
        for one in value or ():
            yield from _write_value(field, version, flexible, one)
    else:
        yield from _write_value(field, version, flexible, value)


def _write_value(field: Field, version: int, flexible: bool, value: Any) -> Iterator[bytes]:
    if field.fields:
        if version in field.nullable and not field.is_array:
            yield b"\xff" if value is None else b"\x01"
            if value is None:
                return
        yield from _write_struct(field.fields, version, flexible, value)
    elif field.kind in _NUMBERS:
        yield _NUMBERS[field.kind].pack(value)
    elif field.kind == "uuid":
        yield value.bytes
    else:
        data = value.encode() if isinstance(value, str) else value
        yield _length(flexible, ">h" if field.kind == "string" else ">i", None if data is None else len(data))
        yield data or b""


def _length(flexible: bool, layout: str, length: int | None) -> bytes:
    if flexible:
        return uvarint(0 if length is None else length + 1)
    return struct.pack(layout, -1 if length is None else length)


class _Reader:
    def __init__(self, data: bytes, version: int, flexible: bool) -> None:
        self.at = 0
        self._data = data
        self._version = version
        self._flexible = flexible

    def read_struct(self, fields: tuple[Field, ...]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        tagged: dict[int, Field] = {}
        for field in fields:
            if self._version not in field.versions:
                continue
            if self._version in field.tagged:
                tagged[field.tag] = field
            else:
                values[field.name] = self._read_field(field)
        if self._flexible:
            for _ in range(self._read_uvarint()):
                tag, size = self._read_uvarint(), self._read_uvarint()
                end = self.at + size
                if tag in tagged:
                    values[tagged[tag].name] = self._read_field(tagged[tag])
                else:
                    values.setdefault(UNKNOWN_TAGS, {})[tag] = self._take(size)
                assert self.at == end, f"tagged field {tag} ends at {self.at} and not at {end}"
        return values

    def _read_field(self, field: Field) -> Any:
        flexible = self._flexible and not field.is_never_flexible
        if not field.is_array:
            return self._read_value(field, flexible)
        length = self._read_length(flexible, ">i")
        return None if length is None else [self._read_value(field, flexible) for _ in range(length)]

    def _read_value(self, field: Field, flexible: bool) -> Any:
        if field.fields:
            is_nullable = self._version in field.nullable and not field.is_array
            return None if is_nullable and self._take(1) == b"\xff" else self.read_struct(field.fields)
        if field.kind in _NUMBERS:
            layout = _NUMBERS[field.kind]
            return layout.unpack(self._take(layout.size))[0]
        if field.kind == "uuid":
            return uuid.UUID(bytes=self._take(16))
        length = self._read_length(flexible, ">h" if field.kind == "string" else ">i")
        if length is None:
            return None
        data = self._take(length)
        return data.decode() if field.kind == "string" else data

    def _read_length(self, flexible: bool, layout: str) -> int | None:
        if flexible:
            length = self._read_uvarint() - 1
        else:
            (length,) = struct.unpack(layout, self._take(struct.calcsize(layout)))
        return None if length < 0 else length

    def _read_uvarint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _take(self, size: int) -> bytes:
        data = self._data[self.at : self.at + size]
        assert len(data) == size, f"{size} bytes at {self.at} of {len(self._data)}"
        self.at += size
        return data
