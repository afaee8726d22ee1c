"""Settings of ``monitor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from ctrlchan.pipeline.settings import Setting, check_settings
from ctrlchan.storage import PathLike

__all__ = ["STEP", "MonitorConfig"]

#: Seconds; rolling windows consist of whole steps.
STEP: Final = 10


@dataclass(frozen=True, kw_only=True)
class MonitorConfig:
    """Settings of ``monitor``. Raises ConfigError for a value that cannot work.

    - ``max_files``: files of one batch at most.
    - ``divergence_interval``: seconds between two comparisons with the snapshot, at least, as each reads the
      whole journal.
    - ``now``: the time of the figures, seconds since 1970; None: the clock's.
    """

    journal: Annotated[PathLike, Setting("A journal folder.", value="FOLDER", argument=True)]
    checkpoint: Annotated[
        PathLike | None,
        Setting(
            "A folder on this machine for the state, from which a restarted monitor continues.",
            value="FOLDER",
            default="begin with the oldest row",
        ),
    ] = None
    window: Annotated[float, Setting("Seconds of the rolling figures.", value="SECONDS", minimum=STEP)] = (
        300.0
    )
    interval: Annotated[float, Setting("Seconds between two updates.", value="SECONDS", minimum=0.1)] = 5.0
    snapshot: Annotated[
        PathLike | None,
        Setting("Alert when a broker holds older metadata than this snapshot.", value="FOLDER"),
    ] = None
    max_files: int = 1_000
    divergence_interval: float = 60.0
    now: float | None = None

    def __post_init__(self) -> None:
        from ctrlchan.errors import ConfigError

        check_settings(self)
        if self.max_files < 1:
            raise ConfigError(f"max_files: {self.max_files} is below 1")
