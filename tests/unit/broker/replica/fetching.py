"""Fetch requests as raw frames to a real server with real logs, and answers as kio reads them."""

from __future__ import annotations

import io
import struct
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.handlers._fetch import FetchApi
from ctrlchan.broker.handlers._hot import BrokerHandler
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.metadata.published_metadata import PublishedMetadata
from ctrlchan.broker.replica._partitions import Partition, PartitionTable
from ctrlchan.server.socket_server import Listener, SocketServer, SocketServerSettings
from tests.unit.broker.log.batches import PlainRecord, batch_of
from tests.unit.broker.log.made_batches import batch, headers
from tests.unit.server.serving import Client

BROKER, FOLLOWER, OTHER = 1, 2, 3
EPOCH = 7
VALUE = b"0123456789ab"
#: Bytes of a batch of one such value.
BATCH = 80
FLEXIBLE, TOPIC_IDS, REPLICA_STATES, LATEST = 12, 13, 15, 17


@dataclass
class Asked:
    """One partition of a request."""

    topic: str
    partition: int = 0
    offset: int = 0
    max_bytes: int = 1 << 20
    leader_epoch: int = -1
    last_epoch: int = -1
    log_start_offset: int = -1


@dataclass
class Answered:
    """One partition of an answer. ``batches``: first offset and number of records of each."""

    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: bytes | None
    aborted: list[tuple[int, int]] | None
    diverging: tuple[int, int]
    preferred: int

    @property
    def batches(self) -> list[tuple[int, int]]:
        return headers(self.records or b"")


@dataclass
class Answer:
    """``partitions``: by topic (its id from version 13 on) and index, in the order of the answer."""

    error: int
    session: int
    partitions: dict[tuple[str, int], Answered] = field(default_factory=dict)


def topic_id(topic: str) -> bytes:
    return topic.encode().ljust(16, b"\1")[:16]


def marker(producer_id: int, *, commit: bool) -> bytes:
    """Return the control batch that ends a transaction."""
    record = PlainRecord(0, key=struct.pack(">hh", 0, commit), value=struct.pack(">hi", 0, 0))
    return batch_of([record], attributes=0x30, producer_id=producer_id, producer_epoch=0).encoded()


