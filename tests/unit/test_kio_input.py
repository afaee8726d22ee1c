"""What is done before kio reads a message: lengths of arrays are checked, unknown tagged fields left out."""

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

from ctrlchan.kio_input import check_array_lengths, readable_by_kio
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
#: A tagged field: 100, of three bytes.
UNKNOWN = b"\x64\x03abc"
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


def test_tagged_fields_that_kio_does_not_know_are_left_out() -> None:
    """Also those of elements: one more is put where a number of tagged fields stands, at each place."""
    entity = entity_of("fetch", 16)
    buffer = io.BytesIO()
    entity_writer(entity)(buffer, sample(entity))
    whole = buffer.getvalue()
    message = entity_reader(entity)(whole, 0)[0]
    assert readable_by_kio(entity, whole, 0) == (whole, 0)
    found = 0
    for at, number in enumerate(whole):
        changed = b"before" + whole[:at] + bytes([number + 1 & 0x7F]) + UNKNOWN + whole[at + 1 :]
        with suppress(SerialError, ValueError, KeyError):
            data, offset = readable_by_kio(entity, changed, 6)
            found += entity_reader(entity)(data, offset)[0] == message
    # Two topics of two partitions each, two forgotten topics, and the request.
    assert found == 2 + 2 * 2 + 2 + 1


def test_unknown_tagged_fields_in_a_tagged_field_are_left_out() -> None:
    entity = entity_of("fetch", 16)
    buffer = io.BytesIO()
    entity_writer(entity)(buffer, sample(entity))
    whole = buffer.getvalue()
    # ReplicaState: tag 1, its size, broker id and epoch, no tagged fields.
    numbers = struct.pack(">iq", 1, 1)
    state = b"\x01\x0d" + numbers + b"\0"
    assert whole.count(state) == 1
    changed = whole.replace(state, b"\x01\x12" + numbers + b"\x01" + UNKNOWN)
    with pytest.raises(KeyError, match="Unknown tagged field"):
        entity_reader(entity)(changed, 0)
    assert readable_by_kio(entity, changed, 0) == (whole, 0)
    with pytest.raises(ValueError, match="the tagged field 1 has not 18 bytes"):
        readable_by_kio(entity, changed.replace(UNKNOWN, b"\x64\x02abc"), 0)
