"""What a story lacks: rules over the lives of a partition, each a function that gives findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from ctrlchan.errors import ErrorCode
from ctrlchan.pipeline.jobs.explain.model import Context, EpochStep, Finding, Life
from ctrlchan.pipeline.jobs.explain.steps import LEADER_DURING_DELETE

__all__ = ["findings_of"]

_NO_LEADER: Final = -1
_FAILED: Final = {
    "partition_state_failed",
    "replica_state_failed",
    "reassignment_failed",
    "failed",
    "request_failed",
    "refused",
}


def findings_of(lives: Sequence[Life], context: Context) -> list[Finding]:
    """Faults first, each kind in the order of time."""
    found: list[Finding] = []
    for life in lives:
        found += _not_applied(life, context)
        found += _older_applied(life)
        found += _stale_metadata(life, context)
        found += _without_leader(life)
        found += _failures(life)
        found += _error_answers(life)
        found += _deletion(life, context)
        found += _old_controllers(life, context)
    found += [
        *_controllers(context),
        *_requests(context),
        *_snapshot(lives, context),
        *_unknown(lives, context),
    ]
    return sorted(found, key=lambda one: one.severity != "fault")


def _not_applied(life: Life, context: Context) -> Iterator[Finding]:
    """A broker was told of an epoch (or is in its ISR, when no controller logs TRACE) and never got there."""
    traced = any(part.told is not None for step in life.steps for part in step.brokers.values())
    for step in life.steps:
        owed = {broker: part.told for broker, part in step.brokers.items() if part.told is not None}
        if not traced and step.isr is not None:
            owed = dict.fromkeys(step.isr, step.time)
        for broker, told in sorted(owed.items()):
            coverage = context.covered(broker)
            if coverage is None or coverage.last < told:
                # ``_unknown`` says so.
                continue
            part = step.part(broker)
            if part.applied is not None or part.refused is not None or part.stop_received is not None:
                continue
            if _reached_later(broker, step, life) or _stopped_since(broker, told, life):
                continue
            says = f"broker {broker} was told of leader epoch {step.leader_epoch} and "
            kind = "not_applied"
            if part.received is not None:
                says += "received it, and did not apply it"
            elif coverage.traces:
                kind = "not_received"
                says += "never received it"
            else:
                says += "did not apply it (whether it received it only TRACE would say)"
            yield Finding("fault", kind, says, told, broker, step.leader_epoch)


def _reached_later(broker: int, step: EpochStep, life: Life) -> bool:
    """It applied a newer epoch: the older one is of no account any more."""
    return any(
        other.leader_epoch > step.leader_epoch
        and (part := other.brokers.get(broker)) is not None
        and part.applied is not None
        for other in life.steps
    )


def _stopped_since(broker: int, told: int, life: Life) -> bool:
    return any(
        entry.event == "receive_stop_replica" and entry.broker == broker and entry.time >= told
        for entry in life.entries
    )


def _older_applied(life: Life) -> Iterator[Finding]:
    """A broker's epochs only grow, its metadata's too; a replica that was deleted begins anew."""
    applied: dict[int, int] = {}
    cached: dict[int, int] = {}
    for entry in life.entries:
        broker, epoch = entry.broker, entry.leader_epoch
        if broker is None:
            continue
        if entry.event == "metadata_deleted":
            cached.pop(broker, None)
        elif entry.event == "receive_stop_replica" and entry.delete:
            applied.pop(broker, None)
        elif epoch is not None and entry.event in ("became_leader", "became_follower"):
            if epoch < applied.get(broker, -1):
                says = f"broker {broker} applied leader epoch {epoch} after it had been in {applied[broker]}"
                yield Finding("fault", "older_epoch_applied", says, entry.time, broker, epoch)
            applied[broker] = epoch
        elif epoch is not None and entry.event == "metadata_cached" and entry.leader != LEADER_DURING_DELETE:
            if epoch < cached.get(broker, -1):
                says = f"broker {broker} took metadata of leader epoch {epoch} over that of {cached[broker]}"
                yield Finding("fault", "older_metadata", says, entry.time, broker, epoch)
            cached[broker] = epoch


def _stale_metadata(life: Life, context: Context) -> Iterator[Finding]:
    """Others have the newest epoch in their metadata, this broker lives on and has not."""
    last = life.newest
    if last is None or life.ended is not None:
        return
    others = [part.metadata for part in last.brokers.values() if part.metadata is not None]
    if not others:
        return
    # Of the others nobody knows whether they log such lines.
    logging = {entry.broker for entry in life.entries if entry.event == "metadata_cached"}
    for coverage in context.coverage:
        part = last.brokers.get(coverage.broker)
        if coverage.broker not in logging or (part is not None and part.metadata is not None):
            continue
        if coverage.last > max(others):
            says = (
                f"broker {coverage.broker} has not heard of leader epoch {last.leader_epoch} in any "
                "UpdateMetadata, others have"
            )
            yield Finding("fault", "metadata_stale", says, max(others), coverage.broker, last.leader_epoch)


def _without_leader(life: Life) -> Iterator[Finding]:
    for at, step in enumerate(life.steps):
        if step.leader != _NO_LEADER:
            continue
        led = [other.time for other in life.steps[at + 1 :] if other.leader != _NO_LEADER]
        if not led and life.ended is not None:
            # It goes with the partition.
            continue
        how_long = f"for {(led[0] - step.time) / 1e6:.3f} s" if led else "to the end of the logs"
        says = f"no leader in leader epoch {step.leader_epoch}, {how_long}"
        yield Finding("fault", "no_leader", says, step.time, None, step.leader_epoch)


def _failures(life: Life) -> Iterator[Finding]:
    for entry in life.entries:
        if entry.event in _FAILED:
            who = f"{entry.role or 'broker'} {entry.broker}"
            what = entry.event.replace("_", " ")
            why = f": {entry.error}" if entry.error else ""
            yield Finding(
                "fault", "failed", f"{who}: {what}{why}", entry.time, entry.broker, entry.leader_epoch
            )
        elif entry.event == "stale_leader_epoch":
            yield Finding(
                "fault",
                "stale_leader_epoch",
                f"broker {entry.broker} ignored {entry.api} of leader epoch {entry.leader_epoch}: "
                f"it is in {entry.known_epoch}",
                entry.time,
                entry.broker,
                entry.leader_epoch,
            )


def _error_answers(life: Life) -> Iterator[Finding]:
    """STALE_CONTROLLER_EPOCH is also what a broker answers when it is in that leader epoch already."""
    known = {
        (entry.broker, entry.correlation_id, entry.controller_epoch)
        for entry in life.entries
        if entry.event == "already_known"
    }
    for entry in life.entries:
        if entry.event not in ("response", "error_response"):
            continue
        broker = entry.to[0] if entry.to else None
        codes = {one.error_code for one in entry.partitions} | {entry.error_code or 0}
        for code in sorted(codes - {0}):
            harmless = (
                code == ErrorCode.STALE_CONTROLLER_EPOCH
                and (broker, entry.correlation_id, entry.controller_epoch) in known
            )
            why = " (it was in that leader epoch already)" if harmless else ""
            yield Finding(
                "note" if harmless else "fault",
                "error_answer",
                f"broker {broker} answered {entry.api} with {ErrorCode.name_of(code)}{why}",
                entry.time,
                broker,
            )


def _deletion(life: Life, context: Context) -> Iterator[Finding]:
    received = {
        (entry.broker, entry.correlation_id)
        for entry in life.entries
        if entry.event == "receive_stop_replica" and entry.delete
    }
    heard = {broker for broker, _ in received}
    for entry in life.entries:
        if entry.event == "send_stop_replica" and entry.delete:
            for broker in entry.to or ():
                coverage = context.covered(broker)
                if (
                    broker not in heard
                    and coverage is not None
                    and coverage.traces
                    and coverage.last > entry.time
                ):
                    yield Finding(
                        "fault",
                        "delete_not_received",
                        f"broker {broker} was told to delete its replica and never received it",
                        entry.time,
                        broker,
                    )
        elif entry.event == "replica_state" and entry.to_state == "ReplicaDeletionIneligible":
            yield Finding(
                "fault",
                "deletion_ineligible",
                f"the replica on broker {entry.replica} cannot be deleted now",
                entry.time,
                entry.replica,
            )


def _controllers(context: Context) -> Iterator[Finding]:
    reigns = sorted(context.reigns, key=lambda reign: (reign.controller_epoch, reign.first))
    for before, after in pairwise(reigns):
        if after.controller_epoch > before.controller_epoch:
            says = (
                f"controller {after.controller_id} epoch {after.controller_epoch} after controller "
                f"{before.controller_id} epoch {before.controller_epoch}"
            )
            yield Finding("note", "controller_change", says, after.first, after.controller_id)
        else:
            says = (
                f"controllers {before.controller_id} and {after.controller_id} share epoch "
                f"{after.controller_epoch}"
            )
            yield Finding("fault", "two_controllers", says, after.first, after.controller_id)
    for refusal in context.refusals:
        says = (
            f"broker {refusal.broker} refused {refusal.count} {refusal.api} of controller "
            f"{refusal.controller_id} epoch {refusal.controller_epoch}, since it knew epoch "
            f"{refusal.known_epoch}; of which partitions is not said"
        )
        yield Finding("note", "requests_refused", says, refusal.first, refusal.broker)


def _old_controllers(life: Life, context: Context) -> Iterator[Finding]:
    begun: dict[int, int] = {}
    for reign in context.reigns:
        begun[reign.controller_epoch] = min(reign.first, begun.get(reign.controller_epoch, reign.first))
    for entry in life.entries:
        epoch = entry.controller_epoch
        if entry.role != "controller" or epoch is None or not entry.event.startswith("send_"):
            continue
        if any(other > epoch and first < entry.time for other, first in begun.items()):
            says = (
                f"controller {entry.controller_id} of epoch {epoch} still told broker "
                f"{', '.join(map(str, entry.to or ()))} when a newer one had begun"
            )
            yield Finding("fault", "old_controller_spoke", says, entry.time, entry.controller_id)


def _requests(context: Context) -> Iterator[Finding]:
    for one in context.requests:
        took = "" if one.milliseconds is None else f" after {one.milliseconds:.1f} ms"
        if one.outcome != "acknowledged":
            code = f" {ErrorCode.name_of(one.error_code)}" if one.error_code else ""
            says = f"the journal: {one.api} to broker {one.broker} ended as {one.outcome}{code}{took}"
            yield Finding("fault", "request_failed", says, one.time, one.broker)
        elif one.attempts > 1:
            says = f"the journal: {one.api} to broker {one.broker} took {one.attempts} attempts{took}"
            yield Finding("note", "request_repeated", says, one.time, one.broker)


def _snapshot(lives: Sequence[Life], context: Context) -> Iterator[Finding]:
    row = context.snapshot
    last = lives[-1].newest if lives else None
    if row is None or last is None:
        return
    deleted = lives[-1].ended is not None
    if not row.exists or deleted:
        if row.exists == deleted:
            says = (
                "the snapshot has it, the logs deleted it"
                if deleted
                else "the snapshot has no such partition"
            )
            yield Finding("fault", "snapshot_differs", says, last.time)
        return
    for name in ("leader_epoch", "leader", "replicas"):
        said, has = getattr(last, name), getattr(row, name)
        if said is not None and (sorted(said) != sorted(has) if isinstance(said, list) else said != has):
            told = ",".join(map(str, said)) if isinstance(said, list) else said
            held = ",".join(map(str, has)) if isinstance(has, tuple) else has
            yield Finding(
                "fault",
                "snapshot_differs",
                f"{name.replace('_', ' ')}: {told} in the logs, {held} in the snapshot",
                last.time,
                None,
                last.leader_epoch,
            )


def _unknown(lives: Sequence[Life], context: Context) -> Iterator[Finding]:
    """Told, and whether it was heard nobody can say."""
    if context.truncated:
        yield Finding("note", "truncated", "there are more entries than are told; give a shorter time")
    silent: dict[int, list[int]] = {}
    for step in (step for life in lives for step in life.steps):
        for broker, part in step.brokers.items():
            coverage = context.covered(broker)
            if part.told is not None and (coverage is None or coverage.last < part.told):
                silent.setdefault(broker, []).append(step.leader_epoch)
    for broker, epochs in sorted(silent.items()):
        listed = ", ".join(map(str, epochs))
        missing = "there is no log of" if context.covered(broker) is None else "too early ends the log of"
        yield Finding(
            "note",
            "no_log",
            f"{missing} broker {broker}; whether it applied leader epoch {listed} is not known",
            None,
            broker,
        )
