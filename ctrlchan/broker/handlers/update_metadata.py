"""UpdateMetadata (6): the new state of topics, partitions and live brokers.

``KafkaApis.handleUpdateMetadataRequest``, ``ReplicaManager.maybeUpdateMetadataCache`` and
``ZkMetadataCache.updateMetadata`` of Kafka 3.9 in ZooKeeper mode without migration.
"""

from __future__ import annotations

import numpy as np

from ctrlchan._codec import (
    UPDATE_METADATA,
    ControlResponse,
    StringColumn,
    Topics,
    UpdateMetadataRequest,
)
from ctrlchan.authorizer.acls import Operation
from ctrlchan.broker.core import BrokerCore
from ctrlchan.broker.handlers import control
from ctrlchan.broker.metadata.metadata_cache import RepeatedListenerError
from ctrlchan.errors import ErrorCode
from ctrlchan.protocol import LEADER_DURING_DELETE
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Reply, Request

__all__ = ["API"]


def _handle(core: BrokerCore, request: Request) -> Reply:
    return control.answer(core, request, UpdateMetadataRequest, UPDATE_METADATA, _update, _response)


API = Api(
    key=UPDATE_METADATA,
    name="UpdateMetadata",
    lowest=0,
    highest=8,
    flexible_from=6,
    handle=_handle,
    needs=needs_cluster(Operation.CLUSTER_ACTION),
)


def _update(core: BrokerCore, message: UpdateMetadataRequest) -> ControlResponse:
    control.check_broker_epoch(core, message)
    control.check_controller_epoch(core, message)
    try:
        core.metadata.update(message)
    except RepeatedListenerError as error:
        raise control.Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    core.replicas.controller_epoch = message.controller_epoch
    if core.replica_manager is not None:
        core.replica_manager.table.set_live_brokers(core.metadata.live_ids.tolist())
    if core.groups is not None and (deleted := _deleted_partitions(message)):
        core.groups.on_partitions_deleted(deleted)
    return _response(message, ErrorCode.NONE)


def _deleted_partitions(message: UpdateMetadataRequest) -> list[tuple[str, int]]:
    """Return topic and number of the partitions that are sent as deleted."""
    rows = np.flatnonzero(message.partitions.leader == LEADER_DURING_DELETE)
    topics = np.searchsorted(message.topic_starts, rows, "right") - 1
    names = message.topics.names
    return [
        ((names[topic] or b"").decode(), partition)
        for topic, partition in zip(topics.tolist(), message.partitions.partition[rows].tolist(), strict=True)
    ]


def _response(message: UpdateMetadataRequest, error_code: int) -> ControlResponse:
    none = np.empty(0, dtype=np.int32)
    return ControlResponse(
        api_key=UPDATE_METADATA,
        version=message.version,
        error_code=int(error_code),
        topics=Topics(StringColumn.from_strings([])),
        topic_starts=np.zeros(1, dtype=np.int64),
        partition=none,
        partition_error=none,
    )
