"""Where a program of a benchmark runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["LOCAL", "LOOPBACK", "Place"]

LOOPBACK: Final = "127.0.0.1"


class Place(NamedTuple):
    """A host. ``address``: its own. ``prefix``: the command that runs the command behind it there."""

    address: str
    prefix: Sequence[str] = ()


#: The host and the network namespace of this process.
LOCAL: Final = Place(LOOPBACK)
