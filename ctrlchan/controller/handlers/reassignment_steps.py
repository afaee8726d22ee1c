"""The steps of a partition reassignment (KIP-455), for many rows at once.

Phase A, while the targets are not all in the ISR: the new leader epoch and all replicas, old and added, go to
the brokers, which start the added ones. Phase B, when they are: the removed replicas leave the assignment,
the leadership and the ISR, and are deleted. ZooKeeper is written last, because only the topic's node has the
original replicas: whatever fails before can be done again. Source:
``kafka.controller.KafkaController.onPartitionReassignment`` (Kafka 3.9).

``rows`` are int64 rows of the state without duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.handlers.leader_epochs import increment_leader_epochs
from ctrlchan.controller.handlers.topic_nodes import write_topic_nodes
from ctrlchan.controller.machines.leader_election import Strategy
from ctrlchan.controller.machines.leadership import read_back
from ctrlchan.controller.machines.log_texts import ListedPartitions
from ctrlchan.controller.machines.recipients import add_leader_and_isr, one_batch
from ctrlchan.controller.machines.states import PartitionState, ReplicaState
from ctrlchan.errors import CtrlchanError
from ctrlchan.state.lists import (
    differing,
    empty_lists,
    entries_within,
    entry_rows,
    not_within,
    packed_values,
    select,
    take,
)

__all__ = ["complete", "in_sync", "replace_assignments", "start", "target_replicas"]

Bool: TypeAlias = npt.NDArray[np.bool_]
Int32: TypeAlias = npt.NDArray[np.int32]
Int64: TypeAlias = npt.NDArray[np.int64]


def target_replicas(core: ControllerCore, rows: Int64) -> ListColumn:
    """Return the replicas that each row has after its reassignment."""
    partitions = core.state.partitions
    assert partitions.removing is not None
    return _without(take(partitions.replicas, rows), take(partitions.removing, rows))


def in_sync(core: ControllerCore, rows: Int64) -> Bool:
    """Return a flag for each row: whether all its targets are in the ISR, as it stands in ZooKeeper."""
    if not len(rows):
        return np.empty(0, bool)
    found = read_back(core.context, core.nodes, rows)
    isr = take(core.state.partitions.isr, rows)
    flags: Bool = ~found.missing & ~found.later & ~not_within(target_replicas(core, rows), isr)
    return flags


def replace_assignments(
    core: ControllerCore, rows: Int64, replicas: ListColumn, adding: ListColumn, removing: ListColumn
) -> Bool:
    """Write new assignments to the topics' nodes and the state; return a flag for each row: whether it was.

    Replicas that an earlier reassignment was adding and that are in no list any more are stopped and deleted.
    """
    partitions = core.state.partitions
    assert partitions.adding is not None
    assert partitions.removing is not None
    before = _copied(rows, partitions.replicas, partitions.adding, partitions.removing)
    changed = differing(before[0], replicas) | differing(before[1], adding) | differing(before[2], removing)
    done = np.ones(len(rows), bool)
    at = np.flatnonzero(changed)
    if len(at):
        _log_assignments(core, rows[at], before, (replicas, adding, removing), at)
        core.state.update(
            rows[at], replicas=take(replicas, at), adding=take(adding, at), removing=take(removing, at)
        )
        done[at] = _write_topics(core, rows[at], [take(lists, at) for lists in before])
        stored = at[done[at]]
        unneeded = _without(take(before[0], stored), take(replicas, stored))
        stop_replicas(core, rows[stored][entry_rows(unneeded)], packed_values(unneeded))
    return done


def _log_assignments(
    core: ControllerCore, rows: Int64, before: Sequence[ListColumn], now: Sequence[ListColumn], at: Int64
) -> None:
    """Write a line of level DEBUG with old and new assignments, which are at these places of the columns."""

    def change(place: int) -> str:
        old, new = ([lists[at[place]].tolist() for lists in columns] for columns in (before, now))
        return f" from {old} to {new}"

    core.log.debug(
        "Updating assignment (replicas, adding, removing) of partition %s",
        ListedPartitions(core.context, rows, change),
    )


def start(core: ControllerCore, rows: Int64) -> Bool:
    """Phase A: send the replicas with a new leader epoch; return a flag for each row: whether it was sent.

    The added replicas of a partition that never had a leader are new too: they are sent when it has one.
    """
    never_led = ~core.context.has_leadership(rows)
    done = _send_leader_and_isr(core, rows)
    rows = rows[done | never_led]
    partitions = core.state.partitions
    assert partitions.adding is not None
    core.replica_states.handle_state_changes(*_pairs(rows, partitions.adding), ReplicaState.NEW)
    return done


def complete(core: ControllerCore, rows: Int64) -> Bool:
    """Phase B: make the targets the only replicas; return a flag for each row: whether its node was written.

    Rows that fail are as they were before, to be tried again.
    """
    partitions = core.state.partitions
    assert partitions.adding is not None
    assert partitions.removing is not None
    before = _copied(rows, partitions.replicas, partitions.adding, partitions.removing)
    removed = _pairs(rows, partitions.removing)
    core.replica_states.handle_state_changes(*_pairs(rows, partitions.adding), ReplicaState.ONLINE)
    none = empty_lists(len(rows))
    core.state.update(rows, replicas=target_replicas(core, rows), adding=none, removing=none)
    _move_leaders(core, rows)
    stop_replicas(core, *removed)
    done = _write_topics(core, rows, before)
    core.send_update_metadata(None, rows)
    return done


def stop_replicas(core: ControllerCore, rows: Int64, brokers: Int32) -> None:
    """Remove replicas that left the assignment from the ISR, stop and delete them. Nobody waits for them."""
    for state in (
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_STARTED,
        ReplicaState.DELETION_SUCCESSFUL,
        ReplicaState.NON_EXISTENT,
    ):
        core.replica_states.handle_state_changes(rows, brokers, state)


def _move_leaders(core: ControllerCore, rows: Int64) -> None:
    """Elect a target where the leader is no replica or is offline; send the others their replicas."""
    partitions = core.state.partitions
    leader = partitions.leader[rows]
    replicas = take(partitions.replicas, rows)
    stays = np.zeros(len(rows), bool)
    stays[entry_rows(replicas)[packed_values(replicas) == leader[entry_rows(replicas)]]] = True
    stays &= core.context.is_online(rows, leader)
    if not stays.all():
        core.partition_states.handle_state_changes(rows[~stays], PartitionState.ONLINE, Strategy.REASSIGN)
    if stays.any():
        _send_leader_and_isr(core, rows[stays])


def _send_leader_and_isr(core: ControllerCore, rows: Int64) -> Bool:
    """Send the replicas of these rows with a new leader epoch; flag the rows for which it was written."""
    with one_batch(core.batch, core.epoch):
        done = increment_leader_epochs(core, rows)
        failed, rows, partitions = rows[~done], rows[done], core.state.partitions
        assert partitions.adding is not None
        adding = take(partitions.adding, rows)
        origin = _without(take(partitions.replicas, rows), adding)
        add_leader_and_isr(core.batch, rows, origin, is_new=False)
        # "Is new" lets a broker create the replica although one of its log directories has failed.
        add_leader_and_isr(core.batch, rows, adding, is_new=True)
    core.state_changes.reassignments_sent(rows)
    core.state_changes.reassignments_failed(failed)
    return done


def _write_topics(core: ControllerCore, rows: Int64, before: list[ListColumn]) -> Bool:
    """Write the nodes of the rows' topics from the state; restore the rows whose topic is not written."""
    names, place = core.context.names_of(rows)
    try:
        errors = write_topic_nodes(core, names)
    except CtrlchanError:
        _restore(core, rows, before)
        raise
    done: Bool = (errors == 0)[place]
    if not done.all():
        failed = np.flatnonzero(~done)
        _restore(core, rows[failed], [take(lists, failed) for lists in before])
        for index in np.flatnonzero(errors).tolist():
            core.log.error(
                "the assignment of topic %s is not written: error %d of ZooKeeper",
                names[index].decode(),
                errors[index],
            )
    return done


def _restore(core: ControllerCore, rows: Int64, before: list[ListColumn]) -> None:
    replicas, adding, removing = before
    core.state.update(rows, replicas=replicas, adding=adding, removing=removing)


def _without(lists: ListColumn, others: ListColumn) -> ListColumn:
    """Return each list without the elements that ``others`` has in the same row."""
    return select(lists, ~entries_within(lists, others))


def _pairs(rows: Int64, lists: ListColumn) -> tuple[Int64, Int32]:
    """Return (row, broker) of each element of the rows' lists, copied: the state may change."""
    chosen = take(lists, rows)
    return np.repeat(rows, chosen.lengths), packed_values(chosen).copy()


def _copied(rows: Int64, *columns: ListColumn) -> list[ListColumn]:
    """Return these rows of the columns, copied: the state may change."""
    copies = []
    for column in columns:
        chosen = take(column, rows)
        ends = np.cumsum(chosen.lengths, dtype=np.int64)
        copies.append(
            ListColumn(
                (ends - chosen.lengths).astype(np.int32), chosen.lengths.copy(), packed_values(chosen).copy()
            )
        )
    return copies
