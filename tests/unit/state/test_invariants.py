"""Each violated rule is reported with its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ctrlchan.state import Broker, ClusterState
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from tests.unit.state.helpers import small_state


def broken(state: ClusterState) -> dict[str, list[int]]:
    return {violation.rule: violation.rows.tolist() for violation in state.check()}


def test_a_sound_state() -> None:
    assert small_state().check() == []


@pytest.mark.parametrize(
    ("rows", "values", "expected"),
    [
        ([1], {"isr": [2], "leader": 3}, {"leader-not-in-isr": [1]}),
        ([1], {"isr": []}, {"leader-not-in-isr": [1]}),
        ([1], {"isr": [], "leader": -1}, {}),
        ([1], {"leader": -2}, {}),
        ([1], {"leader": 1, "leader_epoch": -1}, {}),
        ([0, 4], {"isr": [1, 9]}, {"isr-not-replica": [0, 4]}),
        ([3], {"isr": [3, 2, 3]}, {"isr-twice": [3]}),
        ([3], {"replicas": [3, 2, 1, 2], "offline": []}, {"replicas-twice": [3]}),
        ([4], {"replicas": [], "isr": [], "leader": -1}, {"replicas-empty": [4]}),
        ([0], {"adding": [1, 8, 8]}, {"adding-twice": [0], "adding-not-replica": [0]}),
        ([0], {"removing": [9]}, {"removing-not-replica": [0]}),
        ([2], {"offline": [2]}, {"offline-not-replica": [2]}),
        ([2], {"offline": [3, 3]}, {"offline-twice": [2]}),
        ([5], {"controller_epoch": 6}, {"controller-epoch-ahead": [5]}),
        ([4], {"replicas": [9], "isr": [9], "leader": 9, "offline": []},
         {"leader-not-online": [4], "dead-not-offline": [4]}),
        ([4], {"replicas": [9], "isr": [9], "leader": 9, "offline": [9]}, {"leader-not-online": [4]}),
    ],
)  # fmt: skip
def test_rules(rows: list[int], values: dict[str, Any], expected: dict[str, list[int]]) -> None:
    state = small_state()
    state.update(rows, **values)
    assert broken(state) == expected


def test_a_leader_that_is_shutting_down() -> None:
    state = small_state()
    state.set_shutting_down([2])
    assert broken(state) == {"leader-not-online": [1, 5]}


def test_gaps_in_partition_numbers() -> None:
    state = small_state()
    state.add_partitions("a", {4: [1]})
    state.add_topic("d", {1: [1], 2: [1]})
    assert broken(state) == {"partitions-not-dense": [3, 7, 8]}


def test_a_topic_id_of_two_topics() -> None:
    state = small_state()
    state.add_topic("d", {0: [1]}, b"a" * 16)
    state.add_topic("e", {0: [1]})
    assert broken(state) == {"topic-id-shared": [0, 1, 2, 6]}


def test_a_violation_for_people() -> None:
    state = small_state()
    state.update("all", isr=[9])
    first = state.check()[0]
    assert first.count == 6
    assert str(first) == "leader-not-in-isr: the leader is not in the ISR in 6 partitions (a-0, a-1, a-2, …)"
    state.update(slice(1, 6), leader=9)
    assert str(state.check()[0]).endswith("in 1 partitions (a-0)")


def test_one_bad_row_in_a_large_cluster_is_found() -> None:
    state = generate(GeneratorConfig(topics=100, offline_share=0.05, racks=5, seed=9))
    assert state.check() == []
    row = 7_654
    state.update(row, isr=np.append(state.partitions.isr[row], 29), offline=[])
    rules = broken(state)
    assert all(rows == [row] for rows in rules.values())
    assert "isr-not-replica" in rules or "isr-twice" in rules
    state.remove_brokers([4])
    state.add_brokers([Broker(4)])
    assert "dead-not-offline" not in broken(state)
