"""The largest values of options: what Kafka's protocol or ZooKeeper can hold."""

from __future__ import annotations

import math
from typing import Final

import typer

__all__ = ["MAX_INT32", "MAX_INT64", "MAX_PORT", "MAX_SECONDS", "not_nan"]

MAX_INT32: Final = 2**31 - 1
MAX_INT64: Final = 2**63 - 1
MAX_PORT: Final = 65_535
#: A time limit: milliseconds in an int32, about 24 days.
MAX_SECONDS: Final = MAX_INT32 // 1000


def not_nan(value: float | None) -> float | None:
    """Return an option's number. Raises BadParameter for nan, which min and max let pass."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is no number")
    return value
