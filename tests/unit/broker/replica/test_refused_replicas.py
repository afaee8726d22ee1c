"""Replicas that are refused for want of descriptors come back without help."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import ctrlchan
from ctrlchan.broker.log.background import Scheduler
from ctrlchan.broker.replica import refused_replicas
from ctrlchan.broker.replica.refused_replicas import RefusedReplicas
from tests.kafka.waiting import wait_until
from tests.unit.broker.descriptors import few_descriptors

SECONDS = 60.0


def test_the_controller_is_asked_when_there_are_descriptors_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_replicas, "_PAUSE_SECONDS", 0.01)
    asked = threading.Semaphore(0)
    answers = iter([False, True, True])

    def ask() -> bool:
        asked.release()
        return next(answers)

    scheduler = Scheduler(1)
    refused = RefusedReplicas(ask, scheduler.once)
    with few_descriptors(60):
        refused.note()
        assert not asked.acquire(timeout=0.2)
    # Once more after ZooKeeper could not be reached.
    assert asked.acquire(timeout=SECONDS)
    assert asked.acquire(timeout=SECONDS)
    assert not asked.acquire(timeout=0.2)
    refused.note()
    assert asked.acquire(timeout=SECONDS)
    scheduler.stop()
    refused.note()
    assert not asked.acquire(timeout=0.1)


def test_it_ends_while_there_are_too_few() -> None:
    scheduler = Scheduler(1)
    refused = RefusedReplicas(lambda: True, scheduler.once)
    with few_descriptors(0):
        refused.note()
        scheduler.stop()


@pytest.mark.parametrize(
    ("replicas", "others"),
    # Without other replicas the broker acknowledges all of a request, and the response names no partition.
    [(1, True), (2, True), (1, False)],
)
def test_a_topic_that_was_refused_is_served_later(tmp_path: Path, replicas: int, others: bool) -> None:
    with ctrlchan.EmbeddedCluster(2, log_dir=tmp_path) as cluster:
        client: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers}
        if others:
            cluster.create_topic("first", replication_factor=2, timeout=SECONDS)
        pids = [cluster._child_of(broker).process.pid for broker in (1, 2)]
        limits = [_leave(pid, 20) for pid in pids]
        admin = AdminClient(client)
        admin.create_topics([NewTopic("refused", 2, replicas)])["refused"].result(SECONDS)
        with pytest.raises(KafkaException):
            _produce({**client, "message.timeout.ms": 3_000}, "refused")
        if others:
            _produce(client, "first")
        for pid, limit in zip(pids, limits, strict=True):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)

        def all_have_leaders() -> bool:
            topic = admin.list_topics("refused", timeout=SECONDS).topics["refused"]
            return len(topic.partitions) == 2 and all(
                one.leader in (1, 2) and len(one.isrs) == replicas for one in topic.partitions.values()
            )

        wait_until(all_have_leaders, timeout=SECONDS, what="all replicas of the topic are in sync")
        _produce(client, "refused")


def _leave(pid: int, left: int) -> tuple[int, int]:
    """Let a process open a few more descriptors; return its limits."""
    opened = max(map(int, os.listdir(f"/proc/{pid}/fd")))
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (opened + 1 + left, before[1]))
    return before


def _produce(client: Mapping[str, Any], topic: str) -> None:
    """Produce to two partitions, and wait. Raises KafkaException."""
    errors: list[object] = []
    producer = Producer({**client, "log_level": 2})
    for partition in range(2 if topic == "refused" else 1):
        producer.produce(
            topic, b"v", partition=partition, on_delivery=lambda error, _message: errors.append(error)
        )
    producer.flush(SECONDS)
    failed = [error for error in errors if error is not None]
    if failed:
        raise KafkaException(failed[0])
