"""Settings of ``report``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from ctrlchan.pipeline.settings import Setting, check_settings
from ctrlchan.storage import PathLike

__all__ = ["ReportConfig"]


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not a time, as 2026-01-31 or 2026-01-31 23:59:59") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """Settings of ``report``. Raises ConfigError for a value that cannot work.

    ``since``, ``until``: limit what is counted; stale partitions are always found from the whole journal.
    ``bucket``: seconds of a point of the time series. None: depends on the length of the journal.
    """

    journal: Annotated[
        PathLike,
        Setting("A journal folder, also one that is still written.", value="FOLDER", argument=True),
    ]
    snapshot: Annotated[
        PathLike | None,
        Setting("The state that brokers should have; without it only failures are reported.", value="FOLDER"),
    ] = None
    since: Annotated[
        datetime | None,
        Setting("Count only requests that ended from this time on (UTC).", value="TIME", parse=_time),
    ] = None
    until: Annotated[
        datetime | None,
        Setting("Count only requests that ended before this time (UTC).", value="TIME", parse=_time),
    ] = None
    bucket: int | None = None

    def __post_init__(self) -> None:
        from ctrlchan.errors import ConfigError

        check_settings(self)
        if self.bucket is not None and self.bucket < 1:
            raise ConfigError(f"bucket must be at least 1 second, not {self.bucket}")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ConfigError(f"since ({self.since}) must be before until ({self.until})")
