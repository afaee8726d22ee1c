"""The codecs of entries that carry others: those of batches, but for the frames of LZ4 in format 0.

The first producers with LZ4 computed the checksum of the frame's descriptor over four bytes too many, and
format 0 stayed so: a reader ignores the checksum, a writer writes the wrong one.

Source: ``Lz4BlockInputStream`` and ``Lz4BlockOutputStream`` (``ignoreFlagDescriptorChecksum``,
``useBrokenFlagDescriptorChecksum``).
"""

from __future__ import annotations

from typing import Final

from ctrlchan.broker.log import compression
from ctrlchan.broker.log.compression import LZ4, MAX_DECOMPRESSED_BYTES, CorruptError, TooLargeError

__all__ = ["CorruptError", "TooLargeError", "compress", "decompress"]

_FORMAT_0: Final = 0
#: Where the descriptor begins, and the bit that says that it has the size of the content, in eight bytes.
_DESCRIPTOR_AT: Final = 4
_HAS_SIZE: Final = 0x08
_LZ4_HEAD_BYTES: Final = 7

_MASK: Final = 2**32 - 1
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393


def decompress(codec: int, magic: int, data: bytes, limit: int = MAX_DECOMPRESSED_BYTES) -> memoryview:
    """Return the entries in the value of an entry, at most ``limit`` bytes.

    Raises CorruptError and TooLargeError.
    """
    if codec == LZ4:
        if len(data) < _LZ4_HEAD_BYTES:
            raise CorruptError("the head of a frame is cut")
        if magic == _FORMAT_0:
            data = _with_checksum(data, _DESCRIPTOR_AT)
    return compression.decompress(codec, data, limit)


def compress(codec: int, magic: int, data: bytes) -> bytes:
    """Return compressed entries: the value of an entry of this format."""
    compressed = compression.compress(codec, data)
    return _with_checksum(compressed, 0) if codec == LZ4 and magic == _FORMAT_0 else compressed


def _with_checksum(frame: bytes, begin: int) -> bytes:
    """Return an LZ4 frame with the checksum of the head's bytes from ``begin`` on."""
    at = _DESCRIPTOR_AT + (10 if frame[_DESCRIPTOR_AT] & _HAS_SIZE else 2)
    if at >= len(frame):
        raise CorruptError("the head of a frame is cut")
    return frame[:at] + bytes([_xxhash32(frame[begin:at]) >> 8 & 0xFF]) + frame[at + 1 :]


def _xxhash32(data: bytes) -> int:
    """Return the XXH32 of fewer than 16 bytes, with the seed 0."""
    value, whole = _PRIME_5 + len(data), len(data) // 4 * 4
    for at in range(0, whole, 4):
        value = value + int.from_bytes(data[at : at + 4], "little") * _PRIME_3 & _MASK
        value = (value << 17 | value >> 15) * _PRIME_4 & _MASK
    for byte in data[whole:]:
        value = value + byte * _PRIME_5 & _MASK
        value = (value << 11 | value >> 21) * _PRIME_1 & _MASK
    value = (value ^ value >> 15) * _PRIME_2 & _MASK
    value = (value ^ value >> 13) * _PRIME_3 & _MASK
    return value ^ value >> 16
