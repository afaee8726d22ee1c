"""The file with the measured costs of this machine, in the user's cache."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ctrlchan.errors import ConfigError
from ctrlchan.own_version import own_version
from ctrlchan.planning.costs import Costs
from ctrlchan.storage.files import replace
from ctrlchan.user_cache import user_cache

__all__ = ["Calibration", "costs_path", "read_calibration", "write_calibration"]

_AGAIN: Final = "run ctrlchan bench calibrate again, or plan with --costs defaults"


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measured costs. ``zookeeper``: whether a server was measured, or nodes in memory."""

    costs: Costs
    machine: str
    version: str
    date: str
    zookeeper: str

    @classmethod
    def now(cls, costs: Costs, *, with_server: bool) -> Calibration:
        """Return the costs with this machine, this version and the present time."""
        return cls(
            costs,
            platform.node(),
            own_version(),
            datetime.now(UTC).isoformat(timespec="seconds"),
            "a server" if with_server else "nodes in memory",
        )


def costs_path() -> Path:
    """Return the file, which may not exist. Raises ConfigError for a user without a home."""
    try:
        return user_cache() / "costs.json"
    except RuntimeError as problem:
        raise ConfigError(f"there is no folder for measured costs: {problem}; set XDG_CACHE_HOME") from None


def write_calibration(calibration: Calibration) -> Path:
    """Write the file, whole or not at all, and return its path. Raises OSError, ConfigError."""
    path = costs_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, (json.dumps(asdict(calibration), indent=1) + "\n").encode())
    return path


def read_calibration() -> Calibration | None:
    """Return the measured costs of this machine, None where nothing was measured.

    Raises ConfigError, with what to do, for costs of another machine or version, and for a damaged file.
    """
    path = costs_path()
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        given = json.loads(text)
        costs = Costs.of(given["costs"])
        machine, version = str(given["machine"]), str(given["version"])
        date, zookeeper = str(given["date"]), str(given["zookeeper"])
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ConfigError(f"{path}: no measured costs ({problem}); {_AGAIN}") from None
    if machine != platform.node():
        raise ConfigError(f"{path}: measured on the machine {machine}, this is {platform.node()}; {_AGAIN}")
    if version != own_version():
        raise ConfigError(f"{path}: measured with ctrlchan {version}, this is {own_version()}; {_AGAIN}")
    return Calibration(costs, machine, version, date, zookeeper)
