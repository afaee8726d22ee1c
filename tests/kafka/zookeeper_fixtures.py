"""pytest fixtures for a real ZooKeeper: one server for the session, a chroot of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from tests.kafka.jars import KafkaUnavailableError
from tests.kafka.requirement import miss
from tests.kafka.zookeeper import ZooKeeperServer

_numbers = itertools.count()


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper server that all tests of the session share: nobody kills or stops it."""
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    try:
        server.start()
    except KafkaUnavailableError as error:
        server.close()
        miss("real ZooKeeper", error)
    except BaseException:
        server.close()
        raise
    yield server
    server.close()


@pytest.fixture
def zookeeper(zookeeper_server: ZooKeeperServer) -> str:
    """``HOST:PORT/chroot``: the chroot exists, is empty, and belongs to this test."""
    chroot = f"/test-{next(_numbers)}"
    client = KazooClient(hosts=zookeeper_server.address, timeout=10)
    client.start()
    try:
        client.create(chroot)
    finally:
        client.stop()
        client.close()
    return f"{zookeeper_server.address}{chroot}"


@pytest.fixture
def znodes(zookeeper: str) -> Iterator[KazooClient]:
    """A connected kazoo client in the test's chroot: for looking, and for what others would do."""
    client = KazooClient(hosts=zookeeper, timeout=10)
    client.start()
    yield client
    client.stop()
    client.close()
