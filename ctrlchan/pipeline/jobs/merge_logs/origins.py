"""Derives from the path of a log file its broker, its time zone and its place among rotated files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import PurePosixPath
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

__all__ = ["FileOrigin", "FileOrigins", "zone_of"]

#: ``broker-3``, ``kafka3``, ``3``; neither a date nor an address.
_NUMBERED: Final = re.compile(r"(?:.*[A-Za-z][-_]?)?(\d{1,9})", re.ASCII)
#: log4j's DailyRollingFileAppender appends the day, hour or minute of the file's entries.
_DATED: Final = re.compile(r"\d{4}-\d\d-\d\d(?:-\d\d){0,2}", re.ASCII)
#: log4j's RollingFileAppender appends a number: 1 for the newest of the rotated files.
_COUNTED: Final = re.compile(r"\.(\d{1,9})(?:\.[A-Za-z]\w*)?", re.ASCII)
_MOST: Final = 10**9


class FileOrigin(NamedTuple):
    """The origin of a file. ``broker``: for entries without one; ``rotation``: sorts rotated files by age."""

    broker: int | None
    zone: ZoneInfo
    rotation: str


@dataclass(frozen=True)
class FileOrigins:
    """Rules that give each file its origin.

    ``brokers``, ``zones``: (pattern of the path, broker id or zone), the first match counts; ``zone`` is the
    default. Raises ConfigError for an unknown time zone.
    """

    zone: str = "UTC"
    brokers: Sequence[tuple[str, int]] = ()
    zones: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        for name in (self.zone, *(name for _, name in self.zones)):
            zone_of(name)

    def of(self, file: str) -> FileOrigin:
        """Return the origin of ``file``, a path or URI."""
        path = PurePosixPath(file)
        broker = next((broker for pattern, broker in self.brokers if _matches(file, pattern)), None)
        if broker is None and (numbered := _NUMBERED.fullmatch(path.parent.name)) is not None:
            broker = int(numbered[1])
        zone = next((zone for pattern, zone in self.zones if _matches(file, pattern)), self.zone)
        return FileOrigin(broker, zone_of(zone), _rotation(path.name))


@cache
def zone_of(name: str) -> ZoneInfo:
    """Return a time zone by name; raises ConfigError if it does not exist."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as problem:
        # It loads NumPy, which a help text does not need.
        from ctrlchan.errors import ConfigError

        raise ConfigError(f"time zone {name!r}: no such zone ({problem})") from problem


def _matches(file: str, pattern: str) -> bool:
    """Return whether the pattern matches the whole path or its end."""
    return fnmatchcase(file, pattern) or fnmatchcase(file, f"*/{pattern}")


def _rotation(name: str) -> str:
    """Return a sort key: files with a date, then numbered ones (highest first), then the current file."""
    if (dated := _DATED.search(name)) is not None:
        return f"0{dated[0]}"
    if (counted := list(_COUNTED.finditer(name))) and counted[-1].end() == len(name):
        return f"1{_MOST - int(counted[-1][1]):010d}"
    return "2"
