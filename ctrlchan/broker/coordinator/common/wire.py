"""Reads and writes the primitive types of Kafka's protocol, for the records of coordinators.

Integers are big-endian. Flexible versions have compact lengths (a varint, length + 1, 0 for null) and tagged
fields at the end of each structure.
"""

from __future__ import annotations

import struct
from typing import Final, Literal

from ctrlchan.errors import DecodeError, EncodeError

__all__ = ["Reader", "Writer"]

_SIZES: Final = {"b": 1, "h": 2, "i": 4, "q": 8}
Integer = Literal["b", "h", "i", "q"]


class Reader:
    """Reads fields one after another. Every method raises DecodeError when the bytes are not such a field."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0
        self.flexible = False

    def integer(self, kind: Integer) -> int:
        """Return a signed integer of 8 (b), 16 (h), 32 (i) or 64 (q) bits."""
        return int.from_bytes(self._take(_SIZES[kind]), "big", signed=True)

    def nullable_string(self) -> str | None:
        """Return a string or None. Bytes that are not UTF-8 become U+FFFD, as in Java."""
        length = self._length("h")
        return None if length < 0 else self._take(length).decode("utf-8", "replace")

    def string(self) -> str:
        """Return a string."""
        value = self.nullable_string()
        if value is None:
            raise DecodeError("null for a string that cannot be null")
        return value

    def nullable_bytes(self) -> bytes | None:
        """Return bytes or None."""
        length = self._length("i")
        return None if length < 0 else self._take(length)

    def sized_bytes(self) -> bytes:
        """Return bytes."""
        value = self.nullable_bytes()
        if value is None:
            raise DecodeError("null for bytes that cannot be null")
        return value

    def count(self) -> int:
        """Return the number of elements of an array that cannot be null."""
        count = self.nullable_count()
        if count is None:
            raise DecodeError("null for an array that cannot be null")
        return count

    def nullable_count(self) -> int | None:
        """Return the number of elements of an array, or None."""
        count = self._length("i")
        # Each element has at least one byte.
        if count > len(self._data) - self._position:
            raise DecodeError(f"an array of {count} elements in {len(self._data) - self._position} bytes")
        return None if count < 0 else count

    def tagged_fields(self) -> None:
        """Skip the tagged fields of a structure, in flexible versions."""
        if self.flexible:
            for _ in range(self._varint()):
                self._varint()
                self._take(self._varint())

    def _length(self, kind: Integer) -> int:
        length = self._varint() - 1 if self.flexible else self.integer(kind)
        return max(length, -1)

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise DecodeError("a varint of more than five bytes")

    def _take(self, size: int) -> bytes:
        data = self._data[self._position : self._position + size]
        if len(data) < size:
            raise DecodeError(f"{size} bytes at {self._position}, of {len(self._data)}")
        self._position += size
        return data


class Writer:
    """Writes fields of versions that are not flexible, which is what Kafka 3.9 stores."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def __bytes__(self) -> bytes:
        return b"".join(self._parts)

    def integer(self, kind: Integer, value: int) -> None:
        """Write a signed integer of 8 (b), 16 (h), 32 (i) or 64 (q) bits."""
        try:
            self._parts.append(struct.pack(">" + kind, value))
        except struct.error as error:
            raise EncodeError(f"{value}: {error}") from None

    def string(self, value: str | None) -> None:
        """Write a string, or null. Raises EncodeError when it has more than 32,767 bytes of UTF-8."""
        if value is None:
            self.integer("h", -1)
            return
        data = value.encode("utf-8", "replace")
        self.integer("h", len(data))
        self._parts.append(data)

    def sized_bytes(self, value: bytes) -> None:
        """Write bytes with their length."""
        self.integer("i", len(value))
        self._parts.append(value)
