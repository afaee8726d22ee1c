"""Measures small requests, UpdateMetadata of one partition to every broker: ours and Kafka's beside blast.

Command: ``python -m bench small``, or by itself ``python -m pytest bench/test_small.py
--benchmark-json=build/bench/small.json`` (``--no-kafka``, ``--quick``, ``-k 30-awaited``).

*awaited*: a round is one request to every broker, and begins when all brokers have answered the round before.
*queued*: all rounds are queued at once. Merging of neighbouring requests is off, so every request is sent.
blast is the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, Literal

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.alternate import OURS, Side, side_by_side
from bench.controller import ROW, body_bytes, cluster_of
from bench.peers.controllers import UNMERGED, Controller, kafka, ours
from bench.peers.native import Blast, Sink
from bench.workload import PARTITIONS_PER_TOPIC
from ctrlchan.channel.config import PER_BROKER

PARTITIONS: Final = 10_000
#: Brokers -> how many requests each of them gets in one timed call.
REQUESTS_EACH: Final = {30: 300, 1_000: 10}
#: The most brokers for which a process per broker is measured.
PER_BROKER_MOST: Final = 30
ROUNDS: Final = 20
#: One, because the sink uses the other core.
BLAST_THREADS: Final = 1
KAFKA_EVERY: Final = 2
#: Requests until the JVM has reached its full rate, twice the rate of its start.
KAFKA_WARMUP_REQUESTS: Final = 350_000


@pytest.mark.parametrize("mode", ["awaited", "queued"])
@pytest.mark.parametrize("brokers", REQUESTS_EACH)
def test_small(
    benchmark: BenchmarkFixture,
    sink: Sink,
    with_kafka: bool,
    scaled: Callable[[int], int],
    brokers: int,
    mode: Literal["awaited", "queued"],
) -> None:
    shape = sink.port, brokers, PARTITIONS
    each = REQUESTS_EACH[brokers]
    with ExitStack() as stack:
        controllers: dict[str, Controller] = {OURS: stack.enter_context(ours(*shape, UNMERGED))}
        if brokers <= PER_BROKER_MOST:
            per_broker = ours(*shape, UNMERGED | {"senders": PER_BROKER})
            controllers[PER_BROKER] = stack.enter_context(per_broker)
        if with_kafka:
            controllers["kafka"] = stack.enter_context(kafka(*shape))
        for controller in controllers.values():
            controller.start()
        blast = Blast(sink.port, brokers, _body_bytes(brokers), threads=BLAST_THREADS)
        limit = stack.enter_context(blast)
        first_ms = {name: _call(one, mode, each)() for name, one in controllers.items()}
        sides = {name: Side(call=_call(one, mode, each)) for name, one in controllers.items()}
        sides["blast"] = Side(call=_call(limit, mode, each))
        if with_kafka:
            sides["kafka"] = Side(
                call=_call(controllers["kafka"], mode, each),
                warmups=scaled(KAFKA_WARMUP_REQUESTS // (brokers * each)),
                every=KAFKA_EVERY,
                after=controllers["kafka"].settle,
            )
        side_by_side(
            benchmark,
            sides,
            scaled(ROUNDS),
            suite="small",
            brokers=brokers,
            mode=mode,
            requests=brokers * each,
            first_ms=first_ms,
        )


def _body_bytes(brokers: int) -> int:
    state = cluster_of(0, brokers, PARTITIONS // PARTITIONS_PER_TOPIC)
    return body_bytes(state, np.array([ROW], dtype=np.int64))


def _call(one: Controller | Blast, mode: Literal["awaited", "queued"], each: int) -> Callable[[], float]:
    return (lambda: one.awaited(each)) if mode == "awaited" else (lambda: one.queued(each))
