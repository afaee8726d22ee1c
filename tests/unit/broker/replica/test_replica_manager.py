"""What a ReplicaManager makes of assignments, of ISRs that leaders want, and of the controller's answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ctrlchan._codec import StringColumn, Topics
from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log.manager import LogManager
from ctrlchan.broker.metadata.hosted_replicas import Assignment, HostedReplicas
from ctrlchan.broker.replica._partitions import PartitionTable
from ctrlchan.broker.replica.isr_changes import IsrChange
from ctrlchan.broker.replica.isr_updates import IsrUpdates
from ctrlchan.broker.replica.replica_manager import ReplicaManager
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.internal_topics import OFFSETS_TOPIC

FAR_AHEAD_MS = 10**15


@dataclass
class Altered:
    """The controller's answer."""

    error: int = 0
    leader_epoch: int = 5
    isr: tuple[int, ...] = (1,)
    partition_epoch: int = 8


@dataclass
class Controller:
    asked: list[IsrChange] = field(default_factory=list)
    answers: list[Future[Any]] = field(default_factory=list)

    def alter_partition(self, change: IsrChange) -> Future[Any]:
        self.asked.append(change)
        self.answers.append(Future())
        return self.answers[-1]


@dataclass
class Groups:
    events: list[tuple[Any, ...]] = field(default_factory=list)

    def on_leader(self, partition: int, leader_epoch: int) -> None:
        self.events.append(("leader", partition, leader_epoch))

    def on_resigned(self, partition: int, leader_epoch: int | None) -> None:
        self.events.append(("resigned", partition, leader_epoch))


def assignment(topic: str = "alpha", *, partition: int = 0, leader: int = 1) -> Assignment:
    return Assignment(topic, partition, bytes(16), leader, 5, 7, (1, 2), (1, 2), True)


@dataclass
class Rig:
    """A ReplicaManager, and what it notifies."""

    manager: ReplicaManager
    replicas: HostedReplicas
    controller: Any
    groups: Any
    isrs: IsrUpdates


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    logs = LogManager([tmp_path], LogConfig(), 1, "a-cluster")
    logs.start()
    replicas, lock = HostedReplicas(), threading.RLock()
    topics = Topics(StringColumn.from_strings(["alpha"]))
    keys = replicas.keys_of(topics, np.zeros(1, np.int32), np.zeros(1, np.int32))
    replicas.create(keys, topics)
    replicas.assign(np.array([0]), {"leader_epoch": np.int32(5), "partition_epoch": np.int32(7)}, {})
    controller: Any = Controller()
    groups: Any = Groups()
    isrs = IsrUpdates(controller, replicas, lock)
    table = PartitionTable(1, isr_wanted=isrs.ask, max_lag_ms=1_000)
    made = ReplicaManager(
        table,
        logs,
        lambda _topic, _is_new: LogConfig(),
        replicas,
        lock,
        max_lag_ms=1_000,
        listeners={OFFSETS_TOPIC: groups},
    )
    yield Rig(made, replicas, controller, groups, isrs)
    made.stop()
    table.close()
    logs.stop()


def test_the_controller_commits_a_smaller_isr(rig: Rig) -> None:
    manager, controller = rig.manager, rig.controller
    assert manager.make_leaders([assignment()]) == {}
    partition = manager.table.get("alpha", 0)
    assert partition is not None
    manager.table.shrink_isrs(FAR_AHEAD_MS)
    manager.table.shrink_isrs(FAR_AHEAD_MS)  # nothing more is asked before the answer
    assert controller.asked == [("alpha", bytes(16), 0, 5, 7, (1,))]
    controller.answers[0].set_result(Altered())
    assert (partition.isr, partition.partition_epoch) == ((1,), 8)
    assert (rig.isrs.shrinks, rig.isrs.expands, rig.isrs.failures) == (1, 0, 0)
    # A LeaderAndIsr with the old partition epoch, which comes late, is older now.
    assert rig.replicas.columns.partition_epoch.tolist() == [8]


@pytest.mark.parametrize(
    "answer", [Altered(error=ErrorCode.OPERATION_NOT_ATTEMPTED), KafkaError(ErrorCode.REQUEST_TIMED_OUT)]
)
def test_a_refused_isr_is_asked_for_again(rig: Rig, answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ctrlchan.broker")
    manager, controller = rig.manager, rig.controller
    manager.make_leaders([assignment()])
    partition = manager.table.get("alpha", 0)
    assert partition is not None
    manager.table.shrink_isrs(FAR_AHEAD_MS)
    if isinstance(answer, Exception):
        controller.answers[0].set_exception(answer)
    else:
        controller.answers[0].set_result(answer)
    assert partition.isr == (1, 2)
    assert (rig.isrs.shrinks, rig.isrs.expands, rig.isrs.failures) == (0, 0, 1)
    manager.table.shrink_isrs(FAR_AHEAD_MS)
    assert len(controller.asked) == 2
    assert caplog.messages.count("[Partition alpha-0 broker=1] ISR [1] is wanted, after [1, 2]") == 2


def test_the_group_coordinator_knows_which_offsets_are_led_here(rig: Rig) -> None:
    manager, groups = rig.manager, rig.groups
    offsets = "__consumer_offsets"
    manager.make_leaders([assignment(offsets, partition=3), assignment()])
    manager.make_followers([assignment(offsets, partition=4, leader=2)])
    manager.delete([(offsets, 3, -2), (offsets, 9, 6)])  # the second one is not hosted
    assert groups.events == [("leader", 3, 5), ("resigned", 4, 5), ("resigned", 3, None), ("resigned", 9, 6)]
    assert manager.table.get(offsets, 3) is None
    assert manager.topics() == {offsets, "alpha"}
