"""Requests for channel tests: each body has a number, so that tests see order and repetitions."""

from __future__ import annotations

from ctrlchan._codec import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from ctrlchan.channel import ControlRequest

__all__ = ["FakeBody", "leader_and_isr", "number_of", "stop_replica", "update"]


class FakeBody:
    """A shared body of ``size`` bytes that begins and ends with ``number``."""

    rows = 1

    def __init__(self, api_key: int, version: int, number: int, size: int) -> None:
        self.api_key = api_key
        self.version = version
        self.size = max(size, 16)
        self.number = number
        self.writes = 0

    def write_into(self, out: bytearray | memoryview, offset: int = 0) -> int:
        self.writes += 1
        mark = self.number.to_bytes(8, "big")
        out[offset : offset + self.size] = mark + bytes(self.size - 16) + mark
        return self.size


def update(number: int = 0, *, size: int = 64, epoch: int = 7, version: int = 8) -> ControlRequest:
    return ControlRequest(FakeBody(UPDATE_METADATA, version, number, size), epoch, rows=1)


def leader_and_isr(number: int = 0, *, size: int = 64, epoch: int = 7, version: int = 7) -> ControlRequest:
    return ControlRequest(FakeBody(LEADER_AND_ISR, version, number, size), epoch, rows=1)


def stop_replica(number: int = 0, *, size: int = 64, epoch: int = 7, version: int = 4) -> ControlRequest:
    return ControlRequest(FakeBody(STOP_REPLICA, version, number, size), epoch, rows=1)


def number_of(body: bytes) -> int:
    """Return the number in the body of a request, which must be complete."""
    mark = body[-8:]
    assert mark in body[:-8]
    return int.from_bytes(mark, "big")
