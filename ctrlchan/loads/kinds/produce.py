"""``produce``: records to one topic; an operation ends with the broker's acknowledgement."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from ctrlchan.loads.load import Load
from ctrlchan.loads.worker import Worker

__all__ = ["ProduceLoad", "put", "values_of"]

#: Seconds that a full queue of the client is waited for at once.
_FULL_SECONDS: Final = 0.05
#: Different values of records.
_VALUES: Final = 64
#: The client's partitioner chooses.
_ANY: Final = -1


@dataclass(frozen=True, kw_only=True)
class ProduceLoad(Load):
    """``size``: bytes of a record's value, which compression cannot shorten."""

    kind: ClassVar[str] = "produce"

    size: int

    def work(self, worker: Worker) -> None:
        from confluent_kafka import Producer

        producer = Producer({"log_level": 0, **worker.settings})
        # Before the start, so that the first records do not wait for it.
        producer.list_topics(self.topic, timeout=30)
        operation = worker.operation("produce")
        size, values = self.size, values_of(self.size)

        def delivered(due: float, error: Any, _: Any) -> None:
            if error is None:
                worker.ended(operation, due, size=size)
            else:
                worker.failed(operation, error.name())

        worker.start()
        try:
            for number, due in enumerate(worker.due(producer.poll)):
                if not put(worker, producer, self.topic, values[number % _VALUES], partial(delivered, due)):
                    break
        finally:
            worker.drain(producer)


def put(
    worker: Worker,
    producer: Any,
    topic: str,
    value: bytes,
    delivered: Callable[[Any, Any], object] | None = None,
    partition: int = _ANY,
) -> bool:
    """Give the client a record, and wait while its queue is full. Return False if the load was stopped."""
    while True:
        try:
            producer.produce(topic, value, partition=partition, on_delivery=delivered)
        except BufferError:
            producer.poll(_FULL_SECONDS)
            if worker.is_stopped():
                return False
        else:
            producer.poll(0)
            return True


def values_of(size: int) -> list[bytes]:
    """Return values for records."""
    return [os.urandom(size) for _ in range(_VALUES)]
