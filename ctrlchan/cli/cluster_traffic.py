"""The traffic of ``ctrlchan cluster --demo``: a producer and a consumer that work while a broker dies."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import Any, Final

from ctrlchan.errors import CtrlchanError

__all__ = ["TOPIC", "Traffic"]

TOPIC: Final = "events"
_PAUSE: Final = 0.005
_POLL_SECONDS: Final = 0.1
_SECONDS: Final = 60.0


class Traffic:
    """Produces numbered records to ``TOPIC`` and consumes them, from construction to ``stop``."""

    def __init__(self, bootstrap_servers: str) -> None:
        from confluent_kafka import Consumer, Producer

        quiet = {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
            "error_cb": lambda problem: self._problems.append(str(problem)),
        }
        self._producer: Any = Producer(quiet | {"enable.idempotence": True, "linger.ms": 5})
        self._consumer: Any = Consumer(
            quiet | {"group.id": "demo", "auto.offset.reset": "earliest", "session.timeout.ms": 10_000}
        )
        self._consumer.subscribe([TOPIC])
        self._acknowledged: set[int] = set()
        self._consumed: Counter[int] = Counter()
        self._errors: list[str] = []
        self._assigned = 0
        #: What the clients tried again later, such as a connection that was refused.
        self._problems: deque[str] = deque(maxlen=3)
        self._produced = threading.Event()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=run, name=f"demo-{run.__name__.strip('_')}", daemon=True)
            for run in (self._produce, self._consume)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def consumed(self) -> int:
        """Records that the consumer has."""
        return len(self._consumed)

    def describe(self) -> str:
        """Return what the clients have done so far, for a message about clients that do not go on."""
        return (
            f"{len(self._acknowledged)} records are acknowledged, {len(self._errors)} failed "
            f"{self._errors[:1]}, {self.consumed} are consumed from {self._assigned} assigned partitions; "
            f"the clients' last problems: {', '.join(self._problems) or 'none'}"
        )

    def stop(self) -> int:
        """Wait until every record was acknowledged and consumed; return how many there are.

        Raises CtrlchanError when a record is lost or doubled, or not consumed in time.
        """
        self._produced.set()
        self._threads[0].join()
        deadline = time.monotonic() + _SECONDS
        while self._acknowledged - self._consumed.keys() and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        self._ended.set()
        self._threads[1].join()
        missing = len(self._acknowledged - self._consumed.keys())
        doubled = sum(count > 1 for count in self._consumed.values())
        if self._errors or missing or doubled:
            raise CtrlchanError(
                f"{missing} records are lost, {doubled} are consumed twice: {self.describe()}"
            )
        return len(self._acknowledged)

    def _produce(self) -> None:
        number = 0

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self._acknowledged.add(int(message.value()))
            else:
                self._errors.append(str(error))

        while not self._produced.wait(_PAUSE):
            value = str(number).encode()
            self._producer.produce(TOPIC, value, key=value, on_delivery=delivered)
            self._producer.poll(0)
            number += 1
        self._producer.flush(_SECONDS)

    def _consume(self) -> None:
        while not self._ended.is_set():
            # Here, because the client lets one thread at a time call the consumer.
            self._assigned = len(self._consumer.assignment())
            for message in self._consumer.consume(500, _POLL_SECONDS):
                if message.error() is None:
                    self._consumed[int(message.value())] += 1
                else:
                    self._problems.append(str(message.error()))
        self._consumer.close()
