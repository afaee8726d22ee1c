"""Tests of watches that pass on a real ZooKeeper pass on nodes in memory, too."""

from __future__ import annotations

from tests.unit.controller.test_watches import (  # noqa: F401
    test_changes_around_a_lost_connection_are_found,
    watched,
)
