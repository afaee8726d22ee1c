"""Log directories of Kafka 0.8 to 2.8 are taken over, and given back to Kafka 3.9.

The brokers of former versions write formats 0 and 1 (and the later ones 2). This broker reads everything,
appends and compacts; Kafka 3.9.1 goes on with what it leaves, and then this broker again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from ctrlchan.broker.log.dump import dump_file
from tests.acceptance.old_servers import old_server
from tests.acceptance.test_java_clients import jars
from tests.acceptance.test_old_java_clients import run
from tests.kafka.dump_tool import complaints, dump_files
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until
from tests.unit.broker.log.old_formats.old_logs import entries, segment_file

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

BROKER: Final = 1
SECONDS: Final = 90.0
#: What all formats have.
CODECS: Final = ("none", "gzip", "snappy", "lz4")
#: Records of each codec that a turn adds to a topic, in batches of BATCH.
RECORDS, BATCH, KEYS = 60, 10, 15
OLDEST: Final = "0.8.2.2"
#: Topics, with the Kafka whose format they have while a former version writes.
FORMATS: Final = {"format-0": "0.9.0", "format-1": "0.10.2", "format-2": "1.1"}
SETTINGS: Final = {"segment.bytes": "4096", "retention.ms": "-1", "index.interval.bytes": "500"}
COMPACTED: Final = {**SETTINGS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
PROPERTIES: Final = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "log.index.size.max.bytes": "4096",
    "zookeeper.session.timeout.ms": "10000",
}

#: Offset, key, value, timestamp in milliseconds or None where the format has none.
Record = tuple[int, bytes | None, bytes | None, int | None]


class History:
    """What was written so far."""

    def __init__(self) -> None:
        self.numbers = 0
        self.records: dict[str, list[Record]] = {}
        self.newest: dict[bytes, bytes] = {}
        self.offset = 0

    def write(self, bootstrap: str, topics: Mapping[str, bool]) -> None:
        """Add records of each codec to each topic, and to the compacted one. The values: has timestamps."""
        for codec in CODECS:
            for topic, has_timestamps in topics.items():
                added = []
                for _ in range(RECORDS):
                    self.numbers += 1
                    key = None if self.numbers % 7 == 0 else b"key %d" % (self.numbers % KEYS)
                    added.append((key, b"value %d" % self.numbers, 10**12 + self.numbers))
                self._send(bootstrap, codec, topic, added)
                found = self.records.setdefault(topic, [])
                found += [
                    (len(found) + number, key, value, time if has_timestamps else None)
                    for number, (key, value, time) in enumerate(added)
                ]
            updates = []
            for _ in range(RECORDS):
                self.numbers += 1
                # Some keys have one record for ever.
                key = (
                    b"once %d" % self.numbers if self.numbers % 20 == 0 else b"key %d" % (self.numbers % KEYS)
                )
                value = b"%d " % self.numbers + bytes(60)
                updates.append((key, value, 10**12 + self.numbers))
                self.newest[key] = value
            self._send(bootstrap, codec, "compacted", updates)

    def write_with_oldest(self, bootstrap: str, topics: Iterable[str]) -> None:
        """As ``write``, by the client of Kafka 0.8.2 and without the compacted topic."""
        for topic in topics:
            run(jars(OLDEST), "OldProducer.java", bootstrap, topic, str(RECORDS), *CODECS)
            found = self.records.setdefault(topic, [])
            for codec in CODECS:
                pairs = [
                    (
                        None if n % 7 == 0 else b"%b-%d" % (codec.encode(), n),
                        b"old %b %d" % (codec.encode(), n),
                    )
                    for n in range(RECORDS)
                ]
                pairs.append((None, b"old %b last" % codec.encode()))
                found += [(len(found) + n, key, value, None) for n, (key, value) in enumerate(pairs)]

    def _send(
        self, bootstrap: str, codec: str, topic: str, records: Sequence[tuple[bytes | None, bytes, int]]
    ) -> None:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5, "acks": "all",
                "batch.num.messages": BATCH, "max.in.flight.requests.per.connection": 1, "log_level": 2,
            }
        )  # fmt: skip
        failed: list[object] = []
        for key, value, timestamp in records:
            producer.produce(
                topic, value, key, 0, timestamp=timestamp,
                on_delivery=lambda error, _message: failed.append(error) if error else None,
            )  # fmt: skip
        assert producer.flush(SECONDS) == 0
        assert failed == []

    def commit(self, bootstrap: str) -> None:
        """Commit an offset of a group."""
        self.offset += 7
        consumer = _consumer(bootstrap)
        (done,) = consumer.commit(offsets=[TopicPartition("format-1", 0, self.offset)], asynchronous=False)
        assert done.error is None
        consumer.close()

    def check(self, bootstrap: str) -> None:
        """Read everything back."""
        for topic, expected in self.records.items():
            assert read(bootstrap, topic) == expected
            # A segment without timestamps is as young as its file, so that nothing behind it is found.
            if all(one[3] is not None for one in expected):
                for one in (expected[1], expected[-1]):
                    assert offset_for_time(bootstrap, topic, one[3]) == one[0]
        assert {key: value for _, key, value, _ in read(bootstrap, "compacted")} == self.newest
        if self.offset:
            consumer = _consumer(bootstrap)
            (found,) = consumer.committed([TopicPartition("format-1", 0)], timeout=SECONDS)
            consumer.close()
            assert (found.error, found.offset) == (None, self.offset)


def _consumer(bootstrap: str) -> Any:
    return Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False,
            "enable.partition.eof": True, "check.crcs": True, "fetch.wait.max.ms": 20, "log_level": 2,
        }
    )  # fmt: skip


def read(bootstrap: str, topic: str) -> list[Record]:
    """Return all records of the partition 0."""
    consumer = _consumer(bootstrap)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Record] = []
    try:
        while True:
            message = consumer.poll(SECONDS)
            assert message is not None, f"{topic}: no end after {len(found)} records"
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return found
            kind, timestamp = message.timestamp()
            found.append((message.offset(), message.key(), message.value(), timestamp if kind else None))
    finally:
        consumer.close()


def offset_for_time(bootstrap: str, topic: str, timestamp: int | None) -> int:
    consumer = _consumer(bootstrap)
    try:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp or 0)], timeout=SECONDS)
        return int(found.offset)
    finally:
        consumer.close()


def create_topic(
    rig: KafkaRig, name: str, config: Mapping[str, str], replicas: Sequence[int] = (BROKER,)
) -> None:
    node = json.dumps({"version": 1, "config": dict(config)})
    rig.zookeeper.create(f"/config/topics/{name}", node.encode(), makepath=True)
    node = json.dumps({"version": 1, "partitions": {"0": list(replicas)}})
    rig.zookeeper.create(f"/brokers/topics/{name}", node.encode(), makepath=True)


def formats_of(data: Path, topic: str) -> set[int]:
    """Return the formats that a topic's segments have. None of them is damaged."""
    rows = [row for path in data.glob(f"{topic}-0/*.log") for row in dump_file(path, records=True)]
    assert [row for row in rows if "damage" in row] == []
    return {row["magic"] for row in rows if "magic" in row}


