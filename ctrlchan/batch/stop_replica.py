"""The columns of a StopReplica request, and its errors for topics that are being deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from ctrlchan._codec import ControlResponse, SharedBody, stop_replica_body
from ctrlchan.batch.selection import Int32, Int64, UInt8
from ctrlchan.channel import Outcome, OutcomeKind
from ctrlchan.errors import ErrorCode
from ctrlchan.protocol import DELETE_PER_PARTITION_SINCE, EPOCH_DURING_DELETE
from ctrlchan.state import ClusterState

__all__ = [
    "DeletionResponses",
    "StopReplicaHandler",
    "StopReplicas",
    "stop_epoch",
    "stop_epochs",
    "stop_replicas",
]


#: (broker id, error code of the request, {(topic, partition): error code})
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


def stop_epochs(state: ClusterState, rows: Int64) -> Int32:
    """Return the leader epoch (int32) that a StopReplica of each of these rows carries.

    The current one; -2 when the topic is queued for deletion, -1 when it is unknown.
    """
    leader_epoch: Int32 = state.partitions.leader_epoch[rows]
    deleting = state.topics.deleting
    if deleting is not None:
        leader_epoch[deleting[state.partitions.topic_row[rows]] != 0] = EPOCH_DURING_DELETE
    return leader_epoch


def stop_epoch(state: ClusterState, row: int) -> int:
    """Return ``stop_epochs`` of one row."""
    deleting = state.topics.deleting
    if deleting is not None and deleting[state.partitions.topic_row[row]]:
        return EPOCH_DURING_DELETE
    return int(state.partitions.leader_epoch[row])


def stop_replicas(
    state: ClusterState, version: int, rows: Int64, delete: UInt8, leader_epoch: Int32
) -> list[StopReplicas]:
    """Return the requests for these rows, delete flags and leader epochs, in sending order.

    Below v3 rows to delete and other rows need a request each.
    """
    topic_row, partition = state.partitions.topic_row[rows], state.partitions.partition[rows]
    if version >= DELETE_PER_PARTITION_SINCE:
        return [StopReplicas(topic_row, partition, leader_epoch, delete, None)]
    parts = []
    for deletes in (True, False):
        chosen = (delete != 0) == deletes
        parts.append(
            StopReplicas(topic_row[chosen], partition[chosen], leader_epoch[chosen], delete[chosen], deletes)
        )
    return [part for part in parts if len(part.partition)]


#: Error codes of requests that ended without a response.
_WITHOUT_RESPONSE: Final = {
    OutcomeKind.FENCED: ErrorCode.STALE_CONTROLLER_EPOCH,
    OutcomeKind.BROKER_GONE: ErrorCode.BROKER_NOT_AVAILABLE,
    OutcomeKind.TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
    OutcomeKind.REFUSED: ErrorCode.UNSUPPORTED_VERSION,
    OutcomeKind.CANCELLED: ErrorCode.REQUEST_TIMED_OUT,
}


class DeletionResponses:
    """The callback of a request with deletions. It calls ``handler`` with the errors of partitions that were
    to be deleted, of topics whose deletion is in progress when the request ends, if there are any.

    Where the whole request failed, each partition that no response names has the error of the request.

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
        response, code = outcome.response, outcome.error_code
        if response is None:
            code = int(_WITHOUT_RESPONSE[outcome.kind])
        in_progress = self._state.deletion_in_progress
        errors: dict[tuple[str, int], int] = {}
        if code:
            for name, numbers in self._deleted.items():
                if name in in_progress:
                    errors.update(((name, number), code) for number in numbers.tolist())
        if response is not None:
            self._add_errors(errors, response, in_progress)
        if errors:
            self._handler(outcome.broker_id, code, errors)

    def _add_errors(
        self, errors: dict[tuple[str, int], int], response: ControlResponse, in_progress: frozenset[str]
    ) -> None:
        """Add the error codes of the response, also 0, for partitions that were to be deleted."""
        for topic, name in enumerate(response.topics.names.to_list()):
            if name is None or name not in in_progress or name not in self._deleted:
                continue
            rows = slice(int(response.topic_starts[topic]), int(response.topic_starts[topic + 1]))
            numbers, codes = response.partition[rows], response.partition_error[rows]
            deleted = np.isin(numbers, self._deleted[name])
            for number, code in zip(numbers[deleted].tolist(), codes[deleted].tolist(), strict=True):
                errors[name, number] = code
