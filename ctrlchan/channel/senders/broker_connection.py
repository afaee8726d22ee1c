"""The driver of one broker's connection: it owns the socket and carries out what the protocol decides."""

from __future__ import annotations

import json
from time import monotonic_ns
from typing import TYPE_CHECKING, Final, Protocol

from ctrlchan.channel.senders._fast_path import ReportBuffer, SocketDriver
from ctrlchan.channel.senders.connection_setup import ConnectionSetup, SecureConnections
from ctrlchan.channel.senders.protocol import ConnectionProtocol
from ctrlchan.channel.senders.states import NEVER, ConnectionState
from ctrlchan.channel.senders.tcp import Address, Resolver, TcpConnection
from ctrlchan.channel.wire.poller import READ, WRITE, Poller
from ctrlchan.channel.wire.records import (
    CONNECTED,
    FAILED,
    IDLE,
    INLINE,
    REPORT,
    RESPONSE,
    STALE,
    VERSIONS,
)
from ctrlchan.channel.wire.settings import ConnectionSettings
from ctrlchan.security.failure import ConnectionFailed, Failure
from ctrlchan.security.handshake import Handshake
from ctrlchan.security.mechanisms import NO_TICKET, ClientMechanism, MechanismError
from ctrlchan.security.settings import SaslSettings

if TYPE_CHECKING:
    from ctrlchan.security.logins import Login

__all__ = ["BrokerConnection", "EventLoop"]

#: A response is nearly always a few bytes; more is asked for only when more was announced.
_RESPONSE_BYTES: Final = 4 * 1024
_RESPONSE_BYTES_MAX: Final = 256 * 1024

#: The longest detail of a failure, a traceback included.
_DETAIL_BYTES: Final = 8 * 1024

#: The share of a SASL session's lifetime that is used, as by Kafka's clients (KIP-368).
_SESSION_USED: Final = 0.85

_NOTHING: Final = bytearray()

_READY: Final = ConnectionState.READY
_CONNECTING: Final = ConnectionState.CONNECTING
_IDLE: Final = ConnectionState.IDLE
_HELD: Final = ConnectionState.HELD
_BACKING_OFF: Final = ConnectionState.BACKING_OFF


class EventLoop(Protocol):
    """What a connection needs of the sender's event loop."""

    memory: memoryview
    fence: memoryview
    settings: ConnectionSettings
    #: TLS, SASL and negotiation. None if connections begin with nothing.
    security: SecureConnections | None
    poller: Poller
    resolver: Resolver
    reports: ReportBuffer
    #: Connections whose ``proceed`` is called when all reports are in the pipe.
    #:
    #: If this process is killed, the parent sends every request again that it has no report of. That must
    #: never be more than one request of a broker, or the broker would see an old one after a newer one.
    after_reports: list[BrokerConnection]

    def watch(self, fd: int, connection: BrokerConnection, interest: int) -> None:
        """Have ``on_event`` called when `fd` is ready."""

    def unwatch(self, fd: int) -> None:
        """Forget `fd`, which may be closed then."""

    def watch_deadline(self, deadline: int) -> None:
        """Have ``expire`` called at the protocol's deadline, which is not before this."""

    def new_ticket(self) -> int:
        """Return a number for a name look-up."""

    def await_name(self, ticket: int, connection: BrokerConnection) -> None:
        """Have ``resolved`` called with the addresses found for this look-up."""

    def begin_login(self, ticket: int, connection: BrokerConnection, sasl: SaslSettings, host: str) -> None:
        """Have ``logged_in`` called with an exchange of SASL that has begun, or with an error."""

    def forget_login(self, ticket: int) -> None:
        """Begin no login that nobody waits for any more."""

    def report(
        self,
        kind: int,
        connection: BrokerConnection,
        *,
        failure: Failure = Failure.NONE,
        errno: int = 0,
        sequence: int = 0,
        following: bytes = b"",
    ) -> None:
        """Send a report to the parent."""

    def stream(self, slot: int, body: bytes, report: bytes) -> None:
        """Send a long response to the parent in pieces, and then its report."""


