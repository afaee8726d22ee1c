"""Groups the log entries of a partition by incarnation, leader epoch and broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from ctrlchan.pipeline.jobs.explain.model import EpochStep, Incarnation, LocatedEntry
from ctrlchan.protocol import LEADER_DURING_DELETE

__all__ = ["incarnations_of"]

_DECIDED: Final = {"partition_state", "isr_shrunk", "reassigned"}
_SENT: Final = {"send_become_leader", "send_become_follower"}
_APPLIED: Final = {
    "became_leader": "leader",
    "became_follower": "follower",
    "still_leader": "known",
    "still_follower": "known",
    "already_known": "known",
    "topic_id_assigned": "known",
    # With the leader epoch of the request: see ``_add_epochs``.
    "become_leader_done": "leader",
    "become_follower_done": "follower",
}
#: Entries of a LeaderAndIsr request that name the request and not the leader epoch.
_WITHOUT_EPOCH: Final = {"become_leader_done", "become_follower_done", "still_leader", "still_follower"}
_REFUSED: Final = {"refused", "failed", "skipped", "stale_leader_epoch"}


def incarnations_of(entries: Iterable[LocatedEntry]) -> list[Incarnation]:
    """Return the incarnations of a partition. ``entries``: ordered by time; so are the leader epochs.

    Sets the leader epochs of entries that name only the request.
    """
    found: list[Incarnation] = []
    for entry in _add_epochs(entries):
        if not found or _creates(entry):
            found.append(Incarnation(len(found)))
        found[-1].entries.append(entry)
    for incarnation in found:
        incarnation.steps = _steps(incarnation)
        incarnation.deleted = next((entry.time for entry in incarnation.entries if _deletes(entry)), None)
    return found


def _add_epochs(entries: Iterable[LocatedEntry]) -> Iterator[LocatedEntry]:
    """Give entries without a leader epoch that of their request, which the broker logged as received.

    Kafka before 2.6 logs the end of a transition ("Completed LeaderAndIsr request") and not its leader epoch.
    It logs the end also for partitions whose transition failed; these get no epoch.
    """
    received: dict[tuple[int | None, ...], int | None] = {}
    for entry in entries:
        request = (entry.broker, entry.controller_id, entry.controller_epoch, entry.correlation_id)
        if entry.event == "receive_leader_and_isr":
            received[request] = entry.leader_epoch
        elif entry.event in _REFUSED and entry.api == "LEADER_AND_ISR":
            received.pop(request, None)
        elif entry.event in _WITHOUT_EPOCH and entry.leader_epoch is None and entry.known_epoch is None:
            entry.leader_epoch = received.get(request)
        yield entry


def _creates(entry: LocatedEntry) -> bool:
    # A controller that is elected later logs no such change.
    return entry.event == "partition_state" and entry.from_state == "NonExistentPartition"


def _deletes(entry: LocatedEntry) -> bool:
    return entry.event == "metadata_deleted" or entry.to_state == "NonExistentPartition"


def _steps(incarnation: Incarnation) -> list[EpochStep]:
    steps: dict[int, EpochStep] = {}
    current: EpochStep | None = None
    for entry in incarnation.entries:
        if entry.event in ("send_stop_replica", "receive_stop_replica"):
            if current is not None:
                _stop(current, entry)
            continue
        epoch = _epoch(entry)
        if epoch is None:
            if current is not None and entry.event in _REFUSED and entry.broker is not None:
                _refuse(current, entry.broker, entry)
            continue
        step = steps.get(epoch)
        if step is None:
            step = steps[epoch] = EpochStep(incarnation.number, epoch, entry.time, entry.event)
        if current is None or epoch >= current.leader_epoch:
            current = step
        _update_epoch(step, entry)
        _update_brokers(step, entry)
    ordered = list(steps.values())
    for before, step in pairwise(ordered):
        # The entry of a shrinking ISR does not contain the replicas; they stay the same.
        step.replicas = before.replicas if step.replicas is None else step.replicas
    return ordered


def _epoch(entry: LocatedEntry) -> int | None:
    """Return the leader epoch that the entry is about."""
    if entry.leader == LEADER_DURING_DELETE:
        return None
    return entry.leader_epoch if entry.leader_epoch is not None else entry.known_epoch


def _update_epoch(step: EpochStep, entry: LocatedEntry) -> None:
    """Set what is not known yet; a later decision of the controller replaces earlier values."""
    decides = entry.event in _DECIDED or entry.event in _SENT
    if step.leader is None and entry.event in ("became_leader", "become_leader_done"):
        step.leader = entry.broker
    for name in ("leader", "isr", "replicas", "partition_epoch"):
        value = getattr(entry, name)
        if value is not None and (decides or getattr(step, name) is None):
            setattr(step, name, value)
    if entry.controller_epoch is not None and step.controller_epoch is None:
        step.controller_id, step.controller_epoch = entry.controller_id, entry.controller_epoch


def _update_brokers(step: EpochStep, entry: LocatedEntry) -> None:
    """Set the first time of each event; of refusals the last counts."""
    if entry.event in _SENT:
        for broker in entry.to or ():
            progress = step.progress(broker)
            progress.sent = entry.time if progress.sent is None else progress.sent
    if entry.broker is None or entry.role == "controller":
        return
    if entry.event == "receive_leader_and_isr":
        progress = step.progress(entry.broker)
        progress.received = entry.time if progress.received is None else progress.received
    elif (applied_as := _APPLIED.get(entry.event)) is not None:
        progress = step.progress(entry.broker)
        if progress.applied is None:
            progress.applied, progress.applied_as = entry.time, applied_as
    elif entry.event == "metadata_cached":
        progress = step.progress(entry.broker)
        progress.metadata = entry.time if progress.metadata is None else progress.metadata
    elif entry.event in _REFUSED:
        _refuse(step, entry.broker, entry)


def _stop(step: EpochStep, entry: LocatedEntry) -> None:
    """Set the times of a StopReplica, which names no leader epoch of its own."""
    if entry.event == "send_stop_replica":
        for broker in entry.to or ():
            step.progress(broker).stop_sent = entry.time
    elif entry.broker is not None:
        step.progress(entry.broker).stop_received = entry.time


def _refuse(step: EpochStep, broker: int, entry: LocatedEntry) -> None:
    progress = step.progress(broker)
    progress.refused = entry.time
    if entry.event == "stale_leader_epoch":
        progress.reason = f"its leader epoch {entry.known_epoch} is newer"
    else:
        progress.reason = entry.error or entry.event.replace("_", " ")
