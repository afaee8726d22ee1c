"""A broker that is killed at random points: each acknowledged record is there once, in its place."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ctrlchan import EmbeddedCluster
from ctrlchan.broker.log.records import HEADER_BYTES

TOPIC, PARTITIONS, BROKER = "orders", 3, 1
SECONDS = 120.0
CONFIGS = {
    # Crashes meet segments, indexes and snapshots that are being made.
    "log.segment.bytes": "100000",
    "log.index.interval.bytes": "500",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "50",
}


class Load:
    """Produces numbered values to all partitions until its end, on a thread."""

    def __init__(self, bootstrap: str, codec: str) -> None:
        self._producer: Any = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 20,
                "compression.type": codec,
                "retry.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "message.timeout.ms": int(SECONDS * 1000),
                "log_level": 2,
            }
        )
        #: Of each partition: the acknowledged values and their offsets.
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.failed: list[str] = []
        self.sent = 0
        self._count = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Produce, and wait in the end until all is acknowledged."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join()
        assert self._producer.flush(SECONDS) == 0

    def wait_for(self, more: int) -> None:
        """Wait until so many more records are acknowledged."""
        with self._count:
            target = self._number() + more
            assert self._count.wait_for(lambda: self._number() >= target, SECONDS), "nothing is acknowledged"

    def _number(self) -> int:
        return sum(map(len, self.acknowledged))

    def _run(self) -> None:
        while not self._stopping.is_set():
            if len(self._producer) < 500:
                partition = self.sent % PARTITIONS
                value = b"%d %s" % (self.sent, bytes(self.sent % 200))
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._delivered)
                self.sent += 1
            self._producer.poll(0 if len(self._producer) < 500 else 0.01)

    def _delivered(self, error: Any, message: Any) -> None:
        with self._count:
            if error is not None:
                self.failed.append(str(error))
            else:
                number = int(message.value().split(b" ", 1)[0])
                self.acknowledged[message.partition()][number] = message.offset()
            self._count.notify_all()


@pytest.mark.parametrize(
    ("crashes", "codec", "seed"),
    [
        pytest.param(3, "lz4", 1, id="short"),
        pytest.param(60, "none", 2, id="none", marks=pytest.mark.long),
        pytest.param(60, "zstd", 3, id="zstd", marks=pytest.mark.long),
    ],
)
def test_no_acknowledged_record_is_lost_doubled_or_moved(
    tmp_path: Path, crashes: int, codec: str, seed: int
) -> None:
    chance = random.Random(seed)
    with EmbeddedCluster(1, log_dir=tmp_path, configs=CONFIGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(SECONDS)
        load = Load(cluster.bootstrap_servers, codec)
        with load.running():
            for _ in range(crashes):
                load.wait_for(chance.randrange(1, 2000))
                cluster.kill_broker(BROKER)
                for partition in range(PARTITIONS):
                    if chance.random() < 0.5:
                        tear(tmp_path / f"broker-{BROKER}" / f"{TOPIC}-{partition}", chance)
                cluster.start_broker(BROKER)
        found = cluster.records(TOPIC, at_least=load.sent, timeout=SECONDS)
    assert load.failed == []
    for partition in range(PARTITIONS):
        records = [one for one in found if one.partition == partition]
        values = [int((one.value or b"-1").split(b" ", 1)[0]) for one in records]
        assert values == list(range(partition, load.sent, PARTITIONS))
        offsets = {value: one.offset for value, one in zip(values, records, strict=True)}
        # A record that was acknowledged as a duplicate of itself may have no offset.
        assert {
            value: offset for value, offset in load.acknowledged[partition].items() if offset >= 0
        }.items() <= offsets.items()


def tear(folder: Path, chance: random.Random) -> None:
    """Add the beginning of a batch to the log, as an append that was not finished leaves it."""
    last = max(folder.glob("*.log"))
    data = last.read_bytes()
    with last.open("ab") as file:
        file.write(data[: chance.randrange(1, HEADER_BYTES)] or bytes(20))
