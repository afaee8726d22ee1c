"""Kafka's primitive types as the handshakes of a connection read them."""

from __future__ import annotations

from struct import error

import pytest

from ctrlchan.field_reader import FieldReader, compact


def test_fields_are_read_in_order() -> None:
    data = b"key" + bytes.fromhex("fffe 00000003 ffffffffffffffff 8001 0002 6869 02 05 01 aa 07 00 ff")
    reader = FieldReader(memoryview(data), 3)
    assert (reader.int16(), reader.int32(), reader.int64(), reader.varint()) == (-2, 3, -1, 128)
    assert reader.text() == "hi"
    reader.skip_tags()
    assert reader.take(1) == b"\xff"


@pytest.mark.parametrize("data", [None, b"", b"a", bytes(126), bytes(127), bytes(20_000)])
def test_compact_bytes(data: bytes | None) -> None:
    reader = FieldReader(compact(data) + b"end")
    size = reader.count()
    assert (size, reader.take_nullable(size)) == ((-1, b"") if data is None else (len(data), data))
    assert reader.take(3) == b"end"


def test_a_message_that_is_too_short() -> None:
    for read in (
        FieldReader.int16,
        FieldReader.int32,
        FieldReader.int64,
        FieldReader.varint,
        FieldReader.text,
    ):
        with pytest.raises(error):
            read(FieldReader(b"\x80"))
    with pytest.raises(error, match="more than 5 bytes"):
        FieldReader(b"\x80\x80\x80\x80\x80\x01").varint()
    for size in (-1, 3):
        with pytest.raises(error, match=f"a field of {size} bytes in a message that has 2 more"):
            FieldReader(b"abc", 1).take(size)
