"""What the readable state machine of a link (``link.py``) and its shortcut (``_exchange.pyx``) both know."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["NEVER", "ONE_PIECE", "LinkState"]

#: A deadline that never comes, in monotonic nanoseconds.
NEVER: Final = 2**63 - 1

#: A frame up to this size, in bytes, is copied and written in one piece: cheaper than gathering two.
ONE_PIECE: Final = 4 * 1024


class LinkState(IntEnum):
    """How far a link has come; the arrows between them are drawn in ``link.py``."""

    IDLE = 0
    CONNECTING = 1
    READY = 2
    SENDING = 3
    AWAITING = 4
    HELD = 5
    WAITING = 6
    HANDSHAKE = 7
