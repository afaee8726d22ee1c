"""Rules that turn figures into alerts, from options or a TOML file.

::

    [stuck]              # a request waits for an answer for longer than this
    seconds = 30

    [error_rate]         # a larger share of the requests in the window failed
    above = 0.1
    at_least = 10        # fewer requests in the window give no alert

    [fenced]             # the last requests ended as fenced: another controller, or an old broker epoch

    [diverged]           # the broker holds stale metadata of more partitions than this
    partitions = 0

A rule that is not in the file is off; ``enabled = false`` turns one off too.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Self

from ctrlchan.errors import ConfigError
from ctrlchan.pipeline.jobs.monitor.figures import Figures
from ctrlchan.pipeline.words import counted, form

__all__ = ["Alert", "Rules"]


@dataclass(frozen=True)
class Alert:
    """An alert. ``rule``: stuck, error_rate, fenced, diverged; ``value``: seconds, a share, or partitions."""

    rule: str
    broker: int
    value: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The limits of the rules. A rule whose limit is None is off.

    ``stuck``: seconds; ``error_rate``: a share, of at least ``error_rate_at_least`` requests; ``diverged``:
    partitions. Raises ConfigError for a limit that is always or never exceeded.
    """

    stuck: float | None = 30.0
    error_rate: float | None = 0.1
    error_rate_at_least: int = 10
    fenced: bool = True
    diverged: int | None = 0

    def __post_init__(self) -> None:
        if self.stuck is not None and not self.stuck > 0:
            raise ConfigError(f"stuck: {self.stuck} seconds; must be more than 0")
        if self.error_rate is not None and not 0 <= self.error_rate < 1:
            raise ConfigError(f"error_rate: {self.error_rate} is not a share from 0 up to 1")
        if self.error_rate_at_least < 1:
            raise ConfigError(f"error_rate: at_least is {self.error_rate_at_least}; must be 1 or more")
        if self.diverged is not None and self.diverged < 0:
            raise ConfigError(f"diverged: {self.diverged} partitions; must be 0 or more")

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read rules from a TOML file; raises ConfigError with file, table and key."""
        try:
            tables = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
            raise ConfigError(f"{path}: {problem}") from problem
        found: dict[str, Any] = {"stuck": None, "error_rate": None, "fenced": False, "diverged": None}
        for name, table in tables.items():
            known = _TABLES.get(name)
            if known is None or not isinstance(table, dict):
                raise ConfigError(f"{path}: {name}: there is no such rule ({', '.join(_TABLES)})")
            found |= _settings(path, name, known, table)
        try:
            return cls(**found)
        except ConfigError as problem:
            raise ConfigError(f"{path}: {problem}") from None

    def alerts(self, figures: Figures) -> list[Alert]:
        """Return the alerts, ordered by rule and broker."""
        found = [*self._stuck(figures), *self._error_rate(figures)]
        return [*found, *self._fenced(figures), *self._diverged(figures)]

    def _stuck(self, figures: Figures) -> Iterator[Alert]:
        for wait in figures.waits:
            age = figures.age(wait)
            if self.stuck is not None and age is not None and age > self.stuck:
                why = f": {wait.last_error}" if wait.last_error else ""
                requests = f"{counted(wait.unfinished, 'request')} {form(wait.unfinished, 'waits', 'wait')}"
                text = f"{requests}, the oldest for {age:.1f} s ({wait.state}{why})"
                yield Alert("stuck", wait.broker, age, text)

    def _error_rate(self, figures: Figures) -> Iterator[Alert]:
        if self.error_rate is None:
            return
        for broker in figures.brokers:
            mine = [one for one in figures.requests if one.broker == broker]
            ended, failed = sum(one.recent for one in mine), sum(one.recent_failed for one in mine)
            if ended >= self.error_rate_at_least and failed / ended > self.error_rate:
                text = f"{failed:,} of {counted(ended, 'request')} failed in {figures.window:g} s"
                yield Alert("error_rate", broker, failed / ended, text)

    def _fenced(self, figures: Figures) -> Iterator[Alert]:
        if not self.fenced:
            return
        for broker, at in sorted(figures.fenced_at.items()):
            if at > figures.acknowledged_at.get(broker, -1):
                ago = max(0.0, figures.now - at / 1e6)
                yield Alert("fenced", broker, ago, f"its last requests ended as fenced, {ago:.0f} s ago")

    def _diverged(self, figures: Figures) -> Iterator[Alert]:
        for one in figures.diverged or ():
            if self.diverged is not None and one.partitions > self.diverged:
                named = f": {', '.join(one.named)}" if one.named else ""
                more = ", ..." if one.partitions > len(one.named) > 0 else ""
                text = f"stale metadata of {counted(one.partitions, 'partition')}{named}{more}"
                yield Alert("diverged", one.broker, float(one.partitions), text)


#: Rule -> its keys: (name in the file, field of Rules, types).
_TABLES: Final[Mapping[str, Mapping[str, tuple[str, tuple[type, ...]]]]] = {
    "stuck": {"seconds": ("stuck", (int, float))},
    "error_rate": {"above": ("error_rate", (int, float)), "at_least": ("error_rate_at_least", (int,))},
    "fenced": {},
    "diverged": {"partitions": ("diverged", (int,))},
}


def _settings(
    path: str | Path, name: str, known: Mapping[str, tuple[str, tuple[type, ...]]], table: dict[str, Any]
) -> dict[str, Any]:
    """Return the settings of one table; a rule that is named is on, with default limits."""
    enabled = table.pop("enabled", True)
    if not isinstance(enabled, bool):
        raise ConfigError(f"{path}: {name}.enabled: {enabled!r} is not true or false")
    defaults = {one.name: one.default for one in fields(Rules)}
    settings: dict[str, Any] = {name: defaults[name]}
    for key, value in table.items():
        if key not in known:
            raise ConfigError(
                f"{path}: {name}.{key}: there is no such setting ({', '.join(known) or 'none'})"
            )
        where, types = known[key]
        if isinstance(value, bool) or not isinstance(value, types):
            raise ConfigError(f"{path}: {name}.{key}: {value!r} is not a number")
        settings[where] = value
    return settings if enabled else {}
