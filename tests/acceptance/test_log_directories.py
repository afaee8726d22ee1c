"""Log directories change hands: Kafka 3.9.1 and this broker start on each other's, again and again.

One broker id has the same ``log.dirs`` all along. Whoever has the turn reads everything that was
acknowledged before, writes more, and is stopped or killed. The producers live through all turns: their
sequence numbers go on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ctrlchan.controller.kafka_controller import KafkaController
from tests.acceptance.controller.cluster import controller_config
from tests.kafka.dump_tool import complaints, dump_files
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

BROKER = 1
SECONDS = 90.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: Records that each turn adds to each partition, in batches of BATCH.
RECORDS, BATCH, KEYS = 240, 20, 15
BYTES = 60
SMALL = {"segment.bytes": "16384", "retention.ms": "-1", "index.interval.bytes": "1000"}
COMPACTED = {
    **SMALL,
    "segment.bytes": "8192",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
}
KAFKA, OURS = False, True
STOP, KILL = False, True
TURNS = (
    (KAFKA, STOP), (OURS, STOP), (KAFKA, KILL), (OURS, STOP),
    (KAFKA, STOP), (OURS, KILL), (KAFKA, STOP), (OURS, STOP),
)  # fmt: skip

Record = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes], ...]]


class Clients:
    """The clients of all turns, and what they know to be in the log directories."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers = [
            self._producer({"compression.type": codec, "enable.idempotence": True}) for codec in CODECS
        ]
        self._numbers = 0
        #: Of each partition of "records": its records, and where it begins.
        self.records: list[list[Record]] = [[] for _ in CODECS]
        self.starts = [0] * len(CODECS)
        self.newest: dict[bytes, bytes] = {}
        self.compacted = 0
        self.committed_values: list[bytes] = []
        self.offset = 0

    def _producer(self, more: Mapping[str, Any]) -> Any:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "linger.ms": 5,
                "batch.num.messages": BATCH,
                "reconnect.backoff.max.ms": 200,
                "log_level": 2,
                **more,
            }
        )

    def _send(self, producer: Any, topic: str, records: list[Record], partition: int = 0) -> None:
        """Produce, and wait until all are acknowledged."""
        failed: list[object] = []
        for key, value, timestamp, headers in records:
            producer.produce(
                topic, value, key, partition, timestamp=timestamp, headers=list(headers),
                on_delivery=lambda error, _message: failed.append(error) if error else None,
            )  # fmt: skip
        assert producer.flush(SECONDS) == 0
        assert failed == []

    def write(self) -> None:
        """Add records to all topics of this turn."""
        for partition, producer in enumerate(self._producers):
            added: list[Record] = []
            for _ in range(RECORDS):
                self._numbers += 1
                number = self._numbers
                key = None if number % 7 == 0 else b"key %d" % (number % KEYS)
                headers = (("number", b"%d" % number),) if number % 3 == 0 else ()
                added.append((key, b"%d " % number + bytes(number % BYTES), 10**12 + number, headers))
            self._send(producer, "records", added, partition)
            self.records[partition] += added
        updates: list[Record] = []
        for number in range(RECORDS):
            self._numbers += 1
            key, value = b"key %d" % (number % KEYS), b"%d" % self._numbers + bytes(BYTES)
            updates.append((key, value, 10**12 + self._numbers, ()))
            self.newest[key] = value
        before = len(self.read("compacted")) if self.newest else 0
        self._send(self._producers[0], "compacted", updates)
        wait_until(
            lambda: len(self.read("compacted")) < before + RECORDS,
            timeout=SECONDS,
            what="the log is compacted",
        )

    def write_transactions(self) -> None:
        """Add one committed and one aborted transaction. Only Kafka has transactions."""
        producer = self._producer({"transactional.id": "writer"})
        producer.init_transactions(SECONDS)
        for commits in (False, True):
            producer.begin_transaction()
            self._numbers += 1
            value = b"%d" % self._numbers
            self._send(producer, "transactions", [(None, value, 10**12, ())] * 3)
            if commits:
                producer.commit_transaction(SECONDS)
                self.committed_values += [value] * 3
            else:
                producer.abort_transaction(SECONDS)

    def commit(self) -> None:
        """Commit an offset of a group."""
        self.offset += 7
        with self._consumer() as consumer:
            position = TopicPartition("records", 2, self.offset, metadata=f"at {self.offset}")
            (done,) = consumer.commit(offsets=[position], asynchronous=False)
            assert done.error is None

    def delete_records(self, admin: Any, partition: int) -> None:
        """Delete the first records of a partition."""
        self.starts[partition] += RECORDS // 2
        position = TopicPartition("records", partition, self.starts[partition])
        admin.delete_records([position])[position].result(SECONDS)

    def check(self) -> None:
        """Read everything back."""
        for partition, records in enumerate(self.records):
            assert self.read("records", partition) == records[self.starts[partition] :]
        assert {key: value for key, value, _, _ in self.read("compacted")} == self.newest
        assert [value for _, value, _, _ in self.read("transactions")] == self.committed_values
        if self.offset:
            with self._consumer() as consumer:
                (found,) = consumer.committed([TopicPartition("records", 2)], timeout=SECONDS)
            assert (found.error, found.offset, found.metadata) == (None, self.offset, f"at {self.offset}")

    def read(self, topic: str, partition: int = 0) -> list[Record]:
        """Return all records of a partition that readers of committed records see."""
        found: list[Record] = []
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
            while True:
                message = consumer.poll(SECONDS)
                assert message is not None, f"{topic}-{partition}: no end after {len(found)} records"
                if message.error() is not None:
                    assert message.error().name() == "_PARTITION_EOF", message.error()
                    return found
                key, value, headers = message.key(), message.value(), message.headers()
                found.append((key, value, message.timestamp()[1], tuple(headers or ())))

    def _consumer(self) -> _Closing:
        return _Closing(
            Consumer(
                {
                    "bootstrap.servers": self._bootstrap,
                    "group.id": "readers",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "check.crcs": True,
                    "fetch.wait.max.ms": 20,
                    "log_level": 2,
                }
            )
        )


