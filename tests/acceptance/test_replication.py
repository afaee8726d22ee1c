"""Replication between embedded brokers: no acknowledged record is lost with a broker, which catches up."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ctrlchan import TEMPORARY, EmbeddedCluster
from tests.kafka.waiting import wait_until

TOPIC, PARTITIONS, BROKERS = "orders", 3, 3
RECORDS = 3_000
SECONDS = 60.0


def produce(cluster: EmbeddedCluster, first: int) -> None:
    """Produce RECORDS values from ``first`` on; each is acknowledged by all in-sync replicas."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    failed: list[object] = []
    for number in range(first, first + RECORDS):
        producer.produce(
            TOPIC,
            value=str(number),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _message: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(SECONDS) == 0
    assert failed == []


def state(admin: Any) -> list[tuple[int, list[int]]]:
    """Return leader and ISR of each partition."""
    partitions = admin.list_topics(TOPIC, timeout=SECONDS).topics[TOPIC].partitions.values()
    return [(one.leader, sorted(one.isrs)) for one in partitions]


def test_a_broker_dies_and_comes_back() -> None:
    configs = {"replica.lag.time.max.ms": "5000"}
    with EmbeddedCluster(BROKERS, log_dir=TEMPORARY, configs=configs, processes=BROKERS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        (created,) = admin.create_topics([NewTopic(TOPIC, PARTITIONS, BROKERS)]).values()
        created.result(SECONDS)
        everyone = sorted(broker.id for broker in cluster.brokers)
        produce(cluster, 0)
        assert [isr for _, isr in state(admin)] == [everyone] * PARTITIONS
        dead = everyone[0]
        others = everyone[1:]
        cluster.kill_broker(dead)
        wait_until(
            lambda: all(leader in others and isr == others for leader, isr in state(admin)),
            timeout=SECONDS,
            what="the others lead",
        )
        produce(cluster, RECORDS)
        cluster.start_broker(dead)
        wait_until(
            lambda: all(isr == everyone for _, isr in state(admin)),
            timeout=SECONDS,
            what="the broker catches up",
        )
        # The broker that was dead has all records: it may lead.
        for broker_id in others:
            for partition in range(PARTITIONS):
                cluster.move_leader(TOPIC, partition, dead)
            cluster.kill_broker(broker_id)
        found = cluster.records(TOPIC, at_least=2 * RECORDS, timeout=SECONDS)
        assert sorted(int(one.value or b"-1") for one in found) == list(range(2 * RECORDS))
