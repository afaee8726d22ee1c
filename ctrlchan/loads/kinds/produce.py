"""``produce``: records to one topic; an operation ends with the broker's acknowledgement."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

from ctrlchan.loads.load import Load
from ctrlchan.loads.worker import Worker

__all__ = ["ProduceLoad", "values_of"]

#: Seconds that a full queue of the client is waited for at once.
_FULL_SECONDS: Final = 0.05
#: Different values of records.
_VALUES: Final = 64


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
                delivery = partial(delivered, due)
                while True:
                    try:
                        producer.produce(self.topic, values[number % _VALUES], on_delivery=delivery)
                        break
                    except BufferError:
                        producer.poll(_FULL_SECONDS)
                        if worker.is_stopped():
                            return
                producer.poll(0)
        finally:
            worker.drain(producer)


def values_of(size: int) -> list[bytes]:
    """Return values for records."""
    return [os.urandom(size) for _ in range(_VALUES)]
