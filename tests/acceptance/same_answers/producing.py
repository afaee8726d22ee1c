"""Produce, InitProducerId, DescribeProducers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from tests.acceptance.same_answers.recorder import Broker
from tests.acceptance.same_answers.topics import create_topic, one_produce, plain
from tests.unit.broker.log.batches import CONTROL, TRANSACTIONAL, PlainRecord, batch_of

__all__ = ["idempotent_producers", "odd_requests", "producer_ids", "refused_records", "stored_records"]

#: Before it only records of format 0 and 1 could be produced.
_FORMAT_2_FROM: Final = 3
_NONE, _GZIP, _SNAPPY, _LZ4, _ZSTD = range(5)


def stored_records(broker: Broker) -> None:
    """Batches that are appended: offsets, append times, start offsets."""
    create_topic(broker, "stored", 2)
    create_topic(broker, "append-time", message_timestamp_type="LogAppendTime")
    for version in _versions(broker):
        for codec in (_NONE, _GZIP, _SNAPPY, _LZ4):
            broker.ask("Produce", version, **one_produce("stored", plain("a", "b", "c", codec=codec)))
        broker.ask("Produce", version, **one_produce("stored", plain("zstd", codec=_ZSTD)))
        broker.ask("Produce", version, **one_produce("stored", plain("one"), partition=1, acks=1))
        broker.ask("Produce", version, **one_produce("append-time", plain("now")))
        broker.ask("Produce", version, **one_produce("append-time", plain("now", codec=_LZ4)))
        broker.send_without_answer("Produce", version, **one_produce("stored", plain("d"), acks=0))


def _versions(broker: Broker) -> list[int]:
    return [version for version in broker.versions["Produce"] if version >= _FORMAT_2_FROM]


def refused_records(broker: Broker) -> None:
    """Batches that are not appended, and why."""
    create_topic(broker, "refused")
    create_topic(broker, "small", max_message_bytes="200")
    create_topic(broker, "small-segments", segment_bytes="300")
    create_topic(broker, "compacted", cleanup_policy="compact")
    create_topic(broker, "recent", message_timestamp_before_max_ms="10000")
    for version in _versions(broker):
        for topic, data in _refused_batches():
            broker.ask("Produce", version, **one_produce(topic, data))
        for topic, data in list(_refused_batches())[:3]:
            broker.send_without_answer("Produce", version, **one_produce(topic, data, acks=0))


def _refused_batches() -> Iterator[tuple[str, bytes]]:
    good = batch_of([PlainRecord(0), PlainRecord(1)])
    yield "unknown", good.encoded()
    yield "not a topic", good.encoded()
    yield "refused", replace(good, crc=1).encoded()
    yield "refused", b""
    yield "refused", good.encoded()[:-1]
    yield "refused", good.encoded()[:30]
    yield "refused", good.encoded() + good.encoded()
    yield "refused", good.encoded() + good.encoded()[:40]
    yield "refused", good.encoded()[:8]
    for magic in (0, 1, 3, -1):
        yield "refused", replace(good, magic=magic).encoded()
        # Older formats have other values where this bit is.
        yield "refused", replace(good, magic=magic, attributes=TRANSACTIONAL).encoded()
    changes: tuple[dict[str, Any], ...] = (
        {"length": 13},
        {"length": 40},
        {"length": -1},
        {"last_offset_delta": 5},
        {"last_offset_delta": -1},
        {"count": 3},
        {"count": 1},
        {"count": -1},
        {"count": 0},
        {"base_offset": 5},
        {"attributes": 5},
        {"attributes": 7},
        {"attributes": CONTROL},
        {"attributes": 0x40},
        {"base_timestamp": -1, "max_timestamp": -1},
        {"base_sequence": 0},
        {"producer_id": 7},
        {"producer_id": 7, "producer_epoch": 0},
        {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "attributes": CONTROL},
    )
    for fields in changes:
        yield "refused", replace(good, **fields).encoded()
    for record in (
        replace(PlainRecord(1), offset_delta=3),
        replace(PlainRecord(1), headers=((None, b"v"),)),
        replace(PlainRecord(1), attributes=1),
    ):
        yield "refused", batch_of([PlainRecord(0), record]).encoded()
        yield "refused", batch_of([PlainRecord(0), record], _LZ4).encoded()
    yield "refused", replace(good, records=good.records[:-3]).encoded()
    yield "refused", replace(good, records=good.records + b"\0\0").encoded()
    yield "refused", replace(good, attributes=_GZIP).encoded()
    yield "refused", replace(batch_of([PlainRecord(0)], _SNAPPY), count=2, last_offset_delta=1).encoded()
    yield "small", plain("x" * 300)
    yield "small", plain("x" * 300, codec=_GZIP)
    yield "small-segments", plain("x" * 400)
    for codec in (_NONE, _LZ4):
        without_key = [PlainRecord(0), PlainRecord(1, key=None), PlainRecord(2, key=None)]
        yield "compacted", batch_of(without_key, codec).encoded()
        yield "recent", batch_of([PlainRecord(0), PlainRecord(1, timestamp_delta=5)], codec).encoded()
    yield "refused", batch_of([]).encoded()


def odd_requests(broker: Broker) -> None:
    """Requests with other acks, with several partitions, and with none."""
    create_topic(broker, "odd", 3)
    good, bad = plain("good"), b"bad"
    for version in broker.versions["Produce"]:
        for acks in (2, -2, 100):
            broker.ask("Produce", version, **one_produce("odd", good, acks=acks))
            broker.ask("Produce", version, **one_produce("odd", bad, acks=acks))
        broker.ask("Produce", version, **one_produce("odd", good, partition=9))
        broker.ask("Produce", version, **one_produce("odd", good, partition=-1))
        broker.ask("Produce", version, **one_produce("__consumer_offsets", good))
        broker.ask("Produce", version, **one_produce("odd", good, acks=1) | {"TimeoutMs": -1})
    for version in _versions(broker):
        fields = one_produce("odd", good)
        broker.ask("Produce", version, **fields | {"TopicData": []})
        broker.ask("Produce", version, **fields | {"TopicData": [{"Name": "odd", "PartitionData": []}]})
        several = [
            {"Index": index, "Records": data} for index, data in enumerate((good, plain("x", crc=1), good))
        ]
        topics = [{"Name": "odd", "PartitionData": several}, {"Name": "none", "PartitionData": several[:1]}]
        broker.ask("Produce", version, **fields | {"TopicData": topics})
        twice = [{"Index": 0, "Records": good}, {"Index": 0, "Records": plain("other", "records")}]
        broker.ask("Produce", version, **fields | {"TopicData": [{"Name": "odd", "PartitionData": twice}]})


def producer_ids(broker: Broker) -> None:
    """InitProducerId without a transactional id."""
    # A broker asks the controller for its first ids when it needs them.
    no_id = {"TransactionalId": None, "TransactionTimeoutMs": 1000}
    broker.wait(lambda answer: answer["ErrorCode"] == 0, "InitProducerId", 2, **no_id)
    for version in broker.versions["InitProducerId"]:
        for fields in (
            {"ProducerId": -1, "ProducerEpoch": -1},
            {"ProducerId": 5, "ProducerEpoch": -1},
            {"ProducerId": -1, "ProducerEpoch": 5},
            {"ProducerId": 5, "ProducerEpoch": 5},
        ):
            broker.ask("InitProducerId", version, **no_id, **fields)
        broker.ask("InitProducerId", version, TransactionalId="", TransactionTimeoutMs=1000)


def idempotent_producers(broker: Broker) -> None:
    """Sequences: duplicates, gaps, epochs; and what DescribeProducers says of them."""
    for version in _versions(broker):
        topic = f"sequences-{version}"
        create_topic(broker, topic)
        for producer, epoch, sequence, count in (
            (1, 0, 0, 2),
            (1, 0, 0, 2),
            (1, 0, 2, 1),
            (1, 0, 5, 1),
            (1, 0, 0, 2),
            (1, 0, 0, 1),
            (1, 0, 3, 1),
            (1, 0, 4, 1),
            (1, 0, 5, 1),
            (1, 0, 6, 1),
            (1, 0, 7, 1),
            (1, 0, 0, 2),
            (1, 1, 5, 1),
            (1, 1, 0, 1),
            (1, 0, 8, 1),
            (2, 3, 7, 2),
            (2, 3, 9, 1),
            (3, 0, 2**31 - 1, 2),
            (3, 0, 1, 1),
        ):
            records = plain(
                *["v"] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence
            )
            broker.ask("Produce", version, **one_produce(topic, records))
        broker.send_without_answer(
            "Produce",
            version,
            **one_produce(topic, plain("v", producer_id=1, producer_epoch=0, base_sequence=9), acks=0),
        )
        _describe(broker, topic)


def _describe(broker: Broker, topic: str) -> None:
    for version in broker.versions["DescribeProducers"]:
        for name, partitions in ((topic, [0, 1, -1]), ("unknown", [0]), ("not a topic", [0]), (topic, [])):
            broker.ask("DescribeProducers", version, Topics=[{"Name": name, "PartitionIndexes": partitions}])
    broker.ask("DescribeProducers", 0, Topics=[])
