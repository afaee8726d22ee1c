"""Every change holds the lock, and another thread may read while it holds the lock."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from ctrlchan.state import Broker, ClusterState, Endpoint, SecurityProtocol
from tests.unit.channel.bodies import PlainUpdate, body_of, shared_body_of

ENDPOINT = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "localhost", 9092)


class Watched:
    """A lock that counts how often it was taken."""

    def __init__(self) -> None:
        self.depth = 0
        self.taken = 0

    def __enter__(self) -> None:
        self.depth += 1
        self.taken += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


def some_state() -> ClusterState:
    state = ClusterState.empty()
    state.set_brokers([Broker(1, 1, (ENDPOINT,)), Broker(2, 1, (ENDPOINT,))])
    state.add_topic("a", {0: [1, 2], 1: [2, 1]})
    state.add_topic("b", {0: [1]})
    return state


def upsert(state: ClusterState) -> object:
    body = body_of(shared_body_of(PlainUpdate(8, {"c": (3, {0: 1})})))
    return state.upsert(body.topics, body.topic_starts, body.partitions)


CHANGES: dict[str, Callable[[ClusterState], object]] = {
    "update": lambda state: state.update("all", leader=1),
    "upsert": upsert,
    "add_topic": lambda state: state.add_topic("c", {0: [1]}),
    "add_partitions": lambda state: state.add_partitions("a", {2: [1]}),
    "remove_topics": lambda state: state.remove_topics(["a"]),
    "remove_rows": lambda state: state.remove_rows(np.array([0])),
    "mark_topics_deleting": lambda state: state.mark_topics_deleting(["a"]),
    "unmark_topics_deleting": lambda state: state.unmark_topics_deleting(["a"]),
    "set_deletion_in_progress": lambda state: state.set_deletion_in_progress(["a"]),
    "set_brokers": lambda state: state.set_brokers([]),
    "add_brokers": lambda state: state.add_brokers([Broker(3, 1, (ENDPOINT,))]),
    "remove_brokers": lambda state: state.remove_brokers([1]),
    "set_announced": lambda state: state.set_announced([Broker(9, -1, (ENDPOINT,))]),
    "set_shutting_down": lambda state: state.set_shutting_down([1]),
    "set_offline_dirs": lambda state: state.set_offline_dirs(1, [0]),
}


def test_every_method_that_changes_something_is_here() -> None:
    verbs = ("update", "upsert", "add_", "remove_", "mark_", "unmark_", "set_")
    assert {name for name in dir(ClusterState) if name.startswith(verbs)} == set(CHANGES)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_holds_the_lock(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    state = some_state()
    lock = Watched()
    monkeypatch.setattr(state, "lock", lock)
    CHANGES[name](state)
    assert lock.taken > 0
    assert lock.depth == 0


def test_a_change_waits_for_who_reads() -> None:
    state = some_state()
    begun = threading.Event()

    def change() -> None:
        begun.set()
        state.update("all", leader=2)

    thread = threading.Thread(target=change)
    with state.lock:
        thread.start()
        assert begun.wait(10)
        assert state.partitions.leader.tolist() == [-1, -1, -1]
        # Its holder may change it.
        state.update("all", leader=1)
        assert state.partitions.leader.tolist() == [1, 1, 1]
    thread.join(10)
    assert state.partitions.leader.tolist() == [2, 2, 2]
