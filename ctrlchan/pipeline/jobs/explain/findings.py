"""Looks for faults in the history of a partition; each rule is a function that yields findings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from ctrlchan.errors import ErrorCode
from ctrlchan.pipeline.jobs.explain.model import Context, EpochStep, Finding, Incarnation
from ctrlchan.pipeline.jobs.merge_logs.messages import APPLIED_SINCE
from ctrlchan.pipeline.words import counted
from ctrlchan.protocol import LEADER_DURING_DELETE, NO_LEADER

__all__ = ["findings_of"]

_FAILED: Final = {
    "partition_state_failed",
    "replica_state_failed",
    "reassignment_failed",
    "failed",
    "request_failed",
    "refused",
}

_BECAME: Final = {"became_leader", "became_follower", "become_leader_done", "become_follower_done"}
#: The release since which brokers log at level INFO that they applied a leader epoch.
_LOGGED_SINCE: Final = ".".join(map(str, APPLIED_SINCE))


def findings_of(incarnations: Sequence[Incarnation], context: Context) -> list[Finding]:
    """Return all findings, faults first, each rule's ordered by time."""
    found: list[Finding] = []
    for incarnation in incarnations:
        found += _not_applied(incarnation, context)
        found += _older_applied(incarnation)
        found += _stale_metadata(incarnation, context)
        found += _without_leader(incarnation)
        found += _failures(incarnation)
        found += _error_answers(incarnation)
        found += _deletion(incarnation, context)
        found += _old_controllers(incarnation, context)
    found += [
        *_controllers(context),
        *_requests(context),
        *_snapshot(incarnations, context),
        *_without_log(incarnations, context),
    ]
    return sorted(found, key=lambda one: one.severity != "fault")


def _not_applied(incarnation: Incarnation, context: Context) -> Iterator[Finding]:
    """Find brokers that were sent a leader epoch and did not apply it.

    Without TRACE entries of a controller, the brokers of the ISR count as those it was sent to.
    """
    traced = any(one.sent is not None for step in incarnation.steps for one in step.brokers.values())
    for step in incarnation.steps:
        expected = {broker: one.sent for broker, one in step.brokers.items() if one.sent is not None}
        if not traced and step.isr is not None:
            expected = dict.fromkeys(step.isr, step.time)
        for broker, sent in sorted(expected.items()):
            coverage = context.coverage_of(broker)
            if coverage is None or coverage.last < sent:
                # ``_without_log`` reports it.
                continue
            progress = step.progress(broker)
            ends = (progress.applied, progress.refused, progress.stop_received)
            if any(time is not None for time in ends):
                continue
            if _applied_later(broker, step, incarnation) or _stopped_since(broker, sent, incarnation):
                continue
            if progress.received is None and not coverage.shows_applied:
                text = (
                    f"leader epoch {step.leader_epoch} is not known to have been applied by broker {broker}: "
                    f"before Kafka {_LOGGED_SINCE} only a log at level TRACE shows it"
                )
                yield Finding("note", "not_known", text, sent, broker, step.leader_epoch)
                continue
            kind, end = "not_applied", "received it, and did not apply it"
            if progress.received is None and coverage.traces:
                kind, end = "not_received", "never received it"
            elif progress.received is None:
                end = "did not apply it (only a log at level TRACE shows whether it was received)"
            text = f"broker {broker} was sent leader epoch {step.leader_epoch} and {end}"
            yield Finding("fault", kind, text, sent, broker, step.leader_epoch)


def _applied_later(broker: int, step: EpochStep, incarnation: Incarnation) -> bool:
    """Return whether the broker applied a newer epoch; then a missing older one is harmless."""
    return any(
        other.leader_epoch > step.leader_epoch
        and (progress := other.brokers.get(broker)) is not None
        and progress.applied is not None
        for other in incarnation.steps
    )


def _stopped_since(broker: int, time: int, incarnation: Incarnation) -> bool:
    return any(
        entry.event == "receive_stop_replica" and entry.broker == broker and entry.time >= time
        for entry in incarnation.entries
    )


def _older_applied(incarnation: Incarnation) -> Iterator[Finding]:
    """Find brokers that went back to an older leader epoch; a deleted replica may start again."""
    applied: dict[int, int] = {}
    cached: dict[int, int] = {}
    for entry in incarnation.entries:
        broker, epoch = entry.broker, entry.leader_epoch
        if broker is None:
            continue
        if entry.event == "metadata_deleted":
            cached.pop(broker, None)
        elif entry.event == "receive_stop_replica" and entry.delete:
            applied.pop(broker, None)
        elif epoch is not None and entry.event in _BECAME:
            if epoch < applied.get(broker, -1):
                text = f"broker {broker} applied leader epoch {epoch} after leader epoch {applied[broker]}"
                yield Finding("fault", "older_epoch_applied", text, entry.time, broker, epoch)
            applied[broker] = epoch
        elif epoch is not None and entry.event == "metadata_cached" and entry.leader != LEADER_DURING_DELETE:
            if epoch < cached.get(broker, -1):
                text = (
                    f"broker {broker} replaced metadata of leader epoch {cached[broker]} by that of {epoch}"
                )
                yield Finding("fault", "older_metadata", text, entry.time, broker, epoch)
            cached[broker] = epoch


