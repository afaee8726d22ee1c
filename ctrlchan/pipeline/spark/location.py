"""Where Spark runs: at a master, started by this process, or at a Spark Connect server."""

from __future__ import annotations

import os

from ctrlchan.errors import ConfigError

__all__ = ["remote_url"]


def remote_url(master: str | None, remote: str | None) -> str | None:
    """Return the URL of the Spark Connect server, or None if Spark is started by this process.

    SPARK_REMOTE names the server if neither is given. Raises ConfigError for both and for another URL.
    """
    if master is not None and remote is not None:
        raise ConfigError(f"master {master} and remote {remote}: Spark runs at one of them, give one")
    if master is not None:
        return None
    url = remote if remote is not None else os.environ.get("SPARK_REMOTE") or None
    if url is not None and not url.startswith("sc://"):
        raise ConfigError(f"{url!r} is no Spark Connect server, like sc://host:15002")
    return url
