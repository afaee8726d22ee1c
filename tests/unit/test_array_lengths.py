"""A message that announces more elements than it has bytes is refused before kio reads it."""

from __future__ import annotations

import io
import struct
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import timedelta
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest
from kio.schema.index import api_key_map
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from ctrlchan.array_lengths import check_array_lengths
from ctrlchan.metadata_broker.table import served_apis

#: Largest numbers of elements, as both kinds of array announce them.
MANY = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f")
DEEP = [
    ("create_topics", 4),
    ("create_topics", 7),
    ("describe_configs", 4),
    ("fetch", 16),
    ("incremental_alter_configs", 1),
    ("join_group", 7),
    ("list_offsets", 8),
    ("metadata", 4),
    ("metadata", 12),
    ("offset_commit", 3),
    ("offset_fetch", 9),
    ("update_features", 1),
]
#: Values of the types of kio's schema that are no numbers.
VALUES = {
    "string": "text",
    "uuid": UUID(int=1),
    "timedelta_i32": timedelta(1),
    "timedelta_i64": timedelta(1),
}


def requests() -> list[tuple[str, int]]:
    """Return kio's name and each version of every API that a broker serves by kio, and of deep ones."""
    served = [
        (api_key_map[key], version)
        for key, api in served_apis().items()
        if key in api_key_map
        for version in range(api.lowest, api.highest + 1)
    ]
    return sorted({*served, *DEEP})


def entity_of(api: str, version: int) -> Any:
    module = import_module(f"kio.schema.{api}.v{version}.request")
    return getattr(module, "".join(word.capitalize() for word in api.split("_")) + "Request")


def sample(kind: Any, kafka_type: str | None = None) -> Any:
    """Return a value of a type of kio's schema, with two elements in each array."""
    if get_origin(kind) in (Union, UnionType):
        return sample(next(one for one in get_args(kind) if one is not NoneType), kafka_type)
    if get_origin(kind) is tuple:
        return (sample(get_args(kind)[0], kafka_type),) * 2
    if is_dataclass(kind):
        types = get_type_hints(kind)
        values = {f.name: sample(types[f.name], f.metadata.get("kafka_type")) for f in fields(kind)}
        return kind(**values)  # type: ignore[operator]
    if kind is bytes or kafka_type == "records":
        return b"bytes"
    value = VALUES.get(kafka_type or "", 1)
    return kind.parse(value) if hasattr(kind, "parse") else value if kafka_type == "uuid" else kind(value)


@pytest.mark.parametrize(("api", "version"), requests())
def test_every_announced_length_is_checked(api: str, version: int) -> None:
    """A whole request passes. With any number in it made large it is refused, or kio can read it."""
    entity = entity_of(api, version)
    buffer = io.BytesIO()
    entity_writer(entity)(buffer, sample(entity))
    whole = b"before" + buffer.getvalue()
    assert check_array_lengths(entity, whole, 6) == len(whole)
    refused = 0
    for at in range(6, len(whole)):
        with pytest.raises(ValueError, match=r"too early|elements in"):
            check_array_lengths(entity, whole[:at], 6)
        for many in MANY:
            changed = whole[:at] + many + whole[at + 1 :]
            try:
                check_array_lengths(entity, changed, 6)
            except ValueError:
                refused += 1
                continue
            with suppress(SerialError, ValueError, KeyError):
                entity_reader(entity)(changed, 6)
    assert refused or not any("tuple" in str(one) for one in get_type_hints(entity).values())


def test_an_array_of_two_thousand_million_elements_is_named() -> None:
    with pytest.raises(ValueError, match="an array of 2147483647 elements in 0 bytes"):
        check_array_lengths(entity_of("describe_groups", 1), struct.pack(">i", 2**31 - 1))
