"""Settings of ``dispatch``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from ctrlchan.pipeline.settings import Setting, check_settings
from ctrlchan.storage import PathLike

__all__ = ["DispatchConfig"]


@dataclass(frozen=True, kw_only=True)
class DispatchConfig:
    """Settings of ``dispatch``. Raises ConfigError for a value that cannot work.

    ``settings``: values for ``ChannelConfig``; they win over those of ``properties``.
    """

    journal: Annotated[
        PathLike,
        Setting(
            "Journal folder for the outcomes. It is also the checkpoint, and all executors share it.",
            value="FOLDER",
            names=("--journal", "-j"),
        ),
    ]
    properties: Annotated[
        PathLike | None,
        Setting(
            "A broker's server.properties: listeners, TLS, SASL, time limits. Every executor reads it, and "
            "the key stores it names, at this path.",
            value="FILE",
            names=("--config",),
            exists=True,
        ),
    ] = None
    listener: Annotated[
        str | None, Setting("Connect to the brokers' listener of this name.", value="NAME")
    ] = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    tasks: Annotated[
        int | None, Setting("Tasks that share the brokers.", minimum=1, default="one a core")
    ] = None
    timeout: Annotated[
        float, Setting("Seconds that a broker may take for one frame.", value="SECONDS", minimum=0.001)
    ] = 60.0
    lease: Annotated[
        float,
        Setting(
            "Seconds without a sign of a broker's owner after which another task takes over.",
            value="SECONDS",
            minimum=0.1,
        ),
    ] = 30.0
    flush_interval: Annotated[
        float,
        Setting(
            "Seconds between two files of the journal. A task that is killed sends at most so much again.",
            value="SECONDS",
            minimum=0.001,
        ),
    ] = 0.5

    def __post_init__(self) -> None:
        check_settings(self)