def _stale_metadata(incarnation: Incarnation, context: Context) -> Iterator[Finding]:
    """Find brokers that log on and, unlike others, never cached metadata of the newest leader epoch."""
    last = incarnation.newest
    if last is None or incarnation.deleted is not None:
        return
    others = [progress.metadata for progress in last.brokers.values() if progress.metadata is not None]
    if not others:
        return
    # A broker without any such entry may not log them at all.
    logging = {entry.broker for entry in incarnation.entries if entry.event == "metadata_cached"}
    for coverage in context.coverage:
        broker, progress = coverage.broker, last.brokers.get(coverage.broker)
        if broker not in logging or (progress is not None and progress.metadata is not None):
            continue
        if coverage.last > max(others):
            epoch = last.leader_epoch
            text = f"broker {broker} received no UpdateMetadata with leader epoch {epoch}, others did"
            yield Finding("fault", "metadata_stale", text, max(others), broker, epoch)


def _without_leader(incarnation: Incarnation) -> Iterator[Finding]:
    for at, step in enumerate(incarnation.steps):
        if step.leader != NO_LEADER:
            continue
        led = [other.time for other in incarnation.steps[at + 1 :] if other.leader != NO_LEADER]
        if not led and incarnation.deleted is not None:
            # A partition that is being deleted loses its leader.
            continue
        how_long = f"for {(led[0] - step.time) / 1e6:.3f} s" if led else "to the end of the logs"
        text = f"no leader in leader epoch {step.leader_epoch}, {how_long}"
        yield Finding("fault", "no_leader", text, step.time, None, step.leader_epoch)


def _failures(incarnation: Incarnation) -> Iterator[Finding]:
    for entry in incarnation.entries:
        if entry.event in _FAILED:
            why = f": {entry.error}" if entry.error else ""
            text = f"{entry.role or 'broker'} {entry.broker}: {entry.event.replace('_', ' ')}{why}"
            yield Finding("fault", "failed", text, entry.time, entry.broker, entry.leader_epoch)
        elif entry.event == "stale_leader_epoch":
            text = (
                f"broker {entry.broker} ignored {entry.api} of leader epoch {entry.leader_epoch}: "
                f"it is in {entry.known_epoch}"
            )
            yield Finding("fault", entry.event, text, entry.time, entry.broker, entry.leader_epoch)


def _error_answers(incarnation: Incarnation) -> Iterator[Finding]:
    """Find responses with errors.

    STALE_CONTROLLER_EPOCH is harmless when the broker was in that leader epoch already: Kafka answers that
    with the same error. Responses before Kafka 1.1 are logged without correlation id.
    """
    known = {
        (entry.broker, correlation_id, entry.controller_epoch)
        for entry in incarnation.entries
        if entry.event == "already_known"
        for correlation_id in (entry.correlation_id, None)
    }
    for entry in incarnation.entries:
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
            request = entry.api or "a request"
            text = f"broker {broker} answered {request} with {ErrorCode.name_of(code)}{why}"
            yield Finding("note" if harmless else "fault", "error_answer", text, entry.time, broker)


def _deletion(incarnation: Incarnation, context: Context) -> Iterator[Finding]:
    """Find replicas that were not deleted."""
    received = {
        entry.broker
        for entry in incarnation.entries
        if entry.event == "receive_stop_replica" and entry.delete
    }
    for entry in incarnation.entries:
        if entry.event == "send_stop_replica" and entry.delete:
            for broker in entry.to or ():
                coverage = context.coverage_of(broker)
                if broker in received or coverage is None or not coverage.traces:
                    continue
                if coverage.last > entry.time:
                    text = f"broker {broker} was sent the deletion of its replica and never received it"
                    yield Finding("fault", "delete_not_received", text, entry.time, broker)
        elif entry.event == "replica_state" and entry.to_state == "ReplicaDeletionIneligible":
            text = f"the replica on broker {entry.replica} cannot be deleted now"
            yield Finding("fault", "deletion_ineligible", text, entry.time, entry.replica)


