"""``consume``: consumers that read a filled topic again and again, or follow producers at a rate."""

from __future__ import annotations

import struct
import threading
import time
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ctrlchan.errors import CtrlchanError
from ctrlchan.loads.kinds.produce import put, values_of
from ctrlchan.loads.load import Load
from ctrlchan.loads.worker import Worker

__all__ = ["ConsumeLoad"]

#: Records that one call asks the client for, and seconds that it waits for them.
_AT_ONCE: Final = 1_000
_WAIT_SECONDS: Final = 0.1
#: Seconds that the last records have after they were acknowledged.
_LAST_SECONDS: Final = 30.0
#: When a record was due, at the beginning of its value.
_DUE: Final = struct.Struct("<d")


@dataclass(frozen=True, kw_only=True)
class ConsumeLoad(Load):
    """Each worker reads partitions of its own.

    Without a rate it fills them with its part of ``records`` before the start, and an operation ``read`` is a
    call of the client that returns records. With a rate it produces there, and ``end to end`` lasts from when
    a record was due until its consumer has it.
    """

    kind: ClassVar[str] = "consume"

    size: int
    records: int

    def check(self) -> None:
        self._require(self.partitions >= self.clients, "each client reads a partition of its own")
        self._require(not self.rate or self.size >= _DUE.size, f"--size must be {_DUE.size} or more")
        self._require(self.records >= self.clients, "each client reads at least one record")

    def work(self, worker: Worker) -> None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        own = [
            TopicPartition(self.topic, number, OFFSET_BEGINNING)
            for number in self.own_partitions(worker.number)
        ]
        settings = {name: value for name, value in worker.settings.items() if name not in _OF_PRODUCERS}
        quiet = {"log_level": 0, "enable.auto.commit": False, "group.id": f"{self.run}-unused"}
        consumer = Consumer({**quiet, **settings})
        try:
            if self.rate:
                self._follow(worker, consumer, own)
            else:
                self._read(worker, consumer, own)
        finally:
            consumer.close()

    def _read(self, worker: Worker, consumer: Any, own: list[Any]) -> None:
        filled = self._fill(worker, own)
        operation = worker.operation("read")
        consumer.assign(own)
        left = filled
        worker.start()
        for begun in worker.due(time.sleep):
            # Not beyond the end, where the call would wait for records that do not come.
            count = len(_records(consumer.consume(min(left, _AT_ONCE), _WAIT_SECONDS)))
            if count:
                worker.ended(operation, begun, items=count, size=count * self.size)
                left -= count
            if not left:
                consumer.assign(own)
                left = filled

    def _fill(self, worker: Worker, own: list[Any]) -> int:
        """Produce this worker's part of the records; return how many. Raises CtrlchanError."""
        from confluent_kafka import Producer

        producer = Producer({"log_level": 0, **worker.settings})
        values, errors = values_of(self.size), list[str]()

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                errors.append(error.str())

        count = self.records // self.clients + (worker.number < self.records % self.clients)
        for number in range(count):
            value, partition = values[number % len(values)], own[number % len(own)].partition
            if worker.is_stopped() or not put(worker, producer, self.topic, value, delivered, partition):
                break
        worker.drain(producer)
        if errors:
            raise CtrlchanError(f"{len(errors)} records could not be produced: {errors[0]}")
        return count

    def _follow(self, worker: Worker, consumer: Any, own: list[Any]) -> None:
        from confluent_kafka import Producer

        producer = Producer({"log_level": 0, **worker.settings})
        producer.list_topics(self.topic, timeout=30)
        consumer.assign(own)
        operation = worker.operation("end to end")
        acknowledged = consumed = 0
        has_ended = threading.Event()

        def delivered(error: Any, _: Any) -> None:
            nonlocal acknowledged
            if error is None:
                acknowledged += 1
            else:
                worker.failed(operation, error.name())

        def consume() -> None:
            nonlocal consumed
            while not has_ended.is_set():
                message = consumer.poll(_WAIT_SECONDS)
                if message is not None and _records([message]):
                    worker.ended(operation, _DUE.unpack_from(message.value())[0], size=self.size)
                    consumed += 1

        rest = bytes(self.size - _DUE.size)
        worker.start()
        thread = threading.Thread(target=consume, name="consumer")
        thread.start()
        try:
            for number, due in enumerate(worker.due(producer.poll)):
                partition = own[number % len(own)].partition
                if not put(worker, producer, self.topic, _DUE.pack(due) + rest, delivered, partition):
                    break
            worker.drain(producer)
            deadline = time.monotonic() + _LAST_SECONDS
            while consumed < acknowledged and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            has_ended.set()
            thread.join()
        for _ in range(acknowledged - consumed):
            worker.failed(operation, "NOT_CONSUMED")


_OF_PRODUCERS: Final = frozenset({"acks", "enable.idempotence", "compression.type", "linger.ms"})


def _records(messages: list[Any]) -> list[Any]:
    """Return the messages without those that say that something went wrong, and will be tried again."""
    return [one for one in messages if one.error() is None]
