"""Writes the batch's lines of the state-change log, in Kafka's words, so that Kafka's tools read them.

INFO for each request and broker, TRACE for each of its partitions. Call these only when the log ``informs``.
Source: ``kafka.controller.AbstractControllerBrokerRequestBatch``.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ctrlchan._codec import ListColumn
from ctrlchan.batch.selection import Int64, UInt8
from ctrlchan.batch.stop_replica import StopReplicas
from ctrlchan.state import ClusterState
from ctrlchan.state_change_log import StateChangeLogger

__all__ = ["log_leader_and_isr", "log_stop_replica", "log_update_metadata"]


def log_leader_and_isr(
    log: StateChangeLogger,
    state: ClusterState,
    broker_ids: Iterable[int],
    rows: Int64 | None,
    is_new: UInt8 | None,
) -> None:
    """Log a LeaderAndIsr request of these rows, or of all, to each of these brokers."""
    leader = state.partitions.leader if rows is None else state.partitions.leader[rows]
    for broker_id in broker_ids:
        if log.traces:
            _trace_leader_and_isr(log, state, broker_id, rows, is_new)
        leads = int(np.count_nonzero(leader == broker_id))
        log.info(
            f"Sending LeaderAndIsr request to broker {broker_id} with {leads} become-leader "
            f"and {len(leader) - leads} become-follower partitions"
        )


def log_update_metadata(log: StateChangeLogger, broker_ids: Iterable[int], rows: int) -> None:
    """Log one UpdateMetadata request of so many rows to all of these brokers."""
    brokers = ", ".join(map(str, broker_ids))
    log.info(f"Sending UpdateMetadata request to brokers HashSet({brokers}) for {rows} partitions")


def log_stop_replica(
    log: StateChangeLogger, state: ClusterState, broker_ids: Iterable[int], stops: StopReplicas
) -> None:
    """Log a StopReplica request of these partitions to each of these brokers."""
    only = "" if stops.deletes is None else f" (delete = {_java_bool(stops.deletes)})"
    for broker_id in broker_ids:
        if log.traces:
            _trace_stop_replica(log, state, broker_id, stops)
        log.info(
            f"Sending StopReplica request{only} for {len(stops.partition)} replicas to broker {broker_id}"
        )


def _trace_leader_and_isr(
    log: StateChangeLogger, state: ClusterState, broker_id: int, rows: Int64 | None, is_new: UInt8 | None
) -> None:
    p = state.partitions
    for position, row in enumerate(range(len(p)) if rows is None else rows.tolist()):
        topic, number, leader = state.topic_name(int(p.topic_row[row])), p.partition[row], p.leader[row]
        becomes = "become-leader" if leader == broker_id else "become-follower"
        new = is_new is not None and bool(is_new[position])
        log.trace(
            f"Sending {becomes} LeaderAndIsr request LeaderAndIsrPartitionState(topicName='{topic}', "
            f"partitionIndex={number}, controllerEpoch={p.controller_epoch[row]}, leader={leader}, "
            f"leaderEpoch={p.leader_epoch[row]}, isr={_ids(p.isr, row)}, "
            f"partitionEpoch={p.partition_epoch[row]}, replicas={_ids(p.replicas, row)}, "
            f"addingReplicas={_ids(p.adding, row)}, removingReplicas={_ids(p.removing, row)}, "
            f"isNew={_java_bool(new)}, leaderRecoveryState={p.recovery_state[row]}) "
            f"to broker {broker_id} for partition {topic}-{number}"
        )


def _trace_stop_replica(
    log: StateChangeLogger, state: ClusterState, broker_id: int, stops: StopReplicas
) -> None:
    columns = (stops.topic_row, stops.partition, stops.leader_epoch, stops.delete)
    for topic_row, number, epoch, delete in zip(*(column.tolist() for column in columns), strict=True):
        log.trace(
            f"Sending StopReplica request StopReplicaPartitionState(partitionIndex={number}, "
            f"leaderEpoch={epoch}, deletePartition={_java_bool(delete)}) to broker {broker_id} "
            f"for partition {state.topic_name(topic_row)}-{number}"
        )


def _ids(lists: ListColumn | None, row: int) -> list[int]:
    return [] if lists is None else lists[row].tolist()


def _java_bool(value: object) -> str:
    return "true" if value else "false"
