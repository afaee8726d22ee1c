"""Fixtures for tests of administration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ctrlchan.zookeeper.cluster import ClusterNodes
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import ZooKeeperSettings


@pytest.fixture
def nodes(zookeeper: str) -> Iterator[ClusterNodes]:
    """The nodes of an elected controller of epoch 1, in a ZooKeeper without topics."""
    session = ZooKeeperSession(ZooKeeperSettings(connect=zookeeper))
    session.start(10.0)
    try:
        found = ClusterNodes(session)
        assert found.become_controller(1000, 0).epoch == 1
        yield found
    finally:
        session.close()
