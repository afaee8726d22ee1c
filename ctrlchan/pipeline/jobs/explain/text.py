"""Prints the history of a partition as text."""

from __future__ import annotations

from collections.abc import Iterator

from ctrlchan.pipeline.jobs.explain.model import (
    BrokerProgress,
    EpochStep,
    LocatedEntry,
    PartitionHistory,
    iso,
)
from ctrlchan.pipeline.words import counted, form

__all__ = ["history_lines"]


def history_lines(history: PartitionHistory, *, entries: bool = False) -> Iterator[str]:
    """Return the lines of the text. ``entries``: print every log entry at the end."""
    name = f"{history.topic}-{history.partition}"
    if not history.entries:
        yield f"{name}: no entry names it"
        yield from _findings(history)
        return
    first, last = history.entries[0].time, history.entries[-1].time
    noun = form(len(history.entries), "entry", "entries")
    yield f"{name}: {len(history.entries)} {noun} from {iso(first)} to {iso(last)}"
    yield ""
    yield "controllers"
    for term in history.context.terms:
        times = f"{iso(term.first)} to {iso(term.last)}"
        yield f"  {term.controller_id} in epoch {term.controller_epoch}: {times}"
    yield ""
    yield "leader epochs"
    for step in history.steps:
        yield from _step(step)
    yield ""
    yield from _findings(history)
    if entries:
        yield ""
        yield "entries"
        for entry in history.entries:
            yield from _entry(entry)


def _step(step: EpochStep) -> Iterator[str]:
    leader = "?" if step.leader is None else "none" if step.leader == -1 else str(step.leader)
    state = [f"leader {leader}"]
    for name, ids in (("ISR", step.isr), ("replicas", step.replicas)):
        if ids is not None:
            state.append(f"{name} {','.join(map(str, ids))}")
    if step.partition_epoch is not None:
        state.append(f"partition epoch {step.partition_epoch}")
    again = f" (incarnation {step.incarnation + 1})" if step.incarnation else ""
    yield f"  {step.leader_epoch}{again}: {', '.join(state)}"
    by = (
        ""
        if step.controller_id is None
        else f", controller {step.controller_id} epoch {step.controller_epoch}"
    )
    yield f"     {iso(step.time)} {step.event.replace('_', ' ')}{by}"
    for broker, progress in sorted(step.brokers.items()):
        yield f"     broker {broker}: {', '.join(_progress(step, progress)) or 'nothing'}"


def _progress(step: EpochStep, progress: BrokerProgress) -> Iterator[str]:
    applied = "was in it already" if progress.applied_as == "known" else f"became {progress.applied_as}"
    for what, time in (
        ("sent", progress.sent),
        ("received", progress.received),
        (applied, progress.applied),
        (f"refused ({progress.reason})", progress.refused),
        ("metadata", progress.metadata),
        ("stop sent", progress.stop_sent),
        ("stop received", progress.stop_received),
    ):
        if time is not None:
            yield f"{what} {_after(time - step.time)}"


def _after(microseconds: int) -> str:
    return f"{microseconds / 1000:+,.0f} ms"


def _findings(history: PartitionHistory) -> Iterator[str]:
    faults = len(history.faults)
    yield f"{counted(faults, 'fault')}, {counted(len(history.findings) - faults, 'note')}"
    for finding in history.findings:
        when = "" if finding.time is None else f"{iso(finding.time)} "
        yield f"  {finding.severity}: {when}{finding.text}"


def _entry(entry: LocatedEntry) -> Iterator[str]:
    text = entry.text.split("\n", 1)[0].split("] ", 2)[-1]
    yield f"  {iso(entry.time)} {entry.role or '?'} {entry.broker}: {text}"
