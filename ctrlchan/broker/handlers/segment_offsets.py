"""ListOffsets (2) of version 0: where segments begin, as consumers before Kafka 0.10.1 ask for it.

Source: ``KafkaApis.handleListOffsetRequestV0``, ``UnifiedLog.legacyFetchOffsetsBefore``.
"""

from __future__ import annotations

import time
from typing import Any, Final

from ctrlchan.broker.handlers.hosted import find_led, find_partition
from ctrlchan.broker.log._log import EARLIEST, LATEST, Log
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import DESCRIBE_TOPIC
from ctrlchan.server.api import Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["list_segments"]

_CONSUMER, _DEBUGGING_CONSUMER = -1, -2
_NS_PER_MS: Final = 1_000_000


def list_segments(core: StoringCore, request: Request) -> Reply:
    """Return the response to a request of version 0."""
    messages = ClientMessages("list_offsets", request.version)
    body = messages.decode(request)
    described = request.access.allowed(*DESCRIBE_TOPIC, [topic.name for topic in body.topics])
    topics, errors, rows = [], 0, 0
    # Denied topics last, as Kafka.
    for topic in sorted(body.topics, key=lambda topic: topic.name not in described):
        partitions = []
        for one in topic.partitions:
            found: list[int] = []
            error = KioError.none
            try:
                if topic.name not in described:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                found = _find(core, body.replica_id, topic.name, one)
            except KafkaError as refused:
                error = KioError(refused.code)
                errors += 1
            rows += 1
            partitions.append(
                messages.part(
                    "ListOffsetsPartitionResponse",
                    partition_index=one.partition_index,
                    error_code=error,
                    old_style_offsets=tuple(found),
                )
            )
        topics.append(
            messages.part("ListOffsetsTopicResponse", name=topic.name, partitions=tuple(partitions))
        )
    return Reply(messages.response(topics=tuple(topics)), partition_errors=errors, rows=rows)


def _find(core: StoringCore, replica_id: int, topic: str, asked: Any) -> list[int]:
    """Return the offsets of one partition, the highest first. Raises KafkaError."""
    if asked.timestamp < EARLIEST:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    find = find_partition if replica_id == _DEBUGGING_CONSUMER else find_led
    log = find(core, topic, asked.partition_index).log
    if log is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if asked.max_num_offsets < 0:
        # Kafka makes an array of this size.
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    offsets = _offsets_before(log, asked.timestamp, asked.max_num_offsets)
    watermark = log.high_watermark
    if replica_id == _CONSUMER and any(offset > watermark for offset in offsets):
        return [watermark, *(offset for offset in offsets if offset <= watermark)]
    return offsets


def _offsets_before(log: Log, timestamp: int, most: int) -> list[int]:
    """Return where the segments begin that were written at ``timestamp`` or before, the latest first.

    The end of the log counts as one that is written now, if the last segment has records.
    """
    start, end = log.start_offset, log.end_offset
    segments = log.describe_segments()
    found = [(max(one.base_offset, start), one.modified_ns // _NS_PER_MS) for one in segments]
    if segments[-1].size:
        found.append((end, time.time_ns() // _NS_PER_MS))
    last = len(found)
    if timestamp == EARLIEST:
        last = 1
    elif timestamp != LATEST:
        last = next((number for number in range(last, 0, -1) if found[number - 1][1] <= timestamp), 0)
    return sorted((offset for offset, _ in found[max(0, last - most) : last]), reverse=True)
