"""Codecs of entries that carry others."""

from __future__ import annotations

from contextlib import suppress

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.broker.log import compression
from ctrlchan.broker.log.old_formats import wrappers

CODECS = (compression.GZIP, compression.SNAPPY, compression.LZ4)


@given(data=st.binary(max_size=300))
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_what_is_compressed_is_decompressed(codec: int, magic: int, data: bytes) -> None:
    assert bytes(wrappers.decompress(codec, magic, wrappers.compress(codec, magic, data))) == data


def test_lz4_of_format_0_has_the_old_checksum() -> None:
    data = b"some bytes" * 20_000
    old = wrappers.compress(compression.LZ4, 0, data)
    new = wrappers.compress(compression.LZ4, 1, data)
    assert (old[:6], old[7:]) == (new[:6], new[7:])
    # As Kafka 3.9.1 writes it.
    assert (old[6], new[6]) == (0x1A, 0x82)
    # A reader of format 0 takes any checksum.
    for head in (old, new, old[:6] + b"\0" + old[7:]):
        assert bytes(wrappers.decompress(compression.LZ4, 0, head)) == data
    with pytest.raises(wrappers.CorruptError):
        wrappers.decompress(compression.LZ4, 1, old)


def test_lz4_may_say_the_size_of_its_content() -> None:
    data = b"some bytes" * 100
    frame = bytes(cramjam.lz4.compress(data))
    head = frame[:4] + bytes([frame[4] | 0x08, frame[5]]) + len(data).to_bytes(8, "little")
    for checksum in range(256):
        changed = head + bytes([checksum]) + frame[7:]
        assert bytes(wrappers.decompress(compression.LZ4, 0, changed)) == data


@given(data=st.binary(max_size=60))
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_garbage(magic: int, codec: int, data: bytes) -> None:
    for payload in (data, compression.LZ4_HEADER + data, compression.XERIAL + data):
        with suppress(wrappers.CorruptError, wrappers.TooLargeError):
            wrappers.decompress(codec, magic, payload, 1000)
