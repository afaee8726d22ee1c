"""The way of a request through a sender process when all goes well, with no Python object of its own."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from ctrlchan.channel.wire.records import Command
from ctrlchan.channel.wire.states import LinkState

_Lane = TypeVar("_Lane", bound=Exchange)

class CommandQueue:
    """SEND commands in order, like a deque of them; ``append`` takes the record."""

    def append(self, record: bytes) -> None: ...
    def popleft(self) -> Command: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Command: ...
    def __iter__(self) -> Iterator[Command]: ...

class Outbox:
    """Bytes of reports that are not yet in the pipe to the parent; ``len`` is how many."""

    def append(self, data: bytes) -> None: ...
    def write(self, fd: int) -> bool:
        """To a non-blocking pipe, as far as it takes them; whether all are written. OSError."""
    def __len__(self) -> int: ...

class Exchange:
    """One broker's requests, and the first of them while it goes out and its response comes in.

    What of a ``Link`` changes with each request. Times are monotonic nanoseconds. ``memory``: what frames lie
    in; ``fence[0]``: the highest controller epoch that must not be sent any more.
    """

    @property
    def slot(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def memory(self) -> memoryview: ...
    @property
    def items(self) -> CommandQueue: ...
    state: LinkState
    #: When ``expired`` must be called.
    deadline: int
    #: From then on the connection is not to be used for another request: its SASL session ends.
    expires: int
    #: Failed attempts at the first item; at a connection, when that is wanted without one.
    attempts: int
    #: Of the request in flight, or of the next one.
    correlation: int
    #: Whether requests are made for the broker's versions.
    agreed: bool
    #: The socket, when bytes pass it as they are and requests may follow; else -1, and nothing is done with
    #: it here.
    direct: int
    #: A response that came in parts; None when nothing of it is here.
    received: bytearray | None
    @property
    def first_byte_ns(self) -> int: ...
    @property
    def last_byte_ns(self) -> int: ...
    def __init__(
        self, slot: int, broker_epoch: int, memory: memoryview, fence: memoryview, request_timeout: int
    ) -> None: ...
    def is_stale(self) -> bool:
        """Whether the first item's controller epoch is fenced: it must not be (re)sent."""
    def compose(self, head: bytearray, now: int) -> None:
        """Begin the first item: fill ``head`` with as much of its frame, ids and epochs in their places."""
    def written(self, now: int) -> None:
        """The last byte of the frame was given to the kernel."""
    def settle(self, body: bytes, outbox: Outbox) -> bool:
        """The first item has its response, here without size and correlation id. True: it was the expected
        one, which is reported, and the next item may follow; False: the parent must say so first."""
    def next(self) -> None:
        """The first item is done with."""

def queue_requests(data: bytes, position: int, lanes: dict[int, _Lane], after_reports: list[_Lane]) -> int:
    """Give the SEND commands from ``position`` on to their lanes (slot -> lane), up to the first command that
    is another or not whole; where that begins. Lanes that had nothing to do are put in ``after_reports``."""

def begin_requests(lanes: Sequence[_Lane]) -> tuple[list[_Lane], int]:
    """Begin the next request of each of these lanes: the lanes for which it could not be done here, and the
    earliest deadline of the others."""

def take_responses(
    events: list[tuple[int, int]], by_fd: dict[int, _Lane], outbox: Outbox, after_reports: list[_Lane]
) -> list[tuple[int, int]]:
    """Read the responses that these events, (descriptor, what it is ready for), announce: the events that are
    others. Lanes that may go on are put in ``after_reports``."""
