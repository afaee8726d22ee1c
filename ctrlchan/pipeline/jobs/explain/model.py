"""Data classes of a partition's history. Times are microseconds since 1970, UTC."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from ctrlchan.pipeline.jobs.merge_logs.entries import Entry

__all__ = [
    "BrokerProgress",
    "Context",
    "ControllerTerm",
    "EpochStep",
    "Finding",
    "Incarnation",
    "JournalRequest",
    "LocatedEntry",
    "LogCoverage",
    "PartitionHistory",
    "Refusals",
    "SnapshotRow",
    "iso",
]


@dataclass(slots=True)
class LocatedEntry(Entry):
    """A log entry with its text, file and line number."""

    text: str = ""
    file: str = ""
    line: int = 0


@dataclass(frozen=True)
class LogCoverage:
    """The time span and number of entries of a broker's log.

    ``traces``: entries that it wrote at level TRACE as a broker. ``epochs``: entries that only releases of
    Kafka write that log each applied leader epoch, at level INFO.
    """

    broker: int
    first: int
    last: int
    entries: int
    traces: int
    epochs: int = 0

    @property
    def shows_applied(self) -> bool:
        """Whether the log would show that a leader epoch was applied."""
        return bool(self.traces or self.epochs)


@dataclass(frozen=True)
class ControllerTerm:
    """The first and last log entry of a controller in one controller epoch."""

    controller_id: int
    controller_epoch: int
    first: int
    last: int


@dataclass(frozen=True)
class Refusals:
    """Requests that a broker refused because of a newer controller; logs do not name their partitions."""

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
    """A request of the journal that contained the partition."""

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
    """The row of the partition in a snapshot. None in ``Context``: no snapshot was given."""

    #: False: the snapshot has no such partition, and the other fields mean nothing.
    exists: bool
    leader: int = -1
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True)
class Context:
    """Facts from the logs as a whole, the journal and the snapshot."""

    coverage: tuple[LogCoverage, ...] = ()
    terms: tuple[ControllerTerm, ...] = ()
    refusals: tuple[Refusals, ...] = ()
    requests: tuple[JournalRequest, ...] = ()
    snapshot: SnapshotRow | None = None
    #: Only the first entries were read.
    truncated: bool = False

    def coverage_of(self, broker: int) -> LogCoverage | None:
        """Return the log coverage of ``broker``, None if there is no log."""
        return next((one for one in self.coverage if one.broker == broker), None)


@dataclass
class BrokerProgress:
    """When one broker was sent, received and applied one leader epoch. A time is None if no log has it."""

    sent: int | None = None
    received: int | None = None
    applied: int | None = None
    #: leader, follower, or known (the broker was in that epoch already).
    applied_as: str | None = None
    refused: int | None = None
    reason: str | None = None
    metadata: int | None = None
    stop_sent: int | None = None
    stop_received: int | None = None


@dataclass
class EpochStep:
    """One leader epoch of one incarnation of the partition."""

    #: ``Incarnation.number``.
    incarnation: int
    leader_epoch: int
    time: int
    #: The first event that names the epoch.
    event: str
    leader: int | None = None
    isr: list[int] | None = None
    replicas: list[int] | None = None
    partition_epoch: int | None = None
    controller_id: int | None = None
    controller_epoch: int | None = None
    brokers: dict[int, BrokerProgress] = field(default_factory=dict)

    def progress(self, broker: int) -> BrokerProgress:
        """Return the progress of ``broker``, an empty one if nothing is known yet."""
        return self.brokers.setdefault(broker, BrokerProgress())


@dataclass
class Incarnation:
    """The time from the creation of a partition to its deletion; created again, its epochs start again."""

    #: From 0.
    number: int
    entries: list[LocatedEntry] = field(default_factory=list)
    steps: list[EpochStep] = field(default_factory=list)
    #: The first sign of the deletion. Afterwards the controller still takes the replicas offline one by one,
    #: each in a new leader epoch.
    deleted: int | None = None

    @property
    def newest(self) -> EpochStep | None:
        """The highest leader epoch."""
        return max(self.steps, key=lambda step: step.leader_epoch, default=None)


@dataclass(frozen=True)
class Finding:
    """A fault (something went wrong) or a note (background information)."""

    severity: Literal["fault", "note"]
    kind: str
    text: str
    time: int | None = None
    broker: int | None = None
    leader_epoch: int | None = None


@dataclass
class PartitionHistory:
    """All that logs, journal and snapshot contain about one partition."""

    topic: str
    partition: int
    incarnations: list[Incarnation]
    context: Context
    findings: list[Finding]

    @property
    def entries(self) -> list[LocatedEntry]:
        """The log entries of all incarnations, by time."""
        return [entry for one in self.incarnations for entry in one.entries]

    @property
    def steps(self) -> list[EpochStep]:
        """The leader epochs of all incarnations, by time."""
        return [step for one in self.incarnations for step in one.steps]

    @property
    def faults(self) -> list[Finding]:
        """The findings that are faults."""
        return [finding for finding in self.findings if finding.severity == "fault"]

    def as_json(self) -> dict[str, Any]:
        """Return the history as JSON-compatible values; times are ISO 8601 in UTC."""
        context = asdict(self.context)
        return {
            "topic": self.topic,
            "partition": self.partition,
            "truncated": context.pop("truncated"),
            "findings": [_timed(asdict(one)) for one in self.findings],
            "epochs": [_timed(asdict(one)) for one in self.steps],
            "controllers": [_timed(one) for one in context.pop("terms")],
            "brokers": [_timed(one) for one in context.pop("coverage")],
            "refusals": [_timed(one) for one in context.pop("refusals")],
            "requests": [_timed(one) for one in context.pop("requests")],
            "snapshot": context.pop("snapshot"),
            "entries": [
                {name: value for name, value in _timed(asdict(one)).items() if value not in (None, [])}
                for one in self.entries
            ],
        }


#: Fields that are times.
_TIMES: Final = {
    *("time", "first", "last", "sent", "received", "applied", "refused", "metadata"),
    *("stop_sent", "stop_received"),
}


def _timed(fields: dict[str, Any]) -> dict[str, Any]:
    """Return ``fields`` with all times as text, also those in nested dicts."""
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
    """Return a time as ``2026-01-31T23:59:59.999Z``; logs have milliseconds."""
    seconds, microseconds = divmod(time, 1_000_000)
    stamp = datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds)
    return stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z")