def read_with_old_clients(bootstrap: str, topic: str, expected: list[Record]) -> None:
    """Clients that know format 0 or 1 alone get all that the log has in any format."""
    lines = [
        (str(offset), "null" if key is None else key.decode(), (value or b"").decode())
        for offset, key, value, _ in expected
    ]
    count = str(len(lines))
    assert run(jars(OLDEST, "kafka_2.11"), "OldestClient.java", bootstrap, topic, count, "oldest") == lines
    for version in ("0.9.0.1", "0.10.2.2"):
        assert run(jars(version), "OldConsumer.java", bootstrap, topic, count, version) == lines


def is_compacted(bootstrap: str, count: int) -> bool:
    return len(read(bootstrap, "compacted")) < count


def check_segments(data: Path) -> None:
    """Kafka's tool reads every record of every segment."""
    named, output = dump_files(data.glob("*-*/*.log"), "--deep-iteration")
    assert len(named) > 4
    assert complaints(output) == []


@pytest.mark.parametrize(
    ("versions", "kills"),
    [
        (("0.10.2.2",), False),
        (("0.10.2.2",), True),
        (("1.1.1",), False),
        (("2.8.2",), False),
        ((OLDEST, "0.10.2.2", "1.1.1", "2.8.2"), False),
    ],
    ids=["0.10", "0.10-killed", "1.1", "2.8", "0.8-then-0.10-then-1.1-then-2.8"],
)
def test_log_directories_change_hands(
    kafka_jars_ready: None, tmp_path: Path, versions: tuple[str, ...], *, kills: bool
) -> None:
    data, history = tmp_path / "data", History()
    # A chain of versions writes with the format of each; one alone with all formats that it knows.
    is_chain = len(versions) > 1
    formats = {"format-1": None} if is_chain else dict(FORMATS)
    if versions == ("0.10.2.2",):
        del formats["format-2"]

    def former_versions(rig: KafkaRig) -> None:
        for topic, version in formats.items():
            chosen = {} if version is None else {"message.format.version": version}
            create_topic(rig, topic, SETTINGS | chosen)
        create_topic(rig, "compacted", COMPACTED | ({} if is_chain else {"message.format.version": "0.10.2"}))
        for version in versions:
            properties = dict(PROPERTIES)
            if not is_chain:
                # Also that of __consumer_offsets.
                properties["log.message.format.version"] = "0.9.0"
            place = tmp_path / f"kafka-{version}"
            with old_server(
                version, place, rig.zookeeper_connect, data, properties, kills=kills
            ) as bootstrap:  # fmt: skip
                if version == OLDEST:
                    history.write_with_oldest(bootstrap, formats)
                    continue
                # It leads before it is written to: a batch that is sent again may come behind the next one.
                history.check(bootstrap)
                history.write(bootstrap, {topic: topic != "format-0" for topic in formats})
                history.commit(bootstrap)
                history.check(bootstrap)
            wait_until(lambda: not rig.is_registered(BROKER), timeout=30, what="ZooKeeper forgets the broker")

    properties = {**PROPERTIES, "log.dirs": str(data)}
    with KafkaRig(
        tmp_path / "rig", brokers=1, properties=properties, before_brokers=former_versions, ours=[BROKER],
        ours_take_part=True,
    ) as rig:  # fmt: skip
        before = {topic: formats_of(data, topic) for topic in [*formats, "compacted", "__consumer_offsets"]}
        if is_chain:
            assert before["format-1"] == {0, 1, 2}
            assert before["compacted"] == {1, 2}
        else:
            assert [before[topic] for topic in formats] == [{number} for number in range(len(formats))]
            assert (before["compacted"], before["__consumer_offsets"]) == ({1}, {0})
        for turn, ours in enumerate((True,) if kills else (True, False, True)):
            history.check(rig.bootstrap)
            expected = len(read(rig.bootstrap, "compacted")) + RECORDS * len(CODECS)
            history.write(rig.bootstrap, dict.fromkeys(formats, True))
            history.commit(rig.bootstrap)
            wait_until(
                partial(is_compacted, rig.bootstrap, expected),
                timeout=SECONDS,
                what="the topic is compacted",
            )
            history.check(rig.bootstrap)
            if is_chain and turn == 0:
                read_with_old_clients(rig.bootstrap, "format-1", history.records["format-1"])
            rig.stop_broker(BROKER)
            check_segments(data)
            for topic in [*formats, "compacted"]:
                assert formats_of(data, topic) == before[topic] | {2}
            rig.restart_broker(BROKER, ours=not ours)
        history.check(rig.bootstrap)


