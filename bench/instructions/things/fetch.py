"""Fetch: requests of 1 KB and of 16 KiB in a full log, which the processor answers from the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from bench.instructions.broker import TOPIC, Client, connected, serving
from bench.instructions.measured import Measured, in_groups
from bench.instructions.requests import batch_of, check, check_fetched, fetch, produce

__all__ = ["opened"]

_BATCHES: Final = 500
_ONE: Final = batch_of(1)
_SMALL: Final = 1024
_MIDDLE: Final = 16 * 1024


@contextmanager
def opened() -> Iterator[dict[str, Measured]]:
    """Start a broker with records, and connect to it."""
    with serving() as broker, connected(broker) as client:
        for _ in range(_BATCHES):
            check(client.ask(produce(TOPIC, _ONE)), TOPIC)
        yield {
            "Fetch of 1 KB": Measured(partial(_fetch, client, _SMALL, 30), 300),
            "Fetch of 16 KiB": Measured(partial(_fetch, client, _MIDDLE, 3), 300),
        }


def _fetch(client: Client, max_bytes: int, at_once: int, times: int) -> None:
    least = max_bytes // len(_ONE) * len(_ONE)
    # Offsets are spread over the log, the same in each run.
    offsets = [17 * number % (_BATCHES // 2) for number in range(times)]
    for count in in_groups(times, at_once):
        group, offsets = offsets[:count], offsets[count:]
        for answer in client.measure([fetch(TOPIC, offset, max_bytes) for offset in group]):
            check_fetched(answer, TOPIC, least)