class BrokerConnection(SocketDriver):
    """One broker's protocol state, its socket, and what of a request the kernel has not yet taken."""

    protocol: ConnectionProtocol

    __slots__ = (
        "_attempts_to_connect",
        "_blocked",
        "_connection",
        "_host",
        "_login",
        "_login_ticket",
        "_loop",
        "_port",
        "_setup",
        "_shared_body",
        "_ticket",
        "_traced",
        "_unsent",
    )

    def __init__(self, loop: EventLoop, slot: int, host: str, port: int, broker_epoch: int) -> None:
        super().__init__(ConnectionProtocol(slot, broker_epoch, loop.memory, loop.fence, loop.settings))
        self._loop = loop
        self._host = host
        self._port = port
        self._connection: TcpConnection | None = None
        # While the connection begins with TLS, ApiVersions or SASL.
        self._setup: ConnectionSetup | None = None
        # Decides which of a host's addresses is tried next.
        self._attempts_to_connect = 0
        # Of the name look-up that the connection waits for.
        self._ticket = 0
        # Of the login that it waits for before; then what has come of it.
        self._login_ticket = 0
        self._login: ClientMechanism | None = None
        # The part of the frame in flight that is not yet written: private bytes, then shared memory.
        self._unsent: memoryview | bytearray = _NOTHING
        self._shared_body: memoryview | None = None
        # Whether the kernel had no room for it.
        self._blocked = False
        # Whether a traceback was reported: the parent gets one, and of later errors the first line.
        self._traced = False

    def proceed(self) -> None:
        """Connect, or begin the next request, if it is time for that."""
        protocol = self.protocol
        if not protocol.versions_accepted:
            # The queued requests are not made for this broker's versions.
            if protocol.needs_connection():
                self._connect()
            return
        while protocol.queue and protocol.state in (_IDLE, _READY) and protocol.is_stale():
            self._loop.report(STALE, self, sequence=protocol.drop_stale().sequence)
        if protocol.state is _READY:
            if protocol.queue:
                now = monotonic_ns()
                if now < protocol.expires:
                    self._begin_request(now)
                else:
                    self._close()
                    protocol.disconnect()
                    self._connect()
        elif protocol.needs_connection():
            self._connect()

    def negotiate(self) -> None:
        """Keep a connection, and hold requests until the parent has sent RESUME for the broker's versions."""
        self.protocol.eager, self.protocol.versions_accepted = True, False
        self._loop.after_reports.append(self)

    # -- connecting

    def _connect(self) -> None:
        security = self._loop.security
        sasl = None if security is None else security.login
        if sasl is None:
            self._look_up()
            return
        self.protocol.begin_login(monotonic_ns())
        self._loop.watch_deadline(self.protocol.deadline)
        self._login_ticket = self._loop.new_ticket()
        self._loop.begin_login(self._login_ticket, self, sasl, self._host)

    def logged_in(self, ticket: int, login: Login) -> None:
        """Go on with the exchange of SASL that has begun under this ticket."""
        if ticket != self._login_ticket:
            return
        self._login_ticket = 0
        if isinstance(login, MechanismError):
            self._fail(Failure.AUTHENTICATION, detail=str(login))
        elif isinstance(login, Exception):
            raise login
        else:
            self._login = login
            self._look_up()

    def _look_up(self) -> None:
        self.protocol.begin_connecting(monotonic_ns())
        self._loop.watch_deadline(self.protocol.deadline)
        self._ticket = self._loop.new_ticket()
        addresses = self._loop.resolver.resolve(self._ticket, self._host, self._port)
        if addresses is None:
            self._loop.await_name(self._ticket, self)
        else:
            self.resolved(self._ticket, addresses)

    def resolved(self, ticket: int, addresses: list[Address] | OSError) -> None:
        """Connect to one of the addresses that the look-up with this ticket has found."""
        if ticket != self._ticket or self.protocol.state is not _CONNECTING:
            return
        if isinstance(addresses, OSError):
            self._fail(Failure.RESOLVE, addresses.errno or 0)
            return
        address = addresses[self._attempts_to_connect % len(addresses)]
        security = self._loop.security
        try:
            self._connection = (
                TcpConnection(address) if security is None else security.connect(address, self._host)
            )
        except OSError as problem:
            self._attempts_to_connect += 1
            self._fail(Failure.CONNECT, problem.errno or 0)
            return
        except ConnectionFailed as failed:
            self._fail(failed.failure, detail=failed.detail)
            return
        self._loop.watch(self._connection.fd, self, WRITE)

    def _advance_setup(self, connection: TcpConnection) -> None:
        try:
            setup = self._setup
            if setup is None:
                error = connection.finish()
                if error:
                    self._attempts_to_connect += 1
                    self._fail(Failure.CONNECT, error)
                    return
                security = self._loop.security
                if security is None:
                    self._make_ready(connection)
                    return
                self.protocol.begin_handshake()
                self._loop.watch_deadline(self.protocol.deadline)
                setup = self._setup = security.set_up(connection, self._host, self._login)
            interest = setup.advance()
        except OSError as problem:
            self._fail(Failure.IO, problem.errno or 0)
        except ConnectionFailed as failed:
            self._fail(failed.failure, detail=failed.detail)
        else:
            if interest:
                self._loop.poller.modify(connection.fd, interest)
            else:
                self._end_setup(connection, setup)

    def _end_setup(self, connection: TcpConnection, setup: ConnectionSetup) -> None:
        protocol, ranges = self.protocol, setup.handshake.ranges
        if protocol.eager and ranges is not None and not protocol.accept_versions(ranges):
            self._loop.poller.modify(connection.fd, READ)
            following = json.dumps(ranges).encode()
            self._loop.report(VERSIONS, self, sequence=protocol.versions_number, following=following)
        else:
            self._make_ready(connection, setup.handshake)

    def _make_ready(self, connection: TcpConnection, handshake: Handshake | None = None) -> None:
        protocol = self.protocol
        self._setup = None
        self._loop.poller.modify(connection.fd, READ)
        if handshake is None:
            protocol.make_ready()
        else:
            lifetime, expires = handshake.session_lifetime, NEVER
            if lifetime:
                # Sessions are never renewed more often than failed connections are tried again.
                used = max(int(lifetime * _SESSION_USED), protocol.settings.retry_backoff)
                expires = monotonic_ns() + used
            protocol.make_ready(handshake.correlation, expires)
        self.plain_socket = connection.plain_socket
        self._loop.report(CONNECTED, self)
        self._loop.after_reports.append(self)

    def resume(self, versions_number: int) -> None:
        """The parent has read the broker's versions; the requests that follow are made for them."""
        connection, setup = self._connection, self._setup
        if not self.protocol.resume(versions_number):
            return
        if connection is not None and setup is not None and setup.done:
            self._make_ready(connection, setup.handshake)

    # -- the end of a connection

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        self._setup = None
        self._unsent, self._shared_body = _NOTHING, None
        self._blocked = False
        self.plain_socket = -1
        self._ticket = 0
        self._login = None
        if self._login_ticket:
            self._loop.forget_login(self._login_ticket)
            self._login_ticket = 0
        if connection is not None:
            self._loop.unwatch(connection.fd)
            connection.close()

    def _fail(self, failure: Failure, errno: int = 0, detail: str = "") -> None:
        protocol = self.protocol
        self._close()
        protocol.fail(failure, monotonic_ns())
        backing_off = protocol.state is _BACKING_OFF
        self._loop.report(
            FAILED if backing_off else IDLE,
            self,
            failure=failure,
            errno=errno,
            sequence=protocol.queue[0].sequence if backing_off and protocol.queue else 0,
            following=detail.encode(errors="replace")[:_DETAIL_BYTES],
        )
        if backing_off:
            self._loop.watch_deadline(protocol.deadline)

    def internal_error(self, problem: Exception) -> None:
        """Serving this broker raised `problem`: its connection fails, and no other broker is affected."""
        detail = f"{type(problem).__name__}: {problem}".partition("\n")[0]
        if not self._traced:
            from traceback import format_exception

            self._traced = True
            detail = detail[: _DETAIL_BYTES // 4] + "\n" + "".join(format_exception(problem))
        self._fail(Failure.INTERNAL, detail=detail)

    def _close_half_sent(self) -> None:
        """The request was fenced while it was being written: the broker never gets the rest of it."""
        self._close()
        self.protocol.disconnect()
        self._loop.report(IDLE, self)
        self._loop.after_reports.append(self)

    def expire(self) -> None:
        """The protocol's deadline has passed."""
        connecting = self.protocol.state is _CONNECTING
        detail = NO_TICKET if self._login_ticket else ""
        failure = self.protocol.expire()
        if failure is None:
            self._loop.after_reports.append(self)
            return
        if connecting:
            self._attempts_to_connect += 1
        self._fail(failure, detail=detail)

    def remove(self) -> None:
        """The broker was removed: close its connection, drop its requests."""
        self._close()
        self.protocol.queue.clear()

    # -- what the parent has found about a response

    def release_held(self, sequence: int) -> None:
        """The parent has accepted the response to this request."""
        if self._holds(sequence):
            self.protocol.release_held()
            self._loop.after_reports.append(self)

    def retry_held(self, sequence: int) -> None:
        """The parent has found the response to this request to be garbage."""
        if self._holds(sequence):
            self.protocol.reject_held()
            self._fail(Failure.GARBAGE)

    def _holds(self, sequence: int) -> bool:
        return self.protocol.state is _HELD and self.protocol.queue[0].sequence == sequence

    # -- bytes

    def on_event(self, mask: int) -> None:
        """The socket is ready to be read or written, as `mask` has it."""
        connection = self._connection
        if connection is None:
            return
        if not self.protocol.connected:
            self._advance_setup(connection)
            return
        if mask & ~WRITE:
            self._read(connection)
        # Reading may have found the connection lost.
        if mask & WRITE and self._connection is connection:
            self._write()

    def _read(self, connection: TcpConnection) -> None:
        protocol = self.protocol
        wanted = _RESPONSE_BYTES
        if protocol.received is not None:
            wanted = min(max(protocol.missing_bytes(), 1), _RESPONSE_BYTES_MAX)
        try:
            data = connection.receive(wanted)
        except BlockingIOError:
            return
        except OSError as problem:
            self.io_failed(problem.errno or 0)
            return
        except ConnectionFailed as failed:
            self._fail(failed.failure, detail=failed.detail)
            return
        self.take(data)

    def take(self, data: bytes) -> None:
        """Take bytes that were read from the broker; none: it has closed the connection."""
        protocol = self.protocol
        if not data:
            self._fail(Failure.CLOSED)
            return
        try:
            body = protocol.receive(data)
        except ConnectionFailed as failed:
            self._fail(failed.failure, detail=failed.detail)
            return
        if body is None:
            return
        now = monotonic_ns()
        report = protocol.end(body, now)
        if report is not None:
            self._loop.reports.append(report)
            if protocol.queue:
                self._loop.after_reports.append(self)
            return
        fields = (
            protocol.slot,
            protocol.queue[0].sequence,
            protocol.attempts + 1,
            protocol.correlation,
            protocol.first_byte_ns,
            protocol.last_byte_ns,
            now,
        )
        if len(body) <= INLINE:
            self._loop.reports.append(REPORT.pack(RESPONSE, 0, len(body), *fields, 0, 0, body))
        else:
            self._loop.stream(protocol.slot, body, REPORT.pack(RESPONSE, 0, 0, *fields, 0, 0, b""))

    def io_failed(self, errno: int) -> None:
        """A system call on the socket failed."""
        self._fail(Failure.IO, errno)

    def _begin_request(self, now: int) -> None:
        self._unsent, self._shared_body = self.protocol.begin_request(now)
        self._loop.watch_deadline(self.protocol.deadline)
        self._write()

    def write_rest(self, head: bytearray, count: int) -> None:
        """Write the rest of the frame that begins with `head`: the kernel took `count` bytes of it."""
        self._unsent, self._shared_body = _after(head, self.protocol.shared_body(), count)
        self._write()

    def _write(self) -> None:
        """Give the kernel what it takes of the frame in flight."""
        connection = self._connection
        assert connection is not None
        unsent, shared_body = self._unsent, self._shared_body
        try:
            while shared_body is not None:
                if self.protocol.is_stale():
                    self._close_half_sent()
                    return
                count = connection.send_parts((unsent, shared_body))
                unsent, shared_body = _after(unsent, shared_body, count)
            while len(unsent):
                if self.protocol.is_stale():
                    self._close_half_sent()
                    return
                unsent = memoryview(unsent)[connection.send(unsent) :]
        except BlockingIOError:
            self._unsent, self._shared_body = unsent, shared_body
            if not self._blocked:
                self._blocked = True
                self._loop.poller.modify(connection.fd, READ | WRITE)
            return
        except OSError as problem:
            self.io_failed(problem.errno or 0)
            return
        except ConnectionFailed as failed:
            self._fail(failed.failure, detail=failed.detail)
            return
        self._unsent, self._shared_body = _NOTHING, None
        if self._blocked:
            self._blocked = False
            self._loop.poller.modify(connection.fd, READ)
        self.protocol.written(monotonic_ns())


def _after(
    unsent: memoryview | bytearray, shared_body: memoryview | None, count: int
) -> tuple[memoryview, memoryview | None]:
    """Return what is left of these two parts when `count` bytes of them are written."""
    if shared_body is None or count < len(unsent):
        return memoryview(unsent)[count:], shared_body
    return shared_body[count - len(unsent) :], None
