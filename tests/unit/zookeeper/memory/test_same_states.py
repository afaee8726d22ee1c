"""The tests of the state nodes that pass on a real ZooKeeper pass on nodes in memory, too."""

from __future__ import annotations

from tests.unit.zookeeper.test_partition_states import *  # noqa: F403
