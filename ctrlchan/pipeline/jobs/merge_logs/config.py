"""Settings of ``merge-logs``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from ctrlchan.pipeline.jobs.merge_logs.origins import FileOrigins, zone_of
from ctrlchan.pipeline.settings import Setting, check_settings

__all__ = ["MergeLogsConfig"]


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a time, as 2026-01-31 23:59:59,999") from None


def _pair(text: str) -> tuple[str, str]:
    pattern, equals, value = text.rpartition("=")
    if not (equals and pattern and value):
        raise ValueError(f"{text!r} is not PATTERN=VALUE")
    return pattern, value


def _broker(text: str) -> tuple[str, int]:
    pattern, broker = _pair(text)
    if not (broker.isascii() and broker.isdigit() and int(broker) < 2**31):
        raise ValueError(f"{broker!r} is not a broker id")
    return pattern, int(broker)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(one) for one in text.split(","))
    except ValueError:
        raise ValueError(f"{text!r} is not a list of partitions") from None


@dataclass(frozen=True, kw_only=True)
class MergeLogsConfig:
    """The logs to read and the filters of their entries.

    ``logs``: files, folders, or Hadoop's patterns; of folders the files whose names match ``names``. Patterns
    of ``time_zones`` and ``brokers`` are those of ``fnmatch``, against the whole path or its end. ``start``
    and ``end`` are included; a datetime without a zone is in ``time_zone``.

    Raises ConfigError for an invalid pattern or zone, and for partitions without a topic.
    """

    logs: Annotated[
        str | Path | Sequence[str | Path],
        Setting("Log files, folders or patterns; plain or compressed, also rotated files.", argument=True),
    ]
    topics: Annotated[
        Sequence[str], Setting("Only entries of this topic (may be repeated).", names=("--topic",))
    ] = ()
    topic_pattern: Annotated[
        str | None,
        Setting(
            "Only entries of topics whose whole name this matches.", value="REGEX", names=("--topic-regex",)
        ),
    ] = None
    partitions: Annotated[
        Sequence[int],
        Setting(
            "Only entries of these partitions of the topics.", value="0,1,...", parse=_numbers, repeated=False
        ),
    ] = ()
    start: Annotated[
        datetime | None,
        Setting("Only entries from this time on, as 2026-01-31 23:59:59,999.", value="TIME", parse=_time),
    ] = None
    end: Annotated[
        datetime | None, Setting("Only entries up to this time, included.", value="TIME", parse=_time)
    ] = None
    time_zone: Annotated[str, Setting("Time zone of the log lines.", value="ZONE")] = "UTC"
    time_zones: Annotated[
        Mapping[str, str],
        Setting(
            "Another time zone for these paths (may be repeated).",
            value="PATTERN=ZONE",
            names=("--zone",),
            parse=_pair,
        ),
    ] = field(default_factory=dict)
    brokers: Annotated[
        Mapping[str, int],
        Setting(
            "Broker id of the files of these paths, for entries without one (may be repeated).",
            value="PATTERN=ID",
            names=("--broker",),
            parse=_broker,
            default="the number at the end of the folder's name",
        ),
    ] = field(default_factory=dict)
    names: Annotated[
        Sequence[str],
        Setting(
            "Pattern of file names in a folder (may be repeated).",
            names=("--name",),
            default="state-change.log*",
        ),
    ] = ("state-change.log*",)

    def __post_init__(self) -> None:
        from ctrlchan.errors import ConfigError

        check_settings(self)
        if self.partitions and not self.topics and self.topic_pattern is None:
            raise ConfigError("partitions need topics or a topic pattern")
        if self.topic_pattern is not None:
            try:
                re.compile(self.topic_pattern)
            except re.error as problem:
                raise ConfigError(f"topic pattern {self.topic_pattern!r}: {problem}") from problem
        _ = self.origins  # checks the zones
        if self.start is not None and self.end is not None and self.utc(self.end) < self.utc(self.start):
            raise ConfigError(f"the end {self.end} is before the start {self.start}")

    @property
    def paths(self) -> Sequence[str | Path]:
        """The files, folders and patterns."""
        return [self.logs] if isinstance(self.logs, (str, Path)) else self.logs

    @property
    def origins(self) -> FileOrigins:
        """The rules for brokers and time zones of files."""
        return FileOrigins(self.time_zone, tuple(self.brokers.items()), tuple(self.time_zones.items()))

    def utc(self, time: datetime) -> datetime:
        """Return ``time`` in UTC."""
        return (time if time.tzinfo else time.replace(tzinfo=zone_of(self.time_zone))).astimezone(UTC)
