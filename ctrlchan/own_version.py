"""The version of this package. The module imports nothing of ours, so that ``--version`` is quick."""

from __future__ import annotations

__all__ = ["own_version"]


def own_version() -> str:
    """Return the version of this package, 0+unknown where it is not installed."""
    # Slow to import, and nothing but this needs it.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ctrlchan")
    except PackageNotFoundError:
        return "0+unknown"
