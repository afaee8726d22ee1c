"""Changes bytes as a hostile writer would: bytes, numbers, cuts, insertions, pieces of other messages."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Final

__all__ = ["NUMBERS", "mutate", "signed"]

#: Ends of ranges of signed and unsigned numbers.
NUMBERS: Final = (-(2**31), -2, -1, 0, 1, 2, 0x7F, 0x7FFF, 0x8000, 0xFFFF, 2**24, 2**31 - 1, 0x7F7F7F7F)


def mutate(data: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    """Change ``data`` in one place. ``others``: messages of which pieces are taken."""
    at = chance.randrange(len(data) + 1)
    kind = chance.randrange(6)
    if kind == 0:
        data[at : at + 1] = bytes([chance.randrange(256)])
    elif kind == 1:
        number = signed(chance.choice(NUMBERS))
        size = chance.choice((1, 2, 3, 4))
        data[at : at + size] = struct.pack(">i", number)[-size:]
    elif kind == 2:
        del data[at:]
    elif kind == 3:
        del data[at : at + chance.randrange(1, 9)]
    elif kind == 4 or not others:
        data[at:at] = chance.randbytes(chance.choice((1, 2, 4, 8, 300)))
    else:
        other = chance.choice(others)
        data[at:] = other[chance.randrange(len(other) + 1) :]


def signed(value: int) -> int:
    """Return the number of 32 bits with a sign that has the same bits."""
    return (value + 2**31) % 2**32 - 2**31
