"""The columns of a StopReplica request, and the errors in its response for topics being deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ctrlchan._codec import SharedBody, stop_replica_body
from ctrlchan.batch.selection import Int32, Int64, UInt8
from ctrlchan.channel import Outcome
from ctrlchan.protocol import DELETE_PER_PARTITION_SINCE, EPOCH_DURING_DELETE
from ctrlchan.state import ClusterState

__all__ = ["DeletionResponses", "StopReplicaHandler", "StopReplicas", "stop_replicas"]


#: (broker id, error code of the response, {(topic, partition): error code})
StopReplicaHandler: TypeAlias = Callable[[int, int, Mapping[tuple[str, int], int]], None]


@dataclass(frozen=True, slots=True)
class StopReplicas:
    """The partitions of one request as columns of equal length; ``delete`` is uint8.

    ``deletes``: the delete flag of the whole request below v3, None from v3 on.
    """

    topic_row: Int32
    partition: Int32
    leader_epoch: Int32
    delete: UInt8
    deletes: bool | None

    def shared_body(self, version: int, state: ClusterState) -> SharedBody:
        if self.deletes is not None:
            return stop_replica_body(version, state.topics, self.topic_row, self.partition)
        return stop_replica_body(
            version, state.topics, self.topic_row, self.partition, self.leader_epoch, self.delete
        )


def stop_replicas(
    state: ClusterState, version: int, rows: Int64 | None, delete: UInt8 | None
) -> list[StopReplicas]:
    """Return the requests for these rows (None: all) and delete flags (None: none set), in sending order.

    Below v3 rows to delete and other rows need a request each. The leader epoch is the current one, -2 when
    the topic is queued for deletion, -1 when it is unknown.
    """
    if rows is None:
        rows = np.arange(len(state.partitions), dtype=np.int64)
    if delete is None:
        delete = np.zeros(len(rows), dtype=np.uint8)
    if version >= DELETE_PER_PARTITION_SINCE:
        return [_columns(state, rows, delete, None)]
    chosen = delete != 0
    parts = [
        _columns(state, rows[chosen], delete[chosen], True),
        _columns(state, rows[~chosen], delete[~chosen], False),
    ]
    return [part for part in parts if len(part.partition)]


def _columns(state: ClusterState, rows: Int64, delete: UInt8, deletes: bool | None) -> StopReplicas:
    topic_row = state.partitions.topic_row[rows]
    leader_epoch = state.partitions.leader_epoch[rows]
    deleting = state.topics.deleting
    if deleting is not None:
        leader_epoch[deleting[topic_row] != 0] = EPOCH_DURING_DELETE
    return StopReplicas(topic_row, state.partitions.partition[rows], leader_epoch, delete, deletes)


class DeletionResponses:
    """The callback of a request with deletions. It calls ``handler`` with the errors of partitions that were
    to be deleted, of topics whose deletion is in progress when the response arrives, if there are any.

    Keeps names, not rows: the topics may be removed from the state before the response.
    """

    __slots__ = ("_deleted", "_handler", "_state")

    def __init__(self, state: ClusterState, sent: StopReplicas, handler: StopReplicaHandler) -> None:
        self._state = state
        self._handler = handler
        chosen = sent.delete != 0
        topic_row, partition = sent.topic_row[chosen], sent.partition[chosen]
        starts = np.flatnonzero(np.diff(topic_row, prepend=-1))
        self._deleted: dict[str, Int32] = {
            state.topic_name(row): numbers
            for row, numbers in zip(topic_row[starts].tolist(), np.split(partition, starts[1:]), strict=True)
        }

    def __call__(self, outcome: Outcome) -> None:
        response = outcome.response
        if response is None:
            return
        errors: dict[tuple[str, int], int] = {}
        in_progress = self._state.deletion_in_progress
        for topic, name in enumerate(response.topics.names.to_list()):
            if name is None or name not in in_progress or name not in self._deleted:
                continue
            rows = slice(int(response.topic_starts[topic]), int(response.topic_starts[topic + 1]))
            numbers, codes = response.partition[rows], response.partition_error[rows]
            deleted = np.isin(numbers, self._deleted[name])
            for number, code in zip(numbers[deleted].tolist(), codes[deleted].tolist(), strict=True):
                errors[name, number] = code
        if errors:
            self._handler(outcome.broker_id, response.error_code, errors)
