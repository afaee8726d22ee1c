"""StopReplica (5): stop following or leading, and delete when asked to.

State and error codes as Kafka 3.9 in ZooKeeper mode: ``KafkaApis.handleStopReplicaRequest``,
``StopReplicaRequest.partitionStates`` and ``ReplicaManager.stopReplicas``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ctrlchan._codec import STOP_REPLICA, ControlResponse, StopReplicaRequest
from ctrlchan.authorizer.acls import Operation
from ctrlchan.broker.core import BrokerCore
from ctrlchan.broker.handlers import control
from ctrlchan.broker.metadata.jvm_order import java_map_order, scala_map_order, topic_partition_hashes
from ctrlchan.errors import ErrorCode
from ctrlchan.protocol import EPOCH_DURING_DELETE, NO_EPOCH
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Reply, Request

if TYPE_CHECKING:
    from ctrlchan._codec import Int32, Int64

__all__ = ["API"]


def _handle(core: BrokerCore, request: Request) -> Reply:
    return control.answer(core, request, StopReplicaRequest, STOP_REPLICA, _stop_replicas, _refuse)


API = Api(
    key=STOP_REPLICA,
    name="StopReplica",
    lowest=0,
    highest=4,
    flexible_from=2,
    handle=_handle,
    needs=needs_cluster(Operation.CLUSTER_ACTION),
)


def _stop_replicas(core: BrokerCore, message: StopReplicaRequest) -> ControlResponse:
    control.check_broker_epoch(core, message)
    control.check_controller_epoch(core, message)
    core.replicas.controller_epoch = message.controller_epoch
    replicas = core.replicas
    keys = replicas.keys_of(message.topics, message.topic_row, message.partition)
    hashes = topic_partition_hashes(
        control.topic_hashes(message.topics)[message.topic_row], message.partition
    )
    # Kafka puts the request into a Java map (the last of equal partitions counts) and its answers, in the
    # order of that map, into a Scala one.
    rows = control.last_of_each_key(keys)[java_map_order(keys, hashes)]

    hosted = replicas.find(keys[rows])
    exists = hosted >= 0
    current = np.full(len(rows), NO_EPOCH, dtype=np.int32)
    current[exists] = replicas.columns.leader_epoch[hosted[exists]]
    offline = np.zeros(len(rows), dtype=bool)
    offline[exists] = replicas.offline[hosted[exists]] != 0
    epoch = message.leader_epoch[rows]
    fenced = exists & (epoch < current) & (epoch != NO_EPOCH) & (epoch != EPOCH_DURING_DELETE)
    errors = np.zeros(len(rows), dtype=np.int32)
    errors[fenced] = ErrorCode.FENCED_LEADER_EPOCH
    errors[offline] = ErrorCode.KAFKA_STORAGE_ERROR
    # Without the delete flag the replica stays as it is: hosted, with its epochs.
    deleted = (errors == 0) & (message.delete[rows] != 0)
    replicas.remove(hosted[exists & deleted])
    if core.replica_manager is not None:
        # Also partitions that are not hosted: their topic may have been deleted while this broker was down.
        names, gone = message.topics.names.to_list(), rows[deleted]
        core.replica_manager.delete(
            zip(
                (names[topic] or "" for topic in message.topic_row[gone].tolist()),
                message.partition[gone].tolist(),
                message.leader_epoch[gone].tolist(),
                strict=True,
            )
        )

    order = scala_map_order(keys[rows], hashes[rows])
    return _response(message, rows[order], errors[order])


def _refuse(message: StopReplicaRequest, error_code: int) -> ControlResponse:
    """Return an answer without partitions for a stale request; else every partition has the error."""
    stale = error_code in (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)
    rows = np.arange(0 if stale else len(message.partition))
    return _response(message, rows, np.full(len(rows), error_code, dtype=np.int32), error_code)


def _response(
    message: StopReplicaRequest, rows: Int64, errors: Int32, error_code: int = ErrorCode.NONE
) -> ControlResponse:
    """Return an answer with these rows of the request, each with its error."""
    topics, topic_starts = control.names_in_runs(message.topics, message.topic_row[rows])
    return ControlResponse(
        api_key=STOP_REPLICA,
        version=message.version,
        error_code=int(error_code),
        topics=topics,
        topic_starts=topic_starts,
        partition=message.partition[rows],
        partition_error=errors,
    )
