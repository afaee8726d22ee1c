"""DelegationTokens of one cluster, with a clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ctrlchan.server.delegation_tokens.delegation_tokens import DelegationTokens
from ctrlchan.server.delegation_tokens.settings import DelegationTokenSettings
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from ctrlchan.zookeeper.session import ZooKeeperSession
from tests.unit.server.delegation_tokens.words import SECRET
from tests.unit.server.security.sasl_clients import Clock
from tests.unit.zookeeper.sessions import session

#: Starts one, with these arguments and settings.
Start = Callable[..., DelegationTokens]


@pytest.fixture
def zookeeper() -> Iterator[str]:
    with MemoryZooKeeper() as server:
        yield server.address


@pytest.fixture
def nodes(zookeeper: str) -> Iterator[ZooKeeperSession]:
    """A session of somebody else."""
    with session(zookeeper) as one:
        yield one


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def start(zookeeper: str, clock: Clock) -> Iterator[Start]:
    with ExitStack() as stack:

        def started(own_session: ZooKeeperSession | None = None, **more: Any) -> DelegationTokens:
            names = DelegationTokenSettings.__dataclass_fields__
            settings = DelegationTokenSettings(
                **{"secret_key": SECRET} | {name: more.pop(name) for name in [*more] if name in names}
            )
            own_session = own_session or stack.enter_context(session(zookeeper))
            one = DelegationTokens(settings, own_session, "broker-1", now_ms=clock, **more)
            one.start()
            stack.callback(one.stop)
            return one

        yield started


@pytest.fixture
def tokens(start: Start) -> DelegationTokens:
    return start()
