"""Input of a program that is written a little ahead of the program, so that it has always something to do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from confluent_kafka import KafkaError, Message, Producer

__all__ = ["FedInput"]


class FedInput:
    """Writes records to a topic in a thread, each once. ``errors``: of records that were not written.

    ``records``: partition (-1: by the key), key and value. ``wanted``: how many of them may be there by now.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        records: Iterable[tuple[int, bytes | None, bytes]],
        wanted: Callable[[], int],
    ) -> None:
        self.errors: list[KafkaError] = []
        self._topic = topic
        self._records = records
        self._wanted = wanted
        self._given_up = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 100_000,
                # Requests to a broker that stands still are sent again to its successor.
                "socket.timeout.ms": 5_000,
                "message.timeout.ms": 600_000,
                "log_level": 2,
            }
        )
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End, whether all is written or not."""
        self._given_up.set()
        self._thread.join()

    def _write(self) -> None:
        for number, (partition, key, value) in enumerate(self._records):
            while number >= self._wanted():
                self._producer.poll(0.05)
                if self._given_up.is_set():
                    return
            self._producer.produce(self._topic, value, key, partition=partition, on_delivery=self._delivered)
            self._producer.poll(0)
        while self._producer.flush(1.0) and not self._given_up.is_set():
            pass

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.errors.append(error)
