"""How often a controller waits for ZooKeeper until it is elected and has sent requests to all brokers.

Over a slow link each time is a round trip, and nothing else takes as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from kazoo.client import KazooClient

from ctrlchan.zookeeper.session import ZooKeeperSession
from tests.unit.controller.manual_controller import ManualController, create_topic, register_brokers

#: Both nodes of the election; its transaction.
_ELECTION: Final = 2
#: Changed configurations; features; the five watched parents; registrations, and again with their watches,
#: which are a request more; topics with their watches; states. Behind the requests to brokers: the nodes of
#: reassignments, of elections and of changed configurations.
_FAILOVER: Final = 1 + 1 + 1 + 3 + 2 + 1 + 3


class _Waits:
    """Counts how often a session waits for answers to requests that were sent after the wait before."""

    def __init__(self) -> None:
        self.count = 0
        self._has_sent = False

    def sent(self) -> None:
        self._has_sent = True

    def waits(self) -> None:
        self.count += self._has_sent
        self._has_sent = False


@contextmanager
def counted(session: ZooKeeperSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Waits]:
    waits = _Waits()
    submit, value_of = session.submit, session.value_of

    def submit_counted(request: Any, path: str) -> Any:
        waits.sent()
        return submit(request, path)

    def value_counted(result: Any, path: str) -> Any:
        waits.waits()
        return value_of(result, path)

    with monkeypatch.context() as patched:
        patched.setattr(session, "submit", submit_counted)
        patched.setattr(session, "value_of", value_counted)
        yield waits


def test_a_failover_waits_few_times(
    znodes: KazooClient, zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register_brokers(znodes, 1, 2, 3)
    for number in range(5):
        create_topic(znodes, f"topic-{number}", {0: [1, 2, 3], 1: [2, 3, 1]})
    with ManualController(zookeeper) as controller:
        controller.nodes.create_persistent_nodes()
        controller.nodes.resign(controller.context.epoch_zk_version)
        controller.core.active = False
        with counted(controller.session, monkeypatch) as waits:
            controller.core = controller._elected(controller.core.config, "3.9")
        assert waits.count <= _ELECTION + _FAILOVER
        assert len(controller.state.partitions) == 10
