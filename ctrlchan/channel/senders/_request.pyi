"""The requests of one broker in order, and the progress of the first: bytes in, bytes out, no socket."""

from collections.abc import Iterator

from ctrlchan.channel.senders.states import ConnectionState
from ctrlchan.channel.wire.records import Command

class CommandQueue:
    """SEND commands in order, like a deque of them; ``append`` takes the record."""

    def append(self, record: bytes) -> None: ...
    def popleft(self) -> Command: ...
    def clear(self) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Command: ...
    def __iter__(self) -> Iterator[Command]: ...

class RequestInFlight:
    """The requests of one broker, and the state of the first of them.

    Times are monotonic nanoseconds that the caller gives. ``memory`` holds the frames; ``fence[0]`` is the
    highest controller epoch that must not be sent any more.
    """

    @property
    def slot(self) -> int: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def memory(self) -> memoryview: ...
    @property
    def queue(self) -> CommandQueue: ...
    state: ConnectionState
    #: When ``ConnectionProtocol.expire`` must be called.
    deadline: int
    #: No request begins on this connection from then on: its SASL session ends.
    expires: int
    #: Failed attempts at the first request, or at a connection that is wanted without one.
    attempts: int
    #: The correlation id of the request in flight, or of the next one.
    correlation: int
    #: Whether the queued requests are made for the broker's versions.
    versions_accepted: bool
    #: The part of a response that has arrived; None when nothing has.
    received: bytearray | None
    @property
    def first_byte_ns(self) -> int: ...
    @property
    def last_byte_ns(self) -> int: ...
    def __init__(
        self, slot: int, broker_epoch: int, memory: memoryview, fence: memoryview, request_timeout: int
    ) -> None: ...
    def is_stale(self) -> bool:
        """Return whether the first request's controller epoch is fenced: it must not be sent (again)."""
    def begin(self, head: bytearray, now: int) -> None:
        """Begin the first request: fill `head` with the beginning of its frame, ids and epochs included."""
    def written(self, now: int) -> None:
        """Note that the last byte of the frame was given to the kernel."""
    def end(self, body: bytes, now: int) -> bytes | None:
        """Take the response to the first request, without size and correlation id.

        Returns the EXPECTED report if it is the expected response: the next request may begin. Returns None
        for any other response: the request is HELD until the parent has validated it.
        """
    def next_request(self) -> None:
        """Drop the first request: it is done with."""
