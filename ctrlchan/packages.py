"""Packages that only snapshots, the journal and the pipeline need."""

from __future__ import annotations

from importlib.util import find_spec

from ctrlchan.errors import ConfigError

__all__ = ["require_pyarrow"]


def require_pyarrow() -> None:
    """Raise ConfigError, with what to install, where pyarrow is missing.

    A cluster for tests needs none of its 170 MB.
    """
    if find_spec("pyarrow") is None:
        raise ConfigError(
            "snapshots, the journal and the pipeline need pyarrow: pip install 'ctrlchan[parquet]'"
        )