def _controllers(context: Context) -> Iterator[Finding]:
    """Find changes of the controller, and requests that brokers refused because of them."""
    terms = sorted(context.terms, key=lambda term: (term.controller_epoch, term.first))
    for before, after in pairwise(terms):
        if after.controller_epoch > before.controller_epoch:
            text = (
                f"controller {after.controller_id} epoch {after.controller_epoch} after controller "
                f"{before.controller_id} epoch {before.controller_epoch}"
            )
            yield Finding("note", "controller_change", text, after.first, after.controller_id)
        else:
            text = (
                f"controllers {before.controller_id} and {after.controller_id} share epoch "
                f"{after.controller_epoch}"
            )
            yield Finding("fault", "two_controllers", text, after.first, after.controller_id)
    for refusal in context.refusals:
        requests = counted(refusal.count, f"{refusal.api} request")
        text = (
            f"broker {refusal.broker} refused {requests} of controller "
            f"{refusal.controller_id} epoch {refusal.controller_epoch}, because it was in controller epoch "
            f"{refusal.known_epoch}; the log does not name the partitions"
        )
        yield Finding("note", "requests_refused", text, refusal.first, refusal.broker)


def _old_controllers(incarnation: Incarnation, context: Context) -> Iterator[Finding]:
    """Find controllers that sent requests although a newer one had begun."""
    begun: dict[int, int] = {}
    for term in context.terms:
        begun[term.controller_epoch] = min(term.first, begun.get(term.controller_epoch, term.first))
    for entry in incarnation.entries:
        epoch = entry.controller_epoch
        if entry.role != "controller" or epoch is None or not entry.event.startswith("send_"):
            continue
        if any(other > epoch and first < entry.time for other, first in begun.items()):
            text = (
                f"controller {entry.controller_id} of epoch {epoch} still sent to broker "
                f"{', '.join(map(str, entry.to or ()))} when a newer controller had begun"
            )
            yield Finding("fault", "old_controller_sent", text, entry.time, entry.controller_id)


def _requests(context: Context) -> Iterator[Finding]:
    """Find requests of the journal that failed or took several attempts."""
    for one in context.requests:
        took = "" if one.milliseconds is None else f" after {one.milliseconds:.1f} ms"
        if one.outcome != "acknowledged":
            code = f" {ErrorCode.name_of(one.error_code)}" if one.error_code else ""
            text = f"the journal: {one.api} to broker {one.broker} ended as {one.outcome}{code}{took}"
            yield Finding("fault", "request_failed", text, one.time, one.broker)
        elif one.attempts > 1:
            text = (
                f"the journal: {one.api} to broker {one.broker} took {counted(one.attempts, 'attempt')}{took}"
            )
            yield Finding("note", "request_repeated", text, one.time, one.broker)


def _snapshot(incarnations: Sequence[Incarnation], context: Context) -> Iterator[Finding]:
    """Find differences between the last leader epoch and the snapshot."""
    row = context.snapshot
    last = incarnations[-1].newest if incarnations else None
    if row is None or last is None:
        return
    deleted = incarnations[-1].deleted is not None
    if row.exists and deleted:
        yield Finding("fault", "snapshot_differs", "the snapshot has it, the logs deleted it", last.time)
    elif not row.exists and not deleted:
        yield Finding("fault", "snapshot_differs", "the snapshot has no such partition", last.time)
    if not row.exists or deleted:
        return
    for name in ("leader_epoch", "leader", "replicas"):
        logged, stored = getattr(last, name), getattr(row, name)
        if logged is None or (
            sorted(logged) == sorted(stored) if isinstance(logged, list) else logged == stored
        ):
            continue
        logged, stored = (
            ",".join(map(str, value)) if isinstance(value, list | tuple) else value
            for value in (logged, stored)
        )
        text = f"{name.replace('_', ' ')}: {logged} in the logs, {stored} in the snapshot"
        yield Finding("fault", "snapshot_differs", text, last.time, None, last.leader_epoch)


def _without_log(incarnations: Sequence[Incarnation], context: Context) -> Iterator[Finding]:
    """Note the brokers that were sent leader epochs and have no log of that time."""
    if context.truncated:
        yield Finding("note", "truncated", "only the first entries were read; give a shorter time")
    unlogged: dict[int, list[int]] = {}
    for step in (step for one in incarnations for step in one.steps):
        for broker, progress in step.brokers.items():
            coverage = context.coverage_of(broker)
            if progress.sent is not None and (coverage is None or coverage.last < progress.sent):
                unlogged.setdefault(broker, []).append(step.leader_epoch)
    for broker, epochs in sorted(unlogged.items()):
        listed = ", ".join(map(str, epochs))
        missing = (
            f"there is no log of broker {broker}"
            if context.coverage_of(broker) is None
            else f"the log of broker {broker} ends too early"
        )
        text = f"{missing}; whether it applied leader epoch {listed} is not known"
        yield Finding("note", "no_log", text, None, broker)
