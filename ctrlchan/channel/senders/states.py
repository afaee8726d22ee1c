"""The states of a connection to a broker, and two limits that its protocol and the fast path share."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["NEVER", "ONE_PIECE", "ConnectionState"]

#: A deadline that never comes, in monotonic nanoseconds.
NEVER: Final = 2**63 - 1

#: A frame up to this size, in bytes, is copied and written in one piece: cheaper than gathering two.
ONE_PIECE: Final = 4 * 1024


class ConnectionState(IntEnum):
    """How far a connection and its first request are; ``protocol.py`` draws the transitions."""

    #: No connection, and none is being made.
    IDLE = 0
    #: The name is looked up, or TCP connects.
    CONNECTING = 1
    #: Connected, no request in flight.
    READY = 2
    #: A request is being written.
    SENDING = 3
    #: A request is written, its response is not complete.
    AWAITING = 4
    #: The parent validates a response.
    HELD = 5
    #: After a failure, until the back-off is over.
    BACKING_OFF = 6
    #: TLS, ApiVersions or SASL.
    HANDSHAKE = 7
