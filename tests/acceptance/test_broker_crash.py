"""A broker that is killed at random points: each acknowledged record is there once, in its place."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ctrlchan import EmbeddedCluster
from ctrlchan.broker.log import checkpoints
from ctrlchan.broker.log.records import HEADER_BYTES
from ctrlchan.errors import LogDirectoryError

TOPIC, PARTITIONS, BROKER = "orders", 3, 1
SECONDS = 120.0
CONFIGS = {
    # Crashes meet segments, indexes and snapshots that are being made.
    "log.segment.bytes": "10000",
    "log.index.interval.bytes": "500",
    "log.initial.task.delay.ms": "10",
    "log.flush.offset.checkpoint.interval.ms": "50",
    "replica.high.watermark.checkpoint.interval.ms": "50",
}

#: Values that do not become small by compression.
NOISE = random.Random(0).randbytes(1200)


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
                start = self.sent % 997
                value = b"%d %s" % (self.sent, NOISE[start : start + self.sent % 200])
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
        *(
            pytest.param(60, codec, seed, id=codec, marks=pytest.mark.long)
            for seed, codec in enumerate(("none", "zstd", "gzip", "snappy", "lz4"), 2)
        ),
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
                harm(tmp_path / f"broker-{BROKER}", chance)
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


def harm(log_dir: Path, chance: random.Random) -> None:
    """Do to files what a crash can do: to all but the records that were written."""
    points: dict[tuple[str, int], int] = {}
    # One that was garbled before may still be there: everything is recovered.
    with suppress(LogDirectoryError):
        points = checkpoints.read_offsets(log_dir / checkpoints.RECOVERY_POINT_CHECKPOINT)
    for partition in range(PARTITIONS):
        folder = log_dir / f"{TOPIC}-{partition}"
        logs = sorted(folder.glob("*.log"))
        if chance.random() < 0.5:
            tear(logs[-1], chance)
        # What is below the recovery point has been flushed, and is not recovered.
        flushed = [path.stem for path in logs if int(path.stem) <= points.get((TOPIC, partition), 0)]
        for path in sorted(folder.glob("*.*")):
            is_unflushed = path.suffix in (".index", ".timeindex") and path.stem >= flushed[-1]
            if (is_unflushed or path.suffix == ".snapshot") and chance.random() < 0.2:
                garble(path, chance)
    for name in (checkpoints.RECOVERY_POINT_CHECKPOINT, checkpoints.HIGH_WATERMARK_CHECKPOINT):
        if chance.random() < 0.2:
            (log_dir / name).write_bytes(chance.choice((b"", bytes(40), b"0\n7\n")))


def tear(log: Path, chance: random.Random) -> None:
    """Add the beginning of a batch to the log, as an append that was not finished leaves it."""
    data = log.read_bytes()
    with log.open("ab") as file:
        file.write(data[: chance.randrange(1, HEADER_BYTES)] or bytes(20))


def garble(path: Path, chance: random.Random) -> None:
    """Cut a file, flip a bit in it, fill its end with zeros, or delete it."""
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data) + 1)
    how = chance.choice(("cut", "flip", "zeros", "delete"))
    if how == "delete":
        path.unlink()
        return
    if how == "cut":
        del data[at:]
    elif how == "zeros":
        data[at:] = bytes(len(data) - at)
    elif at < len(data):
        data[at] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
