"""The tests of Kafka's nodes that pass on a real ZooKeeper pass on nodes in memory, too."""

from __future__ import annotations

from tests.unit.zookeeper.test_cluster import *  # noqa: F403
