"""A socket server with partitions, and Produce requests and responses through kio."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.handlers._hot import BrokerHandler
from ctrlchan.broker.handlers._produce import ProduceApi
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.metadata.published_metadata import PublishedMetadata
from ctrlchan.broker.replica._partitions import Partition, PartitionTable
from ctrlchan.server._processor import TakenRequest
from ctrlchan.server.socket_server import SocketServer, SocketServerSettings
from tests.unit.server.serving import LOCAL, Client, handling

OURS, OTHER = 1, 2
QUEUED = b"the request queue has it"
CORRELATION_ID = 99
FLEXIBLE_FROM = 9

#: (topic, [(partition, records)]) for each topic.
Topics = Sequence[tuple[str, Sequence[tuple[int, bytes | None]]]]


class ProduceServer:
    """``server`` answers Produce from ``table``. ``queued``: what it queues and answers with QUEUED."""

    def __init__(
        self, server: SocketServer, table: PartitionTable, api: ProduceApi, hot: BrokerHandler, folder: Path
    ) -> None:
        self.server = server
        self.hot = hot
        self.table = table
        self.api = api
        self.folder = folder
        self.queued: list[bytes] = []

    def lead(
        self, topic: str = "t", index: int = 0, replicas: Sequence[int] = (OURS,), **config: int | str
    ) -> Partition:
        """Open a partition with a log of its own, and lead it with all replicas in sync."""
        partition = self.table.open(topic, index)
        log = Log(self.folder / f"{topic}-{index}", LogConfig(**config))  # type: ignore[arg-type]
        partition.make_leader(log, 3, 0, replicas, replicas)
        return partition

    def take(self, request: TakenRequest) -> None:
        self.queued.append(bytes(request.frame))
        request.answer(QUEUED)

    def client(self) -> Client:
        return Client(self.server)


@contextmanager
def producing(folder: Path, **settings: Any) -> Iterator[ProduceServer]:
    """Run a server with Produce. Afterwards nobody may watch a partition."""
    table = PartitionTable(OURS)
    api = ProduceApi(table, PublishedMetadata().current)
    hot = BrokerHandler([api])
    sockets = SocketServer([LOCAL], SocketServerSettings(**settings), hot)
    hot.attach(sockets.threads)
    sockets.start()
    server = ProduceServer(sockets, table, api, hot, folder)
    try:
        with handling(sockets, server.take):
            yield server
    finally:
        sockets.stop()
        table.close()
    assert [partition.watchers for partition in table.partitions()] == [0] * len(table)


def produce_frame(
    version: int,
    topics: Topics,
    *,
    acks: int = -1,
    timeout_ms: int = 20_000,
    client_id: str | None = "client",
    transactional_id: str | None = None,
) -> bytes:
    """Return a Produce request with its header, without its size."""
    schema: Any = import_module(f"kio.schema.produce.v{version}.request")
    header = struct.pack(">hhi", 0, version, CORRELATION_ID)
    name = (client_id or "").encode()
    header += struct.pack(">h", -1 if client_id is None else len(name)) + name
    if version >= FLEXIBLE_FROM:
        # A tagged field that nobody knows.
        header += b"\x01\x63\x02xy"
    since_3 = {"transactional_id": transactional_id} if version >= 3 else {}
    body = schema.ProduceRequest(
        **since_3,
        acks=acks,
        timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)),
        topic_data=tuple(
            schema.TopicProduceData(
                name=topic,
                partition_data=tuple(
                    schema.PartitionProduceData(index=index, records=records) for index, records in partitions
                ),
            )
            for topic, partitions in topics
        ),
    )
    buffer = io.BytesIO()
    entity_writer(schema.ProduceRequest)(buffer, body)
    return header + buffer.getvalue()


def produced(version: int, answer: bytes) -> Any:
    """Decode a Produce response; nothing may follow it."""
    schema: Any = import_module(f"kio.schema.produce.v{version}.response")
    at = 4
    assert int.from_bytes(answer[:4], "big") == CORRELATION_ID
    if version >= FLEXIBLE_FROM:
        assert answer[4] == 0
        at = 5
    body, size = entity_reader(schema.ProduceResponse)(answer, at)
    assert at + size == len(answer)
    return body


def outcomes(version: int, answer: bytes) -> list[tuple[str, int, int, int]]:
    """Return (topic, partition, error code, base offset) of each partition of a response."""
    return [
        (topic.name, partition.index, int(partition.error_code), partition.base_offset)
        for topic in produced(version, answer).responses
        for partition in topic.partition_responses
    ]
