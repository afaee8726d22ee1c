"""A client that asks only the controller for its coordinator has the topic of coordinators created, too."""

from __future__ import annotations

import struct
from time import monotonic

import pytest
from confluent_kafka.admin import AdminClient

import ctrlchan
from ctrlchan.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ctrlchan.peers.connection import PeerConnection
from tests.kafka.waiting import wait_until

KEY = b"a-client"


@pytest.mark.parametrize(("key_type", "topic"), [(0, OFFSETS_TOPIC), (1, TRANSACTIONS_TOPIC)])
def test_the_controller_has_the_topic_created(key_type: int, topic: str) -> None:
    with ctrlchan.EmbeddedCluster(1, log_dir=ctrlchan.TEMPORARY) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        [controller] = cluster.controller.endpoints
        assert topic not in admin.list_topics(timeout=10).topics
        connection = PeerConnection((controller.host, controller.port), b"test")
        body = struct.pack(">h", len(KEY)) + KEY + struct.pack(">b", key_type)
        try:
            connection.exchange(10, 1, False, body, monotonic() + 20)
        finally:
            connection.close()
        wait_until(lambda: topic in admin.list_topics(timeout=10).topics, what=topic)
