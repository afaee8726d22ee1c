"""Options of merge-logs and explain, which both read state-change logs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ctrlchan.pipeline.jobs.merge_logs.job import MergeLogsConfig

__all__ = ["Brokers", "End", "LogOptions", "Logs", "Names", "Start", "TimeZone", "TimeZones", "log_config"]

Logs = Annotated[
    list[str], typer.Argument(help="Log files, folders or patterns; plain or compressed, also rotated files.")
]
Names = Annotated[
    list[str] | None,
    typer.Option("--name", help="Pattern of file names in a folder.", show_default="state-change.log*"),
]
Start = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Only entries from this time on, as 2026-01-31 23:59:59,999."),
]
End = Annotated[str | None, typer.Option(metavar="TIME", help="Only entries up to this time, included.")]
TimeZone = Annotated[str, typer.Option(metavar="ZONE", help="Time zone of the log lines.")]
TimeZones = Annotated[
    list[str] | None,
    typer.Option(
        "--zone", metavar="PATTERN=ZONE", help="Another time zone for these paths.", show_default=False
    ),
]
Brokers = Annotated[
    list[str] | None,
    typer.Option(
        "--broker",
        metavar="PATTERN=ID",
        help="Broker id of the files of these paths, for entries without one.",
        show_default="the number at the end of the folder's name",
    ),
]


@dataclass(frozen=True)
class LogOptions:
    """The values of the shared options."""

    logs: Sequence[str]
    names: Sequence[str] | None
    start: str | None
    end: str | None
    time_zone: str
    zones: Sequence[str] | None
    brokers: Sequence[str] | None


def log_config(options: LogOptions, **filters: Any) -> MergeLogsConfig:
    """Return the settings of the job. ``filters``: further settings. Raises ConfigError, BadParameter."""
    from ctrlchan.pipeline.jobs.merge_logs.job import STATE_CHANGE_LOGS, MergeLogsConfig

    brokers = {}
    for pattern, broker in _pairs(options.brokers, "--broker"):
        if not (broker.isascii() and broker.isdigit() and int(broker) < 2**31):
            raise typer.BadParameter(f"{broker!r} is not a broker id", param_hint="--broker")
        brokers[pattern] = int(broker)
    return MergeLogsConfig(
        logs=options.logs,
        names=options.names or STATE_CHANGE_LOGS,
        start=_time(options.start, "--start"),
        end=_time(options.end, "--end"),
        time_zone=options.time_zone,
        time_zones=dict(_pairs(options.zones, "--zone")),
        brokers=brokers,
        **filters,
    )


def _pairs(given: Sequence[str] | None, option: str) -> list[tuple[str, str]]:
    pairs = []
    for one in given or ():
        pattern, equals, value = one.rpartition("=")
        if not (equals and pattern and value):
            raise typer.BadParameter(f"{one!r} is not PATTERN=VALUE", param_hint=option)
        pairs.append((pattern, value))
    return pairs


def _time(given: str | None, option: str) -> datetime | None:
    if given is None:
        return None
    try:
        return datetime.fromisoformat(given.strip())
    except ValueError:
        raise typer.BadParameter(
            f"{given!r} is not a time, as 2026-01-31 23:59:59,999", param_hint=option
        ) from None
