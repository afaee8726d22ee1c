"""Tests of sessions that pass on a real ZooKeeper pass on nodes in memory, too."""

from __future__ import annotations

from tests.unit.zookeeper.test_session import (  # noqa: F401
    test_a_closed_session_refuses_requests,
    test_a_failed_multi_names_its_operation_and_changes_nothing,
    test_a_missing_chroot_is_made,
    test_a_multi_returns_new_versions,
    test_ephemeral_nodes_end_with_the_session,
    test_many_nodes_are_watched_in_bulk,
    test_nodes_are_created_read_changed_and_deleted,
    test_requests_stay_below_the_longest_that_the_server_takes,
    test_watches_call_once_for_each_change,
)
