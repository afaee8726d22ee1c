"""The conversation with one broker, without the broker: a state machine that never touches a socket.

::

    IDLE ──► CONNECTING ──► READY ──► SENDING ──► AWAITING ──► READY      (the expected response)
     ▲            │           │          │            └──────► HELD ──► READY   (judged by the parent)
     └────────────┴───────────┴──────────┴── any failure ──► WAITING ──► CONNECTING

Between CONNECTING and READY there is HANDSHAKE where a connection begins with TLS, SASL or ApiVersions.

One request is in flight at a time; the next begins only when the one before has its response. A failure
closes the connection, waits, and begins the same request again. ``Lane`` in ``sender.py`` drives it.

Wire, both ways: int32 size, then as many bytes. A request's bytes 8:12 and a response's bytes 4:8 are the
correlation id, which starts at 0 with each connection and its handshake (KIP-482 header versions keep these
places). The request in flight itself, and what is done with nearly every one, is ``Exchange``.

A link that negotiates (``eager``) connects without being given a request, and again whenever it is not
connected. When the broker's versions are not those that its requests were made for, it stays in HANDSHAKE
until the parent has said ``resume``, and drops all that it was given before: the parent hands it over anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final

from ctrlchan.channel.senders._exchange import Exchange
from ctrlchan.channel.wire.records import Command, Failure
from ctrlchan.channel.wire.states import NEVER, ONE_PIECE, LinkState

__all__ = ["NEVER", "Broken", "Link", "LinkSettings", "LinkState"]

_RESPONSE_HEAD: Final = Struct(">ii")


# Plain module names: an enum's attribute costs a look-up with each request.
_IDLE: Final = LinkState.IDLE
_CONNECTING: Final = LinkState.CONNECTING
_READY: Final = LinkState.READY
_AWAITING: Final = LinkState.AWAITING
_HELD: Final = LinkState.HELD
_WAITING: Final = LinkState.WAITING
_HANDSHAKE: Final = LinkState.HANDSHAKE


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Times in nanoseconds, sizes in bytes; the names are those of ``ChannelConfig``."""

    connection_setup_timeout: int
    connection_setup_timeout_max: int
    socket_timeout: int
    request_timeout: int
    retry_backoff: int
    max_response_bytes: int


class Broken(Exception):
    """What the broker did makes the connection useless. ``detail``: more of it, for people; "" for none."""

    def __init__(self, failure: Failure, detail: str = "") -> None:
        super().__init__(f"{failure.text}: {detail}" if detail else failure.text)
        self.failure = failure
        self.detail = detail


