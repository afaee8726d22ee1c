"""Fixtures of the same names as those of a real ZooKeeper, with nodes in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from ctrlchan.zookeeper.memory.server import MemoryZooKeeper

_numbers = itertools.count()


@pytest.fixture(scope="package")
def memory_zookeeper() -> Iterator[MemoryZooKeeper]:
    with MemoryZooKeeper() as server:
        yield server


@pytest.fixture
def zookeeper(memory_zookeeper: MemoryZooKeeper) -> str:
    """``HOST:PORT/chroot``: the chroot exists, is empty, and belongs to this test."""
    chroot = f"/test-{next(_numbers)}"
    client = KazooClient(hosts=memory_zookeeper.address, timeout=10)
    client.start()
    client.create(chroot)
    client.stop()
    client.close()
    return f"{memory_zookeeper.address}{chroot}"
