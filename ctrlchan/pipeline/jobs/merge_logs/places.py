"""What a log file's path says: whose it is, in which time zone it was written, which file is older."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import PurePosixPath
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from ctrlchan.errors import ConfigError

__all__ = ["Place", "Places"]

#: ``broker-3``, ``kafka3``, ``3``; no date, no address.
_NUMBERED: Final = re.compile(r"(?:.*[A-Za-z][-_]?)?(\d{1,9})", re.ASCII)
#: log4j's DailyRollingFileAppender appends the hour (or day, or minute) that a file is about.
_DATED: Final = re.compile(r"\d{4}-\d\d-\d\d(?:-\d\d){0,2}", re.ASCII)
#: RollingFileAppender appends 1 to the newest of the old ones.
_COUNTED: Final = re.compile(r"\.(\d{1,9})(?:\.[A-Za-z]\w*)?", re.ASCII)
_MOST: Final = 10**9


class Place(NamedTuple):
    """``broker``: for entries that do not say; ``turn``: sorts a broker's rotated files, oldest first."""

    broker: int | None
    zone: ZoneInfo
    turn: str


@dataclass(frozen=True)
class Places:
    """``brokers``, ``zones``: (pattern of the path, what it means), the first that matches; else ``zone``.

    Raises ConfigError for a zone that does not exist.
    """

    zone: str = "UTC"
    brokers: Sequence[tuple[str, int]] = ()
    zones: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        for name in (self.zone, *(name for _, name in self.zones)):
            zone_of(name)

    def of(self, file: str) -> Place:
        """``file``: a path or URI."""
        path = PurePosixPath(file)
        broker = next((broker for pattern, broker in self.brokers if _matches(file, pattern)), None)
        if broker is None and (numbered := _NUMBERED.fullmatch(path.parent.name)) is not None:
            broker = int(numbered[1])
        zone = next((zone for pattern, zone in self.zones if _matches(file, pattern)), self.zone)
        return Place(broker, zone_of(zone), _turn(path.name))


@cache
def zone_of(name: str) -> ZoneInfo:
    """Raises ConfigError when there is no such time zone."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as problem:
        raise ConfigError(f"time zone {name!r}: no such zone ({problem})") from problem


def _matches(file: str, pattern: str) -> bool:
    """The whole path, or the end of it."""
    return fnmatchcase(file, pattern) or fnmatchcase(file, f"*/{pattern}")


def _turn(name: str) -> str:
    if (dated := _DATED.search(name)) is not None:
        return f"0{dated[0]}"
    if (counted := list(_COUNTED.finditer(name))) and counted[-1].end() == len(name):
        return f"1{_MOST - int(counted[-1][1]):010d}"
    return "2"
