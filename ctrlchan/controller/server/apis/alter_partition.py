"""AlterPartition (56): a leader asks for another ISR.

``KafkaApis.handleAlterPartitionRequest`` of Kafka 3.9; KIP-497, KIP-704 (version 1), KIP-841 (versions 2 and
3). The broker epochs in version 3's ISR are not checked, as in Kafka's ZooKeeper mode.
"""

from __future__ import annotations

import struct
from concurrent.futures import Future
from typing import Final

import numpy as np

from ctrlchan._codec import ListColumn
from ctrlchan.authorizer.acls import Operation
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.handlers.isr_changes import (
    AlterPartitionRequest,
    AlterPartitionResult,
    alter_partitions,
)
from ctrlchan.controller.server.apis._alter_partition import decode_alter_partition
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError
from ctrlchan.server.result_fields import compact_count

__all__ = ["API", "response_body"]

_RECOVERY_STATE_SINCE: Final = 1

#: Throttle time and error code of a response.
_HEAD: Final = struct.Struct(">ih")
#: Partition, error code, leader and leader epoch; then the ISR.
_PARTITION: Final = struct.Struct(">ihii")
_RECOVERY_STATE: Final = struct.Struct(">b")
_PARTITION_EPOCH: Final = struct.Struct(">i")
#: The end of a structure without tagged fields.
_NO_TAGS: Final = b"\0"


def _handle(core: ServerCore, request: Request) -> Future[Reply]:
    messages = ClientMessages("alter_partition", request.version)
    asked = _asked(request)

    def reply(result: AlterPartitionResult | KafkaError) -> Reply:
        rows = len(asked.partition)
        if isinstance(result, KafkaError):
            return Reply(messages.response(error_code=KioError(result.code), topics=()), result.code, 0, rows)
        if result.error_code:
            error = KioError(result.error_code)
            return Reply(messages.response(error_code=error, topics=()), result.error_code, 0, rows)
        return Reply(
            response_body(asked, result),
            partition_errors=int(np.count_nonzero(result.error)),
            rows=rows,
        )

    return core.call_jointly(ControllerState.ISR_CHANGE, "AlterPartition", alter_partitions, asked, reply)


API: Api[ServerCore] = Api(
    key=56,
    name="AlterPartition",
    lowest=0,
    highest=3,
    flexible_from=0,
    handle=_handle,
    needs=needs_cluster(Operation.CLUSTER_ACTION),
)


def _asked(request: Request) -> AlterPartitionRequest:
    """Return the request as columns. Raises DecodeError."""
    found = decode_alter_partition(request.frame, request.offset, request.version)
    return AlterPartitionRequest(
        version=request.version,
        broker_id=found.broker_id,
        broker_epoch=found.broker_epoch,
        topics=found.topics,
        topic=found.topic,
        partition=found.partition,
        leader_epoch=found.leader_epoch,
        partition_epoch=found.partition_epoch,
        recovery_state=found.recovery_state,
        isr=ListColumn(found.isr_starts, found.isr_lengths, found.isr_values),
    )


def response_body(asked: AlterPartitionRequest, result: AlterPartitionResult) -> bytes:
    """Return the body of the response, with topics and partitions in the order of the request.

    Written here because a bounce of a broker changes thousands of partitions, and kio takes 12 µs for each.
    """
    partitions: list[list[bytes]] = [[] for _ in asked.topics]
    recovery = asked.version >= _RECOVERY_STATE_SINCE
    for topic, partition, error, leader, leader_epoch, isr, recovery_state, partition_epoch in zip(
        asked.topic.tolist(),
        asked.partition.tolist(),
        result.error.tolist(),
        result.leader.tolist(),
        result.leader_epoch.tolist(),
        result.isr.to_lists(),
        result.recovery_state.tolist(),
        result.partition_epoch.tolist(),
        strict=True,
    ):
        partitions[topic].append(
            _PARTITION.pack(partition, error, leader, leader_epoch)
            + compact_count(len(isr))
            + struct.pack(f">{len(isr)}i", *isr)
            + (_RECOVERY_STATE.pack(recovery_state) if recovery else b"")
            + _PARTITION_EPOCH.pack(partition_epoch)
            + _NO_TAGS
        )
    parts = [_HEAD.pack(0, ErrorCode.NONE), compact_count(len(asked.topics))]
    for key, of_topic in zip(asked.topics, partitions, strict=True):
        if not asked.by_id:
            parts.append(compact_count(len(key)))
        parts += (key, compact_count(len(of_topic)), *of_topic, _NO_TAGS)
    parts.append(_NO_TAGS)
    return b"".join(parts)
