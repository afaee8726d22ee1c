"""A cluster on log directories that begin with records of formats 0 and 1."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from ctrlchan import EmbeddedCluster
from ctrlchan.broker.log import names
from ctrlchan.broker.log.compression import GZIP
from tests.kafka.waiting import wait_until
from tests.unit.broker.log.old_formats.old_logs import entries, segment_file
from tests.unit.page.serving import serving

PARTITION = confluent_kafka.TopicPartition


def put_segment(folder: Path, data: bytes) -> None:
    """Put a segment in the place of all files of a replica but its topic id, as a former Kafka left it."""
    for path in folder.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    segment_file(folder, 0, data)


def consumed(cluster: EmbeddedCluster, topic: str, number: int) -> list[tuple[int | None, bytes | None]]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers", "check.crcs": True}
    )
    consumer.assign([PARTITION(topic, 0, 0)])
    found: list[tuple[int | None, bytes | None]] = []
    deadline = time.monotonic() + 60
    while len(found) < number and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None
            found.append((message.offset(), message.value()))
    times = [PARTITION(topic, 0, 1003), PARTITION(topic, 0, 2000)]
    assert [consumer.offsets_for_times([one])[0].offset for one in times] == [3, number - 1]
    consumer.close()
    return found


def test_old_records_are_read_and_replicated(tmp_path: Path) -> None:
    with EmbeddedCluster(2, log_dir=tmp_path) as cluster:
        cluster.create_topic("old", 1, 2)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        leader_id = admin.list_topics("old", 30).topics["old"].partitions[0].leader
        # The other one cannot lead afterwards.
        cluster.kill_broker(3 - leader_id)
    old = b"".join(
        entries(1, GZIP, first, [(b"k", b"%d" % n, 1000 + n) for n in range(first, first + 3)])
        for first in range(0, 30, 3)
    )
    leader = tmp_path / f"broker-{leader_id}" / "old-0"
    follower = tmp_path / f"broker-{3 - leader_id}" / "old-0"
    put_segment(leader, old)
    put_segment(follower, b"")
    with EmbeddedCluster(2, log_dir=tmp_path) as cluster:
        cluster.produce("old", b"30")
        copied = follower / f"{names.segment_name(0)}.log"
        wait_until(lambda: copied.read_bytes()[: len(old)] == old, what="the records are copied as they are")
        assert consumed(cluster, "old", 31) == [(n, b"%d" % n) for n in range(31)]
        addresses = [(one.host, one.port) for one in (broker.endpoints[0] for broker in cluster.brokers)]
        with serving(lambda: addresses) as client:
            answer = client.get("/api/messages?topic=old&limit=3&from=offset&at=28").value
        assert [(one["offset"], one["compression"]) for one in answer["messages"]] == [
            (28, "gzip"),
            (29, "gzip"),
            (30, "none"),
        ]
        assert answer["notes"] == []
        assert [one.value for one in cluster.records("old")] == [b"%d" % n for n in range(31)]


@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_of_groups_are_loaded(tmp_path: Path, magic: int) -> None:
    configs: dict[str, Any] = {"offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 1}

    def committed(cluster: EmbeddedCluster, group: str) -> int:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}
        )
        try:
            return int(consumer.committed([PARTITION("orders", 3)], timeout=30)[0].offset)
        finally:
            consumer.close()

    with EmbeddedCluster(1, log_dir=tmp_path, configs=configs) as cluster:
        cluster.create_topic("orders", 4)
        committed(cluster, "any")
    now = int(time.time() * 1000)
    pairs: list[tuple[bytes, bytes | None, int]] = []
    for group, offset in (("first", 7), ("first", 8), ("second", 9)):
        name = group.encode()
        key = struct.pack(">hh", 1, len(name)) + name + struct.pack(">h6si", 6, b"orders", 3)
        value = struct.pack(">hqhqq", 1, offset, 0, now, now + 10**8)
        pairs.append((key, value, now))
    pairs.append((pairs[2][0], None, now))
    data = entries(magic, 1, 0, pairs[:2]) + entries(magic, 0, 2, pairs[2:])
    put_segment(tmp_path / "broker-1" / "__consumer_offsets-0", data)
    with EmbeddedCluster(1, log_dir=tmp_path, configs=configs) as cluster:
        assert committed(cluster, "first") == 8
        assert committed(cluster, "second") == confluent_kafka.OFFSET_INVALID
