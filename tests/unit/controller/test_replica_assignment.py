"""ReplicaAssignment. Twins of ``ControllerContextTest.testReassignTo`` and its neighbours."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.controller.handlers.replica_assignment import ReplicaAssignment

replicas = st.lists(st.integers(0, 6), min_size=1, max_size=5, unique=True).map(tuple)


def test_a_new_reassignment_lists_targets_first() -> None:
    assignment = ReplicaAssignment((1, 2, 3)).reassign_to((4, 5, 6))
    assert assignment == ReplicaAssignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert assignment.is_being_reassigned
    assert assignment.target == (4, 5, 6)
    assert assignment.origin == (1, 2, 3)


def test_one_replica_is_replaced() -> None:
    assert ReplicaAssignment((1, 2, 3)).reassign_to((1, 2, 5)) == ReplicaAssignment((1, 2, 5, 3), (5,), (3,))


def test_a_replica_is_added() -> None:
    assert ReplicaAssignment((1, 2)).reassign_to((1, 2, 3)) == ReplicaAssignment((1, 2, 3), (3,))


def test_a_reassignment_in_progress_is_replaced() -> None:
    first = ReplicaAssignment((1, 2, 3)).reassign_to((4, 5, 6))
    assert first.reassign_to((3, 1, 2)) == ReplicaAssignment((3, 1, 2))
    assert first.reassign_to((1, 7)) == ReplicaAssignment((1, 7, 2, 3), (7,), (2, 3))


def test_another_order_is_no_reassignment() -> None:
    assignment = ReplicaAssignment((1, 2, 3)).reassign_to((3, 2, 1))
    assert assignment == ReplicaAssignment((3, 2, 1))
    assert not assignment.is_being_reassigned


@given(replicas, replicas, replicas)
def test_a_reassignment_can_be_cancelled_at_any_time(
    origin: tuple[int, ...], first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    assignment = ReplicaAssignment(origin).reassign_to(first)
    assert assignment.target == first
    assert set(assignment.origin) == set(origin)
    replaced = assignment.reassign_to(second)
    assert replaced.target == second
    assert set(replaced.replicas) == set(origin) | set(second)
    cancelled = replaced.reassign_to(replaced.origin)
    assert not cancelled.is_being_reassigned
    assert set(cancelled.replicas) == set(origin)
