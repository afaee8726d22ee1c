"""Fixtures of the same names as those of a real ZooKeeper, with nodes in memory."""

from __future__ import annotations

from tests.unit.zookeeper.memory.conftest import memory_zookeeper, zookeeper  # noqa: F401
