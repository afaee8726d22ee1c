"""AlterPartition (56): a leader asks for another ISR.

``KafkaApis.handleAlterPartitionRequest`` of Kafka 3.9; KIP-497, KIP-704 (version 1), KIP-841 (versions 2 and
3). The broker epochs in version 3's ISR are not checked, as in Kafka's ZooKeeper mode.
"""

from __future__ import annotations

import struct
from concurrent.futures import Future
from typing import Any, Final

import numpy as np

from ctrlchan._codec import ListColumn
from ctrlchan.authorizer.acls import Operation
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.handlers.isr_changes import (
    AlterPartitionRequest,
    AlterPartitionResult,
    alter_partitions,
)
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError
from ctrlchan.server.result_fields import compact_count
from ctrlchan.topic_names import ZERO_ID

__all__ = ["API", "response_body"]

_RECOVERY_STATE_SINCE: Final = 1
_TOPIC_IDS_SINCE: Final = 2
_ISR_WITH_EPOCHS_SINCE: Final = 3

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
    body = messages.decode(request)
    asked = _columns(request.version, body)

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


def _columns(version: int, body: Any) -> AlterPartitionRequest:
    partitions = [partition for topic in body.topics for partition in topic.partitions]

    def column(values: list[int]) -> np.ndarray[Any, np.dtype[np.int32]]:
        return np.array(values, dtype=np.int32)

    if version >= _ISR_WITH_EPOCHS_SINCE:
        isr = [[broker.broker_id for broker in one.new_isr_with_epochs] for one in partitions]
    else:
        isr = [list(one.new_isr) for one in partitions]
    return AlterPartitionRequest(
        version=version,
        broker_id=body.broker_id,
        broker_epoch=body.broker_epoch,
        topics=[_topic_key(version, topic) for topic in body.topics],
        topic=column([at for at, topic in enumerate(body.topics) for _ in topic.partitions]),
        partition=column([one.partition_index for one in partitions]),
        leader_epoch=column([one.leader_epoch for one in partitions]),
        partition_epoch=column([one.partition_epoch for one in partitions]),
        recovery_state=column(
            [one.leader_recovery_state if version >= _RECOVERY_STATE_SINCE else 0 for one in partitions]
        ),
        isr=ListColumn.from_lists(isr),
    )


def _topic_key(version: int, topic: Any) -> bytes:
    if version < _TOPIC_IDS_SINCE:
        return str(topic.topic_name).encode()
    return ZERO_ID if topic.topic_id is None else bytes(topic.topic_id.bytes)


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
