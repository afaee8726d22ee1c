"""Changes since a version: none is missed, and a call without effect is not counted."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis.stateful import initialize, invariant, rule

from ctrlchan.state import Broker, ClusterState
from ctrlchan.state.brokers import brokers_list
from ctrlchan.state.changes import MOST_REMOVED, Changes
from ctrlchan.state.lists import differing
from tests.unit.state import test_model


class ChangesMachine(test_model.StateMachine):
    """Remembers a state at one version, and compares the counters with the differences since."""

    marked: tuple[int, dict[Any, Any], dict[str, bytes], list[Broker]] | None = None

    @initialize()
    def count(self) -> None:
        self.marked = None

    @rule()
    def mark(self) -> None:
        self.marked = (
            self.state.changes.version,
            copy.deepcopy(self.rows),
            dict(self.ids),
            brokers_list(self.state.brokers),
        )

    @invariant()
    def nothing_is_missed(self) -> None:
        if self.marked is None:
            return
        version, rows, _, brokers = self.marked
        changes, state = self.state.changes, self.state
        assert len(changes.rows) == len(state.partitions)
        assert not len(changes.rows) or changes.rows.max() <= changes.version
        for (name, number), row in self.rows.items():
            if rows.get((name, number)) != row:
                assert changes.rows[state.row(name, number)] > version
        removed = {
            (one.topic.decode(), number)
            for one in changes.removed_after(version)
            for number in one.partition.tolist()
        }
        assert rows.keys() - self.rows.keys() <= removed
        if brokers_list(state.brokers) != brokers:
            assert changes.brokers > version


TestChanges = ChangesMachine.TestCase
TestChanges.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def some_state() -> ClusterState:
    state = ClusterState.empty()
    state.set_brokers([Broker(1), Broker(2)])
    for name in ("a", "b", "c"):
        state.add_topic(name, {0: [1], 1: [2]})
    return state


def changed(state: ClusterState, version: int) -> list[int]:
    return np.flatnonzero(state.changes.rows > version).tolist()


def test_counting_begins_with_the_first_look() -> None:
    state = some_state()
    assert state.changes.version == 0
    assert state.changes.rows.tolist() == [0] * 6
    assert state.changes is state.changes


def test_only_rows_whose_offline_replicas_change_count_when_a_broker_goes() -> None:
    state = some_state()
    version = state.changes.version
    state.set_shutting_down([2])
    assert changed(state, version) == [1, 3, 5]
    assert state.changes.brokers == 0
    state.remove_brokers([2])
    assert state.changes.brokers == state.changes.version
    version = state.changes.version
    state.set_brokers([Broker(1)])
    assert state.changes.version == version


def test_deletion_flags_count_for_all_rows_of_a_topic() -> None:
    state = some_state()
    version = state.changes.version
    state.mark_topics_deleting(["b"])
    assert changed(state, version) == [2, 3]
    version = state.changes.version
    state.unmark_topics_deleting(["b", "c"])
    assert changed(state, version) == [2, 3, 4, 5]


def test_rows_at_the_end_leave_the_numbers_of_the_others() -> None:
    state = some_state()
    layout = state.changes.layout
    for number in range(200):
        state.add_topic(f"new{number}", {0: [1]})
    assert state.changes.layout == layout
    assert changed(state, 0) == list(range(6, 206))
    state.add_partitions("a", {2: [1]})
    assert state.changes.layout == state.changes.version
    assert changed(state, state.changes.version - 1) == [2]


def test_removals_are_remembered_since_when_they_were_to_come() -> None:
    state = some_state()
    state.changes  # noqa: B018 - counting begins
    state.mark_topics_deleting(["a"])
    flagged = state.changes.version
    state.update(0, leader_epoch=5)
    state.remove_topics(["a", "c"])
    [a, c] = state.changes.removed_after(-1)
    assert (a.topic, a.partition.tolist(), a.since.tolist()) == (b"a", [0, 1], [flagged + 1, flagged])
    assert c.since.tolist() == [state.changes.version] * 2
    [a, _] = state.changes.removed_after(flagged)
    assert a.partition.tolist() == [0]
    assert len(state.partitions) == len(state.changes.rows) == 2
    assert state.changes.removed_after(state.changes.version) == []


def test_the_oldest_removals_are_forgotten() -> None:
    changes = Changes(0)
    part = np.arange(MOST_REMOVED // 4, dtype=np.int32)
    for number in range(10):
        changes.note_removed(b"%d" % number, part, np.full(len(part), number, np.int64))
    assert [one.topic for one in changes.removed_after(-1)] == [b"6", b"7", b"8", b"9"]


def test_lists_that_differ() -> None:
    from ctrlchan._codec import ListColumn

    values = np.array([1, 2, 3, 4, 2, 1], np.int32)

    def lists(starts: list[int], lengths: list[int]) -> ListColumn:
        return ListColumn(np.array(starts, np.int32), np.array(lengths, np.int32), values)

    mine, theirs = lists([0, 2, 0, 0, 5], [2, 1, 0, 2, 1]), lists([0, 3, 4, 4, 0], [2, 1, 0, 2, 1])
    assert differing(mine, theirs).tolist() == [False, True, False, True, False]
    assert differing(mine, lists([0, 2, 0, 0, 5], [1, 1, 1, 2, 1])).tolist() == [
        True,
        False,
        True,
        False,
        False,
    ]