@pytest.mark.parametrize("ours", [1, 2], ids=["a JVM broker follows", "a JVM broker leads"])
def test_old_records_are_replicated(kafka_jars_ready: None, tmp_path: Path, ours: int) -> None:
    """A follower gets entries of formats 0 and 1 as they are, from this broker and from Kafka's."""
    pairs = [(b"k" if n % 3 else None, b"value %d" % n, 10**12 + n) for n in range(240)]
    old = b"".join(
        entries(1 if first >= 120 else 0, first // 10 % 4, first, pairs[first : first + 10])
        for first in range(0, len(pairs), 10)
    )
    leader, follower = 1, 2

    def put_segment(rig: KafkaRig) -> None:
        folder = rig.data(leader) / "old-0"
        folder.mkdir(parents=True)
        segment_file(folder, 0, old)

    with KafkaRig(
        tmp_path / "rig", brokers=2, before_brokers=put_segment, ours=[ours], ours_take_part=True
    ) as rig:
        create_topic(rig, "old", {"retention.ms": "-1"}, [leader, follower])
        copied = rig.data(follower) / "old-0" / f"{0:020}.log"
        wait_until(
            lambda: copied.exists() and copied.read_bytes() == old, timeout=SECONDS, what="it is copied"
        )
        producer = Producer({"bootstrap.servers": rig.bootstrap, "acks": "all", "log_level": 2})
        producer.produce("old", b"new", timestamp=10**12 + 240)
        assert producer.flush(SECONDS) == 0
        expected = [(n, key, value, time if n >= 120 else None) for n, (key, value, time) in enumerate(pairs)]
        expected.append((240, None, b"new", 10**12 + 240))
        assert read(rig.bootstrap, "old") == expected
        # The follower leads now.
        rig.kill_broker(leader)
        wait_until(lambda: rig.jvm_controller() == follower, timeout=SECONDS, what="a broker is controller")
        assert read(rig.bootstrap, "old") == expected
