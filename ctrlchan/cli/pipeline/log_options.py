"""Options that the jobs over state-change logs share."""

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
    list[str], typer.Argument(help="Files, folders or patterns; plain or compressed, rotated ones too.")
]
Names = Annotated[
    list[str] | None,
    typer.Option("--name", help="Which files of a folder.", show_default="state-change.log*"),
]
Start = Annotated[str | None, typer.Option(metavar="TIME", help="From then on, as 2026-01-31 23:59:59,999.")]
End = Annotated[str | None, typer.Option(metavar="TIME", help="Up to then, included.")]
TimeZone = Annotated[
    str, typer.Option(metavar="ZONE", help="Where the logs were written; their lines do not say.")
]
TimeZones = Annotated[
    list[str] | None,
    typer.Option("--zone", metavar="PATTERN=ZONE", help="Another zone for these paths.", show_default=False),
]
Brokers = Annotated[
    list[str] | None,
    typer.Option(
        "--broker",
        metavar="PATTERN=ID",
        help="Whose the files of these paths are, for entries that do not say.",
        show_default="the number at the end of the folder's name",
    ),
]


@dataclass(frozen=True)
class LogOptions:
    """The shared options as they were given."""

    logs: Sequence[str]
    names: Sequence[str] | None
    start: str | None
    end: str | None
    time_zone: str
    zones: Sequence[str] | None
    brokers: Sequence[str] | None


def log_config(options: LogOptions, **filters: Any) -> MergeLogsConfig:
    """``filters``: further settings. Raises ConfigError, BadParameter for what cannot be read."""
    from ctrlchan.pipeline.jobs.merge_logs.job import STATE_CHANGE_LOGS, MergeLogsConfig

    brokers = {}
    for pattern, broker in _pairs(options.brokers, "--broker"):
        if not (broker.isascii() and broker.isdigit() and int(broker) < 2**31):
            raise typer.BadParameter(f"{broker!r} is no broker id", param_hint="--broker")
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
            f"{given!r} is no time, as 2026-01-31 23:59:59,999", param_hint=option
        ) from None
