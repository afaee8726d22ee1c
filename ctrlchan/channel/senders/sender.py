"""A sender process's event loop over its brokers, which may be one or many.

In: commands from the parent, and frames in the shared memory that it writes. Out: the frames to the brokers,
and reports to the parent. The loop keeps order, retries and reports; the parent decides everything else. It
ends when the parent closes the command pipe, or has ended.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns
from typing import TYPE_CHECKING, Final, ParamSpec

from ctrlchan.channel.senders._fast_path import ReportBuffer, begin_requests, queue_requests, take_responses
from ctrlchan.channel.senders.broker_connection import BrokerConnection
from ctrlchan.channel.senders.connection_setup import SecureConnections
from ctrlchan.channel.senders.states import NEVER
from ctrlchan.channel.senders.tcp import Resolver
from ctrlchan.channel.wire.credentials import Credentials
from ctrlchan.channel.wire.poller import READ, WRITE, new_poller
from ctrlchan.channel.wire.records import (
    ADD,
    AGAIN,
    COMMAND,
    CREDENTIALS,
    GO,
    PIECE,
    PIECE_BYTES,
    PING,
    READY,
    REMOVE,
    REMOVED,
    REPORT,
    RESUME,
    Command,
)
from ctrlchan.channel.wire.settings import ConnectionSettings
from ctrlchan.security.failure import Failure
from ctrlchan.security.settings import SaslSettings

if TYPE_CHECKING:
    from ctrlchan.channel.senders.logins import Logins

__all__ = ["Sender"]

#: Commands are read in pieces of up to this many bytes (a pipe's capacity on Linux).
_READ_BYTES: Final = 64 * 1024
#: This many events are handled, their reports written and the next requests begun, before more are asked for:
#: what a thousand sockets need does not stay in the caches from one step to the next.
_EVENTS: Final = 32
#: This many pieces of long responses are reported before other brokers' reports get their turn.
_PIECES_AT_ONCE: Final = 4

_Arguments = ParamSpec("_Arguments")


def _serve(
    connection: BrokerConnection,
    call: Callable[_Arguments, None],
    *arguments: _Arguments.args,
    **options: _Arguments.kwargs,
) -> None:
    """Make this call for one broker: an error in it is a failure of that broker's connection alone."""
    try:
        call(*arguments, **options)
    except Exception as problem:  # noqa: BLE001 - whatever it is, the other brokers are served
        connection.internal_error(problem)


