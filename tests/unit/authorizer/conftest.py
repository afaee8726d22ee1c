"""AclAuthorizers of one cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ctrlchan.authorizer.acl_authorizer import AclAuthorizer
from ctrlchan.zookeeper.memory.server import MemoryZooKeeper
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import ZooKeeperSettings
from tests.unit.zookeeper.sessions import session

SUPER_USERS = "User:superuser1; User:superuser2"

#: Starts one with these settings.
Start = Callable[..., AclAuthorizer]


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
def start(zookeeper: str) -> Iterator[Start]:
    with ExitStack() as stack:

        def started(connect: str = zookeeper, **more: str) -> AclAuthorizer:
            one = AclAuthorizer(ZooKeeperSettings(connect=connect))
            one.configure(
                {"super.users": SUPER_USERS} | {name.replace("_", "."): more[name] for name in more}
            )
            stack.callback(one.close)
            return one

        yield started


@pytest.fixture
def one(start: Start) -> AclAuthorizer:
    return start()
