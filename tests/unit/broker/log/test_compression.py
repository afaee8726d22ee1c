"""Codecs of record batches: what others write is read, and what is written others read."""

from __future__ import annotations

import random

import cramjam
import pytest

from ctrlchan.broker.log import compression
from ctrlchan.broker.log.compression import CorruptError, TooLargeError, compress, decompress
from tests.unit.broker.log.kafka_python import gzip_decode, gzip_encode

CODECS = (compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD)
#: Empty, compressible, random (no codec makes it smaller), several blocks.
PAYLOADS = (b"", b"abc" * 100, random.Random(1).randbytes(70_000), b"0123456789" * 20_000)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("payload", PAYLOADS, ids=["empty", "small", "random", "large"])
def test_round_trip(codec: int, payload: bytes) -> None:
    assert decompress(codec, compress(codec, payload)).tobytes() == payload


def test_a_plain_snappy_block_is_read() -> None:
    block = bytes(cramjam.snappy.compress_raw(PAYLOADS[3]))
    assert decompress(compression.SNAPPY, block).tobytes() == PAYLOADS[3]


def test_gzip_of_the_standard_library() -> None:
    assert decompress(compression.GZIP, gzip_encode(PAYLOADS[3])).tobytes() == PAYLOADS[3]
    assert gzip_decode(compress(compression.GZIP, PAYLOADS[3])) == PAYLOADS[3]


def test_lz4_blocks_are_independent() -> None:
    """Java's reader refuses other frames (Lz4BlockOutputStream.FLG)."""
    assert compress(compression.LZ4, PAYLOADS[3])[4] & 0x20


@pytest.mark.parametrize("codec", CODECS)
def test_a_limit_holds(codec: int) -> None:
    payload = bytes(100_000)
    data = compress(codec, payload)
    assert len(decompress(codec, data, len(payload))) == len(payload)
    with pytest.raises(TooLargeError):
        decompress(codec, data, len(payload) - 1)


def test_a_snappy_block_that_claims_four_gigabytes() -> None:
    with pytest.raises(TooLargeError):
        decompress(compression.SNAPPY, b"\xff\xff\xff\xff\x0f")


@pytest.mark.parametrize("codec", CODECS)
def test_every_cut_is_corrupt(codec: int) -> None:
    data = compress(codec, b"abc" * 100 + random.Random(2).randbytes(50))
    for size in range(len(data)):
        if codec == compression.SNAPPY and size == len(compression.XERIAL):
            continue  # a stream without blocks
        with pytest.raises(CorruptError):
            decompress(codec, data[:size])


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_is_corrupt(codec: int) -> None:
    with pytest.raises((CorruptError, TooLargeError)):
        decompress(codec, b"\x99" * 100)


def test_an_unknown_codec_is_not_written() -> None:
    with pytest.raises(ValueError, match="codec 5"):
        compress(5, b"")


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(compression.GZIP, (-1, 1, 9)), (compression.LZ4, (3, 9, 12)), (compression.ZSTD, (-131_072, 3, 22))],
)
def test_levels(codec: int, levels: tuple[int, ...]) -> None:
    words = b" ".join(b"%d" % (number * number) for number in range(20_000))
    sizes = []
    for level in levels:
        data = compress(codec, words, level)
        assert decompress(codec, data).tobytes() == words
        sizes.append(len(data))
    assert len(set(sizes)) == len(levels)
    default = {compression.GZIP: -1, compression.LZ4: 9, compression.ZSTD: 3}[codec]
    assert compress(codec, words) == compress(codec, words, default)
