"""The controller's context: twins of ControllerContextTest, and rows that move.

Kafka's cases of metrics that are removed, and of the arithmetic of assignments (target replicas, a new
assignment over one that is under way), belong to the metrics and to the reassignment here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from ctrlchan._codec import ListColumn
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.machines.states import PartitionState, ReplicaState
from ctrlchan.state import ClusterState
from tests.unit.batch.recording import broker
from tests.unit.controller.machines import pairs, rows

Int64 = npt.NDArray[np.int64]


@pytest.fixture
def context() -> ControllerContext:
    """Brokers 1, 2, 3; topics A with two partitions and B with one, assigned round robin."""
    state = ClusterState.empty()
    state.set_brokers([broker(one) for one in (1, 2, 3)])
    context = ControllerContext(state, 7, 3)
    add(context, {"A": {0: [1, 2, 3], 1: [2, 3, 1]}, "B": {0: [3, 1, 2]}})
    return context


def add(context: ControllerContext, topics: dict[str, dict[int, list[int]]]) -> Int64:
    names = list(topics)
    found = [(names.index(name), number) for name in names for number in topics[name]]
    columns = np.array(found, dtype=np.int32).reshape(-1, 2)
    replicas = [brokers for name in names for brokers in topics[name].values()]
    return context.add_partitions(
        [name.encode() for name in names],
        np.zeros((len(names), 16), np.uint8),
        columns[:, 0],
        columns[:, 1],
        ListColumn.from_lists(replicas),
    )


def lead(context: ControllerContext, row: int, leader: int, isr: list[int]) -> None:
    zero = np.zeros(1, np.int32)
    context.put_leadership(
        rows(row),
        leader=np.array([leader], dtype=np.int32),
        leader_epoch=zero,
        partition_epoch=zero,
        controller_epoch=0,
        recovery_state=zero,
        isr=ListColumn.from_lists([isr]),
    )


def assign(context: ControllerContext, row: int, replicas: list[int]) -> None:
    context.state.update(row, replicas=replicas)


# -- twins


def test_the_epoch_is_that_of_the_state(context: ControllerContext) -> None:
    assert (context.epoch, context.epoch_zk_version, context.state.controller_epoch) == (7, 3, 7)


def test_an_assignment_is_replaced(context: ControllerContext) -> None:
    context.state.update(0, replicas=[3], adding=[1], removing=[2])
    partitions = context.state.partitions
    assert partitions.adding is not None
    assert partitions.removing is not None
    assert partitions.replicas[0].tolist() == [3]
    assert partitions.adding[0].tolist() == [1]
    assert partitions.removing[0].tolist() == [2]
    assert context.reassigning_rows().tolist() == [0]


def test_unknown_topics_have_no_rows(context: ControllerContext) -> None:
    assert context.rows_of_topics(["NONEXISTENT"]).tolist() == []
    assert context.rows_of_topics(["B", "NONEXISTENT", "A"]).tolist() == [2, 0, 1]
    assert not context.has_topic("NONEXISTENT")
    assert context.has_topic("A")


def test_replicas_of_a_topic(context: ControllerContext) -> None:
    found = context.replica_pairs(context.rows_of_topics(["A"]))
    assert [one.tolist() for one in found] == [[0, 0, 0, 1, 1, 1], [1, 2, 3, 2, 3, 1]]


def test_preferred_replica_imbalance(context: ControllerContext) -> None:
    for row in range(3):
        assign(context, row, [1, 2, 3])
    assert context.preferred_replica_imbalance() == 0
    lead(context, 0, 1, [1, 2, 3])
    assert context.preferred_replica_imbalance() == 0
    lead(context, 1, 2, [2, 3, 1])
    assert context.preferred_replica_imbalance() == 1
    lead(context, 2, 3, [3, 1, 2])
    assert context.preferred_replica_imbalance() == 2
    assign(context, 0, [2, 3, 1])
    assign(context, 1, [2, 3, 1])
    assert context.preferred_replica_imbalance() == 2
    context.queue_topic_deletion({"B"})
    assert context.preferred_replica_imbalance() == 1
    lead(context, 2, 1, [3, 1, 2])
    assert context.preferred_replica_imbalance() == 1
    context.remove_topics(["A", "B"])
    assert context.preferred_replica_imbalance() == 0


def test_imbalance_while_topics_are_deleted(context: ControllerContext) -> None:
    context.queue_topic_deletion({"A"})
    lead(context, 0, -1, [1, 2, 3])
    assert context.preferred_replica_imbalance() == 0
    context.queue_topic_deletion({"A", "B"})
    assert context.preferred_replica_imbalance() == 0


def test_a_preferred_replica_that_is_being_added_counts_once_it_is_in_sync(
    context: ControllerContext,
) -> None:
    lead(context, 0, 2, [2, 3])
    context.state.update(0, adding=[1])
    assert context.has_preferred_leader(rows(0)).tolist() == [True]
    lead(context, 0, 2, [2, 3, 1])
    assert context.has_preferred_leader(rows(0)).tolist() == [False]


# -- online replicas


def test_replicas_are_online_on_live_brokers_with_working_directories(context: ControllerContext) -> None:
    replicas = pairs((0, 1), (0, 2), (0, 3), (1, 1), (0, 9), (0, -1))
    assert context.is_online(*replicas).tolist() == [True, True, True, True, False, False]
    context.state.set_offline_dirs(1, [0])
    context.state.set_shutting_down([2])
    assert context.is_online(*replicas).tolist() == [False, False, True, True, False, False]
    online = context.is_online(*replicas, or_shutting_down=True)
    assert online.tolist() == [False, True, True, True, False, False]


def test_rows_by_broker(context: ControllerContext) -> None:
    add(context, {"C": {0: [1], 1: [2, 9]}})
    for row, leader in enumerate([1, 2, 3, 1, 9]):
        lead(context, row, leader, [leader])
    assert context.rows_with_replica_on([9]).tolist() == [4]
    assert context.rows_with_replica_on([1, 9]).tolist() == [0, 1, 2, 3, 4]
    assert [one.tolist() for one in context.replicas_on([3, 9])] == [[0, 1, 2, 4], [3, 3, 3, 9]]
    # Partition C-0 has one replica only.
    assert context.rows_led_by(1).tolist() == [0]
    assert context.rows_with_offline_leader().tolist() == [4]
    context.queue_topic_deletion(["A", "C"])
    assert context.rows_led_by(1).tolist() == []
    assert context.rows_with_offline_leader().tolist() == []


# -- rows that move


def test_states_and_ids_move_with_rows(context: ControllerContext) -> None:
    context.partition_states[:] = [PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.NEW]
    context.put_replica_states(*pairs((1, 2), (2, 3)), ReplicaState.OFFLINE)
    ids = context.partition_ids.copy()

    added = add(context, {"A": {2: [1], 0: [9]}, "New": {0: [1]}})
    # Partition A-0 exists and keeps its assignment.
    assert added.tolist() == [2, 0, 4]
    assert context.state.partitions.replicas[0].tolist() == [1, 2, 3]
    assert context.partition_states.tolist() == [2, 3, 0, 1, 0]
    assert context.rows_of_ids(ids).tolist() == [0, 1, 3]
    assert [one.tolist() for one in context.replicas_in(ReplicaState.OFFLINE)] == [[1, 3], [2, 3]]

    context.remove_topics(["A"])
    assert context.rows_of_ids(ids).tolist() == [-1, -1, 0]
    assert context.rows_in(PartitionState.NEW, PartitionState.ONLINE).tolist() == [0]
    assert [one.tolist() for one in context.replicas_in(ReplicaState.OFFLINE)] == [[0], [3]]
    again = add(context, {"A": {0: [1]}})
    assert context.partition_ids[again[0]] > max(ids)
    assert context.replica_states(*pairs((int(again[0]), 2))).tolist() == [ReplicaState.NON_EXISTENT]


def test_added_partitions_have_no_leadership_and_their_offline_replicas(
    context: ControllerContext,
) -> None:
    added = add(context, {"C": {0: [9, 1]}, "Empty": {}})
    assert context.has_leadership(added).tolist() == [False]
    offline = context.state.partitions.offline
    assert offline is not None
    assert offline[int(added[0])].tolist() == [9]
    assert context.has_topic("Empty")
    assert context.partition_name(int(added[0])) == "C-0"
    names, place = context.names_of(rows(3, 0, 1))
    assert [names[one] for one in place] == [b"C", b"A", b"A"]


# -- topics to delete


def test_a_topic_can_be_queued_before_it_is_known(context: ControllerContext) -> None:
    context.queue_topic_deletion(["A", "Later"])
    assert context.topics_to_delete == {"A", "Later"}
    assert context.is_to_delete(rows(0, 2)).tolist() == [True, False]
    added = add(context, {"Later": {0: [1]}})
    assert context.is_to_delete(added).tolist() == [True]
    context.topics_ineligible.add("Later")
    context.begin_topic_deletion(["A"])
    context.begin_topic_deletion(["Later"])
    assert context.topics_with_deletion_started == {"A", "Later"}
    context.remove_topics(["A", "Later", "unknown"])
    assert context.topics_to_delete == context.topics_with_deletion_started == frozenset()
    assert context.topics_ineligible == set()


def test_topics_are_found_by_their_present_ids(context: ControllerContext) -> None:
    a, b, c, zero = b"a" * 16, b"b" * 16, b"c" * 16, bytes(16)

    def put(names: list[bytes], ids: list[bytes]) -> None:
        none = np.empty(0, np.int32)
        columns = np.frombuffer(b"".join(ids), np.uint8).reshape(-1, 16)
        context.add_partitions(names, columns, none, none, ListColumn.from_lists([]))

    def found() -> list[int]:
        rows: list[int] = context.topic_rows_of_ids([a, b, c, zero]).tolist()
        return rows

    assert found() == [-1, -1, -1, -1]
    # Topics without an id get one in place.
    put([b"A", b"B"], [a, b])
    assert found() == [0, 1, -1, -1]
    put([b"A"], [c])
    assert found() == [-1, 1, 0, -1]
    put([b"C"], [a])
    assert found() == [2, 1, 0, -1]
    context.remove_topics(["A"])
    assert found() == [1, 0, -1, -1]


def test_rows_whose_leadership_was_set(context: ControllerContext) -> None:
    assert context.take_rows_with_leadership_set().tolist() == [0, 1, 2]
    assert context.take_rows_with_leadership_set().tolist() == []
    for row in (2, 0, 2):
        lead(context, row, 1, [1])
    assert context.take_rows_with_leadership_set().tolist() == [0, 2]
    # Rows move; partitions that are gone have none.
    for row in (0, 2):
        lead(context, row, 1, [1])
    add(context, {"A": {2: [1, 2, 3]}})
    assert context.take_rows_with_leadership_set().tolist() == [0, 3]
    for row in (0, 3):
        lead(context, row, 1, [1])
    context.remove_topics(["A"])
    assert context.take_rows_with_leadership_set().tolist() == [0]
    assert context.take_rows_with_leadership_set().tolist() == []
