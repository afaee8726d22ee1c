"""Settings of ``diff``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ctrlchan.pipeline.settings import Setting
from ctrlchan.storage import PathLike

__all__ = ["DiffConfig"]


@dataclass(frozen=True, kw_only=True)
class DiffConfig:
    """Settings of ``diff``: two snapshots of one cluster."""

    old: Annotated[PathLike, Setting("The snapshot that the brokers have.", argument=True)]
    new: Annotated[PathLike, Setting("The snapshot that they are to have.", argument=True)]
