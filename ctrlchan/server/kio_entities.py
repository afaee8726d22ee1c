"""Bytes ↔ kio's objects, for the messages of clients and of peers."""

from __future__ import annotations

import io
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import Any, Literal, TypeAlias

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i32Timedelta

from ctrlchan.errors import DecodeError
from ctrlchan.kio_input import readable_by_kio
from ctrlchan.server.api_names import camel_case

__all__ = ["decode", "duration", "encode", "message_type", "part_type"]

Direction: TypeAlias = Literal["request", "response"]


@cache
def part_type(api: str, version: int, direction: Direction, name: str) -> Any:
    """Return kio's type of a part of a message. ``api``: kio's name, such as "describe_cluster"."""
    return getattr(import_module(f"kio.schema.{api}.v{version}.{direction}"), name)


def message_type(api: str, version: int, direction: Direction) -> Any:
    """Return kio's type of a message."""
    return part_type(api, version, direction, camel_case(api) + direction.capitalize())


def decode(entity: Any, data: bytes | memoryview, offset: int = 0) -> Any:
    """Return the object of type ``entity`` that begins at the offset. Bytes behind it are ignored.

    Raises DecodeError. Arrays that are longer than the data get no memory; tagged fields that kio does not
    know are left out.
    """
    try:
        return entity_reader(entity)(*readable_by_kio(entity, data, offset))[0]
    except (SerialError, ValueError, KeyError) as error:
        name, version = entity.__name__, int(entity.__version__)
        raise DecodeError(str(error) or type(error).__name__, api=name, version=version) from error


def encode(message: Any) -> bytes:
    """Return the bytes of a message or a part."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def duration(seconds: float) -> i32Timedelta:
    """Return a time for a field that counts milliseconds in 32 bits."""
    return i32Timedelta.parse(timedelta(milliseconds=round(seconds * 1000)))
