"""Measures push, replication and failover over slow links: ours beside Kafka's, in network namespaces.

Command: ``python -m bench links``, or by itself ``python -m pytest bench/test_links.py
--benchmark-json=build/bench/links.json`` (``--no-kafka``, ``--quick``, ``-k push``). Needs root, iproute2 and
util-linux, and is no part of ``make bench``.

Two hosts, which are namespaces, and one link between them (``bench/links``). All sides have the same link and
take turns on it. Congestion control and buffers of the kernel are Linux's own: cubic, 6 MiB to receive, 4 MiB
to send. Each figure is named after its link; the delay is the round trip's. What the link itself has lost or
delayed beyond what it was set to is in ``link``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench.alternate import OURS
from bench.cluster.candidates import Candidate
from bench.cluster.layout import Layout
from bench.cluster.run import FAILOVER, running
from bench.cluster.zookeeper import ZooKeeperServer
from bench.controller import body_bytes, cluster_of
from bench.figures import Figures, rotated
from bench.links.link import FAR, NEAR, LinkSettings, SlowLink
from bench.links.namespaces import missing_for_namespaces
from bench.peers.controllers import Controller, kafka, ours
from bench.peers.native import Blast, Sink
from bench.peers.place import Place
from bench.replication import KAFKA_LARGE_BUFFERS, TwoBrokers, kafka_broker, our_broker
from bench.workload import PARTITIONS_PER_TOPIC
from tests.kafka.processes import Reaper
from tests.kafka.requirement import require_kafka

_MISSING: Final = missing_for_namespaces()
pytestmark = [
    pytest.mark.skipif(_MISSING is not None, reason=str(_MISSING)),
    pytest.mark.timeout(3600),
]

#: No delay: for what comes before the measured work.
FAST: Final = LinkSettings()
LINKS: Final = (
    LinkSettings(round_trip_ms=1),
    LinkSettings(round_trip_ms=50),
    LinkSettings(round_trip_ms=1, loss=0.01),
    LinkSettings(round_trip_ms=50, loss=0.01),
    LinkSettings(round_trip_ms=1, gbit=1),
    LinkSettings(round_trip_ms=50, gbit=1),
)
ROUNDS: Final = 3
KAFKA: Final = "kafka"
LIMIT: Final = "limit"
#: Kafka with the settings that its users have on such links.
KAFKA_TUNED: Final = "kafka, tuned"

PUSHED_PARTITIONS, PUSHED_BROKERS = 100_000, 10
_KAFKA_WARMUPS: Final = 6
_SMALL_UPDATES: Final = 20
#: Bytes that are produced with acks=all, and that a new follower copies.
REPLICATED: Final = 10_000_000
_SINGLE_PRODUCES: Final = 20
_PRODUCE_WARMUPS: Final = 300
#: Kafka asks ZooKeeper for so many nodes at once: 10 by default.
KAFKA_MANY_READS: Final = {"zookeeper.max.in.flight.requests": "1000"}


class Turns:
    """Lets all sides work on one link after another, and keeps the figures."""

    def __init__(self, benchmark: BenchmarkFixture, link: SlowLink) -> None:
        self.figures = Figures()
        self._benchmark = benchmark
        self._link = link
        self._carried: dict[str, dict[str, dict[str, int]]] = {}

    @contextmanager
    def over(self, settings: LinkSettings, side: str) -> Iterator[None]:
        """Make the link slow, and fast again in the end."""
        self._link.set(settings)
        try:
            yield
        finally:
            there, back = self._link.report()
            counts = self._carried.setdefault(str(settings), {}).setdefault(side, {})
            for one in (there, back):
                for name in ("frames", "lost", "overflowed", "missed"):
                    counts[name] = counts.get(name, 0) + getattr(one, name)
                counts["worst_late_us"] = max(counts.get("worst_late_us", 0), one.worst_us)
            self._link.set(FAST)

    def run(
        self,
        sides: Sequence[str],
        links: Sequence[LinkSettings],
        rounds: int,
        turn: Callable[[str, LinkSettings], object],
        warm_up: Callable[[str], object] | None = None,
    ) -> None:
        """Run so many rounds of all sides on each link, as one benchmark.

        ``warm_up``: all connections begin anew with each link, and a side makes them by this, untimed.
        """
        before = os.getloadavg()[0]

        def run() -> None:
            for settings in links:
                if warm_up is not None:
                    self._link.set(settings)
                    self._link.end_connections()
                    for side in sides:
                        warm_up(side)
                    self._link.set(FAST)
                for number in range(rounds):
                    for side in rotated(sides, number):
                        turn(side, settings)

        self._benchmark.pedantic(run, rounds=1)  # type: ignore[no-untyped-call]
        self._benchmark.extra_info.update(
            suite="links",
            figures=self.figures.all,
            link=self._carried,
            load=[round(before, 2), round(os.getloadavg()[0], 2)],
        )


@pytest.fixture
def link(tmp_path: Path) -> Iterator[SlowLink]:
    with SlowLink(tmp_path) as link:
        yield link


def test_push(
    benchmark: BenchmarkFixture, link: SlowLink, with_kafka: bool, scaled: Callable[[int], int]
) -> None:
    """The controller is at the far end, and all brokers at the near one: a sink."""
    turns, far = Turns(benchmark, link), Place(FAR, link.far_prefix)
    shape = PUSHED_BROKERS, PUSHED_PARTITIONS
    with ExitStack() as stack:
        sink = stack.enter_context(Sink(host=NEAR))
        controllers: dict[str, Controller] = {
            OURS: stack.enter_context(ours(sink.port, *shape, host=NEAR, place=far))
        }
        if with_kafka:
            controllers[KAFKA] = stack.enter_context(kafka(sink.port, *shape, host=NEAR, place=far))
        size = body_bytes(cluster_of(0, PUSHED_BROKERS, PUSHED_PARTITIONS // PARTITIONS_PER_TOPIC))
        limits: list[Blast] = []
        for side, controller in controllers.items():
            controller.start()
            for _ in range(scaled(_KAFKA_WARMUPS) if side == KAFKA else 2):
                controller.push()

        def turn(side: str, settings: LinkSettings) -> None:
            peer = controllers.get(side)
            with turns.over(settings, side):
                took = limits[-1].awaited(1) if peer is None else peer.push().total
                turns.figures.add(
                    side, f"push of {size / 1e6:.1f} MB to each of 10 brokers, {settings}", "ms", took
                )
                if peer is None:
                    return
                took = peer.awaited(_SMALL_UPDATES)
                turns.figures.add(
                    side,
                    f"update of one partition for 10 brokers, awaited, {settings}",
                    "ms",
                    took / _SMALL_UPDATES,
                )
                turns.figures.add(
                    side, f"20 such updates, queued, {settings}", "ms", peer.queued(_SMALL_UPDATES)
                )
            peer.settle()

        def warm_up(side: str) -> None:
            if side != LIMIT:
                controllers[side].push()
                return
            # It does not connect again.
            blast = Blast(sink.port, PUSHED_BROKERS, size, os.cpu_count() or 1, host=NEAR, place=far)
            limits.append(stack.enter_context(blast))
            blast.awaited(1)

        turns.run([LIMIT, *controllers], LINKS, scaled(ROUNDS), turn, warm_up)


def test_replication(
    benchmark: BenchmarkFixture,
    link: SlowLink,
    with_kafka: bool,
    scaled: Callable[[int], int],
    tmp_path: Path,
) -> None:
    """ZooKeeper, controller, leader and client are at the near end, the follower at the far one."""
    require_kafka()  # its jars include ZooKeeper
    turns = Turns(benchmark, link)
    places = Place(NEAR), Place(FAR, link.far_prefix)
    kinds: dict[str, Any] = {OURS: (our_broker, {})}
    if with_kafka:
        kinds |= {KAFKA: (kafka_broker, {}), KAFKA_TUNED: (kafka_broker, KAFKA_LARGE_BUFFERS)}
    with ExitStack() as stack:
        reaper = Reaper()
        stack.callback(reaper.close)
        zookeeper = ZooKeeperServer(tmp_path / "zookeeper", reaper, NEAR)
        stack.callback(zookeeper.close)
        clusters = {}
        for number, (side, (command, configs)) in enumerate(kinds.items()):
            address = f"{zookeeper.address}/cluster-{number}"
            cluster = TwoBrokers(tmp_path / f"cluster-{number}", command, address, *places, configs)
            clusters[side] = stack.enter_context(cluster)
            cluster.produce_one(scaled(_PRODUCE_WARMUPS))
            cluster.produce_many(REPLICATED)
            cluster.catch_up(REPLICATED)

        def turn(side: str, settings: LinkSettings) -> None:
            cluster, size = clusters[side], f"{REPLICATED / 1e6:.0f} MB"
            with turns.over(settings, side):
                for took in cluster.produce_one(_SINGLE_PRODUCES):
                    turns.figures.add(side, f"Produce of one record, acks=all, {settings}", "ms", took)
                took = cluster.produce_many(REPLICATED)
                turns.figures.add(
                    side, f"{size} with acks=all, five in flight, {settings}", "MB/s", REPLICATED / 1e6 / took
                )
                turns.figures.add(
                    side,
                    f"a new follower without records joins the ISR, {settings}",
                    "s",
                    cluster.catch_up(0),
                )
                took = cluster.catch_up(REPLICATED)
                turns.figures.add(side, f"a new follower copies {size}, {settings}", "s", took)

        def warm_up(side: str) -> None:
            clusters[side].produce_one(_SINGLE_PRODUCES)

        turns.run(list(clusters), LINKS, scaled(ROUNDS), turn, warm_up)
    rates = [what for what, (unit, _) in turns.figures.all.items() if unit == "MB/s"]
    benchmark.extra_info["higher"] = rates


@pytest.mark.parametrize(
    ("partitions", "links", "failovers"),
    [(1_000, LINKS, 3), (10_000, [LINKS[1]], 1)],
    ids=["1000", "10000"],
)
def test_failover(
    benchmark: BenchmarkFixture,
    link: SlowLink,
    with_kafka: bool,
    scaled: Callable[[int], int],
    tmp_path: Path,
    partitions: int,
    links: Sequence[LinkSettings],
    failovers: int,
) -> None:
    """The controllers are at the far end; ZooKeeper and 30 brokers, a sink, at the near one."""
    require_kafka()
    turns, far = Turns(benchmark, link), Place(FAR, link.far_prefix)
    with ExitStack() as stack:
        run = stack.enter_context(running(Layout(partitions, 30), tmp_path, NEAR))
        candidates: dict[str, Candidate] = {OURS: stack.enter_context(run.ours(far))}
        if with_kafka:
            for side, configs in ((KAFKA, None), (KAFKA_TUNED, KAFKA_MANY_READS)):
                name = side.replace(", ", "-")
                candidates[side] = stack.enter_context(run.kafka(far, name, configs))
                run.turn(candidates[side], events=(), failovers=scaled(_KAFKA_WARMUPS))

        def turn(side: str, settings: LinkSettings) -> None:
            took = run.turn(candidates[side], (), scaled(failovers), timed=turns.over(settings, side))
            for one in took.events[FAILOVER]:
                turns.figures.add(side, f"failover of {partitions:,} partitions, {settings}", "ms", one.ms)

        turns.run(list(candidates), links, 1, turn)
