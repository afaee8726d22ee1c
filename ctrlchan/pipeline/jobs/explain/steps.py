"""Entries in the order of time -> the lives of a partition, their leader epochs, each broker's part."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from ctrlchan.pipeline.jobs.explain.model import EpochStep, Life, PlacedEntry

__all__ = ["LEADER_DURING_DELETE", "lives_of"]

#: ``LeaderDuringDelete``: an UpdateMetadata says with it that the topic is being deleted.
LEADER_DURING_DELETE: Final = -2

_DECIDED: Final = {"partition_state", "isr_shrunk", "reassigned"}
_TOLD: Final = {"send_become_leader": "leader", "send_become_follower": "follower"}
_APPLIED: Final = {
    "became_leader": "leader",
    "became_follower": "follower",
    "still_leader": "known",
    "still_follower": "known",
    "already_known": "known",
    "topic_id_assigned": "known",
}
_REFUSED: Final = {"refused", "failed", "skipped", "stale_leader_epoch"}


def lives_of(entries: Iterable[PlacedEntry]) -> list[Life]:
    """The lives of the partition with their leader epochs, as they were first heard of."""
    lives: list[Life] = []
    for entry in entries:
        if not lives or _made(entry):
            lives.append(Life(len(lives)))
        lives[-1].entries.append(entry)
    for life in lives:
        life.steps = _steps(life)
        life.ended = next((entry.time for entry in life.entries if _ends(entry)), None)
    return lives


def _made(entry: PlacedEntry) -> bool:
    """A partition begins its life: no controller that takes over says this."""
    return entry.event == "partition_state" and entry.from_state == "NonExistentPartition"


def _ends(entry: PlacedEntry) -> bool:
    return entry.event == "metadata_deleted" or entry.to_state == "NonExistentPartition"


def _steps(life: Life) -> list[EpochStep]:
    steps: dict[int, EpochStep] = {}
    current: EpochStep | None = None
    for entry in life.entries:
        if entry.event in ("send_stop_replica", "receive_stop_replica"):
            if current is not None:
                _stop(current, entry)
            continue
        epoch = _epoch(entry)
        if epoch is None:
            if current is not None and entry.event in _REFUSED and entry.broker is not None:
                part = current.part(entry.broker)
                part.refused, part.reason = entry.time, _reason(entry)
            continue
        step = steps.get(epoch)
        if step is None:
            step = steps[epoch] = EpochStep(life.number, epoch, entry.time, entry.event)
        if current is None or epoch >= current.leader_epoch:
            current = step
        _fill(step, entry)
        _note(step, entry)
    ordered = list(steps.values())
    for before, step in pairwise(ordered):
        # An ISR that shrinks is told without the replicas, which stay.
        step.replicas = before.replicas if step.replicas is None else step.replicas
    return ordered


def _epoch(entry: PlacedEntry) -> int | None:
    if entry.leader == LEADER_DURING_DELETE:
        return None
    return entry.leader_epoch if entry.leader_epoch is not None else entry.known_epoch


def _fill(step: EpochStep, entry: PlacedEntry) -> None:
    """The first to say a thing is believed; the controller's decisions are the newest of their epoch."""
    decides = entry.event in _DECIDED or entry.event in _TOLD
    if step.leader is None and entry.event == "became_leader":
        step.leader = entry.broker
    for name in ("leader", "isr", "replicas", "partition_epoch"):
        value = getattr(entry, name)
        if value is not None and (decides or getattr(step, name) is None):
            setattr(step, name, value)
    if entry.controller_epoch is not None and step.controller_epoch is None:
        step.controller_id, step.controller_epoch = entry.controller_id, entry.controller_epoch


def _note(step: EpochStep, entry: PlacedEntry) -> None:
    if entry.event in _TOLD:
        for broker in entry.to or ():
            part = step.part(broker)
            part.told = part.told if part.told is not None else entry.time
    if entry.broker is None or entry.role == "controller":
        return
    if entry.event == "receive_leader_and_isr":
        part = step.part(entry.broker)
        part.received = part.received if part.received is not None else entry.time
    elif (applied_as := _APPLIED.get(entry.event)) is not None:
        part = step.part(entry.broker)
        if part.applied is None:
            part.applied, part.applied_as = entry.time, applied_as
    elif entry.event == "metadata_cached":
        part = step.part(entry.broker)
        part.metadata = part.metadata if part.metadata is not None else entry.time
    elif entry.event in _REFUSED:
        part = step.part(entry.broker)
        part.refused, part.reason = entry.time, _reason(entry)


def _stop(step: EpochStep, entry: PlacedEntry) -> None:
    if entry.event == "send_stop_replica":
        for broker in entry.to or ():
            step.part(broker).stop_told = entry.time
    elif entry.broker is not None:
        step.part(entry.broker).stop_received = entry.time


def _reason(entry: PlacedEntry) -> str:
    if entry.event == "stale_leader_epoch":
        return f"its leader epoch {entry.known_epoch} is newer"
    return entry.error or entry.event.replace("_", " ")