class Fetcher:
    """A connection that sends Fetch requests of one version."""

    def __init__(self, server: SocketServer, version: int = LATEST) -> None:
        self.client = Client(server)
        self.version = version
        self.names: dict[bytes, str] = {}

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def fetch(self, *asked: Asked, **fields: Any) -> Answer:
        """Send a request and return the answer to it."""
        self.send(*asked, **fields)
        return self.receive()

    def send(self, *asked: Asked, **fields: Any) -> None:
        self.client.frames(self.frame(*asked, **fields))

    def receive(self) -> Answer:
        return self.read(self.client.answer())

    def frame(
        self,
        *asked: Asked,
        forgotten: Sequence[tuple[str, int]] = (),
        replica: int = -1,
        broker_epoch: int = -1,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 30,
        isolation: int = 0,
        session: int = 0,
        epoch: int = -1,
        rack: str = "",
    ) -> bytes:
        version = self.version
        schema: Any = import_module(f"kio.schema.fetch.v{version}.request")
        topics = [
            self._topic(
                schema.FetchTopic,
                one.topic,
                (
                    _known(
                        schema.FetchPartition,
                        partition=one.partition,
                        current_leader_epoch=one.leader_epoch,
                        fetch_offset=one.offset,
                        last_fetched_epoch=one.last_epoch,
                        log_start_offset=one.log_start_offset,
                        partition_max_bytes=one.max_bytes,
                        replica_directory_id=uuid.UUID(int=5),
                    ),
                ),
            )
            for one in asked
        ]
        fields: dict[str, Any] = {
            "replica_id": replica,
            "max_wait": i32Timedelta.parse(timedelta(milliseconds=max_wait_ms)),
            "min_bytes": min_bytes,
            "max_bytes": max_bytes,
            "isolation_level": isolation,
            "session_id": session,
            "session_epoch": epoch,
            "topics": tuple(topics),
            "forgotten_topics_data": (),
            "cluster_id": "some cluster",
            "rack_id": rack,
        }
        if forgotten:
            fields["forgotten_topics_data"] = tuple(
                self._topic(schema.ForgottenTopic, topic, (index,)) for topic, index in forgotten
            )
        if version >= REPLICA_STATES and replica >= 0:
            fields["replica_state"] = schema.ReplicaState(replica_id=replica, replica_epoch=broker_epoch)
        body = io.BytesIO()
        entity_writer(schema.FetchRequest)(body, _known(schema.FetchRequest, **fields))
        flexible = b"\0" if version >= FLEXIBLE else b""
        return struct.pack(">hhih", 1, version, 99, 4) + b"test" + flexible + body.getvalue()

    def _topic(self, kind: Any, topic: str, partitions: tuple[Any, ...]) -> Any:
        given = topic_id(topic)
        self.names[given] = topic
        return _known(kind, topic=topic, topic_id=uuid.UUID(bytes=given), partitions=partitions)

    def read(self, frame: bytes) -> Answer:
        schema: Any = import_module(f"kio.schema.fetch.v{self.version}.response")
        assert struct.unpack_from(">i", frame) == (99,)
        begin = 4
        if self.version >= FLEXIBLE:
            assert frame[4] == 0
            begin = 5
        body, size = entity_reader(schema.FetchResponse)(frame, begin)
        assert begin + size == len(frame)
        answer = Answer(int(getattr(body, "error_code", 0)), getattr(body, "session_id", 0))
        for topic in body.responses:
            name = topic.topic if self.version < TOPIC_IDS else self.names[topic.topic_id.bytes]
            for one in topic.partitions:
                assert (name, one.partition_index) not in answer.partitions
                diverging = getattr(one, "diverging_epoch", None)
                aborted = getattr(one, "aborted_transactions", None)
                answer.partitions[name, one.partition_index] = Answered(
                    int(one.error_code),
                    one.high_watermark,
                    getattr(one, "last_stable_offset", -1),
                    getattr(one, "log_start_offset", -1),
                    one.records,
                    None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted],
                    (diverging.epoch, diverging.end_offset) if diverging else (-1, -1),
                    getattr(one, "preferred_read_replica", -1),
                )
        return answer


def _known(kind: Any, **fields: Any) -> Any:
    return kind(**{name: value for name, value in fields.items() if name in kind.__dataclass_fields__})


class Broker:
    """A server that answers Fetch, with partitions that it leads."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.table = PartitionTable(BROKER)
        self.metadata = PublishedMetadata()
        self.api = FetchApi(self.table, self.metadata.current, **settings)
        self.hot = BrokerHandler([self.api])
        listener = Listener("PLAINTEXT", "127.0.0.1", 0)
        self.server = SocketServer([listener], SocketServerSettings(num_network_threads=2), self.hot)
        self.hot.attach(self.server.threads)
        self.server.start()

    def lead_elsewhere(self, topic: str) -> None:
        """Let the metadata have a topic of one partition that another broker leads."""
        self.metadata.state.add_topic(topic, {0: [OTHER]}, topic_id(topic), leader=OTHER)
        self.metadata.publish()

    def lead(
        self,
        topic: str,
        batches: int = 0,
        *,
        index: int = 0,
        replicas: Sequence[int] = (BROKER,),
        isr: Sequence[int] | None = None,
        config: LogConfig | None = None,
    ) -> Partition:
        """Lead a partition whose log has so many batches of one record."""
        log = Log(self.folder / f"{topic}-{index}", config or LogConfig())
        partition = self.table.open(topic, index, topic_id(topic))
        partition.make_leader(log, EPOCH, 1, replicas, replicas if isr is None else isr)
        for _ in range(batches):
            self.append(partition)
        return partition

    @staticmethod
    def append(partition: Partition, *values: bytes, **fields: Any) -> None:
        partition.append(batch(list(values) or [VALUE], **fields), required_acks=1).result(20)

    def close(self) -> None:
        self.server.stop()
        self.table.close()


@contextmanager
def broker_in(folder: Path, **settings: Any) -> Iterator[Broker]:
    broker = Broker(folder, **settings)
    try:
        yield broker
    finally:
        broker.close()


__all__ = ["Answer", "Answered", "Asked", "Broker", "Fetcher", "broker_in", "marker", "topic_id"]
