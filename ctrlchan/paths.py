"""Paths of folders and files on this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ctrlchan.errors import ConfigError

__all__ = ["is_url", "local_path"]

#: ``hdfs://host/x``, and ``hdfs:/host/x``, which is what a ``Path`` makes of it. One letter is no scheme.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def is_url(path: str | Path) -> bool:
    """Return whether the path begins with the scheme of a URL."""
    return _URL.match(str(path)) is not None


def local_path(path: str | Path) -> Path:
    """Return the path. Raises ConfigError for a URL, which would become a local path of another name."""
    if is_url(path):
        raise ConfigError(
            f"{path}: a URL; only paths of a file system that is mounted here can be used "
            "(and on every executor, for a job of the pipeline)"
        )
    return Path(path)
