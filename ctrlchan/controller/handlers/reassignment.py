"""Reassigns partitions: by request, by the node ``/admin/reassign_partitions``, and after a failover.

A partition is being reassigned while it has adding or removing replicas in the node of its topic; the state
has the same columns. Source: ``kafka.controller.KafkaController`` (Kafka 3.9), KIP-455. Different on purpose:
partitions that start or end together are written and sent together; impossible entries of the node are
removed from it; a change of the node starts its new entries only; a reassignment that would drop all replicas
in sync, which an earlier one was adding, is refused, as by ``ReplicationControlManager`` of KRaft: Kafka in
ZooKeeper mode deletes them, with records that no other replica has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import compress
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.events.notifications import NotificationKind
from ctrlchan.controller.handlers.reassignment_steps import (
    complete,
    in_sync,
    replace_assignments,
    start,
    target_replicas,
)
from ctrlchan.controller.handlers.replica_assignment import ReplicaAssignment
from ctrlchan.controller.machines.leadership import read_back
from ctrlchan.controller.machines.reassignment_node import Partition, remove_entries
from ctrlchan.errors import (
    ControllerMovedError,
    CtrlchanError,
    ErrorCode,
    IllegalStateError,
    SessionExpiredError,
)
from ctrlchan.state.lists import entry_rows, packed_values, take
from ctrlchan.state.rows import distinct
from ctrlchan.zookeeper import paths

__all__ = [
    "Answer",
    "Partition",
    "alter",
    "complete_caught_up",
    "list_",
    "process_isr_changes",
    "process_node",
    "resume",
    "resume_on_brokers",
]

Bool: TypeAlias = npt.NDArray[np.bool_]
Int64: TypeAlias = npt.NDArray[np.int64]
#: (error code, message); code 0 has no message.
Answer: TypeAlias = tuple[int, str | None]

_STARTED: Final[Answer] = (ErrorCode.NONE, None)
_NO_REPLICAS: Final = ReplicaAssignment((), (), ())
_UNKNOWN: Final[Answer] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
_NOT_IN_PROGRESS: Final[Answer] = (
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    "The partition is not being reassigned.",
)
_FAILED: Final[Answer] = (ErrorCode.UNKNOWN_SERVER_ERROR, None)


def alter(
    core: ControllerCore, reassignments: Mapping[Partition, Sequence[int] | None]
) -> dict[Partition, Answer]:
    """Start reassignments to these replicas, or cancel those that have None (AlterPartitionReassignments).

    The latest reassignment of a partition counts: one in progress is replaced, and the partition's entry in
    ``/admin/reassign_partitions`` is removed. Codes: 39 for replicas that cannot be, 85 when there is nothing
    to cancel, also of an unknown partition, 3 for another unknown partition or one that is being deleted, -1
    when ZooKeeper fails.
    Raises ControllerMovedError, IllegalStateError (of a batch).
    """
    answers: dict[Partition, Answer] = {}
    wanted: dict[Partition, ReplicaAssignment] = {}
    live = set(core.state.online_broker_ids.tolist())
    for partition, target in reassignments.items():
        current = _assignment(core, partition)
        # As Kafka, before it looks whether there is such a partition and whether its topic is to be deleted.
        refusal = None if target is None else _refusal(current or _NO_REPLICAS, target, live)
        if refusal is not None:
            answers[partition] = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, refusal)
        elif core.deletion.is_queued(partition[0]) or (current is None and target is not None):
            answers[partition] = _UNKNOWN
        elif current is None or (target is None and not current.is_being_reassigned):
            answers[partition] = _NOT_IN_PROGRESS
        else:
            wanted[partition] = current.reassign_to(current.origin if target is None else target)
    if wanted:
        try:
            for partition, refusal in _losses(core, wanted).items():
                del wanted[partition]
                answers[partition] = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, refusal)
            remove_entries(core.nodes, lambda key, _: key in wanted)
            answers |= _reassign(core, wanted)
        except (ControllerMovedError, IllegalStateError, SessionExpiredError):
            raise
        except CtrlchanError as error:
            core.log.exception("reassignments of %d partitions failed", len(wanted))
            answers |= dict.fromkeys(wanted, (ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
    return {partition: answers[partition] for partition in reassignments}


def list_(
    core: ControllerCore, partitions: Mapping[str, Collection[int]] | None = None
) -> dict[Partition, ReplicaAssignment]:
    """Return which of these partitions, or of all, are being reassigned (ListPartitionReassignments)."""
    rows = core.context.reassigning_rows()
    columns = core.state.partitions
    assert columns.adding is not None
    assert columns.removing is not None
    lists = (take(column, rows).to_lists() for column in (columns.replicas, columns.adding, columns.removing))
    found = {
        partition: ReplicaAssignment(tuple(replicas), tuple(adding), tuple(removing))
        for partition, replicas, adding, removing in zip(_partitions(core, rows), *lists, strict=True)
    }
    if partitions is None:
        return found
    return {key: one for key, one in found.items() if key[1] in partitions.get(key[0], ())}


def process_node(core: ControllerCore) -> None:
    """Start the reassignments that stand in ``/admin/reassign_partitions``, and watch the node.

    Entries whose reassignment is in progress go on. Entries that cannot be started are removed from the
    node; the node is removed with its last entry. A malformed node is logged and left as it is. Raises
    ControllerMovedError, ZooKeeperError, IllegalStateError (of a batch).
    """
    core.watches.watch(
        paths.REASSIGN_PARTITIONS,
        ControllerState.ALTER_PARTITION_REASSIGNMENT,
        "ZkPartitionReassignment",
        lambda: process_node(core),
    )
    if not core.watches.exists(paths.REASSIGN_PARTITIONS):
        return
    node = core.nodes.read_reassign_partitions()
    if node is None:
        return
    if node.reasons:
        core.log.error("%s is ignored: %s", paths.REASSIGN_PARTITIONS, "; ".join(node.reasons))
        return
    wanted: dict[Partition, ReplicaAssignment] = {}
    failed: dict[Partition, str] = {}
    for partition, target in node.partitions.items():
        current = None if core.deletion.is_queued(partition[0]) else _assignment(core, partition)
        refusal = None if current is None else _refusal(current, target, None)
        if current is None or refusal:
            failed[partition] = refusal or "The partition does not exist."
        elif not current.is_being_reassigned or current.target != tuple(target):
            wanted[partition] = current.reassign_to(target)
    failed |= _losses(core, wanted)
    wanted = {partition: one for partition, one in wanted.items() if partition not in failed}
    for partition, (code, message) in _reassign(core, wanted).items():
        if code != ErrorCode.NONE:
            failed[partition] = message or ErrorCode.name_of(code)
    for partition, message in failed.items():
        core.log.error("%s: %s-%d is removed: %s", paths.REASSIGN_PARTITIONS, *partition, message)
    if failed or not node.partitions:
        remove_entries(core.nodes, lambda key, _: key in failed)


def resume(core: ControllerCore, rows: Int64 | None = None) -> None:
    """Go on with the reassignments of these rows, or with all. Rows may move.

    Topics whose deletion has begun are left out: their new replicas would be started again. Raises
    ControllerMovedError, ZooKeeperError, IllegalStateError (of a batch).
    """
    rows = core.context.reassigning_rows() if rows is None else rows
    deleted = core.context.rows_of_topics(core.context.topics_with_deletion_started)
    rows = rows[~np.isin(rows, deleted)]
    if len(rows):
        core.deletion.halt_reassigned(_topics(core, rows))
        _watch_isr(core, rows)
        _advance(core, rows)


def resume_on_brokers(core: ControllerCore, broker_ids: Iterable[int]) -> None:
    """Resume the reassignments that have one of these brokers, which came back, as a target."""
    rows = core.context.reassigning_rows()
    targets = target_replicas(core, rows)
    chosen = np.isin(packed_values(targets), np.array(sorted(broker_ids), np.int32))
    resume(core, rows[distinct(entry_rows(targets)[chosen])])


def complete_caught_up(core: ControllerCore, rows: Int64) -> None:
    """Complete the reassignments of these rows whose targets are all in the ISR; rows may move.

    Rows that are not being reassigned are left out.
    """
    rows = distinct(rows[_is_reassigned(core, rows)])
    rows = rows[in_sync(core, rows)]
    if len(rows):
        _complete(core, rows)


def process_isr_changes(core: ControllerCore, changed: Sequence[str]) -> None:
    """Complete reassignments whose state nodes, at these paths, have changed (below IBP 2.7-IV2).

    The nodes are watched again while the reassignment goes on.
    """
    rows = []
    for path in changed:
        place = paths.place_of(path)
        try:
            rows.append(core.state.row(place.topic, int(place.number)))
        except KeyError:
            core.log.debug("%s has changed and is deleted already", path)
    found = np.array(rows, np.int64)
    reassigned = found[_is_reassigned(core, found)]
    _watch_isr(core, reassigned)
    complete_caught_up(core, reassigned)


def _reassign(core: ControllerCore, wanted: Mapping[Partition, ReplicaAssignment]) -> dict[Partition, Answer]:
    """Store these assignments and take their first step; rows may move."""
    rows_of = {partition: core.state.row(*partition) for partition in wanted}
    order = sorted(wanted, key=rows_of.__getitem__)
    rows = np.array([rows_of[partition] for partition in order], np.int64)
    if not len(rows):
        return {}
    core.deletion.mark_ineligible(_topics(core, rows), "reassignment in progress")
    columns = [
        ListColumn.from_lists([list(wanted[partition][field]) for partition in order]) for field in range(3)
    ]
    done = replace_assignments(core, rows, *columns)
    _watch_isr(core, rows[done])
    done[done] = _advance(core, rows[done])
    return {
        partition: _STARTED if one else _FAILED for partition, one in zip(order, done.tolist(), strict=True)
    }


def _advance(core: ControllerCore, rows: Int64) -> Bool:
    """Take phase A or B of each row; return a flag for each row: whether it succeeded. Rows may move."""
    changing = _is_reassigned(core, rows)
    ready = ~changing
    ready[changing] = in_sync(core, rows[changing])
    done = np.zeros(len(rows), bool)
    if not ready.all():
        done[~ready] = start(core, rows[~ready])
    if ready.any():
        done[ready] = _complete(core, rows[ready])
    return done


def _complete(core: ControllerCore, rows: Int64) -> Bool:
    keys = _partitions(core, rows)
    done = complete(core, rows)
    targets = take(core.state.partitions.replicas, rows).to_lists()
    ended = {key: tuple(target) for key, target, one in zip(keys, targets, done.tolist(), strict=True) if one}
    core.log.info("reassignments of %d partitions are complete", len(ended))
    core.isr_watches.forget(paths.partition_state(*key) for key in ended)
    remove_entries(core.nodes, lambda key, target: ended.get(key) == target)
    core.notify(NotificationKind.REASSIGNMENT_FINISHED, topics=sorted({topic for topic, _ in ended}))
    core.deletion.resume_for({topic for topic, _ in ended})
    return done


def _is_reassigned(core: ControllerCore, rows: Int64) -> Bool:
    """Return a flag for each row: whether it has adding or removing replicas."""
    partitions = core.state.partitions
    assert partitions.adding is not None
    assert partitions.removing is not None
    flags: Bool = (partitions.adding.lengths[rows] > 0) | (partitions.removing.lengths[rows] > 0)
    return flags


def _refusal(current: ReplicaAssignment, target: Sequence[int], live: set[int] | None) -> str | None:
    """Return the reason against a target, or None. Only brokers of ``live`` may be added; None allows all."""
    if not target:
        return "The list of replicas is empty."
    if len(set(target)) < len(target):
        return f"The list of replicas has a broker twice: {list(target)}"
    if min(target) < 0:
        return f"The list of replicas has a broker id below 0: {list(target)}"
    dead = [] if live is None else [one for one in current.reassign_to(target).adding if one not in live]
    return f"Brokers that would be added are not live: {dead}" if dead else None


def _losses(core: ControllerCore, wanted: Mapping[Partition, ReplicaAssignment]) -> dict[Partition, str]:
    """Return the reason against each assignment that leaves no replica in sync."""
    rows = np.array([core.state.row(*partition) for partition in wanted], np.int64)
    now = take(core.state.partitions.replicas, rows).to_lists()
    drops = np.array(
        [not set(own) <= set(one.replicas) for own, one in zip(now, wanted.values(), strict=True)], bool
    )
    rows = rows[drops]
    if not len(rows):
        return {}
    dropping = compress(wanted, drops)
    # Leaders below IBP 2.7-IV2 write their ISRs themselves.
    read_back(core.context, core.nodes, rows)
    in_sync_now = take(core.state.partitions.isr, rows).to_lists()
    return {
        partition: f"No replica that is in sync would stay: {sorted(isr)}"
        for partition, isr in zip(dropping, in_sync_now, strict=True)
        if isr and set(wanted[partition].replicas).isdisjoint(isr)
    }


def _assignment(core: ControllerCore, partition: Partition) -> ReplicaAssignment | None:
    """Return the assignment, None for a partition that does not exist."""
    try:
        row = core.state.row(*partition)
    except KeyError:
        return None
    columns = core.state.partitions
    assert columns.adding is not None
    assert columns.removing is not None
    replicas, adding, removing = (
        tuple(column[row].tolist()) for column in (columns.replicas, columns.adding, columns.removing)
    )
    return ReplicaAssignment(replicas, adding, removing) if replicas else None


def _watch_isr(core: ControllerCore, rows: Int64) -> None:
    """Watch the state nodes of these rows where leaders change ISRs without AlterPartition."""
    if not core.config.alter_partition:
        core.isr_watches.watch(_state_nodes(core, rows))


def _state_nodes(core: ControllerCore, rows: Int64) -> list[str]:
    return [paths.partition_state(topic, partition) for topic, partition in _partitions(core, rows)]


def _partitions(core: ControllerCore, rows: Int64) -> list[Partition]:
    columns = core.state.partitions
    topics = [core.state.topic_name(row) for row in columns.topic_row[rows].tolist()]
    return list(zip(topics, columns.partition[rows].tolist(), strict=True))


def _topics(core: ControllerCore, rows: Int64) -> list[str]:
    return [name.decode() for name in core.context.names_of(rows)[0]]
