"""Kafka's primitive types, for the handshakes of a connection, which need no more of the protocol."""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from ctrlchan.varints import encode_uvarint

__all__ = ["FieldReader", "compact"]

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")


class FieldReader:
    """Reads the fields of a message in order. Raises ``struct.error`` where the message is too short."""

    def __init__(self, data: bytes | memoryview, offset: int = 0) -> None:
        self._data = bytes(data)
        self._at = offset

    def int16(self) -> int:
        return self._fixed(_INT16)

    def int32(self) -> int:
        return self._fixed(_INT32)

    def int64(self) -> int:
        return self._fixed(_INT64)

    def _fixed(self, struct: Struct) -> int:
        value: int = struct.unpack_from(self._data, self._at)[0]
        self._at += struct.size
        return value

    def varint(self) -> int:
        """Read an unsigned number of variable length."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self._fixed(_INT8)
            value |= (byte & 0x7F) << shift
            if byte >= 0:
                return value
        raise error("a varint of more than 5 bytes")

    def count(self) -> int:
        """Read a compact length; -1 is null."""
        return self.varint() - 1

    def take(self, size: int) -> bytes:
        """Read this many bytes."""
        if not 0 <= size <= len(self._data) - self._at:
            raise error(f"a field of {size} bytes in a message that has {len(self._data) - self._at} more")
        self._at += size
        return self._data[self._at - size : self._at]

    def take_nullable(self, size: int) -> bytes:
        """Read this many bytes; none for null, whose size is -1."""
        return b"" if size < 0 else self.take(size)

    def text(self) -> str:
        """Read a string that cannot be null."""
        return self.take(self.int16()).decode()

    def skip_tags(self) -> None:
        """Read past tagged fields."""
        for _ in range(self.varint()):
            self.varint()
            self.take(self.varint())


def compact(data: bytes | None) -> bytes:
    """Return bytes or null behind their compact length."""
    return b"\0" if data is None else encode_uvarint(len(data) + 1) + data
