"""A reader of committed records, beside a program that writes them in transactions."""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import Consumer, TopicPartition

__all__ = ["CommittedReader", "reading"]


class CommittedReader:
    """Reads all partitions of a topic in a thread, from their begin until ``close``.

    ``records``: (key, value) by partition, in the order of the offsets.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.records: list[list[tuple[bytes | None, bytes]]] = [[] for _ in range(partitions)]
        self._ended = threading.Event()
        self._consumer = reading(bootstrap, "read_committed")
        self._consumer.assign([TopicPartition(topic, one, 0) for one in range(partitions)])
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """How many records were read."""
        return sum(map(len, self.records))

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(1_000, 0.1):
                # Errors on the way (a leader that moved) are the client's to get over.
                if message.error() is None:
                    self.records[message.partition()].append((message.key(), message.value()))


def reading(bootstrap: str, isolation: str) -> Any:
    """Return a consumer that gets its partitions by ``assign``."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            # No record may be left out by a reset.
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
