"""ISR changes: AlterPartition requests of leaders, and notifications of brokers below IBP 2.7-IV2.

Source: ``KafkaController.processAlterPartition`` and ``processIsrChangeNotification`` (Kafka 3.9).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.handlers import reassignment
from ctrlchan.controller.machines.leadership import read_back, write_leadership
from ctrlchan.controller.machines.log_texts import ListedPartitions
from ctrlchan.controller.machines.lookups import (
    find_rows,
    is_reassigning,
    rows_of_pairs,
    topic_rows_of_names,
)
from ctrlchan.errors import (
    ControllerMovedError,
    CtrlchanError,
    ErrorCode,
    IllegalStateError,
    ResultCode,
)
from ctrlchan.state import NO_LEADERSHIP
from ctrlchan.state.lists import contains, differing, empty_lists, entry_rows, joined, packed_values, take
from ctrlchan.state.rows import distinct
from ctrlchan.zookeeper import paths

__all__ = [
    "AlterPartitionRequest",
    "AlterPartitionResult",
    "alter_partitions",
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

    @property
    def by_id(self) -> bool:
        """Whether ``topics`` are ids."""
        return self.version >= _TOPIC_IDS_SINCE


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

    def part(self, rows: slice) -> AlterPartitionResult:
        """Return the result of these rows."""
        return AlterPartitionResult(
            self.error_code,
            self.error[rows],
            self.leader[rows],
            self.leader_epoch[rows],
            self.partition_epoch[rows],
            self.recovery_state[rows],
            take(self.isr, rows),
        )


def alter_partitions(
    core: ControllerCore, requests: Sequence[AlterPartitionRequest]
) -> list[AlterPartitionResult | Exception]:
    """Write the new ISRs that are valid; return the result of each request, or the error it ended with.

    UpdateMetadata goes out for all partitions of the requests that exist, also for refused ones.
    Reassignments that became complete are finished by a later event. The requests have the results that they
    have one after the other; but those that name different partitions share a write and an UpdateMetadata.
    """
    results: list[AlterPartitionResult | Exception | None] = [_refusal(core, one) for one in requests]
    for group in _groups(_find(core, [at for at, one in enumerate(results) if one is None], requests)):
        try:
            found: Sequence[AlterPartitionResult | Exception] = _alter(core, group)
        except (ControllerMovedError, IllegalStateError):
            raise
        except CtrlchanError as error:
            found = [error] * len(group)
        for one, result in zip(group, found, strict=True):
            results[one.place] = result
    return [one for one in results if one is not None]


class _Asked(NamedTuple):
    """A request that is not refused. ``place``: its number among all that are handled together.

    ``rows``: the state's row of each partition, or -1. ``error``: the codes of those.
    """

    place: int
    request: AlterPartitionRequest
    rows: Int64
    error: Int32


def _groups(asked: Iterable[_Asked]) -> Iterator[list[_Asked]]:
    """Yield the requests in their order, in groups in which no two name the same partition."""
    group: list[_Asked] = []
    taken: set[int] = set()
    for one in asked:
        rows = one.rows[one.rows >= 0].tolist()
        if not taken.isdisjoint(rows):
            yield group
            group, taken = [], set()
        group.append(one)
        taken.update(rows)
    if group:
        yield group


def _alter(core: ControllerCore, group: Sequence[_Asked]) -> list[AlterPartitionResult]:
    columns = _Columns.of([one.request for one in group])
    rows = np.concatenate([one.rows for one in group])
    error = np.concatenate([one.error for one in group])
    exists = rows >= 0
    error[exists] = _check(core, columns, rows, exists)
    # Of a partition that is named twice the last row counts, as in Kafka's map.
    last = _last_of(rows)
    chosen = np.flatnonzero(exists & last & (error == _WRITE))
    error[error == _WRITE] = ErrorCode.NONE
    if len(chosen):
        error[chosen] = _write(core, columns, rows, chosen)
    named = distinct(rows[exists])
    core.send_update_metadata(None, named)
    _complete_reassignments(core, distinct(rows[exists & (error == ErrorCode.NONE)]))
    result = _result(core, rows, exists, error)
    return [result.part(rows) for rows in _parts([one.request for one in group])]


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """The partitions of requests, one request after the other. Names: as in ``AlterPartitionRequest``."""

    broker_id: Int32
    by_id: Bool
    leader_epoch: Int32
    partition_epoch: Int32
    recovery_state: Int32
    isr: ListColumn

    @classmethod
    def of(cls, requests: Sequence[AlterPartitionRequest]) -> _Columns:
        counts = [len(one.partition) for one in requests]
        return cls(
            broker_id=np.repeat(np.array([one.broker_id for one in requests], np.int32), counts),
            by_id=np.repeat([one.by_id for one in requests], counts),
            leader_epoch=np.concatenate([one.leader_epoch for one in requests]),
            partition_epoch=np.concatenate([one.partition_epoch for one in requests]),
            recovery_state=np.concatenate([one.recovery_state for one in requests]),
            isr=joined([one.isr for one in requests]),
        )


#: In ``error`` while a request is checked: the partition is to be written.
_WRITE: Final = 2**15


def _refusal(core: ControllerCore, request: AlterPartitionRequest) -> AlterPartitionResult | None:
    """Return the answer to a request that is refused as a whole, else None."""
    if not _has_epoch(core, request.broker_id, request.broker_epoch):
        core.log.info(
            "AlterPartition of broker %d is refused: its epoch is not %d",
            request.broker_id,
            request.broker_epoch,
        )
        return _refused(ErrorCode.STALE_BROKER_EPOCH)
    if ((request.recovery_state < _RECOVERED) | (request.recovery_state > _RECOVERING)).any():
        # Kafka's ``LeaderRecoveryState.of`` raises for another state.
        core.log.error("AlterPartition of broker %d has an unknown recovery state", request.broker_id)
        return _refused(ErrorCode.UNKNOWN_SERVER_ERROR)
    return None


def _has_epoch(core: ControllerCore, broker_id: int, epoch: int) -> bool:
    state = core.state
    try:
        return int(state.brokers.epochs[state.broker_row(broker_id)]) == epoch
    except KeyError:
        return False


def _refused(code: int) -> AlterPartitionResult:
    none = np.empty(0, np.int32)
    return AlterPartitionResult(int(code), none, none, none, none, none, empty_lists(0))


def _find(
    core: ControllerCore, places: Sequence[int], requests: Sequence[AlterPartitionRequest]
) -> list[_Asked]:
    """Return the requests at these places with the state's rows."""
    if not places:
        return []
    state = core.state
    asked = [requests[place] for place in places]
    wanted = np.concatenate([_topic_rows(core, one)[one.topic] for one in asked])
    rows = find_rows(state, wanted, np.concatenate([one.partition for one in asked]))
    found = np.flatnonzero(rows >= 0)
    rows[found[state.partitions.leader_epoch[rows[found]] == NO_LEADERSHIP]] = -1
    error = np.zeros(len(wanted), np.int32)
    error[rows < 0] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    by_id = np.repeat([one.by_id for one in asked], [len(one.topic) for one in asked])
    error[by_id & (wanted < 0)] = ErrorCode.UNKNOWN_TOPIC_ID
    return [
        _Asked(place, request, rows[part], error[part])
        for place, request, part in zip(places, asked, _parts(asked), strict=True)
    ]


