"""Heartbeat of a group's only member: a request that Python answers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from bench.instructions.broker import Client, connected, serving
from bench.instructions.measured import Measured, in_groups
from bench.instructions.requests import header, text
from tests.kafka.waiting import wait_until

__all__ = ["opened"]

_GROUP: Final = "a-group"
_AT_ONCE: Final = 50
#: Correlation id, tagged fields, throttle time, error NONE, tagged fields.
_ANSWER: Final = struct.pack(">ibihb", 7, 0, 0, 0, 0)


@contextmanager
def opened() -> Iterator[dict[str, Measured]]:
    """Start a broker, and join a group."""
    with serving() as broker, connected(broker) as client:
        generation, member = _join(client)
        frame = header(12, 4) + text(_GROUP) + struct.pack(">i", generation) + text(member) + b"\0\0"
        yield {"Heartbeat": Measured(partial(_beat, client, frame), 100)}


def _old_text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _join(client: Client) -> tuple[int, str]:
    """Join with JoinGroup v2 and SyncGroup v1; return the generation and the member's id."""
    joins = struct.pack(">hhih", 11, 2, 7, -1) + _old_text(_GROUP) + struct.pack(">ii", 300_000, 300_000)
    joins += _old_text("") + _old_text("consumer") + struct.pack(">i", 1) + _old_text("range")
    joins += struct.pack(">i", 0)
    answer = b""

    def has_joined() -> bool:
        # Until the partition of the group is loaded.
        nonlocal answer
        answer = client.ask(joins)
        return answer[8:10] == b"\0\0"

    wait_until(has_joined, timeout=60, what="a group with a member")
    (generation,) = struct.unpack_from(">i", answer, 10)
    texts, at = [], 14
    for _ in ("protocol", "leader", "member"):
        size = int.from_bytes(answer[at : at + 2], "big")
        texts.append(answer[at + 2 : at + 2 + size].decode())
        at += 2 + size
    member = texts[-1]
    syncs = struct.pack(">hhih", 14, 1, 7, -1) + _old_text(_GROUP) + struct.pack(">i", generation)
    syncs += _old_text(member) + struct.pack(">i", 1) + _old_text(member) + struct.pack(">i", 3) + b"all"
    answer = client.ask(syncs)
    if answer[8:10] != b"\0\0":
        raise RuntimeError(f"SyncGroup: {answer!r}")
    return generation, member


def _beat(client: Client, frame: bytes, times: int) -> None:
    for count in in_groups(times, _AT_ONCE):
        for answer in client.measure([frame] * count):
            if answer != _ANSWER:
                raise RuntimeError(f"Heartbeat: {answer!r}")
