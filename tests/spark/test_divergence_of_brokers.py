"""Tests the divergence in a real channel's journal against the metadata caches of its brokers.

A controller pushes single partitions, selections, all changes and everything to some of its brokers, while
brokers stop, restart without metadata, and call its epochs stale.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.broker.core import BrokerCore
from ctrlchan.channel import ControllerChannelManager
from ctrlchan.journal import Journal
from ctrlchan.launch.embedded import EmbeddedBroker
from ctrlchan.pipeline import ReportConfig, report
from ctrlchan.state import ClusterState
from tests.fault.channels import config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKERS = 8
TOPICS = 6
PARTITIONS = 30
EPOCH = 7
#: Seconds for the answers of all running brokers.
TIMEOUT = 120.0


class World:
    """A controller and its brokers. ``brokers``: those that run; ``gone``: those that have stopped."""

    def __init__(self, stack: ExitStack, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.stack = stack
        self.brokers = {one: stack.enter_context(EmbeddedBroker(one, epoch=1)) for one in range(BROKERS)}
        self.gone: dict[int, EmbeddedBroker] = {}
        self.state = ClusterState.empty("real", 0, EPOCH)
        self.state.set_brokers([one.broker for one in self.brokers.values()])
        for topic in range(TOPICS):
            replicas = {number: [0, 1, 2] for number in range(PARTITIONS)}
            self.state.add_topic(f"topic-{topic}", replicas, leader=0, leader_epoch=0, isr=[0, 1, 2])
        self.journal = stack.enter_context(Journal(folder, flush_interval=0.05))
        self.channel = stack.enter_context(ControllerChannelManager(config(), EPOCH, journal=self.journal))
        self.channel.startup(self.state.brokers)
        self.batch = ControllerBrokerRequestBatch(self.channel, self.state)

    def push(self, ids: list[int], rows: Any) -> None:
        self.batch.new_batch()
        self.batch.add_update_metadata(ids, rows)
        sent = self.batch.send_requests_to_brokers(EPOCH)
        self.channel.wait([one for one in sent if one.broker_id not in self.gone], TIMEOUT)

    def change(self, rows: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Change rows; each gets a leader epoch that it never had."""
        leader_epoch = self.state.partitions.leader_epoch[rows] + 1
        self.state.update(rows, leader=self.random.randrange(3), leader_epoch=leader_epoch)

    def some(self, most: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        count = self.random.randint(1, most)
        chosen = self.random.sample(range(len(self.state.partitions)), count)
        return np.array(sorted(chosen), dtype=np.int64)

    def step(self) -> None:
        everybody = list(range(BROKERS))
        ids = everybody if self.random.random() < 0.7 else self.random.sample(everybody, 4)
        match self.random.choices(
            ["one", "many", "changed", "all", "go", "return", "refuse"], [12, 4, 4, 1, 1, 1, 1]
        )[0]:
            case "one":
                rows = self.some(3)
                self.change(rows)
                self.push(ids, rows)
            case "many":
                rows = self.some(120)
                self.change(rows)
                self.push(ids, rows)
            case "changed":
                self.push(ids, "changed")
            case "all":
                self.push(ids, "all")
            case "go" if len(self.gone) < 3:
                broker = self.brokers.pop(self.random.choice(sorted(self.brokers)))
                broker.close()
                self.gone[broker.id] = broker
            case "return" if self.gone:
                self._return(self.random.choice(sorted(self.gone)))
            case "refuse":
                # The broker has restarted and the controller does not know it yet.
                self._return(self.random.choice(sorted(self.brokers)), registered=False)
                self.push(everybody, self.some(2))

    def _return(self, broker_id: int, *, registered: bool = True) -> None:
        """Start the next process of a broker, which has no metadata."""
        old = self.brokers.pop(broker_id, None) or self.gone.pop(broker_id)
        epoch = old.broker.epoch + 1
        old.close()
        if registered:
            self.brokers[broker_id] = self.stack.enter_context(EmbeddedBroker(broker_id, epoch=epoch))
            known = [one for one in map(self.state.broker, range(BROKERS)) if one.id != broker_id]
            self.state.set_brokers([*known, self.brokers[broker_id].broker])
            self.channel.add_broker(self.brokers[broker_id].broker)
            return
        # It has the old port, so the controller continues as if the old process were running.
        port = old.port
        self.brokers[broker_id] = self.stack.enter_context(EmbeddedBroker(broker_id, port=port, epoch=epoch))

    def really_stale(self) -> dict[int, set[tuple[str, int]]]:
        """Return the partitions that differ in each broker's metadata cache."""
        state = self.state
        wanted = _rows_of(state)
        found = {}
        for broker_id, broker in {**self.brokers, **self.gone}.items():
            held = broker.inspect(_held)
            found[broker_id] = {key for key, value in wanted.items() if held.get(key) != value}
        return found


def _held(core: BrokerCore) -> dict[tuple[str, int], int]:
    return _rows_of(core.metadata.state)


def _rows_of(state: ClusterState) -> dict[tuple[str, int], int]:
    """(topic, partition) -> leader epoch."""
    partitions = state.partitions
    return {
        (state.topic_name(topic), number): epoch
        for topic, number, epoch in zip(
            partitions.topic_row.tolist(),
            partitions.partition.tolist(),
            partitions.leader_epoch.tolist(),
            strict=True,
        )
    }


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 4])
def test_the_report_finds_the_stale_partitions_of_brokers(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    with ExitStack() as stack:
        world = World(stack, tmp_path / "journal", seed)
        world.push(list(range(BROKERS)), "all")
        for _ in range(60):
            world.step()
        world.state.write(tmp_path / "snapshot")
        assert world.journal.flush()
        stale = world.really_stale()
        made = report(spark, ReportConfig(journal=tmp_path / "journal", snapshot=tmp_path / "snapshot"))
        assert made.divergence is not None
        rows = made.divergence.partitions.collect()
        made.unpersist()
    found: dict[int, set[tuple[str, int]]] = {broker: set() for broker in range(BROKERS)}
    for row in rows:
        found[row["broker"]].add((row["topic"], row["partition"]))
    assert found == stale
    # Some brokers are stale, some of them only in part.
    assert any(stale.values())
    assert any(len(partitions) < len(_rows_of(world.state)) for partitions in stale.values())
