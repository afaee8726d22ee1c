"""A controller of 100,000, 300,000 and 1,000,000 partitions: failover, a broker's death, a rolling bounce.

The harness is that of the suite ``controller`` (``bench/cluster``): a real ZooKeeper, and sinks as brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.cluster.layout import Layout
from bench.cluster.run import FAILOVER, Turn, running
from bench.scale.record import Record
from bench.scale.sides import KAFKA

__all__ = ["ask"]

_PER: Final = "partitions"
_EVENTS: Final = ("death of a broker", "rolling bounce of ten brokers")
#: Of Kafka's controller, which is the same process all the time.
_WARMUPS: Final = 1


def ask(
    side: str,
    size: int,
    folder: Path,
    record: Record,
    *,
    brokers: int,
    limit: float,
    events: Sequence[str] = _EVENTS,
) -> None:
    """Measure one controller of ``size`` partitions. ``limit``: seconds that one event may take.

    Raises TimeoutError when an event takes longer.
    """
    with running(Layout(size, brokers), folder, limit=limit) as run:
        if side == KAFKA:
            with run.kafka() as candidate:
                run.turn(candidate, (), _WARMUPS)
                turn = run.turn(candidate, events)
        else:
            with run.ours() as candidate:
                turn = run.turn(candidate, events)
    _add(turn, side, size, brokers, record)


def _add(turn: Turn, side: str, size: int, brokers: int, record: Record) -> None:
    for event, repetitions in turn.events.items():
        name = event[0].upper() + event[1:]
        for one in repetitions:
            for what, unit, sample in (
                ("", "s", one.ms / 1e3),
                (": the controller", "processor s", one.controller_cpu),
                (": ZooKeeper", "processor s", one.zookeeper_cpu),
            ):
                record.add(f"{name}, {brokers} brokers{what}", unit, _PER, side, size, sample)
    record.add(f"{FAILOVER.capitalize()}, {brokers} brokers: memory", "MiB", _PER, side, size, turn.pss_mib)
