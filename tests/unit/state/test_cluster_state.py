"""Single look-ups and changes; test_model.py has sequences of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ctrlchan._codec import ListColumn, StringColumn, Topics
from ctrlchan.errors import InvalidStateError
from ctrlchan.state import NO_LEADER, NO_LEADERSHIP, Broker, ClusterState
from ctrlchan.state.lists import empty_lists
from ctrlchan.state.table import FIXED_COLUMNS, LIST_COLUMNS, make_partitions
from tests.unit.state.helpers import assert_packed_alike, default_row, rows_of, small_state


def test_empty() -> None:
    state = ClusterState.empty("id", controller_id=3, controller_epoch=4)
    assert (state.cluster_id, state.controller_id, state.controller_epoch) == ("id", 3, 4)
    assert len(state.topics) == len(state.partitions) == len(state.brokers) == 0
    assert state.check() == []
    state.update("all", leader=1, isr=[1])
    state.update([], leader=[])
    assert state.find_rows(np.array([0], np.int32), np.array([0], np.int32)).tolist() == [-1]


def test_look_ups() -> None:
    state = small_state()
    assert [state.topic_row(name) for name in ("a", b"b", "c")] == [0, 1, 2]
    assert state.topic_name(1) == "b"
    assert [state.row("a", 0), state.row(b"a", 2), state.row("c", 1)] == [0, 2, 5]
    assert state.rows_of_topic("c") == slice(4, 6)
    assert state.broker_row(3) == 2
    assert state.broker(2) == Broker(2, 102)
    assert state.broker_ids.tolist() == [1, 2, 3]
    topic_rows, partitions = np.array([2, 0, 0, 1, 9], np.int32), np.array([1, 3, -1, 0, 0], np.int32)
    assert state.find_rows(topic_rows, partitions).tolist() == [5, -1, -1, 3, -1]
    assert repr(state) == "ClusterState(cluster_id='test', topics=3, partitions=6, brokers=3)"


@pytest.mark.parametrize(
    "look_up",
    [
        lambda state: state.topic_row("d"),
        lambda state: state.row("a", 3),
        lambda state: state.row("a", -1),
        lambda state: state.row("a", 2**31),
        lambda state: state.row("d", 0),
        lambda state: state.rows_of_topic("d"),
        lambda state: state.broker_row(9),
        lambda state: state.remove_topics(["a", "d"]),
        lambda state: state.mark_topics_deleting(["d"]),
        lambda state: state.set_deletion_in_progress(["d"]),
        lambda state: state.add_partitions("d", {0: [1]}),
        lambda state: state.remove_brokers([9]),
        lambda state: state.set_shutting_down([9]),
        lambda state: state.set_offline_dirs(9, [0]),
    ],
)
def test_what_is_not_there(look_up: Callable[[ClusterState], object]) -> None:
    state = small_state()
    before = rows_of(state)
    with pytest.raises(KeyError):
        look_up(state)
    assert rows_of(state) == before


def test_partitions_that_are_not_dense_are_found() -> None:
    state = ClusterState.empty()
    state.add_topic("t", {3: [1], 7: [1], 5: [1]})
    assert state.partitions.partition.tolist() == [3, 5, 7]
    assert [state.row("t", number) for number in (3, 5, 7)] == [0, 1, 2]
    for number in (0, 1, 2, 4, 6, 8):
        with pytest.raises(KeyError):
            state.row("t", number)
    found = state.find_rows(np.zeros(9, np.int32), np.arange(9, dtype=np.int32))
    assert found.tolist() == [-1, -1, -1, 0, -1, 1, -1, 2, -1]


ROWS_AND_MEANING: list[tuple[Any, list[int]]] = [
    (2, [2]),
    (np.int64(2), [2]),
    ("all", [0, 1, 2, 3, 4, 5]),
    (slice(1, 3), [1, 2]),
    (slice(5, 1), []),
    (slice(None, None, 2), [0, 2, 4]),
    (slice(None, None, -2), [5, 3, 1]),
    (np.array([4, 0]), [4, 0]),
    (np.array([4, 0], np.uint8), [4, 0]),
    ([1, 5], [1, 5]),
    (np.array([True, False, False, False, False, True]), [0, 5]),
    (np.empty(0, np.int64), []),
]


@pytest.mark.parametrize(("rows", "meant"), ROWS_AND_MEANING)
def test_update_of_a_selection(rows: Any, meant: list[int]) -> None:
    state = small_state()
    before = list(rows_of(state).values())
    values = np.arange(len(meant)) + 10
    state.update(rows, leader=values, leader_epoch=7, isr=[[v, v + 1] for v in values.tolist()], offline=[5])
    after = list(rows_of(state).values())
    for row in range(6):
        expected = dict(before[row])
        if row in meant:
            value = 10 + meant.index(row)
            expected.update(leader=value, leader_epoch=7, isr=[value, value + 1], offline=[5])
        assert after[row] == expected
    assert_packed_alike(state)


@pytest.mark.parametrize(
    "lists",
    [
        [[1, 2], [3, 4]],
        np.array([[1, 2], [3, 4]]),
        np.array([[1, 2], [3, 4]], np.uint16),
        ListColumn.from_lists([[1, 2], [3, 4]]),
        ListColumn(
            np.array([3, 0], np.int32), np.array([2, 2], np.int32), np.array([3, 4, 9, 1, 2], np.int32)
        ),
    ],
)
def test_lists_for_each_row(lists: Any) -> None:
    state = small_state()
    state.update([0, 4], adding=lists)
    assert state.partitions.adding is not None
    assert state.partitions.adding.to_lists() == [[1, 2], [], [], [], [3, 4], []]


@pytest.mark.parametrize("one", [[4, 5], (4, 5), np.array([4, 5])])
def test_one_list_for_all_rows_is_kept_once(one: Any) -> None:
    state = small_state()
    state.update("all", isr=one)
    assert state.partitions.isr.to_lists() == [[4, 5]] * 6
    assert len(set(state.partitions.isr.starts.tolist())) == 1
    state.update(3, isr=[6])
    assert state.partitions.isr.to_lists() == [[4, 5]] * 3 + [[6]] + [[4, 5]] * 2


def test_new_replicas_bring_offline_up_to_date() -> None:
    state = small_state()
    state.set_offline_dirs(1, [0])
    state.update([0, 3], replicas=[[9, 1, 2], [2, 8]])
    assert rows_of(state)["a", 0]["offline"] == [9, 1]
    assert rows_of(state)["b", 0]["offline"] == [8]
    state.update(0, replicas=[7], offline=[])
    assert rows_of(state)["a", 0]["offline"] == []


@pytest.mark.parametrize(
    ("rows", "values", "reason"),
    [
        (6, {}, "row 6 of a state with 6 rows"),
        (-1, {}, "row -1 of a state with 6 rows"),
        ([0, 6], {}, "row 6 of a state with 6 rows"),
        ([-7, 0], {}, "row -7 of"),
        ("some", {}, "rows 'some'"),
        (np.zeros((1, 1), int), {}, "not 2-d int64"),
        ([0.5], {}, "not 1-d float64"),
        (np.array([True]), {}, "1 row flags for a state with 6 rows"),
        (0, {"leader": -3}, "leader: -3 is not in -2 .."),
        (0, {"leader": 2**31}, "leader: 2147483648 is not in"),
        ([0, 1], {"leader": [1, -3]}, "leader: -3 (number 1 of the selection) is not in"),
        ([0, 1], {"leader": [1]}, "leader: 1 values for 2 rows"),
        (
            [0, 1],
            {"leader": [1.5, 2]},
            "leader: expected a value or a 1-d array of integers",
        ),
        ([0], {"leader_epoch": [[1]]}, "leader_epoch: expected a value or a 1-d array"),
        (0, {"leader_epoch": -2}, "leader_epoch: -2"),
        (0, {"recovery_state": 2}, "recovery_state: 2 is not in 0 .. 1"),
        ([0, 1], {"isr": [[1], [2], [3]]}, "isr: 3 lists for 2 rows"),
        ([0, 1], {"isr": [[1]]}, "isr: 1 lists for 2 rows"),
        ([0, 1], {"isr": ListColumn.from_lists([[1]])}, "isr: 1 lists for 2 rows"),
        ([0, 1], {"isr": np.zeros((3, 1), int)}, "isr: 3 lists for 2 rows"),
        (0, {"isr": [-1]}, "isr: a broker id below 0"),
        (0, {"isr": [2**31]}, "isr: 2147483648 does not fit int32"),
        (0, {"isr": [0.5]}, "isr: expected lists of integers"),
        (0, {"isr": np.zeros(2)}, "isr: expected integers"),
        (0, {"isr": np.zeros((1, 1, 1), int)}, "isr: expected integers"),
        (0, {"isr": "12"}, "isr: expected lists of integers"),
        (
            0,
            {"isr": ListColumn(np.array([1], np.int32), np.array([1], np.int32), np.array([1], np.int32))},
            "isr: a list points outside its values",
        ),
    ],
)
def test_a_refused_update_changes_nothing(rows: Any, values: dict[str, Any], reason: str) -> None:
    state = small_state()
    before = rows_of(state)
    # Good values of other columns do not get in either.
    with pytest.raises(InvalidStateError, match=re.escape(reason)):
        state.update(rows, **{"partition_epoch": 99, "removing": [1], **values})
    assert rows_of(state) == before


def test_added_topics_and_partitions() -> None:
    state = ClusterState.empty(controller_epoch=3)
    state.set_brokers([Broker(1)])
    assert state.add_topic("t", {1: [1, 2], 0: [2]}, b"i" * 16) == slice(0, 2)
    assert state.add_topic("s", {0: [1]}, leader=1, isr=[1], leader_epoch=[2]) == slice(2, 3)
    state.add_partitions("t", {5: [1], 2: [2, 1]}, leader=[2, 1])
    assert rows_of(state) == {
        ("t", 0): default_row(replicas=[2], offline=[2]),
        ("t", 1): default_row(replicas=[1, 2], offline=[2]),
        ("t", 2): default_row(replicas=[2, 1], offline=[2], leader=2),
        ("t", 5): default_row(replicas=[1], leader=1),
        ("s", 0): default_row(replicas=[1], leader=1, isr=[1], leader_epoch=2),
    }
    assert [bytes(row) for row in state.topics.ids] == [b"i" * 16, bytes(16)]
    assert state.partitions.leader[0] == NO_LEADER
    assert NO_LEADERSHIP == -1


@pytest.mark.parametrize(
    ("add", "reason"),
    [
        (lambda state: state.add_topic("a", {0: [1]}), "topic a exists"),
        (lambda state: state.add_topic("x y", {0: [1]}), "a character other than"),
        (lambda state: state.add_topic("n", {0: [1]}, b"short"), "a topic id has 16 bytes, not 5"),
        (lambda state: state.add_topic("n", {}), "an assignment without partitions"),
        (lambda state: state.add_topic("n", {-1: [1]}), "partition -1 is not in"),
        (lambda state: state.add_topic("n", {0: []}), "partition 0: replicas [] are empty"),
        (
            lambda state: state.add_topic("n", {0: [1], 1: [2, 2]}),
            "partition 1: replicas [2, 2] are",
        ),
        (lambda state: state.add_topic("n", {0: [-4]}), "a broker id below 0"),
        (lambda state: state.add_topic("n", {0: [1]}, leader=-9), "leader: -9"),
        (lambda state: state.add_topic("n", {0: [1]}, leader=[1, 2]), "leader: 2 values for 1 rows"),
        (lambda state: state.add_topic("n", {0: [1]}, replicas=[1]), "no such column of new rows: replicas"),
        (lambda state: state.add_partitions("a", {3: [1], 2: [1]}), "partition a-2 exists"),
    ],
)
def test_refused_additions_change_nothing(add: Callable[[ClusterState], object], reason: str) -> None:
    state = small_state()
    before = rows_of(state)
    with pytest.raises(InvalidStateError, match=re.escape(reason)):
        add(state)
    assert rows_of(state) == before
    assert len(state.topics) == 3


def test_removed_topics_and_rows() -> None:
    state = small_state()
    rows = rows_of(state)
    state.mark_topics_deleting(["b", "c"])
    state.set_deletion_in_progress(["b", "c"])
    state.remove_topics(["b"])
    del rows["b", 0]
    assert rows_of(state) == rows
    assert state.topic_row("c") == 1
    assert state.deletion_in_progress == {"c"}
    assert state.topics.deleting is not None
    assert state.topics.deleting.tolist() == [0, 1]
    state.remove_rows([state.row("a", 1), state.row("c", 0), state.row("c", 1)])
    for gone in (("a", 1), ("c", 0), ("c", 1)):
        del rows[gone]
    assert rows_of(state) == rows
    assert state.topics.names.to_list() == ["a"]
    assert state.deletion_in_progress == frozenset()
    state.remove_rows("all")
    assert len(state.topics) == len(state.partitions) == 0


def test_deletion_flags() -> None:
    state = small_state()
    state.mark_topics_deleting(["a", "c"])
    state.set_deletion_in_progress(["a", "c"])
    state.unmark_topics_deleting(["c"])
    assert state.topics.deleting is not None
    assert state.topics.deleting.tolist() == [1, 0, 0]
    assert state.deletion_in_progress == {"a"}


# -- who is online


def offline(state: ClusterState) -> list[list[int]]:
    assert state.partitions.offline is not None
    return state.partitions.offline.to_lists()


def test_offline_follows_the_brokers() -> None:
    state = small_state()
    none: list[list[int]] = [[]] * 6
    assert offline(state) == none
    state.remove_brokers([1])
    assert offline(state) == [[1], [], [1], [1], [1], []]
    state.set_shutting_down([2])
    assert state.online_broker_ids.tolist() == [3]
    assert offline(state) == [[1, 2], [2], [1], [2, 1], [1], [2]]
    state.add_brokers([Broker(1, 105)])
    assert offline(state) == [[2], [2], [], [2], [], [2]]
    state.set_brokers([Broker(1, 105), Broker(3, 103)])
    assert state.shutting_down == frozenset()
    assert offline(state) == [[2], [2], [], [2], [], [2]]
    state.set_brokers([], recompute_offline=False)
    assert offline(state) == [[2], [2], [], [2], [], [2]]
    assert len(state.brokers) == 0


def test_failed_directories_last_until_the_broker_goes_or_comes_back() -> None:
    state = small_state()
    state.set_offline_dirs(2, [0, 1, 4])
    assert offline(state) == [[2], [2], [], [], [], []]
    state.set_offline_dirs(1, [2])
    assert offline(state) == [[2], [2], [1], [], [], []]
    state.set_offline_dirs(2, [1])
    assert offline(state) == [[], [2], [1], [], [], []]
    state.remove_brokers([3])
    assert offline(state) == [[], [2, 3], [3, 1], [3], [], []]
    state.add_brokers([Broker(3, 103), Broker(2, 202)])
    assert offline(state) == [[], [], [1], [], [], []]
    assert state.broker(2).epoch == 202
    state.set_shutting_down([1])
    state.set_shutting_down([])
    assert offline(state) == [[]] * 6


def test_a_state_adopts_columns_without_changing_what_they_share() -> None:
    zeros, numbers = np.zeros(2, np.int32), np.arange(2, dtype=np.int32)
    none = empty_lists(2)
    replicas = ListColumn.from_lists([[1], [1]])
    lists = {"isr": replicas, "replicas": replicas, "adding": none, "removing": none}
    fixed = {**dict.fromkeys(FIXED_COLUMNS, zeros), "partition": numbers}
    partitions = make_partitions(fixed, lists)
    state = ClusterState(Topics(StringColumn.from_strings(["t"])), partitions, [Broker(1)])
    state.update(1, leader=2, isr=[1, 2], adding=[3])
    assert rows_of(state)["t", 0] == default_row(leader=0, isr=[1], replicas=[1])
    assert rows_of(state)["t", 1] == default_row(leader=2, isr=[1, 2], replicas=[1], adding=[3])


@pytest.mark.parametrize(
    ("topic_row", "partition", "reason"),
    [
        ([0, 0], [1, 0], "row 1: not above the row before it"),
        ([0, 0], [1, 1], "row 1: not above"),
        ([1, 0], [0, 0], "row 1: not above"),
        ([0, 1], [0, 0], "topic rows 0 .. 1 of 1 topics"),
        ([-1, 0], [0, 0], "topic rows -1 .. 0 of 1 topics"),
    ],
)
def test_columns_that_are_no_state(topic_row: list[int], partition: list[int], reason: str) -> None:
    zeros = np.zeros(2, np.int32)
    rows, numbers = np.array(topic_row, np.int32), np.array(partition, np.int32)
    lists = {name: empty_lists(2) for name in ("isr", "replicas")}
    fixed = {**dict.fromkeys(FIXED_COLUMNS, zeros), "topic_row": rows, "partition": numbers}
    partitions = make_partitions(fixed, lists)
    with pytest.raises(InvalidStateError, match=re.escape(reason)):
        ClusterState(Topics(StringColumn.from_strings(["t"])), partitions, [])


def test_repeated_changes_do_not_make_the_values_grow_without_end() -> None:
    state = small_state()
    for turn in range(2_000):
        state.update([turn % 6], isr=[[turn % 3, 7, 8]])
    for name in LIST_COLUMNS:
        assert len(getattr(state.partitions, name).values) < 300
    assert_packed_alike(state)