class Sender:
    """The loop. ``_fast_path`` handles nearly every request; this class and the connections do the rest.

    ``commands`` and ``reports`` are the sender's ends of its pipes, ``memory`` the mapped shared memory,
    ``fence`` its first int64.
    """

    def __init__(
        self, commands: int, reports: int, memory: memoryview, fence: memoryview, settings: ConnectionSettings
    ) -> None:
        self.memory = memory
        self.fence = fence
        self.settings = settings
        #: TLS, SASL and negotiation. None if connections begin with nothing.
        self.security: SecureConnections | None = None
        self.poller = new_poller()
        self.resolver = Resolver()
        #: No connection's deadline is before this.
        self.next_deadline = NEVER
        #: Reports that are not yet in the pipe.
        self.reports = ReportBuffer()
        #: Connections whose ``proceed`` is called when all reports are in the pipe.
        self.after_reports: list[BrokerConnection] = []
        self._command_pipe = commands
        self._report_pipe = reports
        self._by_slot: dict[int, BrokerConnection] = {}
        self._by_fd: dict[int, BrokerConnection] = {}
        self._by_ticket: dict[int, BrokerConnection] = {}
        # Exists once there are credentials of Kerberos.
        self._logins: Logins | None = None
        self._last_ticket = 0
        self._unread = b""
        # The pipe to the parent was full.
        self._blocked = False
        # Long responses on their way to the parent: (slot, the rest, the closing report).
        self._streams: deque[tuple[int, memoryview, bytes]] = deque()
        os.set_blocking(commands, False)
        os.set_blocking(reports, False)

    def run(self) -> None:
        """Serve the brokers until the parent closes the command pipe."""
        with suppress(BrokenPipeError):
            self.start()
            while self.turn():
                pass

    def start(self) -> None:
        """Begin; ``turn`` must follow again and again."""
        self.poller.register(self._command_pipe, READ)
        self.poller.register(self.resolver.fd, READ)
        self._report_ready()
        self._go_on()

    def turn(self) -> bool:
        """Wait for events and handle them. Returns False when the parent has closed the command pipe.

        Raises BrokenPipeError when the parent does not read reports any more.
        """
        events = self.poller.wait(self._timeout(), _EVENTS)
        for fd, mask in take_responses(events, self._by_fd, self.reports, self.after_reports):
            connection = self._by_fd.get(fd)
            if connection is not None:
                _serve(connection, connection.on_event, mask)
            elif fd == self._command_pipe:
                if not self._read_commands():
                    return False
            elif fd == self._report_pipe:
                self._blocked = False
                self.poller.unregister(fd)
            elif fd == self.resolver.fd:
                self._collect_names()
            elif self._logins is not None and fd == self._logins.fd:
                self._collect_logins(self._logins)
        if self.next_deadline != NEVER and monotonic_ns() >= self.next_deadline:
            self._sweep()
        self._go_on()
        return True

    def _go_on(self) -> None:
        """Write reports, and begin the requests that waited for that."""
        while self.reports or self._streams or self.after_reports:
            if not self._flush():
                return
            self._proceed()

    def _report_ready(self) -> None:
        self.reports.append(REPORT.pack(READY, 0, 0, 0, os.getpid(), 0, 0, 0, 0, 0, 0, 0, b""))

    def _timeout(self) -> float | None:
        if self.next_deadline == NEVER:
            return None
        # A little late rather than early: an early wake-up would find nothing to do and come again.
        return max(0.0, (self.next_deadline - monotonic_ns()) / 1e9 + 0.0005)

    def _sweep(self) -> None:
        now = monotonic_ns()
        self.next_deadline = NEVER
        for connection in list(self._by_slot.values()):
            if connection.protocol.deadline <= now:
                _serve(connection, connection.expire)
            self.watch_deadline(connection.protocol.deadline)

    # -- for connections (``EventLoop``)

    def watch(self, fd: int, connection: BrokerConnection, interest: int) -> None:
        self._by_fd[fd] = connection
        self.poller.register(fd, interest)

    def unwatch(self, fd: int) -> None:
        del self._by_fd[fd]
        self.poller.unregister(fd)

    def watch_deadline(self, deadline: int) -> None:
        self.next_deadline = min(self.next_deadline, deadline)

    def new_ticket(self) -> int:
        self._last_ticket += 1
        return self._last_ticket

    def await_name(self, ticket: int, connection: BrokerConnection) -> None:
        self._by_ticket[ticket] = connection

    def _collect_names(self) -> None:
        for ticket, addresses in self.resolver.collect():
            connection = self._by_ticket.pop(ticket)
            _serve(connection, connection.resolved, ticket, addresses)

    def begin_login(self, ticket: int, connection: BrokerConnection, sasl: SaslSettings, host: str) -> None:
        if self._logins is None:
            from ctrlchan.channel.senders.logins import Logins

            self._logins = Logins()
            self.poller.register(self._logins.fd, READ)
        self._by_ticket[ticket] = connection
        self._logins.begin(ticket, sasl, host)

    def forget_login(self, ticket: int) -> None:
        assert self._logins is not None
        self._logins.forget(ticket)
        del self._by_ticket[ticket]

    def _collect_logins(self, logins: Logins) -> None:
        for ticket, login in logins.collect():
            connection = self._by_ticket.pop(ticket, None)
            if connection is not None:
                _serve(connection, connection.logged_in, ticket, login)

    # -- reports

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
        protocol, size = connection.protocol, len(following)
        record = REPORT.pack(
            kind, failure, 0, protocol.slot, sequence, protocol.attempts, 0, 0, 0, 0, errno, size, b""
        )
        self.reports.append(record + following)

    def stream(self, slot: int, body: bytes, report: bytes) -> None:
        self._streams.append((slot, memoryview(body), report))

    def _fill_from_streams(self) -> None:
        for _ in range(_PIECES_AT_ONCE):
            if not self._streams:
                return
            slot, rest, report = self._streams.popleft()
            piece = rest[:PIECE_BYTES]
            rest = rest[PIECE_BYTES:]
            head = REPORT.pack(PIECE, 0, 0, slot, 0, 0, 0, 0, 0, 0, 0, len(piece), b"")
            self.reports.append(head + piece)
            if len(rest):
                # Round robin: several long responses share the pipe.
                self._streams.append((slot, rest, report))
            else:
                self.reports.append(report)

    def _flush(self) -> bool:
        """Write all reports to the pipe; return False when it is full."""
        if self._blocked:
            return False
        while self.reports or self._streams:
            self._fill_from_streams()
            if not self.reports.write(self._report_pipe):
                self._blocked = True
                self.poller.register(self._report_pipe, WRITE)
                return False
        return True

    def _proceed(self) -> None:
        """Begin the requests that waited until reports were written; this may make new reports."""
        connections, self.after_reports = self.after_reports, []
        others, deadline = begin_requests(connections)
        self.watch_deadline(deadline)
        for connection in others:
            _serve(connection, connection.proceed)

    # -- commands

    def _read_commands(self) -> bool:
        """Read commands and carry them out; return False when the parent has closed the pipe."""
        try:
            data = os.read(self._command_pipe, _READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        if self._unread:
            data = self._unread + data
        position, size, end = 0, COMMAND.size, len(data)
        while True:
            position = queue_requests(data, position, self._by_slot, self.after_reports)
            if end - position < size:
                break
            command = Command._make(COMMAND.unpack_from(data, position))
            if end - position < size + command.following:
                break
            position += size
            self._carry_out(command, data[position : position + command.following])
            position += command.following
        self._unread = data[position:]
        return True

    def _carry_out(self, command: Command, following: bytes) -> None:
        """Carry out any command but SEND."""
        kind, slot = command.kind, command.slot
        if kind == ADD:
            target = json.loads(following)
            connection = BrokerConnection(self, slot, target["host"], target["port"], target["epoch"])
            self._by_slot[slot] = connection
            if self.security is not None and self.security.negotiates:
                connection.negotiate()
        elif kind == REMOVE:
            connection = self._by_slot.pop(slot)
            _serve(connection, connection.remove)
            self._streams = deque(stream for stream in self._streams if stream[0] != slot)
            self.report(REMOVED, connection)
        elif kind == GO:
            connection = self._by_slot[slot]
            _serve(connection, connection.release_held, command.sequence)
        elif kind == AGAIN:
            connection = self._by_slot[slot]
            _serve(connection, connection.retry_held, command.sequence)
        elif kind == RESUME:
            connection = self._by_slot[slot]
            _serve(connection, connection.resume, command.sequence)
        elif kind == CREDENTIALS:
            self.security = SecureConnections(Credentials.from_json(following))
        elif kind == PING:
            self._report_ready()
