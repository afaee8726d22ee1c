"""``old.diff(new)``: every change of a state is found, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ctrlchan.state import Broker, ClusterState
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from tests.unit.state.helpers import rows_of, small_state


def test_equal_states_have_no_difference() -> None:
    found = small_state().diff(small_state())
    assert not found
    assert found.describe()["partitions"] == {"added": 0, "removed": 0, "changed": 0}


@pytest.mark.parametrize(
    ("change", "column"),
    [
        (lambda state, row: state.update(row, leader=2), "leader"),
        (lambda state, row: state.update(row, leader_epoch=9), "leader_epoch"),
        (lambda state, row: state.update(row, isr=[2]), "isr"),
        (lambda state, row: state.update(row, recovery_state=1), "recovery_state"),
        (lambda state, row: state.update(row, offline=[1]), "offline"),
    ],
)
def test_a_column_that_differs(change: Callable[[ClusterState, int], None], column: str) -> None:
    old, new = small_state(), small_state()
    change(new, new.row("c", 0))
    found = old.diff(new)
    assert found
    assert found.rows(column).tolist() == [new.row("c", 0)]
    assert {name for name, flags in found.columns.items() if flags.any()} == {column}
    assert found.describe()["columns"][column] == 1
    assert found.changed_old.dtype == found.changed_new.dtype == np.int64
    assert (len(found.added), len(found.removed), found.changed_topics) == (0, 0, ())


def test_topics_and_partitions_that_come_and_go() -> None:
    old, new = small_state(), small_state()
    new.remove_topics(["a"])
    new.add_partitions("b", {1: [1]})
    new.add_topic("d", {0: [1]})
    new.mark_topics_deleting(["c"])
    found = old.diff(new)
    assert (found.added_topics, found.removed_topics, found.changed_topics) == (("d",), ("a",), ("c",))
    assert found.added.tolist() == [new.row("b", 1), new.row("d", 0)]
    assert found.removed.tolist() == [0, 1, 2]
    assert not len(found.changed_new)
    back = new.diff(old)
    assert (back.added.tolist(), back.removed.tolist()) == (found.removed.tolist(), found.added.tolist())


def test_brokers_and_facts_of_the_cluster() -> None:
    old, new = small_state(), small_state()
    new.set_brokers([Broker(1, 101), Broker(2, 202), Broker(4, 104)], recompute_offline=False)
    new.set_shutting_down([])
    new.controller_epoch = 6
    found = old.diff(new)
    assert (found.added_brokers, found.removed_brokers, found.changed_brokers) == ((4,), (3,), (2,))
    assert found.cluster == {"controller_epoch": (5, 6)}
    assert found.describe()["cluster"] == ["controller_epoch"]


def test_the_difference_of_random_states_is_that_of_their_rows() -> None:
    old = generate(GeneratorConfig(topics=7, partitions_per_topic=5, seed=1))
    new = generate(GeneratorConfig(topics=9, partitions_per_topic=4, seed=2))
    found = old.diff(new)
    before, after = rows_of(old), rows_of(new)
    old_keys, new_keys = list(before), list(after)
    assert [new_keys[row] for row in found.added.tolist()] == [key for key in after if key not in before]
    assert [old_keys[row] for row in found.removed.tolist()] == [key for key in before if key not in after]
    expected = [key for key in before if key in after and before[key] != after[key]]
    assert [old_keys[row] for row in found.changed_old.tolist()] == expected
    assert [new_keys[row] for row in found.changed_new.tolist()] == expected
    for column, flags in found.columns.items():
        assert flags.tolist() == [before[key][column] != after[key][column] for key in expected]
