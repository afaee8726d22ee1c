"""AlterPartition v3, as leaders send it to their controller when their ISRs change."""

from __future__ import annotations

import io
import socket
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple
from uuid import UUID

from kio.schema.alter_partition.v3.request import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from kio.schema.alter_partition.v3.response import AlterPartitionResponse
from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.schema.types import BrokerId
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i16, i32, i64

__all__ = ["Altered", "encode_requests", "exchange"]

_API_KEY: Final = 56
_VERSION: Final = 3
_SIZE: Final = struct.Struct(">i")
_ANSWER_SECONDS: Final = 120.0


class Altered(NamedTuple):
    """A partition and its new ISR. ``partition_epoch``: the version of its state node."""

    topic_id: bytes
    partition: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: Collection[int]


def encode_requests(altered: Iterable[Altered], broker_epochs: Mapping[int, int]) -> list[bytes]:
    """Return one frame, size included, for each leader. ``broker_epochs``: of all brokers in an ISR."""
    states = {
        broker_id: BrokerState(broker_id=BrokerId(broker_id), broker_epoch=i64(epoch))
        for broker_id, epoch in broker_epochs.items()
    }
    leaders: dict[int, dict[bytes, list[PartitionData]]] = {}
    for one in altered:
        leaders.setdefault(one.leader, {}).setdefault(one.topic_id, []).append(
            PartitionData(
                partition_index=i32(one.partition),
                leader_epoch=i32(one.leader_epoch),
                new_isr_with_epochs=tuple(states[broker_id] for broker_id in one.isr),
                partition_epoch=i32(one.partition_epoch),
            )
        )
    return [_frame(leader, broker_epochs[leader], topics) for leader, topics in leaders.items()]


def exchange(address: tuple[str, int], queues: Sequence[Sequence[bytes]]) -> None:
    """Send the frames of each queue over a connection of its own, each after the answer to the one before.

    So does a broker, which has one AlterPartition under way. Raises RuntimeError for an answer with an error.
    """
    with ThreadPoolExecutor(max_workers=max(1, len(queues))) as threads:
        answers = list(threads.map(lambda frames: _ask(address, frames), queues))
    for answer in (one for some in answers for one in some):
        _check(answer)


def _ask(address: tuple[str, int], frames: Iterable[bytes]) -> list[bytes]:
    answers = []
    with socket.create_connection(address, timeout=_ANSWER_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection.makefile("rb") as stream:
            for frame in frames:
                connection.sendall(frame)
                (size,) = _SIZE.unpack(stream.read(_SIZE.size))
                answers.append(stream.read(size))
    return answers


def _frame(leader: int, leader_broker_epoch: int, topics: Mapping[bytes, Collection[PartitionData]]) -> bytes:
    header = RequestHeader(
        request_api_key=i16(_API_KEY),
        request_api_version=i16(_VERSION),
        correlation_id=i32(0),
        client_id=str(leader),
    )
    request = AlterPartitionRequest(
        broker_id=BrokerId(leader),
        broker_epoch=i64(leader_broker_epoch),
        topics=tuple(
            TopicData(topic_id=UUID(bytes=topic_id), partitions=tuple(partitions))
            for topic_id, partitions in topics.items()
        ),
    )
    buffer = io.BytesIO()
    entity_writer(RequestHeader)(buffer, header)
    entity_writer(AlterPartitionRequest)(buffer, request)
    frame = buffer.getvalue()
    return _SIZE.pack(len(frame)) + frame


def _check(answer: bytes) -> None:
    _, offset = entity_reader(ResponseHeader)(answer, 0)
    response, _ = entity_reader(AlterPartitionResponse)(answer, offset)
    codes = {response.error_code}
    codes.update(partition.error_code for topic in response.topics for partition in topic.partitions)
    if codes != {ErrorCode.none}:
        raise RuntimeError(f"AlterPartition was answered with {sorted(code.name for code in codes)}")
