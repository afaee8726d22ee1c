"""Produce: requests of one record, and of a batch of 16 KiB, which the processor appends and answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from bench.instructions.broker import TOPIC, Client, connected, serving
from bench.instructions.measured import Measured, in_groups
from bench.instructions.requests import batch_of, check, produce

__all__ = ["opened"]

_ONE: Final = batch_of(1)
_MIDDLE: Final = batch_of(150)


@contextmanager
def opened() -> Iterator[dict[str, Measured]]:
    """Start a broker, and connect to it."""
    with serving() as broker, connected(broker) as client:
        yield {
            "Produce of one record": Measured(partial(_produce, client, _ONE, 100), 400),
            "Produce of 150 records": Measured(partial(_produce, client, _MIDDLE, 3), 60),
        }


def _produce(client: Client, batch: bytes, at_once: int, times: int) -> None:
    frame = produce(TOPIC, batch)
    for count in in_groups(times, at_once):
        for answer in client.measure([frame] * count):
            check(answer, TOPIC)
