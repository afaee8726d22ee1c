"""A broker with a log directory and a real client: records go in, come out, and are there after a restart."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from ctrlchan._codec import LEADER_AND_ISR, UPDATE_METADATA
from ctrlchan.broker.log.names import folder_name
from ctrlchan.launch.embedded import EmbeddedBroker
from tests.kafka.wire import exchange
from tests.unit.broker.local_broker import LiveBroker, Part, control_frame, read_control_response, topic_id

TOPIC = "orders"
RECORDS = 10_000
PARTITIONS = 3


def lead(broker: EmbeddedBroker, leader_epoch: int = 0) -> None:
    """Let the broker lead all partitions of the topic, as a controller does."""
    parts = [
        Part(TOPIC, number, broker.id, leader_epoch, isr=(broker.id,), replicas=(broker.id,))
        for number in range(PARTITIONS)
    ]
    live = [LiveBroker(broker.id, host=broker.broker.endpoints[0].host, port=broker.port)]
    for api_key, version in ((LEADER_AND_ISR, 7), (UPDATE_METADATA, 8)):
        frame = control_frame(api_key, version, parts, live=live, broker_epoch=-1)
        answer = exchange("127.0.0.1", broker.port, frame)
        error, errors = read_control_response(api_key, version, answer, {topic_id(TOPIC): TOPIC})
        assert (error, {code for _, _, code in errors} - {0}) == (0, set())


def produce(broker: EmbeddedBroker, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.port}", "acks": "all"})
    failed: list[object] = []
    for number in range(first, first + count):
        producer.produce(
            TOPIC,
            key=str(number),
            value=f"value {number}",
            partition=number % PARTITIONS,
            on_delivery=lambda error, _message: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failed == []


def consume(broker: EmbeddedBroker, count: int) -> dict[int, list[str]]:
    """Return the values of each partition, in their order."""
    consumer = Consumer(
        {"bootstrap.servers": f"127.0.0.1:{broker.port}", "group.id": "nobody", "enable.auto.commit": False}
    )
    found: dict[int, list[str]] = {number: [] for number in range(PARTITIONS)}
    try:
        consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        deadline = monotonic() + 60
        while sum(map(len, found.values())) < count:
            assert monotonic() < deadline, f"{found} after 60 s"
            # It returns fewer records than it was asked for only when this time is over.
            for message in consumer.consume(1_000, timeout=0.5):
                assert message.error() is None
                number, value = message.partition(), message.value()
                assert number is not None
                assert value is not None
                found[number].append(value.decode())
    finally:
        consumer.close()
    return found


def expected(count: int) -> dict[int, list[str]]:
    return {
        number: [f"value {one}" for one in range(number, count, PARTITIONS)] for number in range(PARTITIONS)
    }


@pytest.mark.timeout(300)
def test_records_survive_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(1, log_dir=tmp_path) as broker:
        lead(broker)
        produce(broker, 0, RECORDS)
        assert consume(broker, RECORDS) == expected(RECORDS)
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / folder_name(TOPIC, 2) / "00000000000000000000.log").stat().st_size > 10_000
    with EmbeddedBroker(1, log_dir=tmp_path) as broker:
        lead(broker, leader_epoch=1)
        produce(broker, RECORDS, 30)
        assert consume(broker, RECORDS + 30) == expected(RECORDS + 30)
