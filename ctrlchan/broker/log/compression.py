"""The codecs of record batches. cramjam compresses and decompresses, and lets go of the GIL.

Source: the classes of ``org.apache.kafka.common.compress``. A snappy payload is xerial's stream of blocks,
which Java writes, or one plain block, which librdkafka writes.
"""

from __future__ import annotations

import struct
from typing import Final

import cramjam
import numpy as np

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

#: A batch may not have more bytes of records. More memory than this, and a window of zstd (at most as much),
#: is never used; memory that a batch does not fill is not touched.
MAX_DECOMPRESSED_BYTES: Final = 128 * 2**20

#: Magic bytes, version 1, compatible with version 1.
XERIAL: Final = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
XERIAL_MAGIC: Final = XERIAL[:8]
XERIAL_BLOCK: Final = 32 * 1024

#: Magic bytes; version 1 with independent blocks, which Java's reader demands; blocks of 64 KiB; the checksum
#: of these two bytes.
LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
LZ4_BLOCK: Final = 64 * 1024
LZ4_NOT_COMPRESSED: Final = 0x80000000
LZ4_END: Final = bytes(4)

_SIZE = struct.Struct(">I")

#: Kafka's.
_DEFAULT_LEVELS: Final = {GZIP: -1, LZ4: 9, ZSTD: 3}
#: What zlib takes -1 for.
_GZIP_DEFAULT: Final = 6


class CorruptError(Exception):
    """The bytes are not what the codec writes."""


class TooLargeError(Exception):
    """There are more bytes than allowed."""


def decompress(codec: int, data: bytes, limit: int = MAX_DECOMPRESSED_BYTES) -> memoryview:
    """Return the decompressed bytes, at most ``limit``. Raises CorruptError and TooLargeError."""
    # Not ``bytearray``, which would write to all of the memory.
    out = np.empty(limit, np.uint8).data
    try:
        if codec == SNAPPY:
            return out[: _decompress_snappy(data, out)]
        module = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}[codec]
        return out[: module.decompress_into(data, out)]
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            raise TooLargeError(f"more than {limit} bytes") from error
        raise CorruptError(str(error)) from error


def _decompress_snappy(data: bytes, out: memoryview) -> int:
    """Decompress into ``out``; return how many bytes it has."""
    if not data.startswith(XERIAL_MAGIC):
        return _decompress_block(data, out)
    if len(data) < len(XERIAL):
        raise CorruptError("the header is cut")
    position, filled = len(XERIAL), 0
    while position < len(data):
        if len(data) - position < _SIZE.size:
            raise CorruptError("the size of a block is cut")
        [size] = _SIZE.unpack_from(data, position)
        position += _SIZE.size
        if size > len(data) - position:
            raise CorruptError("a block is cut")
        filled += _decompress_block(data[position : position + size], out[filled:])
        position += size
    return filled


def _decompress_block(block: bytes, out: memoryview) -> int:
    if not block:
        raise CorruptError("an empty block")
    if cramjam.snappy.decompress_raw_len(block) > len(out):
        raise TooLargeError("a block does not fit")
    return cramjam.snappy.decompress_raw_into(block, out)


def compress(codec: int, data: bytes, level: int | None = None) -> bytes:
    """Return the compressed bytes. ``level``: of the codec, as in Kafka's settings, None for its default."""
    level = _DEFAULT_LEVELS.get(codec) if level is None else level
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, _GZIP_DEFAULT if level == -1 else level))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level))
    parts = []
    if codec == SNAPPY:
        parts.append(XERIAL)
        for begin in range(0, len(data), XERIAL_BLOCK):
            block = bytes(cramjam.snappy.compress_raw(data[begin : begin + XERIAL_BLOCK]))
            parts += [_SIZE.pack(len(block)), block]
    elif codec == LZ4:
        parts.append(LZ4_HEADER)
        for begin in range(0, len(data), LZ4_BLOCK):
            plain = data[begin : begin + LZ4_BLOCK]
            block = _lz4_block(plain, level)
            if len(block) < len(plain):
                parts += [len(block).to_bytes(4, "little"), block]
            else:
                parts += [(len(plain) | LZ4_NOT_COMPRESSED).to_bytes(4, "little"), plain]
        parts.append(LZ4_END)
    else:
        raise ValueError(f"codec {codec}")
    return b"".join(parts)


def _lz4_block(plain: bytes, level: int | None) -> bytes:
    """Return a compressed block of at most ``LZ4_BLOCK`` bytes.

    As in Java, the default level is the fast compressor, and all others are the thorough one.
    """
    if level is None or level == _DEFAULT_LEVELS[LZ4]:
        return bytes(cramjam.lz4.compress_block(plain, store_size=False))
    # Only for frames cramjam has levels. A frame of so few bytes has one block.
    frame = bytes(cramjam.lz4.compress(plain, level=level))
    size = int.from_bytes(frame[len(LZ4_HEADER) : len(LZ4_HEADER) + 4], "little")
    begin = len(LZ4_HEADER) + 4
    return plain if size & LZ4_NOT_COMPRESSED else frame[begin : begin + size]