class Link(Exchange):
    """One broker's requests in order, and how far the first of them has come.

    ``memory`` is the shared memory that frames lie in, ``fence[0]`` the highest controller epoch that must
    not be sent any more. All times are monotonic nanoseconds given by the caller.
    """

    __slots__ = (
        "_response_size",
        "agreements",
        "eager",
        "ranges",
        "ready_by",
        "settings",
        "setup_timeout",
        "up",
    )

    def __init__(
        self, slot: int, broker_epoch: int, memory: memoryview, fence: memoryview, settings: LinkSettings
    ) -> None:
        super().__init__(slot, broker_epoch, memory, fence, settings.request_timeout)
        self.settings = settings
        #: Whether a connection stands. It may be lost while a response is HELD, which changes nothing then.
        self.up = False
        self.setup_timeout = settings.connection_setup_timeout
        #: When the connection that is being made must be ready.
        self.ready_by = NEVER
        #: Whether a connection is wanted without a request.
        self.eager = False
        #: The broker's versions as last told, how often they were, and whether requests are made for them.
        self.ranges: Mapping[int, tuple[int, int]] | None = None
        self.agreements = 0
        # Of a response that came in parts.
        self._response_size = 0

    def wants_connection(self) -> bool:
        return self.state is _IDLE and (bool(self.items) or self.eager)

    def connecting(self, now: int) -> None:
        self.state = _CONNECTING
        self.ready_by = now + self.settings.socket_timeout
        self.deadline = min(now + self.setup_timeout, self.ready_by)

    def shaking_hands(self) -> None:
        """TCP stands."""
        self.state = _HANDSHAKE
        self.deadline = self.ready_by
        self.setup_timeout = self.settings.connection_setup_timeout

    def connected(self, correlation: int = 0, expires: int = NEVER) -> None:
        """Requests may follow, the first with this correlation id, the last before it ``expires``."""
        self.state = _READY
        self.up = True
        self.deadline = NEVER
        self.correlation = correlation
        self.expires = expires
        self.setup_timeout = self.settings.connection_setup_timeout
        if not self.items:
            self.attempts = 0

    def agree(self, ranges: Mapping[int, tuple[int, int]]) -> bool:
        """The broker has these versions. False: the parent must be told, and ``resume``."""
        if self.agreed and ranges == self.ranges:
            return True
        self.ranges = ranges
        self.agreements += 1
        self.agreed = False
        return False

    def resume(self, agreement: int) -> bool:
        """What follows is made for the versions told as this agreement. False: others were told since."""
        if agreement != self.agreements:
            return False
        self.items.clear()
        self.attempts = 0
        self.agreed = True
        return True

    def begin(self, now: int) -> tuple[bytearray, memoryview | None]:
        """The frame of the first item: all of it, or what precedes the part in shared memory."""
        size, prefix_size = self.items[0][6:8]
        head = bytearray(size if size <= ONE_PIECE else prefix_size)
        self.compose(head, now)
        return head, self.shared_body()

    def shared_body(self) -> memoryview | None:
        """The part of the first item's frame that is sent from where it lies."""
        offset, size, prefix_size = self.items[0][5:8]
        return None if size <= ONE_PIECE else self.memory[offset + prefix_size : offset + size]

    def receive(self, data: bytes) -> bytes | None:
        """The response without size and correlation id, when it is whole. Raises Broken."""
        if self.state is not _AWAITING:
            raise Broken(Failure.SURPLUS)
        received = self.received
        if received is None:
            received = self.received = bytearray()
            self._response_size = 0
        received += data
        if self._response_size == 0:
            if len(received) < _RESPONSE_HEAD.size:
                return None
            size, correlation = _RESPONSE_HEAD.unpack_from(received)
            # Before anything more is kept: a size that lies must not fill the memory.
            if not 4 <= size <= self.settings.max_response_bytes:
                raise Broken(Failure.RESPONSE_SIZE)
            if correlation != self.correlation:
                raise Broken(Failure.CORRELATION)
            self._response_size = size
        if len(received) < self._response_size + 4:
            return None
        if len(received) > self._response_size + 4:
            raise Broken(Failure.SURPLUS)
        self.received = None
        return bytes(memoryview(received)[_RESPONSE_HEAD.size :])

    def missing(self) -> int:
        """Bytes of a response that are still to come; 0 when none has begun."""
        return 0 if self.received is None else max(0, self._response_size + 4 - len(self.received))

    def go(self) -> None:
        """The parent has judged the response."""
        self.next()
        if not self.up:
            self.state = _IDLE

    def again(self) -> None:
        """The parent has found the response to be garbage; ``failed`` must follow."""
        self.state = _AWAITING

    def drop_stale(self) -> Command:
        """Take out the first item, which is not in flight."""
        self.attempts = 0
        return self.items.popleft()

    def cut(self) -> None:
        """The connection was given up before the first item was begun, or so that it is not finished."""
        self.up = False
        self.state = _IDLE
        self.deadline = NEVER

    def failed(self, failure: Failure, now: int) -> None:
        """The connection is gone. A request that was begun, or waits for it, is tried again later."""
        self.received = None
        self.up = False
        if self.state is _HELD:
            return
        if failure is Failure.CONNECT_TIMEOUT:
            self.setup_timeout = min(self.setup_timeout * 2, self.settings.connection_setup_timeout_max)
        if self.items or self.eager:
            self.attempts += 1
            self.state = _WAITING
            self.deadline = now + self.settings.retry_backoff
        else:
            self.state = _IDLE
            self.deadline = NEVER

    def expired(self) -> Failure | None:
        """The deadline has passed. None: the back-off is over and a connection is wanted."""
        deadline, self.deadline = self.deadline, NEVER
        if self.state is _WAITING:
            self.state = _IDLE
            return None
        if self.state is _HANDSHAKE or (self.state is _CONNECTING and deadline == self.ready_by):
            return Failure.HANDSHAKE_TIMEOUT
        return Failure.CONNECT_TIMEOUT if self.state is _CONNECTING else Failure.REQUEST_TIMEOUT