def _topic_rows(core: ControllerCore, request: AlterPartitionRequest) -> Int64:
    if request.by_id:
        return core.context.topic_rows_of_ids(request.topics)
    return topic_rows_of_names(core.state, request.topics)


def _parts(requests: Sequence[AlterPartitionRequest]) -> list[slice]:
    """Return where the partitions of each request are when those of all are put together."""
    ends = list(itertools.accumulate(len(one.partition) for one in requests))
    return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]


def _check(core: ControllerCore, asked: _Columns, rows: Int64, exists: Bool) -> Int32:
    """Return an error code for each row that exists: 0 when the state is so already, ``_WRITE`` to write."""
    at = rows[exists]
    partitions = core.state.partitions
    isr = take(asked.isr, np.flatnonzero(exists))
    broker_id, recovery = asked.broker_id[exists], asked.recovery_state[exists]
    leader_epoch, partition_epoch = asked.leader_epoch[exists], asked.partition_epoch[exists]
    current_epoch, current_partition_epoch = partitions.leader_epoch[at], partitions.partition_epoch[at]
    current_recovery = partitions.recovery_state[at]
    is_leader = partitions.leader[at] == broker_id
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
    malformed = ~is_leader | ~contains(isr, broker_id)
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
        (ineligible & asked.by_id[exists], ErrorCode.INELIGIBLE_REPLICA),
        (ineligible, ErrorCode.OPERATION_NOT_ATTEMPTED),
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


def _write(core: ControllerCore, asked: _Columns, rows: Int64, chosen: Int64) -> Int32:
    """Write the ISRs of these rows of the requests to ZooKeeper and to the context; return their errors."""
    at = rows[chosen]
    core.log.debug("Updating ISRs for partitions: %s.", ListedPartitions(core.context, at))
    written = write_leadership(
        core.context,
        core.nodes,
        at,
        leader=asked.broker_id[chosen],
        leader_epoch=asked.leader_epoch[chosen],
        recovery_state=asked.recovery_state[chosen],
        isr=take(asked.isr, chosen),
    )
    updated = at[written == ResultCode.OK]
    if len(updated):
        isr = core.state.partitions.isr
        core.log.debug(
            "ISR updated for partitions: %s.",
            ListedPartitions(core.context, updated, lambda place: f" to {isr[updated[place]].tolist()}"),
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
