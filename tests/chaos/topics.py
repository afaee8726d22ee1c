"""The topics of a run, and others that are created and deleted all the time."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.chaos.nodes import broker_id
from tests.chaos.plan import BROKERS
from tests.chaos.producing import TOPICS
from tests.chaos.quiet import QUIET
from tests.chaos.threads import make_thread
from tests.kafka.waiting import wait_until

__all__ = ["PASSING", "PassingTopics", "admin_client", "create_topics"]

#: The first letters of topics that are deleted again.
PASSING: Final = "passing-"
_PARTITIONS: Final = 3
#: Topics that are there at a time, and seconds between two changes.
_MOST: Final = 8
_PAUSE: Final = (0.02, 0.4)


def admin_client(bootstrap: str) -> Any:
    """Return a client for administration."""
    configuration: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "socket.timeout.ms": 10_000,
        **QUIET,
    }
    return AdminClient(configuration)


def create_topics(bootstrap: str, seconds: float) -> None:
    """Create the topics of the run, when brokers know the controller. Raises KafkaException, TimeoutError."""
    new = [
        NewTopic(
            topic.name,
            topic.partitions,
            topic.replicas,
            config={"min.insync.replicas": str(topic.min_in_sync), "segment.bytes": "1048576"},
        )
        for topic in TOPICS
    ]
    (admin,) = wait_until(
        lambda: _ready_client(bootstrap), timeout=seconds, what="brokers know the controller"
    )
    for created in admin.create_topics(new, operation_timeout=seconds).values():
        created.result(seconds)


def _ready_client(bootstrap: str) -> tuple[Any] | None:
    """Return a client that knows the controller, or None. Another would not ask again for minutes."""
    admin = admin_client(bootstrap)
    try:
        known = admin.list_topics(timeout=10.0)
    except KafkaException:
        return None
    ids = {broker_id(name) for name in BROKERS} | {known.controller_id}
    # The client itself counts as false.
    return (admin,) if ids <= set(known.brokers) else None


class PassingTopics:
    """Creates topics of three partitions, writes some records to them, and deletes them; on a thread."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self._chance = random.Random(seed)
        self._bootstrap = bootstrap
        self._admin = admin_client(bootstrap)
        self._producer: Any = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": "passing",
                "acks": "all",
                "compression.type": "lz4",
                # The topic may be gone before the record is written.
                "message.timeout.ms": 3000,
                **QUIET,
            }
        )
        #: Names that may exist: also those of requests whose answers were lost.
        self._names: list[str] = []
        self._number = 0
        self._stopping = threading.Event()
        self._thread = make_thread("passing topics", self.failures, self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        self.stop()
        self._thread.join()
        self._producer.purge()

    def delete_all(self, deadline: float) -> None:
        """Delete what is left. Raises TimeoutError."""
        while self._names:
            if time.monotonic() > deadline:
                raise TimeoutError(f"topics that cannot be deleted: {self._names[:5]}")
            self._delete(self._names[0])

    def _run(self) -> None:
        while not self._stopping.wait(self._chance.uniform(*_PAUSE)):
            if len(self._names) < _MOST:
                self._create()
            else:
                self._delete(self._chance.choice(self._names))

    def _create(self) -> None:
        self._number += 1
        name = f"{PASSING}{self._number}"
        self._names.append(name)
        topic = NewTopic(name, _PARTITIONS, self._chance.choice((1, 2, 3)))
        if self._succeeds(self._admin.create_topics([topic], request_timeout=10.0)[name], "created"):
            for number in range(60):
                self._producer.produce(name, bytes(100), partition=number % _PARTITIONS)
        self._producer.poll(0)

    def _delete(self, name: str) -> None:
        future = self._admin.delete_topics([name], request_timeout=10.0)[name]
        if self._succeeds(future, "deleted"):
            self._names.remove(name)

    def _succeeds(self, future: Any, what: str) -> bool:
        """Return whether the topic is as wanted; whether a request without an answer was done shows later."""
        try:
            future.result(20.0)
        except KafkaException as error:
            reason = error.args[0].name()
            self.counts[reason] += 1
            # This one may not hear of another controller for minutes.
            self._admin = admin_client(self._bootstrap)
            return reason in ("TOPIC_ALREADY_EXISTS", "UNKNOWN_TOPIC_OR_PART")
        except TimeoutError:
            self.counts["no answer"] += 1
            return False
        self.counts[what] += 1
        return True
