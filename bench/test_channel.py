"""Full pushes and small requests to sinks, beside blast, the limit, in the same run.

Command: ``python -m pytest bench/test_channel.py --benchmark-json=build/bench/channel.json``, then
``python -m bench.report build/bench/channel.json``; ``make bench`` runs everything.

A push is what a controller does: a new batch, UpdateMetadata of every partition for every broker, all
outcomes awaited. It encodes anew each time; blast sends a finished buffer of the same size to as many
connections. Both talk to one sink process, which discards bodies in the kernel.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, Literal

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from bench import workload
from bench.alternate import milliseconds, side_by_side
from bench.peers import Blast, Sink
from ctrlchan._codec import update_metadata_tail
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.channel import ChannelConfig, ControllerChannelManager, OutcomeKind, Sent
from ctrlchan.memory import pss_mib
from ctrlchan.state import ClusterState

CONTROLLER_EPOCH: Final = 3
UPDATE_METADATA_VERSION: Final = 8
HEAD_BYTES: Final = 17
TIMEOUT: Final = 60.0
ROUNDS: Final = 40
#: Small requests: rounds of one request to every broker in one benchmark round.
SMALL_ROUNDS: Final = 100

#: One process a broker, or as many as there are cores.
SENDERS: Final = ["per-broker", os.cpu_count() or 1]


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink() as sink:
        yield sink


class Cluster:
    """A state whose brokers all live at one sink, and a channel that is connected to them."""

    def __init__(self, sink: Sink, partitions: int, brokers: int, senders: str | int) -> None:
        topics = partitions // workload.PARTITIONS_PER_TOPIC
        self.state = ClusterState(
            workload.topics_of(topics),
            workload.partitions_of(topics, brokers),
            workload.brokers_of(brokers, host=lambda _: "127.0.0.1", port=sink.port),
        )
        self.broker_ids: list[int] = self.state.broker_ids.tolist()
        config = ChannelConfig(controller_id=0, senders=senders)
        self.channel = ControllerChannelManager(config, controller_epoch=CONTROLLER_EPOCH)
        self.batch = ControllerBrokerRequestBatch(self.channel, self.state)

    def __enter__(self) -> Cluster:
        self.channel.__enter__()
        self.channel.startup(self.state.brokers)
        return self

    def __exit__(self, *exception: object) -> None:
        self.channel.shutdown()

    @property
    def body_bytes(self) -> int:
        state = self.state
        tail = update_metadata_tail(UPDATE_METADATA_VERSION, state.topics, state.partitions, state.brokers)
        return HEAD_BYTES + tail.size

    def send(self, rows: int | Literal["all"]) -> list[Sent]:
        self.batch.new_batch()
        self.batch.add_update_metadata(self.broker_ids, rows)
        return self.batch.send_requests_to_brokers(CONTROLLER_EPOCH)

    def wait(self, sent: list[Sent]) -> None:
        for outcome in self.channel.wait(sent, TIMEOUT):
            assert outcome.kind is OutcomeKind.ACKNOWLEDGED, outcome

    def push(self) -> None:
        self.wait(self.send("all"))


@pytest.mark.parametrize("senders", SENDERS)
@pytest.mark.parametrize(("partitions", "brokers"), [(100_000, 30), (10_000, 30), (100_000, 100)])
def test_push(
    benchmark: BenchmarkFixture, sink: Sink, partitions: int, brokers: int, senders: str | int
) -> None:
    with Cluster(sink, partitions, brokers, senders) as cluster:
        body_bytes = cluster.body_bytes
        first_ms = milliseconds(cluster.push)
        with Blast(sink.port, brokers, body_bytes, threads=os.cpu_count() or 1) as blast:
            side_by_side(
                benchmark,
                cluster.push,
                blast.round,
                ROUNDS,
                peer_name="blast",
                suite="push",
                partitions=partitions,
                brokers=brokers,
                senders=str(senders),
                bytes=body_bytes,
                first_ms=first_ms,
            )
        benchmark.extra_info.update(pss_mib=pss_mib())


@pytest.mark.parametrize("senders", SENDERS)
@pytest.mark.parametrize("awaited", [True, False], ids=["awaited", "queued"])
def test_small_requests(benchmark: BenchmarkFixture, sink: Sink, awaited: bool, senders: str | int) -> None:
    """One partition to 30 brokers, again and again: each round awaited, or all of them queued ahead."""
    with Cluster(sink, 10_000, 30, senders) as cluster:

        def rounds() -> None:
            sent: list[Sent] = []
            for row in range(SMALL_ROUNDS):
                sent += cluster.send(row)
                if awaited:
                    cluster.wait(sent)
                    sent.clear()
            cluster.wait(sent)

        benchmark.extra_info.update(
            suite="small",
            brokers=len(cluster.broker_ids),
            senders=str(senders),
            requests=SMALL_ROUNDS * len(cluster.broker_ids),
            awaited=awaited,
        )
        benchmark.pedantic(rounds, rounds=10, warmup_rounds=1)  # type: ignore[no-untyped-call]
