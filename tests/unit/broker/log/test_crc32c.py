"""CRC-32C with the processor's instruction, and with the table, against another library."""

from __future__ import annotations

import random

import crc32c
import pytest

from ctrlchan.broker.log._batches import crc32c_of, crc32c_of_table

#: Around one word, three short streams, three long streams, and their sums.
EDGES = (0, 8, 768, 1536, 12288, 12288 + 768, 24576, 100_000)


@pytest.mark.parametrize("size", sorted({max(0, edge + by) for edge in EDGES for by in range(-9, 10)}))
def test_crc_of_every_shape(size: int) -> None:
    data = random.Random(size).randbytes(size)
    assert crc32c_of(data) == crc32c_of_table(data) == crc32c.crc32c(data)


def test_crc_at_every_alignment() -> None:
    data = random.Random(1).randbytes(1000)
    for begin in range(16):
        assert crc32c_of(memoryview(data)[begin:]) == crc32c.crc32c(data[begin:])
