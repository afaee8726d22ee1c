"""The records of the run's producers, and the logs that they are read from."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

__all__ = ["Log", "Numbers", "Partition", "Record", "read_value", "value_of"]

#: Topic and partition.
Partition: TypeAlias = tuple[str, int]

#: At the begin of a value: producer, number of the record among the producer's of the partition.
_HEAD: Final = struct.Struct(">IQ")


class Record(NamedTuple):
    """A record in a log."""

    offset: int
    producer: int
    number: int


Log: TypeAlias = list[Record]


def value_of(producer: int, number: int, padding: bytes) -> bytes:
    """Return the value of a record."""
    return _HEAD.pack(producer, number) + padding


def read_value(value: bytes) -> tuple[int, int]:
    """Return producer and number of a record."""
    producer, number = _HEAD.unpack_from(value)
    return producer, number


class Numbers:
    """What one producer knows of its records in one partition: the offset of each, or why there is none."""

    #: Acknowledged without an offset: as a duplicate of itself. Not acknowledged. Never going to be.
    WITHOUT_OFFSET, OPEN, REFUSED = -1, -2, -3

    def __init__(self) -> None:
        self._offsets = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self) -> int:
        """Return the number of a new record."""
        self._offsets.append(self.OPEN)
        return len(self._offsets) - 1

    def acknowledge(self, number: int, offset: int) -> None:
        self._offsets[number] = offset if offset >= 0 else self.WITHOUT_OFFSET

    def refuse(self, number: int) -> None:
        """Note that the client does not send the record any more: it may be in the log, or not."""
        self._offsets[number] = self.REFUSED

    def refuse_open(self) -> int:
        """Refuse all records that wait; return how many."""
        waiting = [number for number, offset in enumerate(self._offsets) if offset == self.OPEN]
        for number in waiting:
            self.refuse(number)
        return len(waiting)

    def acknowledged(self) -> Iterator[tuple[int, int]]:
        """Yield number and offset of the acknowledged records; the offset may be ``WITHOUT_OFFSET``."""
        return ((number, offset) for number, offset in enumerate(self._offsets) if offset > self.OPEN)

    def open(self) -> int:
        """Return how many records wait for their acknowledgement."""
        return self._offsets.count(self.OPEN)
