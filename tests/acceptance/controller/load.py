"""A producer that writes all along, and the comparison of what was acknowledged with what can be read."""

from __future__ import annotations

import json
import threading
from collections import Counter
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.kafka.waiting import wait_until

__all__ = ["Load", "write_large"]

#: Seconds that a message may take: longer than any election or restart of a test.
DELIVERY_TIMEOUT = 180.0
#: Seconds between messages: the brokers shall not be busy with them.
_PAUSE = 0.004


def write_large(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    """Write more than a throttled follower copies while a test runs; return the messages."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "batch.num.messages": 1, "log_level": 2}
    )
    values = [b"%d-" % number + bytes(40_000) for number in range(60)]
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            errors.append(error)

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert errors == []
    return values


class Load:
    """Produces numbered messages to one topic with acks=all and idempotence until it is closed.

    A context manager. Each message goes to a random partition.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        #: (partition, value) of every acknowledged message -> its offset. None: the broker has acknowledged
        #: a second write of it (DUPLICATE_SEQUENCE_NUMBER), which has no offset.
        self.acknowledged: dict[tuple[int, bytes], int | None] = {}
        self.errors: Counter[str] = Counter()
        #: What librdkafka reports of connections, brokers and itself; it goes on unless it is fatal.
        self.reported: Counter[str] = Counter()
        #: The producer's own view, once a second: its producer id, its connections and the leaders.
        self.state: dict[str, object] = {}
        self.sent = 0
        self._stopping = threading.Event()
        self._writing = threading.Event()
        self._writing.set()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
                "topic.metadata.refresh.fast.interval.ms": 20,
                "message.timeout.ms": int(DELIVERY_TIMEOUT * 1000),
                "partitioner": "random",
                "log_level": 2,  # leaders move and brokers restart here: not worth a line each
                "error_cb": lambda error: self.reported.update([error.str()]),
                "statistics.interval.ms": 1000,
                "stats_cb": self._note_state,
            }
        )
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        self.wait_for_more()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(0.0 if kind is not None else DELIVERY_TIMEOUT)

    def stop(self, timeout: float = DELIVERY_TIMEOUT) -> None:
        """Send no more, and wait until every message is acknowledged."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(timeout)
        if timeout:
            assert left == 0, f"{left} messages were never delivered"
            assert not self.errors, self.errors

    def pause(self) -> None:
        """Write nothing more until ``go_on``, and wait until every message is acknowledged."""
        self._writing.clear()
        wait_until(lambda: not len(self._producer), timeout=DELIVERY_TIMEOUT, what="all is acknowledged")

    def go_on(self) -> None:
        """Write again."""
        self._writing.set()

    def wait_for_more(self, partitions: int = 1, timeout: float = 90.0) -> None:
        """Wait until messages that are sent from now on are acknowledged, in this many partitions."""
        before = len(self.acknowledged)
        sent = self.sent

        def more() -> bool:
            assert self._thread.is_alive(), f"the load has ended: {dict(self.reported)}"
            new = list(self.acknowledged)[before:]
            return len({p for p, value in new if int(value) >= sent}) >= partitions

        what = f"new messages are acknowledged by {partitions} partitions"
        try:
            wait_until(more, timeout=timeout, what=what)
        except TimeoutError as problem:
            raise TimeoutError(
                f"{problem}; {self.sent} sent, errors {dict(self.errors)}, reported {dict(self.reported)}, "
                f"producer {self.state}"
            ) from None

    def check_nothing_is_lost(self) -> None:
        """Read the whole topic: every acknowledged message is there, at its offset if that is known."""
        read = self._read()
        values = {(partition, value) for (partition, _), value in read.items()}
        lost = {
            (partition, value): offset
            for (partition, value), offset in self.acknowledged.items()
            if (
                read.get((partition, offset)) != value
                if offset is not None
                else (partition, value) not in values
            )
        }
        assert not lost, (
            f"{len(lost)} of {len(self.acknowledged)} acknowledged messages: {list(lost.items())[:10]}"
        )

    def _run(self) -> None:
        while not self._stopping.wait(_PAUSE):
            self._producer.poll(0)
            if not self._writing.is_set():
                continue
            try:
                self._producer.produce(self.topic, b"%d" % self.sent, on_delivery=self._delivered)
            except BufferError:
                # The queue is full while there is no leader.
                continue
            self.sent += 1

    def _note_state(self, statistics: str) -> None:
        read = json.loads(statistics)
        brokers = {name: broker["state"] for name, broker in read["brokers"].items()}
        leaders = {
            number: partition["leader"]
            for topic in read["topics"].values()
            for number, partition in topic["partitions"].items()
        }
        self.state = {"idempotence": read.get("eos"), "brokers": brokers, "leaders": leaders}

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors[error.str()] += 1
        else:
            partition, value = message.partition(), message.value()
            assert partition is not None
            assert isinstance(value, bytes)
            self.acknowledged[partition, value] = message.offset()

    def _read(self) -> dict[tuple[int, int], bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "log_level": 2,
            }
        )
        try:
            partitions = consumer.list_topics(self.topic, timeout=60).topics[self.topic].partitions
            consumer.assign([TopicPartition(self.topic, partition, 0) for partition in partitions])
            return self._read_to_the_ends(consumer, set(partitions))
        finally:
            consumer.close()

    @staticmethod
    def _read_to_the_ends(consumer: Any, unfinished: set[int]) -> dict[tuple[int, int], bytes]:
        read: dict[tuple[int, int], bytes] = {}
        while unfinished:
            message = consumer.poll(60.0)
            assert message is not None, f"nothing more comes from the partitions {sorted(unfinished)}"
            error = message.error()
            if error is None:
                read[message.partition(), message.offset()] = message.value()
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            else:
                assert error.retriable(), error
        return read
