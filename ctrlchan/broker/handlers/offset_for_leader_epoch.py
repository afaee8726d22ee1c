"""OffsetForLeaderEpoch (23): where a leader epoch ends in the leader's log.

Followers and consumers find out by it where their records diverge.
Source: ``ReplicaManager.lastOffsetForLeaderEpoch``.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ctrlchan.authorizer.acls import Operation
from ctrlchan.broker.handlers.hosted import find_led
from ctrlchan.broker.log._leader_epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, EpochEnd
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import CLUSTER_ACTION_CLUSTER, DESCRIBE_TOPIC, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

_UNDEFINED = EpochEnd(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


def _handle(core: StoringCore, request: Request) -> Reply:
    messages = ClientMessages("offset_for_leader_epoch", request.version)
    topics = []
    errors = rows = 0
    asked = messages.decode(request).topics
    described: Container[str] = [topic.topic for topic in asked]
    if not request.access.allows_cluster(Operation.CLUSTER_ACTION, logs=False):
        described = request.access.allowed(*DESCRIBE_TOPIC, [topic.topic for topic in asked])
    for topic in asked:
        partitions = []
        for one in topic.partitions:
            end, error = _UNDEFINED, KioError.none
            try:
                if topic.topic not in described:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                end = _find(core, topic.topic, one)
            except KafkaError as refused:
                error = KioError(refused.code)
                errors += 1
            partitions.append(
                messages.part(
                    "EpochEndOffset",
                    error_code=error,
                    partition=one.partition,
                    leader_epoch=end.epoch,
                    end_offset=end.end_offset,
                )
            )
        rows += len(partitions)
        topics.append(
            messages.part("OffsetForLeaderTopicResult", topic=topic.topic, partitions=tuple(partitions))
        )
    return Reply(messages.response(topics=tuple(topics)), partition_errors=errors, rows=rows)


API = Api(
    key=23,
    name="OffsetForLeaderEpoch",
    lowest=0,
    highest=4,
    flexible_from=4,
    handle=_handle,
    locks_core=False,
    needs=asks(CLUSTER_ACTION_CLUSTER, DESCRIBE_TOPIC),
)


def _find(core: StoringCore, topic: str, asked: Any) -> EpochEnd:
    """Return the end of the leader epoch that is asked for. Raises KafkaError."""
    partition = find_led(core, topic, asked.partition, getattr(asked, "current_leader_epoch", -1))
    if partition.log is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return partition.log.end_of_epoch(asked.leader_epoch)
