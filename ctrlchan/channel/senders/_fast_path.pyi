"""What a driver does with nearly every request, without a Python object for it."""

from collections.abc import Sequence
from typing import TypeVar

from ctrlchan.channel.senders._request import RequestInFlight

_Driver = TypeVar("_Driver", bound=SocketDriver)

class ReportBuffer:
    """Bytes of reports that are not yet in the pipe to the parent; ``len`` is their number."""

    def append(self, data: bytes) -> None: ...
    def write(self, fd: int) -> bool:
        """Write to a non-blocking pipe what it takes; return whether everything is written. Raises OSError."""
    def __len__(self) -> int: ...

class SocketDriver:
    """A connection's protocol and its socket; the base of ``BrokerConnection``.

    A subclass has the methods ``write_rest``, ``io_failed``, ``take`` and ``internal_error``.
    """

    protocol: RequestInFlight
    #: The socket while bytes pass it unchanged and requests may follow; else -1: the fast path does nothing.
    plain_socket: int
    def __init__(self, protocol: RequestInFlight) -> None: ...

def queue_requests(
    data: bytes, position: int, connections: dict[int, _Driver], after_reports: list[_Driver]
) -> int:
    """Queue the SEND commands from `position` on; `connections` are by slot.

    Stops at the first command of another kind, or that is not whole, and returns its position. Connections
    that had no request are appended to `after_reports`.
    """

def begin_requests(connections: Sequence[_Driver]) -> tuple[list[_Driver], int]:
    """Begin the next request of each of these connections.

    Returns the connections whose driver must do it instead, and the earliest deadline of the others.
    """

def take_responses(
    events: list[tuple[int, int]],
    by_fd: dict[int, _Driver],
    reports: ReportBuffer,
    after_reports: list[_Driver],
) -> list[tuple[int, int]]:
    """Read the responses that these events, (descriptor, what it is ready for), announce.

    Returns the events that are left to the drivers. Connections that may begin their next request are
    appended to `after_reports`.
    """
