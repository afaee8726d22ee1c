"""What a story is told from, and what it consists of. Times are microseconds since 1970, UTC."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from ctrlchan.pipeline.jobs.merge_logs.entries import Entry

__all__ = [
    "BrokerPart",
    "Context",
    "ControllerReign",
    "EpochStep",
    "Finding",
    "JournalRequest",
    "Life",
    "LogCoverage",
    "PlacedEntry",
    "Refusals",
    "SnapshotRow",
    "Story",
    "iso",
]

#: A printed moment: milliseconds, as logs have them.
_MILLI: Final = 1_000


@dataclass(slots=True)
class PlacedEntry(Entry):
    """An entry and where it stands."""

    text: str = ""
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class LogCoverage:
    """What of a broker's log there is. ``traces``: how many entries are TRACE."""

    broker: int
    first: int
    last: int
    entries: int
    traces: int


@dataclass(frozen=True)
class ControllerReign:
    """When a controller spoke, or was heard, in one epoch."""

    controller_id: int
    controller_epoch: int
    first: int
    last: int


@dataclass(frozen=True)
class Refusals:
    """Whole requests that a broker refused, as it knew a newer controller; of which partitions: unsaid."""

    broker: int
    api: str
    controller_id: int
    controller_epoch: int
    known_epoch: int
    count: int
    first: int
    last: int


@dataclass(frozen=True)
class JournalRequest:
    """A request that carried the partition, as the journal has it."""

    broker: int
    api: str
    controller_epoch: int
    correlation_id: int | None
    outcome: str
    error_code: int
    attempts: int
    #: From ``enqueue`` to the end.
    milliseconds: float | None
    time: int


@dataclass(frozen=True)
class SnapshotRow:
    """The partition as a snapshot has it; None in ``Context``: no snapshot was given."""

    #: False: the snapshot has no such partition, and the rest means nothing.
    exists: bool
    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True)
class Context:
    """What is known beside the partition's own entries."""

    coverage: tuple[LogCoverage, ...] = ()
    reigns: tuple[ControllerReign, ...] = ()
    refusals: tuple[Refusals, ...] = ()
    requests: tuple[JournalRequest, ...] = ()
    snapshot: SnapshotRow | None = None
    #: There were more entries than are told.
    truncated: bool = False

    def covered(self, broker: int) -> LogCoverage | None:
        return next((one for one in self.coverage if one.broker == broker), None)


@dataclass
class BrokerPart:
    """What one broker had to do with one leader epoch, and when; None: never, as far as the logs say."""

    told: int | None = None
    received: int | None = None
    applied: int | None = None
    #: leader, follower, or known (it was in that epoch already).
    applied_as: str | None = None
    refused: int | None = None
    reason: str | None = None
    metadata: int | None = None
    stop_told: int | None = None
    stop_received: int | None = None


@dataclass
class EpochStep:
    """One leader epoch."""

    #: ``Life.number``.
    life: int
    leader_epoch: int
    time: int
    #: The event that told of it first.
    event: str
    leader: int | None = None
    isr: list[int] | None = None
    replicas: list[int] | None = None
    partition_epoch: int | None = None
    controller_id: int | None = None
    controller_epoch: int | None = None
    brokers: dict[int, BrokerPart] = field(default_factory=dict)

    def part(self, broker: int) -> BrokerPart:
        return self.brokers.setdefault(broker, BrokerPart())


@dataclass
class Life:
    """From the making of the partition to its deletion; made again it begins anew, its epochs too."""

    #: From 0.
    number: int
    entries: list[PlacedEntry] = field(default_factory=list)
    steps: list[EpochStep] = field(default_factory=list)
    #: When its deletion was first heard of. The controller still takes its replicas offline then, one by one,
    #: in leader epochs of their own.
    ended: int | None = None

    @property
    def newest(self) -> EpochStep | None:
        return max(self.steps, key=lambda step: step.leader_epoch, default=None)


@dataclass(frozen=True)
class Finding:
    """What a reader should know. ``fault``: it is not as it should be; ``note``: it is good to know."""

    severity: Literal["fault", "note"]
    kind: str
    says: str
    time: int | None = None
    broker: int | None = None
    leader_epoch: int | None = None


@dataclass
class Story:
    """Everything that is told of a partition."""

    topic: str
    partition: int
    lives: list[Life]
    context: Context
    findings: list[Finding]

    @property
    def entries(self) -> list[PlacedEntry]:
        return [entry for life in self.lives for entry in life.entries]

    @property
    def steps(self) -> list[EpochStep]:
        return [step for life in self.lives for step in life.steps]

    @property
    def faults(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "fault"]

    def as_json(self) -> dict[str, Any]:
        """Names as here, times as ISO 8601 in UTC."""
        context = asdict(self.context)
        return {
            "topic": self.topic,
            "partition": self.partition,
            "truncated": context.pop("truncated"),
            "findings": [_timed(asdict(one)) for one in self.findings],
            "epochs": [_timed(asdict(one)) for one in self.steps],
            "controllers": [_timed(one) for one in context.pop("reigns")],
            "brokers": [_timed(one) for one in context.pop("coverage")],
            "refusals": [_timed(one) for one in context.pop("refusals")],
            "requests": [_timed(one) for one in context.pop("requests")],
            "snapshot": context.pop("snapshot"),
            "entries": [
                {name: value for name, value in _timed(asdict(one)).items() if value not in (None, [])}
                for one in self.entries
            ],
        }


#: Fields that are moments.
_TIMES: Final = {
    "time",
    "first",
    "last",
    "told",
    "received",
    "applied",
    "refused",
    "metadata",
    "stop_told",
    "stop_received",
}


def _timed(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: (
            iso(value)
            if name in _TIMES and value is not None
            else {str(key): _timed(one) for key, one in value.items()}
            if isinstance(value, dict)
            else value
        )
        for name, value in fields.items()
    }


def iso(time: int) -> str:
    """``2026-01-31T23:59:59.999Z``."""
    moment = datetime.fromtimestamp(time // (1000 * _MILLI), UTC).replace(microsecond=time % (1000 * _MILLI))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
