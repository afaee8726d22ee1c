"""Messages of kio, which those that are read and written without it are compared with."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import strategies as st
from kio.serial import entity_writer

from ctrlchan.errors import DecodeError
from ctrlchan.server.kio_messages import only_known_fields

#: Reads the body of a request.
Reader = Callable[[bytes], object]


def part(schema: Any, kind: str, /, **fields: Any) -> Any:
    """Return a part of a message with those of ``fields`` that this version has."""
    entity = getattr(sys.modules[schema.__module__], kind)
    return entity(**only_known_fields(entity, fields))


def encoded(entity: Any) -> bytes:
    """Return the bytes of a message."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def check_read_as_by_kio(body: bytes, read: Reader, read_by_kio: Reader) -> None:
    """Compare what is read of a body. More bytes are ignored; a body that ends anywhere is refused."""
    request = read(body)
    assert request == read_by_kio(body)
    assert read(body + b"more") == request
    for end in range(len(body)):
        with pytest.raises(DecodeError):
            read(body[:end])


def check_changed_bytes(
    data: st.DataObject,
    body: bytes,
    read: Reader,
    read_by_kio: Reader,
    refused: tuple[type[Exception], ...] = (DecodeError,),
) -> None:
    """Change some bytes of a body, and compare what is read unless kio refuses it, with one of ``refused``.

    What kio refuses may be read: Kafka takes a length below -1 for null.
    """
    changed = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(body) - 1))
        changed[place] = data.draw(st.integers(0, 255) | st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    try:
        expected = read_by_kio(bytes(changed))
    except refused:
        with suppress(DecodeError):
            read(bytes(changed))
    else:
        assert read(bytes(changed)) == expected
