"""Consumers far behind, fetch sessions of many partitions, and the producers that a broker remembers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.peers.brokers import HOST, wait_for_leaders
from bench.peers.record_load import batch_of
from bench.scale import messages
from bench.scale.crowd import Crowd
from bench.scale.record import Record
from bench.scale.sides import MeasuredBroker, create_topics, running
from tests.unit.broker.log.batches import PlainBatch, PlainRecord

__all__ = ["ask_behind", "ask_of_producers", "ask_of_sessions"]

_TOPIC: Final = "behind"
_MANY: Final = "many"
_PER_TOPIC: Final = 100
#: Bytes of a segment, and records of one batch, of which a segment has some sixty.
_SEGMENT_BYTES: Final = 1 << 20
_RECORDS: Final = 150
_BATCHES_IN_A_SEGMENT: Final = 62
_FETCHES: Final = 3_000
_FULL_FETCHES: Final = 20
_PRODUCED: Final = 5_000


def ask_behind(side: str, size: int, folder: Path, record: Record) -> None:
    """Measure consumers that read all over a log of ``size`` segments."""
    with running(side, folder) as broker:
        admin = AdminClient({"bootstrap.servers": f"{HOST}:{broker.port}"})
        config = {"segment.bytes": str(_SEGMENT_BYTES)}
        admin.create_topics([NewTopic(_TOPIC, 1, 1, config=config)])[_TOPIC].result(60)
        wait_for_leaders(broker.port, _TOPIC)
        batch = batch_of(_RECORDS, 100)
        batches = size * _BATCHES_IN_A_SEGMENT
        with Crowd(broker.port, 5) as crowd:
            crowd.ask_in_turn([messages.produce({_TOPIC: [0]}, batch)] * batches)
            for what, offsets in _places(batches):
                frames = [messages.fetch({_TOPIC: [0]}, offset=one, max_bytes=16_384) for one in offsets]
                crowd.ask_in_turn(frames)
                began = broker.processor_seconds()
                crowd.ask_in_turn(frames)
                used = (broker.processor_seconds() - began) / len(frames)
                record.add(
                    f"Consumers behind: Fetch of 16 KiB, {what}",
                    "processor µs",
                    "segments",
                    side,
                    size,
                    used * 1e6,
                )


def _places(batches: int) -> Iterator[tuple[str, list[int]]]:
    """Yield where consumers read: all over the log, which is where none has read before, and near its end."""
    step = 7_919  # prime: no two of them read after each other
    yield "all over the log", [(i * step) % batches * _RECORDS for i in range(_FETCHES)]
    yield "near the end", [(batches - 1 - i % 10) * _RECORDS for i in range(_FETCHES)]


def ask_of_sessions(side: str, size: int, folder: Path, record: Record) -> None:
    """Measure a consumer of ``size`` partitions: a session's first Fetch, and small ones in it."""
    with running(side, folder) as broker:
        topics = {
            f"many-{i:03}": min(_PER_TOPIC, size - i * _PER_TOPIC) for i in range(-(-size // _PER_TOPIC))
        }
        create_topics(broker.port, topics)
        every = {name: range(count) for name, count in topics.items()}
        with Crowd(broker.port, 2) as crowd:
            first_frame = messages.fetch(every, max_wait_ms=0, session=(0, 0))
            crowd.ask_in_turn([first_frame] * 3)
            _ask(
                broker,
                crowd,
                [first_frame] * _FULL_FETCHES,
                size,
                "a session's first Fetch, each partition",
                record,
            )
            (answer,) = crowd.ask_all([first_frame])
            session = messages.session_of(answer)
            empty = [
                messages.fetch({}, max_wait_ms=0, session=(session, epoch))
                for epoch in range(1, 2 * _FETCHES + 1)
            ]
            crowd.ask_in_turn(empty[:_FETCHES], in_flight=1)
            _ask(broker, crowd, empty[_FETCHES:], 1, "a Fetch that finds nothing", record, size)


def _ask(
    broker: MeasuredBroker,
    crowd: Crowd,
    frames: list[bytes],
    parts: int,
    what: str,
    record: Record,
    size: int | None = None,
) -> None:
    began = broker.processor_seconds()
    crowd.ask_in_turn(frames, in_flight=1)
    used = (broker.processor_seconds() - began) / len(frames) / parts
    record.add(
        f"Partitions of a consumer: {what}",
        "processor µs",
        "partitions",
        broker.side,
        size or parts,
        used * 1e6,
    )


def ask_of_producers(side: str, size: int, folder: Path, record: Record) -> None:
    """Measure ``size`` idempotent producers that have written to one partition."""

    def add(question: str, unit: str, sample: float) -> None:
        record.add(question, unit, "producers", side, size, sample)

    with running(side, folder) as broker, Crowd(broker.port, 20) as crowd:
        create_topics(broker.port, {_MANY: 1})
        plain = messages.produce({_MANY: [0]}, batch_of(1, 100))
        crowd.ask_in_turn([plain] * _PRODUCED)
        before, began = broker.needed_bytes(), broker.processor_seconds()
        crowd.ask_in_turn(messages.produce({_MANY: [0]}, one) for one in _batches_of_producers(size))
        add(
            "Producer ids: the first batch of one",
            "processor µs",
            (broker.processor_seconds() - began) / size * 1e6,
        )
        grown = broker.needed_bytes() - before
        record.add_each("Producer ids: memory of each", "producers", side, size, grown)
        began = broker.processor_seconds()
        crowd.ask_in_turn([plain] * _PRODUCED)
        used = (broker.processor_seconds() - began) / _PRODUCED
        add("Producer ids: a batch without one", "processor µs", used * 1e6)


def _batches_of_producers(count: int) -> Iterator[bytes]:
    """Yield the first batch of each of so many producers."""
    now = int(time.time() * 1000)
    record = PlainRecord(0, key=None, value=bytes(100)).encoded()
    for producer_id in range(1, count + 1):
        yield PlainBatch(
            record,
            1,
            base_timestamp=now,
            max_timestamp=now,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
        ).encoded()
