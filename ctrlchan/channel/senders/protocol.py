"""The protocol of one connection to a broker: a state machine without a socket.

::

    IDLE ──► CONNECTING ──► READY ──► SENDING ──► AWAITING ──► READY      (the expected response)
     ▲            │           │          │            └──────► HELD ──► READY   (validated by the parent)
     └────────────┴───────────┴──────────┴── any failure ──► BACKING_OFF ──► CONNECTING

Between CONNECTING and READY there is HANDSHAKE where a connection begins with TLS, ApiVersions or SASL.

One request is in flight at a time; the next begins when the response to the one before has arrived. After a
failure the connection is closed, and the same request begins again when the back-off is over.
``BrokerConnection`` owns the socket: it gives this class bytes, events and times, and sends what it returns.

Wire, both ways: int32 size, then as many bytes. A request's bytes 8:12 and a response's bytes 4:8 are the
correlation id, which starts at 0 with each connection and its handshake (KIP-482 header versions keep these
places).

A connection that negotiates (``eager``) is made without a request, and made again whenever it is lost. When
the broker's versions are not those that the queued requests are made for, the connection stays in HANDSHAKE
until the parent has sent RESUME; the queued requests are dropped, and the parent hands them over anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from ctrlchan.channel.senders._request import RequestInFlight
from ctrlchan.channel.senders.states import NEVER, ONE_PIECE, ConnectionState
from ctrlchan.channel.wire.records import Command
from ctrlchan.channel.wire.settings import ConnectionSettings
from ctrlchan.security.failure import ConnectionFailed, Failure

__all__ = ["ConnectionProtocol"]

_RESPONSE_HEAD: Final = Struct(">ii")
_SIZE_BYTES: Final = 4


# Plain module names: an enum's attribute costs a look-up with each request.
_IDLE: Final = ConnectionState.IDLE
_CONNECTING: Final = ConnectionState.CONNECTING
_READY: Final = ConnectionState.READY
_AWAITING: Final = ConnectionState.AWAITING
_HELD: Final = ConnectionState.HELD
_BACKING_OFF: Final = ConnectionState.BACKING_OFF
_HANDSHAKE: Final = ConnectionState.HANDSHAKE


class ConnectionProtocol(RequestInFlight):
    """The requests of one broker in order, and the state of its connection.

    ``memory`` is the shared memory that holds the frames, ``fence[0]`` the highest controller epoch that must
    not be sent any more. All times are monotonic nanoseconds given by the caller.
    """

    __slots__ = (
        "_response_size",
        "connected",
        "eager",
        "ranges",
        "ready_by",
        "settings",
        "setup_timeout",
        "versions_number",
    )

    def __init__(
        self,
        slot: int,
        broker_epoch: int,
        memory: memoryview,
        fence: memoryview,
        settings: ConnectionSettings,
    ) -> None:
        super().__init__(slot, broker_epoch, memory, fence, settings.request_timeout)
        self.settings = settings
        #: Whether requests may pass. A connection may be lost while a response is HELD; that has no effect.
        self.connected = False
        self.setup_timeout = settings.connection_setup_timeout
        #: When the connection that is being made must be ready.
        self.ready_by = NEVER
        #: Whether a connection is wanted without a request.
        self.eager = False
        #: The broker's versions as last reported, and how often they were reported.
        self.ranges: Mapping[int, tuple[int, int]] | None = None
        self.versions_number = 0
        # Of a response that arrives in parts; 0 until its first 8 bytes are here.
        self._response_size = 0

    # -- the connection

    def needs_connection(self) -> bool:
        """Return whether to connect now."""
        return self.state is _IDLE and (bool(self.queue) or self.eager)

    def begin_login(self, now: int) -> None:
        """Note that Kerberos is asked for a ticket; ``begin_connecting`` follows."""
        self.state = _CONNECTING
        self.deadline = self.ready_by = now + self.settings.socket_timeout

    def begin_connecting(self, now: int) -> None:
        """Note that the name is being looked up, and then TCP connects."""
        self.state = _CONNECTING
        self.ready_by = now + self.settings.socket_timeout
        self.deadline = min(now + self.setup_timeout, self.ready_by)

    def begin_handshake(self) -> None:
        """Note that TCP is connected; TLS, ApiVersions or SASL follow."""
        self.state = _HANDSHAKE
        self.deadline = self.ready_by
        self.setup_timeout = self.settings.connection_setup_timeout

    def make_ready(self, correlation: int = 0, expires: int = NEVER) -> None:
        """Note that requests may follow, the first with this correlation id, the last before `expires`."""
        self.state = _READY
        self.connected = True
        self.deadline = NEVER
        self.correlation = correlation
        self.expires = expires
        self.setup_timeout = self.settings.connection_setup_timeout
        if not self.queue:
            self.attempts = 0

    def accept_versions(self, ranges: Mapping[int, tuple[int, int]]) -> bool:
        """Compare the broker's versions with those that the requests are made for.

        Returns False when they differ: report them to the parent, and wait for ``resume``.
        """
        if self.versions_accepted and ranges == self.ranges:
            return True
        self.ranges = ranges
        self.versions_number += 1
        self.versions_accepted = False
        return False

    def resume(self, versions_number: int) -> bool:
        """Drop the queue: what follows is made for the versions reported with this number.

        Returns False, and drops nothing, when other versions have been reported since.
        """
        if versions_number != self.versions_number:
            return False
        self.queue.clear()
        self.attempts = 0
        self.versions_accepted = True
        return True

    # -- requests and responses

    def begin_request(self, now: int) -> tuple[bytearray, memoryview | None]:
        """Return the frame of the first request: whole, or the head and then the part in shared memory."""
        command = self.queue[0]
        head = bytearray(command.size if command.size <= ONE_PIECE else command.prefix_size)
        self.begin(head, now)
        return head, self.shared_body()

    def shared_body(self) -> memoryview | None:
        """Return the part of the first request's frame that is sent without being copied."""
        command = self.queue[0]
        if command.size <= ONE_PIECE:
            return None
        return self.memory[command.offset + command.prefix_size : command.offset + command.size]

    def receive(self, data: bytes) -> bytes | None:
        """Take bytes of a response; return its body once it is whole. Raises ConnectionFailed."""
        if self.state is not _AWAITING:
            raise ConnectionFailed(Failure.SURPLUS)
        received = self.received
        if received is None:
            received = self.received = bytearray()
            self._response_size = 0
        received += data
        if self._response_size == 0:
            if len(received) < _RESPONSE_HEAD.size:
                return None
            size, correlation = _RESPONSE_HEAD.unpack_from(received)
            # Checked before more is kept: a wrong size must not fill the memory.
            if not 4 <= size <= self.settings.max_response_bytes:
                raise ConnectionFailed(Failure.RESPONSE_SIZE)
            if correlation != self.correlation:
                raise ConnectionFailed(Failure.CORRELATION)
            self._response_size = size
        if len(received) < _SIZE_BYTES + self._response_size:
            return None
        if len(received) > _SIZE_BYTES + self._response_size:
            raise ConnectionFailed(Failure.SURPLUS)
        self.received = None
        return bytes(memoryview(received)[_RESPONSE_HEAD.size :])

    def missing_bytes(self) -> int:
        """Return how many bytes of a response are still to come; 0 when none has begun."""
        return 0 if self.received is None else max(0, _SIZE_BYTES + self._response_size - len(self.received))

    def release_held(self) -> None:
        """The parent has accepted the HELD response: go on with the next request."""
        self.next_request()
        if not self.connected:
            self.state = _IDLE

    def reject_held(self) -> None:
        """The parent has found the HELD response to be garbage; call ``fail`` next."""
        self.state = _AWAITING

    def drop_stale(self) -> Command:
        """Take out the first request, which is not in flight, because its controller epoch is fenced."""
        self.attempts = 0
        return self.queue.popleft()

    # -- the end of a connection

    def disconnect(self) -> None:
        """Note that the connection was closed on purpose: that is no failed attempt."""
        self.connected = False
        self.state = _IDLE
        self.deadline = NEVER

    def fail(self, failure: Failure, now: int) -> None:
        """Note that the connection is lost. A request that was begun, or is queued, is tried again later."""
        self.received = None
        self.connected = False
        if self.state is _HELD:
            return
        if failure is Failure.CONNECT_TIMEOUT:
            self.setup_timeout = min(self.setup_timeout * 2, self.settings.connection_setup_timeout_max)
        if self.queue or self.eager:
            self.attempts += 1
            self.state = _BACKING_OFF
            self.deadline = now + self.settings.retry_backoff
        else:
            self.state = _IDLE
            self.deadline = NEVER

    def expire(self) -> Failure | None:
        """The deadline has passed: return the failure, or None when the back-off is over."""
        deadline, self.deadline = self.deadline, NEVER
        if self.state is _BACKING_OFF:
            self.state = _IDLE
            return None
        if self.state is _HANDSHAKE or (self.state is _CONNECTING and deadline == self.ready_by):
            return Failure.HANDSHAKE_TIMEOUT
        return Failure.CONNECT_TIMEOUT if self.state is _CONNECTING else Failure.REQUEST_TIMEOUT
