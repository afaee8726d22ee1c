"""Real clients of the rig's brokers, and one broker's own view of the metadata."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.acceptance.client_frames import METADATA, client_response, metadata_frame
from tests.kafka.rig import KafkaRig
from tests.kafka.wire import exchange

TIMEOUT = 60.0  # s, for messages to arrive


@dataclass(frozen=True)
class PartitionView:
    """A partition in the metadata of one broker."""

    error: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True)
class TopicView:
    error: int
    topic_id: bytes
    partitions: dict[int, PartitionView]


def metadata(kafka: KafkaRig, broker_id: int, topics: Sequence[str]) -> dict[str, TopicView]:
    """Metadata v12 of these topics from this very broker."""
    return {topic.name: _topic_view(topic) for topic in _metadata(kafka, broker_id, topics).topics}


def live_brokers(kafka: KafkaRig, broker_id: int) -> set[int]:
    """Return the ids of the live brokers in the metadata of this very broker."""
    return {broker.node_id for broker in _metadata(kafka, broker_id, []).brokers}


def _metadata(kafka: KafkaRig, broker_id: int, topics: Sequence[str]) -> Any:
    address = kafka.broker(broker_id).endpoint("PLAINTEXT")
    return client_response(METADATA, 12, exchange(address.host, address.port, metadata_frame(12, topics)))


def produce(bootstrap: str, topic: str, values: Sequence[bytes], partition: int) -> None:
    """Produce with acks=all and wait until every in-sync replica has them."""
    with producing(bootstrap) as producer:
        send_all(producer, topic, values, partition)


@contextmanager
def producing(bootstrap: str) -> Iterator[Any]:
    """A producer that finds new leaders quickly."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "message.timeout.ms": int(TIMEOUT * 1000),
            "log_level": 2,  # leaders move and brokers restart here: not worth a line each
        }
    )
    yield producer
    assert producer.flush(TIMEOUT) == 0, "messages were never delivered"


def send_all(producer: Any, topic: str, values: Sequence[bytes], partition: int) -> None:
    """Produce on an open producer and wait for every acknowledgement."""
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    assert producer.flush(TIMEOUT) == 0, "messages were never delivered"
    assert errors == []


def consume(bootstrap: str, topic: str, partition: int, count: int) -> list[bytes]:
    """The first ``count`` values of a partition."""
    with consuming(bootstrap, group="none") as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        return take(consumer, count)


@contextmanager
def consuming(bootstrap: str, *, group: str) -> Iterator[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "retry.backoff.ms": 20,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "log_level": 2,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumer: Any, count: int) -> list[bytes]:
    """The next ``count`` values the consumer gets."""
    values: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT
    while len(values) < count:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{len(values)} of {count} messages arrived within {TIMEOUT:g} s")
        message = consumer.poll(left)
        # Errors on the way (a leader that moved) are the client's to get over.
        if message is not None and message.error() is None:
            values.append(message.value())
    return values


def _topic_view(topic: Any) -> TopicView:
    return TopicView(
        int(topic.error_code),
        b"" if topic.topic_id is None else topic.topic_id.bytes,
        {
            int(p.partition_index): PartitionView(
                int(p.error_code),
                int(p.leader_id),
                int(p.leader_epoch),
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                tuple(p.offline_replicas),
            )
            for p in topic.partitions
        },
    )