class _Closing:
    """Closes a consumer at the end of ``with``."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def __enter__(self) -> Any:
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def create_topic(rig: KafkaRig, name: str, partitions: int, config: Mapping[str, str]) -> None:
    rig.zookeeper.create(
        f"/config/topics/{name}", json.dumps({"version": 1, "config": dict(config)}).encode()
    )
    assignment = {str(partition): [BROKER] for partition in range(partitions)}
    rig.zookeeper.create(
        f"/brokers/topics/{name}", json.dumps({"version": 2, "partitions": assignment}).encode()
    )


def check_files(log_dirs: list[Path]) -> None:
    """Kafka's tool finds nothing wrong in any file of the log directories."""
    kinds = ("log", "index", "timeindex", "txnindex", "snapshot")
    files = [path for folder in log_dirs for kind in kinds for path in folder.glob(f"*-*/*.{kind}")]
    indexes = [path for path in files if path.suffix in (".index", ".timeindex")]
    for chosen, options in (
        (files, ["--deep-iteration"]),
        (indexes, ["--index-sanity-check"]),
        (indexes, ["--verify-index-only"]),
    ):
        named, output = dump_files(chosen, *options)
        assert sorted(named) == sorted(map(str, chosen))
        assert complaints(output) == []


@contextmanager
def controlled_broker(folder: Path, properties: Mapping[str, str]) -> Iterator[KafkaRig]:
    """Start ZooKeeper, a controller of the package, and one broker, which finds it elected."""
    with ExitStack() as controllers:

        def elect(rig: KafkaRig) -> None:
            controller = KafkaController(controller_config(rig.zookeeper_connect))
            controllers.callback(controller.close)
            controller.start().wait_until_active(SECONDS)

        rig = KafkaRig(folder, brokers=1, properties=properties, before_brokers=elect)
        # Ends after the controller: its session would wait for ZooKeeper.
        with rig, controllers:
            yield rig


@pytest.mark.long
def test_kafka_and_this_broker_take_turns(kafka_jars_ready: None, tmp_path: Path) -> None:
    log_dirs = [tmp_path / "a", tmp_path / "b"]
    properties = {
        "log.dirs": ",".join(map(str, log_dirs)),
        "log.cleaner.enable": "true",
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.dedupe.buffer.size": str(4 << 20),
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        # A small one is not padded with zeros in the order of megabytes.
        "log.index.size.max.bytes": "4096",
        "zookeeper.session.timeout.ms": "10000",
    }
    with controlled_broker(tmp_path / "rig", properties) as rig:
        create_topic(rig, "records", len(CODECS), SMALL)
        create_topic(rig, "compacted", 1, COMPACTED)
        create_topic(rig, "transactions", 1, SMALL)
        clients = Clients(rig.bootstrap)
        admin = AdminClient({"bootstrap.servers": rig.bootstrap, "log_level": 2})
        for number, (ours, kill) in enumerate(TURNS):
            if number:
                rig.restart_broker(BROKER, ours=ours)
            clients.check()
            clients.write()
            clients.commit()
            if not ours:
                clients.write_transactions()
            if not kill:
                clients.delete_records(admin, number % len(CODECS))
            clients.check()
            if kill:
                rig.kill_broker(BROKER)
            else:
                rig.stop_broker(BROKER)
                check_files(log_dirs)
        # All was in use.
        assert all(any(folder.glob("*-*")) for folder in log_dirs)
        assert len(list(tmp_path.glob("[ab]/transactions-0/*.txnindex"))) > 0
