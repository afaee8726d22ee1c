"""A push of all partitions to 30, 100, 300 and 1,000 brokers: ours and Kafka's beside blast, the limit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from bench.controller import body_bytes, cluster_of
from bench.peers.controllers import kafka, ours
from bench.peers.native import Blast, Sink
from bench.scale.record import Record
from bench.scale.sides import KAFKA
from bench.workload import PARTITIONS_PER_TOPIC

__all__ = ["ask"]

#: The side that is no controller.
_LIMIT: Final = "limit"
_WARMUPS: Final = 1
#: A JVM's first pushes are interpreted.
_KAFKA_WARMUPS: Final = 6
_ROUNDS: Final = 3


def ask(side: str, size: int, folder: Path, record: Record, *, partitions: int) -> None:
    """Measure pushes to ``size`` brokers."""
    question, per = f"Push of {partitions:,} partitions", "brokers"
    with Sink() as sink:
        start = kafka if side == KAFKA else ours
        with start(sink.port, size, partitions) as controller:
            controller.start()
            for _ in range(_KAFKA_WARMUPS if side == KAFKA else _WARMUPS):
                controller.push()
            for _ in range(_ROUNDS):
                record.add(question, "s", per, side, size, controller.push().total / 1e3)
        if side == KAFKA:
            return
        body = body_bytes(cluster_of(0, size, partitions // PARTITIONS_PER_TOPIC))
        with Blast(sink.port, size, body, threads=os.cpu_count() or 1) as limit:
            limit.awaited(_WARMUPS)
            for _ in range(_ROUNDS):
                record.add(question, "s", per, _LIMIT, size, limit.awaited(1) / 1e3)
