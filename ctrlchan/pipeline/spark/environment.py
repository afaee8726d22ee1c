"""Variables of the environment that PySpark and the JVM that it starts read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

__all__ = ["JAVA_OPTIONS", "changed_environment"]

#: Options of the JVM that stand before those of the user's settings.
JAVA_OPTIONS: Final = "SPARK_SUBMIT_OPTS"


@contextmanager
def changed_environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set these variables, remove those of None, and put all back at the end of the block."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
