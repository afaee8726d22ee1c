"""Unsigned numbers of variable length, as Kafka's flexible messages and records have them."""

from __future__ import annotations

__all__ = ["encode_uvarint"]


def encode_uvarint(value: int) -> bytes:
    """Return a number that is not negative in groups of seven bits, the lowest first (KIP-482)."""
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
