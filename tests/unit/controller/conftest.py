"""Real ZooKeeper for the tests of the controller: its nodes, and a whole cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from ctrlchan.zookeeper.cluster import ClusterNodes
from ctrlchan.zookeeper.session import ZooKeeperSession
from ctrlchan.zookeeper.settings import ZooKeeperSettings
from tests.unit.controller.real_cluster import RealCluster


@pytest.fixture
def nodes(zookeeper: str, znodes: KazooClient) -> Iterator[ClusterNodes]:
    """The nodes of an elected controller of epoch 1, with a topic ``t``."""
    znodes.ensure_path("/brokers/topics/t")
    session = ZooKeeperSession(ZooKeeperSettings(connect=zookeeper))
    session.start(10.0)
    try:
        found = ClusterNodes(session)
        assert found.become_controller(1000, 0).epoch == 1
        yield found
    finally:
        session.close()


@pytest.fixture
def cluster(zookeeper: str, znodes: KazooClient) -> Iterator[RealCluster]:
    """A cluster in the test's chroot, without brokers and controllers yet."""
    with RealCluster(zookeeper, znodes) as cluster:
        yield cluster
