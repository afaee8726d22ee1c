"""ISR changes: AlterPartition requests of leaders, and notifications of brokers below IBP 2.7-IV2.

Source: ``KafkaController.processAlterPartition`` and ``processIsrChangeNotification`` (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.handlers import reassignment
from ctrlchan.controller.machines.leadership import read_back, write_leadership
from ctrlchan.controller.machines.lookups import (
    find_rows,
    is_reassigning,
    rows_of_pairs,
    topic_rows_of_ids,
    topic_rows_of_names,
)
from ctrlchan.controller.term.events import ControllerState
from ctrlchan.errors import ErrorCode, ResultCode
from ctrlchan.state import NO_LEADERSHIP
from ctrlchan.state.lists import contains, differing, empty_lists, entry_rows, packed_values, take
from ctrlchan.zookeeper import paths

__all__ = [
    "AlterPartitionRequest",
    "AlterPartitionResult",
    "alter_partition",
    "process_notifications",
]

Bool = npt.NDArray[np.bool_]
Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

#: AlterPartition: the first version that names topics by id and answers INELIGIBLE_REPLICA.
_TOPIC_IDS_SINCE: Final = 2
_RECOVERED, _RECOVERING = 0, 1


@dataclass(frozen=True, slots=True, eq=False)
class AlterPartitionRequest:
    """An AlterPartition request as columns: one row for each partition.

    ``topics``: names (version 0 and 1) or ids of 16 bytes (from version 2 on), in the order of the request;
    ``topic`` is each row's place in them. The columns are int32; ``recovery_state`` is 0 below version 1.
    ``isr``: the broker ids of the new ISR (of version 3 without the broker epochs, which Kafka ignores too).
    """

    version: int
    broker_id: int
    broker_epoch: int
    topics: Sequence[bytes]
    topic: Int32
    partition: Int32
    leader_epoch: Int32
    partition_epoch: Int32
    recovery_state: Int32
    isr: ListColumn


@dataclass(frozen=True, slots=True, eq=False)
class AlterPartitionResult:
    """The answer: ``error_code`` for the whole request, else one row for each row of the request.

    ``error``: int32 error codes. Where it is 0 the other columns have the partition's state now.
    """

    error_code: int
    error: Int32
    leader: Int32
    leader_epoch: Int32
    partition_epoch: Int32
    recovery_state: Int32
    isr: ListColumn


def alter_partition(core: ControllerCore, request: AlterPartitionRequest) -> AlterPartitionResult:
    """Write the new ISRs that are valid, and return the result of each partition.

    UpdateMetadata goes out for all partitions of the request that exist, also for refused ones. Reassignments
    that became complete are finished by a later event.
    """
    if not _has_epoch(core, request.broker_id, request.broker_epoch):
        core.log.info(
            "AlterPartition of broker %d is refused: its epoch is not %d",
            request.broker_id,
            request.broker_epoch,
        )
        return _refused(ErrorCode.STALE_BROKER_EPOCH)
    rows, error = _find(core, request)
    exists = rows >= 0
    error[exists] = _check(core, request, rows, exists)
    # Of a partition that is named twice the last row counts, as in Kafka's map.
    last = _last_of(rows)
    chosen = np.flatnonzero(exists & last & (error == _WRITE))
    error[error == _WRITE] = ErrorCode.NONE
    if len(chosen):
        error[chosen] = _write(core, request, rows, chosen)
    named = np.unique(rows[exists])
    core.send_update_metadata(None, named)
    _complete_reassignments(core, np.unique(rows[exists & (error == ErrorCode.NONE)]))
    return _result(core, rows, exists, error)


#: In ``error`` while a request is checked: the partition is to be written.
_WRITE: Final = 2**15


def _has_epoch(core: ControllerCore, broker_id: int, epoch: int) -> bool:
    state = core.state
    try:
        return int(state.brokers.epochs[state.broker_row(broker_id)]) == epoch
    except KeyError:
        return False


def _refused(code: int) -> AlterPartitionResult:
    none = np.empty(0, np.int32)
    return AlterPartitionResult(int(code), none, none, none, none, none, empty_lists(0))


def _find(core: ControllerCore, request: AlterPartitionRequest) -> tuple[Int64, Int32]:
    """Return (the state's row, or -1; error code) of each partition of the request."""
    state = core.state
    by_id = request.version >= _TOPIC_IDS_SINCE
    topic_rows = (
        topic_rows_of_ids(state, request.topics) if by_id else topic_rows_of_names(state, request.topics)
    )
    wanted = topic_rows[request.topic]
    rows = find_rows(state, wanted, request.partition)
    found = np.flatnonzero(rows >= 0)
    rows[found[state.partitions.leader_epoch[rows[found]] == NO_LEADERSHIP]] = -1
    error = np.zeros(len(wanted), np.int32)
    error[rows < 0] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if by_id:
        error[wanted < 0] = ErrorCode.UNKNOWN_TOPIC_ID
    return rows, error


def _check(core: ControllerCore, request: AlterPartitionRequest, rows: Int64, exists: Bool) -> Int32:
    """Return an error code for each row that exists: 0 when the state is so already, ``_WRITE`` to write."""
    at = rows[exists]
    partitions = core.state.partitions
    isr = take(request.isr, np.flatnonzero(exists))
    leader_epoch, partition_epoch = request.leader_epoch[exists], request.partition_epoch[exists]
    recovery = request.recovery_state[exists]
    current_epoch, current_partition_epoch = partitions.leader_epoch[at], partitions.partition_epoch[at]
    current_recovery = partitions.recovery_state[at]
    is_leader = partitions.leader[at] == request.broker_id
    same = (
        is_leader
        & (leader_epoch == current_epoch)
        & (recovery == current_recovery)
        & ~differing(isr, take(partitions.isr, at))
    )
    online = core.state.online_broker_ids
    ineligible = np.zeros(len(at), dtype=bool)
    ineligible[entry_rows(isr)[~np.isin(packed_values(isr), online)]] = True
    # Kafka relies on brokers for these two: only the leader asks, and it stays in the ISR.
    malformed = ~is_leader | ~contains(isr, np.full(len(at), request.broker_id, np.int32))
    # The order is Kafka's: the first that applies decides.
    checks: list[tuple[Bool, int]] = [
        # The broker has heard from a newer controller: let it look for that one.
        (
            (partition_epoch > current_partition_epoch) | (leader_epoch > current_epoch),
            ErrorCode.NOT_CONTROLLER,
        ),
        (leader_epoch < current_epoch, ErrorCode.FENCED_LEADER_EPOCH),
        (same, ErrorCode.NONE),
        (partition_epoch < current_partition_epoch, ErrorCode.INVALID_UPDATE_VERSION),
        ((recovery == _RECOVERING) & (isr.lengths > 1), ErrorCode.INVALID_REQUEST),
        ((recovery == _RECOVERING) & (current_recovery == _RECOVERED), ErrorCode.INVALID_REQUEST),
        (
            ineligible,
            ErrorCode.INELIGIBLE_REPLICA
            if request.version >= _TOPIC_IDS_SINCE
            else ErrorCode.OPERATION_NOT_ATTEMPTED,
        ),
        (malformed, ErrorCode.INVALID_REQUEST),
    ]
    error: Int32 = np.select(
        [condition for condition, _ in checks], [int(code) for _, code in checks], _WRITE
    ).astype(np.int32)
    return error


def _last_of(rows: Int64) -> Bool:
    """Return a flag for each row: whether no later one is the same."""
    flags = np.zeros(len(rows), dtype=bool)
    _, from_end = np.unique(rows[::-1], return_index=True)
    flags[len(rows) - 1 - from_end] = True
    return flags


def _write(core: ControllerCore, request: AlterPartitionRequest, rows: Int64, chosen: Int64) -> Int32:
    """Write the ISRs of these rows of the request to ZooKeeper and to the context; return their errors."""
    at = rows[chosen]
    written = write_leadership(
        core.context,
        core.nodes,
        at,
        leader=np.full(len(at), request.broker_id, np.int32),
        leader_epoch=request.leader_epoch[chosen],
        recovery_state=request.recovery_state[chosen],
        isr=take(request.isr, chosen),
    )
    stale = written == ResultCode.BAD_VERSION
    if stale.any():
        # Somebody else has written. If the nodes were not read, the next request would fail too.
        core.log.info("AlterPartition: %d state nodes have changed", int(stale.sum()))
        read_back(core.context, core.nodes, at[stale])
    error = np.full(len(at), ErrorCode.UNKNOWN_SERVER_ERROR, np.int32)
    error[written == ResultCode.OK] = ErrorCode.NONE
    error[stale] = ErrorCode.INVALID_UPDATE_VERSION
    return error


def _result(core: ControllerCore, rows: Int64, exists: Bool, error: Int32) -> AlterPartitionResult:
    partitions = core.state.partitions
    fine = np.flatnonzero(exists & (error == ErrorCode.NONE))
    at = rows[fine]

    def column(values: Int32) -> Int32:
        answer = np.zeros(len(rows), np.int32)
        answer[fine] = values[at]
        return answer

    current = take(partitions.isr, at)
    starts, lengths = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.int32)
    packed = packed_values(current).copy()
    lengths[fine] = current.lengths
    starts[fine] = np.cumsum(current.lengths, dtype=np.int32) - current.lengths
    return AlterPartitionResult(
        0,
        error,
        column(partitions.leader),
        column(partitions.leader_epoch),
        column(partitions.partition_epoch),
        column(partitions.recovery_state),
        ListColumn(starts, lengths, packed),
    )


