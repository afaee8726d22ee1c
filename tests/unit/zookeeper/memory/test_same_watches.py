"""Tests of watches that pass on a real ZooKeeper pass on nodes in memory, too."""

from __future__ import annotations

from tests.unit.zookeeper.test_watches import (  # noqa: F401
    proxied,
    test_a_change_after_the_connection_is_back_calls_once,
    test_a_change_while_the_connection_is_away_calls_once,
    test_a_connection_that_is_lost_while_watches_are_set_again,
    test_watches_end_with_their_session,
)
