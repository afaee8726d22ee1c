"""Kafka's Java clients from 0.8.2 to 0.10 share a topic with clients of today, here and on real Kafka."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.acceptance.either_cluster import EitherCluster
from tests.acceptance.test_java_clients import jars
from tests.kafka.jars import SHORT_LIVED, check_java

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

SOURCES: Final = Path(__file__).with_name("java_clients")
#: The first one has no consumer but that of its server's jar.
OLDEST: Final = "0.8.2.2"
VERSIONS: Final = (OLDEST, "0.9.0.1", "0.10.0.1", "0.10.2.2")
CODECS: Final = ("none", "gzip", "snappy", "lz4")
COUNT: Final = 300
SECONDS: Final = 60.0

#: Offset, key and value, as the programs print them.
Line = tuple[str, str, str]


def run(jars_folder: Path, program: str, *arguments: str) -> list[Line]:
    """Compile and run a program with jars; return what it prints."""
    check_java()
    classes = f"{jars_folder}{os.sep}*"
    return printed_by("java", *SHORT_LIVED, "-cp", classes, str(SOURCES / program), *arguments)


def printed_by(*command: str) -> list[Line]:
    """Run a command; return the records that it prints."""
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 0, ran.stdout[-1000:] + ran.stderr[-3000:]
    return [
        (offset, key, value) for offset, key, value in (line.split("\t") for line in ran.stdout.splitlines())
    ]


def produce_today(bootstrap: str, topic: str, codecs: Sequence[str] = CODECS) -> None:
    """Write with what older formats have no place for: headers, producer ids, transactions, markers."""
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 5}
    for codec in codecs:
        producer = Producer(settings | {"compression.type": codec, "enable.idempotence": True})
        for number in range(20):
            producer.produce(topic, f"new {codec} {number}", f"{number}", 0, headers=[("header", b"x")])
        assert producer.flush(SECONDS) == 0
    for ends in ("commit", "abort"):
        producer = Producer(settings | {"transactional.id": f"{topic}-{ends}"})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, f"{ends} {number}", f"{number}", 0)
        producer.flush(SECONDS)
        getattr(producer, f"{ends}_transaction")(SECONDS)
    producer = Producer(settings)
    producer.produce(topic, "the last one of today", "last", 0)
    assert producer.flush(SECONDS) == 0


def read_today(bootstrap: str, topic: str) -> list[Line]:
    """Return all records of partition 0, those of aborted transactions too."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "today",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Line] = []
    while True:
        message = consumer.poll(SECONDS)
        assert message is not None
        if message.error() is not None:
            break
        key, value = message.key(), message.value()
        assert value is not None
        found.append((str(message.offset()), "null" if key is None else key.decode(), value.decode()))
    consumer.close()
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_old_and_new_clients_share_a_topic(version: str, either: EitherCluster) -> None:
    topic = either.create(f"shared-{version}", 1)
    folder = jars(version)
    for _ in range(2):
        run(folder, "OldProducer.java", either.bootstrap, topic, str(COUNT), *CODECS)
        produce_today(either.bootstrap, topic)
    records = read_today(either.bootstrap, topic)
    values = [value for _, _, value in records]
    for codec in CODECS:
        old = [value for value in values if value.startswith(f"old {codec} ")]
        assert old == 2 * [*(f"old {codec} {number}" for number in range(COUNT)), f"old {codec} last"]
    if version == OLDEST:
        address = either.bootstrap.split(",")[0]
        read = run(
            jars(version, "kafka_2.11"), "OldestClient.java", address, topic, str(len(records)), version
        )
    else:
        # The second one begins where the first one has committed.
        read = [
            line
            for count in (100, len(records) - 100)
            for line in run(folder, "OldConsumer.java", either.bootstrap, topic, str(count), version)
        ]
    assert read == records
