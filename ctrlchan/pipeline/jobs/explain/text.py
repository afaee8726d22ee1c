"""A story as text for people."""

from __future__ import annotations

from collections.abc import Iterator

from ctrlchan.pipeline.jobs.explain.model import BrokerPart, EpochStep, PlacedEntry, Story, iso

__all__ = ["story_lines"]


def story_lines(story: Story, *, entries: bool = False) -> Iterator[str]:
    """``entries``: with every entry at the end."""
    name = f"{story.topic}-{story.partition}"
    if not story.entries:
        yield f"{name}: no entry speaks of it"
        yield from _findings(story)
        return
    first, last = story.entries[0].time, story.entries[-1].time
    yield f"{name}: {len(story.entries)} entries from {iso(first)} to {iso(last)}"
    yield ""
    yield "controllers"
    for reign in story.context.reigns:
        yield (
            f"  {reign.controller_id} in epoch {reign.controller_epoch}: "
            f"{iso(reign.first)} to {iso(reign.last)}"
        )
    yield ""
    yield "leader epochs"
    for step in story.steps:
        yield from _step(step)
    yield ""
    yield from _findings(story)
    if entries:
        yield ""
        yield "entries"
        for entry in story.entries:
            yield from _entry(entry)


def _step(step: EpochStep) -> Iterator[str]:
    leader = "?" if step.leader is None else "none" if step.leader == -1 else str(step.leader)
    says = [f"leader {leader}"]
    for name, ids in (("ISR", step.isr), ("replicas", step.replicas)):
        if ids is not None:
            says.append(f"{name} {','.join(map(str, ids))}")
    if step.partition_epoch is not None:
        says.append(f"partition epoch {step.partition_epoch}")
    life = f" (life {step.life + 1})" if step.life else ""
    yield f"  {step.leader_epoch}{life}: {', '.join(says)}"
    by = (
        ""
        if step.controller_id is None
        else f", controller {step.controller_id} epoch {step.controller_epoch}"
    )
    yield f"     {iso(step.time)} {step.event.replace('_', ' ')}{by}"
    for broker, part in sorted(step.brokers.items()):
        yield f"     broker {broker}: {', '.join(_part(step, part)) or 'nothing'}"


def _part(step: EpochStep, part: BrokerPart) -> Iterator[str]:
    applied = {"known": "was in it already"}.get(part.applied_as or "", f"became {part.applied_as}")
    for what, time in (
        ("told", part.told),
        ("received", part.received),
        (applied, part.applied),
        (f"refused ({part.reason})", part.refused),
        ("metadata", part.metadata),
        ("told to stop", part.stop_told),
        ("stop received", part.stop_received),
    ):
        if time is not None:
            yield f"{what} {_after(time - step.time)}"


def _after(microseconds: int) -> str:
    return f"{microseconds / 1000:+,.0f} ms"


def _findings(story: Story) -> Iterator[str]:
    yield f"{len(story.faults)} faults, {len(story.findings) - len(story.faults)} notes"
    for finding in story.findings:
        when = "" if finding.time is None else f"{iso(finding.time)} "
        yield f"  {finding.severity}: {when}{finding.says}"


def _entry(entry: PlacedEntry) -> Iterator[str]:
    text = entry.text.split("\n", 1)[0].split("] ", 2)[-1]
    yield f"  {iso(entry.time)} {entry.role or '?'} {entry.broker}: {text}"
