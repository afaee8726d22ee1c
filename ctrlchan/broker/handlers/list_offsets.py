"""ListOffsets (2): the first, the last, or the first offset of a time, of each partition.

``ReplicaManager.fetchOffset``, ``Partition.fetchOffsetForTimestamp``, without tiered storage. Version 0 lists
segments (``segment_offsets.py``).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

from ctrlchan.broker.handlers.hosted import find_led, find_partition
from ctrlchan.broker.handlers.segment_offsets import list_segments
from ctrlchan.broker.log._log import EARLIEST, EARLIEST_LOCAL, LATEST, MAX_TIMESTAMP
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import DESCRIBE_TOPIC, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

#: The version that lists segments.
_SEGMENTS: Final = 0
_LATEST_TIERED: Final = -5
#: Timestamps that stand for an offset, and the first version that has them.
_SINCE: Final = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}
_CONSUMER, _DEBUGGING_CONSUMER = -1, -2
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_NOT_AVAILABLE_SINCE: Final = 5


class _Found(NamedTuple):
    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


def _handle(core: StoringCore, request: Request) -> Reply:
    if request.version == _SEGMENTS:
        return list_segments(core, request)
    messages = ClientMessages("list_offsets", request.version)
    body = messages.decode(request)
    named = Counter((topic.name, one.partition_index) for topic in body.topics for one in topic.partitions)
    errors = 0
    topics = []
    described = request.access.allowed(*DESCRIBE_TOPIC, [topic.name for topic in body.topics])
    # Denied topics last, as Kafka.
    for topic in sorted(body.topics, key=lambda topic: topic.name not in described):
        partitions = []
        for one in topic.partitions:
            found, error = _Found(), KioError.none
            try:
                if topic.name not in described:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if named[topic.name, one.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                found = _find(core, request.version, body, topic.name, one)
            except KafkaError as refused:
                error = KioError(refused.code)
                errors += 1
            partitions.append(
                messages.part(
                    "ListOffsetsPartitionResponse",
                    partition_index=one.partition_index,
                    error_code=error,
                    **found._asdict(),
                )
            )
        topics.append(
            messages.part("ListOffsetsTopicResponse", name=topic.name, partitions=tuple(partitions))
        )
    return Reply(messages.response(topics=tuple(topics)), partition_errors=errors, rows=sum(named.values()))


API = Api(
    key=2,
    name="ListOffsets",
    lowest=_SEGMENTS,
    highest=9,
    flexible_from=6,
    handle=_handle,
    locks_core=False,
    needs=asks(DESCRIBE_TOPIC),
)


def _find(core: StoringCore, version: int, body: Any, topic: str, asked: Any) -> _Found:
    """Return the offset that is asked for. Raises KafkaError."""
    timestamp = asked.timestamp
    if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    find = find_partition if body.replica_id == _DEBUGGING_CONSUMER else find_led
    partition = find(core, topic, asked.partition_index, getattr(asked, "current_leader_epoch", -1))
    if getattr(body, "isolation_level", 0) not in (_READ_UNCOMMITTED, _READ_COMMITTED):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    log = partition.log
    if log is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return _Found(*(log.list_offset(timestamp) or ()))
    is_consumer = body.replica_id == _CONSUMER
    end = log.end_offset
    if is_consumer:
        committed = getattr(body, "isolation_level", 0) == _READ_COMMITTED
        end = log.stable_offset if committed else log.high_watermark
    # A new leader does not know yet how far its log was committed.
    lags = is_consumer and partition.is_leader and partition.epoch_start_offset > log.high_watermark
    if timestamp == LATEST and not lags:
        return _Found(end, leader_epoch=partition.leader_epoch)
    if timestamp == _LATEST_TIERED:
        return _Found()
    found = None if timestamp == LATEST else log.list_offset(timestamp)
    if found is not None and found[0] < end:
        return _Found(*found)
    if lags:
        new = version >= _NOT_AVAILABLE_SINCE
        raise KafkaError(KioError.offset_not_available if new else KioError.leader_not_available)
    return _Found()