def _complete_reassignments(core: ControllerCore, rows: Int64) -> None:
    """Finish reassignments whose new replicas are in sync now, after the answer to this request."""
    reassigning = rows[is_reassigning(core.state, rows)] if len(rows) else rows
    if not len(reassigning):
        return
    # Rows may move until then.
    partition_ids = core.context.partition_ids[reassigning]

    def complete(core: ControllerCore) -> None:
        now = core.context.rows_of_ids(partition_ids)
        reassignment.complete_caught_up(core, now[now >= 0])

    core.enqueue(ControllerState.ALTER_PARTITION_REASSIGNMENT, "PartitionReassignmentIsrChange", complete)


def process_notifications(core: ControllerCore) -> None:
    """Read the state nodes that brokers have changed themselves, and send their metadata to all brokers.

    Source: ``processIsrChangeNotification``.
    """
    names = core.watches.children(paths.ISR_CHANGE_NOTIFICATIONS)
    if not names:
        return
    try:
        read = core.nodes.read_isr_change_notifications(names)
        core.note_malformed(paths.ISR_CHANGE_NOTIFICATIONS, read.malformed)
        rows = rows_of_pairs(core.state, read.partitions)
        if len(rows):
            read_back(core.context, core.nodes, rows)
            core.send_update_metadata(None, rows)
            reassigning = rows[is_reassigning(core.state, rows)]
            if len(reassigning):
                reassignment.complete_caught_up(core, reassigning)
    finally:
        core.nodes.delete_isr_change_notifications(names)
