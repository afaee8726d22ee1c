"""Reads the records of a topic for assertions, with requests of our own: no client library is needed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from kio.static.primitive import i32Timedelta

from ctrlchan.broker.log.records import read_records
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.peers.connection import Address
from ctrlchan.peers.controller_connections import ControllerConnections, OutgoingRequest
from ctrlchan.peers.messages import decode_answer, encode_request, part
from ctrlchan.state.brokers import format_host_port

__all__ = ["TopicRecord", "read_topic"]

_SECONDS: Final = 10.0
_NO_REPLICA: Final = -1
_MAX_BYTES: Final = 2**26
_EARLIEST: Final = -2
_CONTROL: Final = 0x20
#: Of a batch: offset of its length, of its attributes, and what stands before the length ends.
_LENGTH_AT, _ATTRIBUTES_AT, _LENGTH_END = 8, 21, 12

_METADATA: Final = 3, 8
_LIST_OFFSETS: Final = 2, 5
_FETCH: Final = 1, 11


class TopicRecord(NamedTuple):
    """One record. ``timestamp``: milliseconds since 1970."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_topic(bootstrap: Address, topic: str) -> list[TopicRecord]:
    """Return all records of a topic up to the high watermark, by partition and offset.

    ``bootstrap``: a broker. Raises KafkaError for a topic that does not exist or has no leader, and
    REQUEST_TIMED_OUT when a leader does not answer.
    """
    metadata = _ask(
        bootstrap,
        "metadata",
        _METADATA,
        topics=(part("metadata", 8, "MetadataRequestTopic", name=topic),),
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    addresses = {one.node_id: (one.host, one.port) for one in metadata.brokers}
    (found,) = metadata.topics
    _check(found.error_code.value, topic)
    records: list[TopicRecord] = []
    for partition in sorted(found.partitions, key=lambda one: int(one.partition_index)):
        _check(partition.error_code.value, f"{topic}-{partition.partition_index}")
        records += _read_partition(addresses[partition.leader_id], topic, partition.partition_index)
    return records


def _read_partition(leader: Address, topic: str, partition: int) -> Iterator[TopicRecord]:
    offset = _earliest(leader, topic, partition)
    while True:
        answer = _fetch(leader, topic, partition, offset)
        data = bytes(answer.records or b"")
        for batch in _batches(data):
            for record in read_records(batch):
                if record.offset >= offset and not batch[_ATTRIBUTES_AT + 1] & _CONTROL:
                    headers = tuple((name.decode(errors="replace"), value) for name, value in record.headers)
                    yield TopicRecord(
                        partition, record.offset, record.timestamp, record.key, record.value, headers
                    )
            offset = max(offset, int.from_bytes(batch[:8]) + int.from_bytes(batch[23:27]) + 1)
        if not data or offset >= answer.high_watermark:
            return


def _earliest(leader: Address, topic: str, partition: int) -> int:
    api, version = "list_offsets", _LIST_OFFSETS[1]
    asked = part(api, version, "ListOffsetsPartition", partition_index=partition, timestamp=_EARLIEST)
    answer = _ask(
        leader,
        api,
        _LIST_OFFSETS,
        replica_id=_NO_REPLICA,
        isolation_level=0,
        topics=(part(api, version, "ListOffsetsTopic", name=topic, partitions=(asked,)),),
    )
    found = answer.topics[0].partitions[0]
    _check(found.error_code.value, f"{topic}-{partition}")
    return int(found.offset)


def _fetch(leader: Address, topic: str, partition: int, offset: int) -> Any:
    api, version = "fetch", _FETCH[1]
    asked = part(
        api,
        version,
        "FetchPartition",
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=_MAX_BYTES,
    )
    answer = _ask(
        leader,
        api,
        _FETCH,
        replica_id=_NO_REPLICA,
        max_wait=i32Timedelta.parse(timedelta()),
        min_bytes=0,
        topics=(part(api, version, "FetchTopic", topic=topic, partitions=(asked,)),),
        forgotten_topics_data=(),
    )
    _check(answer.error_code.value, topic)
    found = answer.responses[0].partitions[0]
    _check(found.error_code.value, f"{topic}-{partition}")
    return found


def _batches(data: bytes) -> Iterator[bytes]:
    """Yield the whole batches."""
    at = 0
    while at + _LENGTH_END <= len(data):
        end = at + _LENGTH_END + int.from_bytes(data[at + _LENGTH_AT : at + _LENGTH_END])
        if end > len(data):
            return
        yield data[at:end]
        at = end


def _ask(address: Address, api: str, key_and_version: tuple[int, int], **fields: Any) -> Any:
    key, version = key_and_version
    connections = ControllerConnections(lambda: address, "ctrlchan-records")
    try:
        request = OutgoingRequest(
            key, range(version, version + 1), version + 1, partial(encode_request, api, **fields)
        )
        # Once: the leader may be dead, and another one in the metadata soon.
        return decode_answer(api, *connections.send(request, _SECONDS, once=True).result())
    except KafkaError as error:
        if error.code != ErrorCode.REQUEST_TIMED_OUT:
            raise
        raise KafkaError(error.code, f"no answer of the broker at {format_host_port(*address)}") from None
    finally:
        connections.stop()


def _check(code: int, what: str) -> None:
    if code:
        raise KafkaError(code, f"{what}: {ErrorCode.name_of(code)}")
