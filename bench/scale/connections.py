"""A broker with 10, 1,000 and 10,000 connections: idle, and each of them asking at a low rate."""

from __future__ import annotations

from pathlib import Path
from time import sleep
from typing import Final

from bench.peers.record_load import batch_of
from bench.scale import messages
from bench.scale.crowd import Crowd
from bench.scale.record import Record
from bench.scale.sides import MeasuredBroker, create_topics, running

__all__ = ["ask"]

_TOPIC: Final = "one"
#: Nobody writes to it.
_EMPTY: Final = "empty"
_PER: Final = "connections"
_SECONDS: Final = 5.0
#: Requests of each connection, per second.
_RATE: Final = 0.1
_SETTLE_SECONDS: Final = 1.0
#: How long a Fetch of the waiting consumers waits.
_WAIT_MS: Final = 5_000


def ask(side: str, size: int, folder: Path, record: Record) -> None:
    """Measure one side with ``size`` connections."""
    with running(side, folder) as broker:
        create_topics(broker.port, {_TOPIC: 1, _EMPTY: 1})
        _measure(broker, size, record)


def _measure(broker: MeasuredBroker, size: int, record: Record) -> None:
    requests = {
        "Produce": messages.produce({_TOPIC: [0]}, batch_of(1, 100)),
        "Metadata": messages.metadata([_TOPIC]),
    }
    waiting = messages.fetch({_EMPTY: [0]}, max_wait_ms=_WAIT_MS)

    def add(question: str, unit: str, *samples: float) -> None:
        record.add(question, unit, _PER, broker.side, size, *samples)

    with Crowd(broker.port, 100) as warming:
        for frame in requests.values():
            warming.ask_in_turn([frame] * 5_000)
    sleep(_SETTLE_SECONDS)
    before = broker.needed_bytes()
    began = broker.processor_seconds()
    with Crowd(broker.port, size) as crowd:
        # Each has been answered once: the broker has accepted all.
        crowd.ask_all([requests["Metadata"]] * size)
        add(
            "Connections: to open one, with one request",
            "processor µs",
            (broker.processor_seconds() - began) / size * 1e6,
        )
        sleep(_SETTLE_SECONDS)
        grown = broker.needed_bytes() - before
        record.add_each("Idle connections: memory of each", _PER, broker.side, size, grown)
        began = broker.processor_seconds()
        sleep(_SECONDS)
        add("Idle connections", "processor ms/s", (broker.processor_seconds() - began) / _SECONDS * 1e3)
        for what, frame in requests.items():
            began = broker.processor_seconds()
            took = crowd.at_rate(frame, size * _RATE, _SECONDS)
            used = broker.processor_seconds() - began
            add(f"Connections that send a {what} every 10 s", "processor ms/s", used / _SECONDS * 1e3)
            add(
                f"Connections that send a {what} every 10 s: one request",
                "processor µs",
                used / len(took) * 1e6,
            )
        began = broker.processor_seconds()
        answered = crowd.keep_asking(waiting, 2 * _SECONDS)
        used = broker.processor_seconds() - began
        add("Connections with a Fetch that waits 5 s", "processor ms/s", used / (2 * _SECONDS) * 1e3)
        add(
            "Connections with a Fetch that waits 5 s: one request",
            "processor µs",
            used / (size + answered) * 1e6,
        )
        add("Connections: memory of the broker", "MiB", broker.pss_mib())
        grown = broker.needed_bytes() - before
        record.add_each("Connections with a waiting Fetch: memory of each", _PER, broker.side, size, grown)
