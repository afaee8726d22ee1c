"""A sender process: an event loop over its brokers, which may be one or many.

In: commands from the parent. Out: reports to the parent, and frames to the brokers, read from shared memory
where the parent has put them. It decides nothing that the parent could decide: it keeps order, retries, and
tells. It ends when the parent closes the command pipe, or is no more.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic_ns
from typing import Final, ParamSpec

from ctrlchan.channel.senders._exchange import Outbox, begin_requests, queue_requests, take_responses
from ctrlchan.channel.senders.access import Access, Opening
from ctrlchan.channel.senders.connection import Address, Connection, Resolver
from ctrlchan.channel.senders.handshake import Handshake
from ctrlchan.channel.senders.link import Broken, Link, LinkSettings
from ctrlchan.channel.wire.poller import READ, WRITE, new_poller
from ctrlchan.channel.wire.records import (
    ADD,
    AGAIN,
    C_SEQUENCE,
    COMMAND,
    CONNECTED,
    CREDENTIALS,
    FAILED,
    GO,
    IDLE,
    INLINE,
    PIECE,
    PIECE_BYTES,
    PING,
    READY,
    REMOVE,
    REMOVED,
    REPORT,
    RESPONSE,
    RESUME,
    STALE,
    VERSIONS,
    Command,
    Failure,
)
from ctrlchan.channel.wire.security import Credentials
from ctrlchan.channel.wire.states import NEVER, LinkState

__all__ = ["Lane", "Sender"]

#: Commands are read in pieces of up to this many bytes (a pipe's capacity on Linux).
_READ_BYTES: Final = 64 * 1024
#: A response is nearly always a few bytes; more is asked for only when more was announced.
_RESPONSE_BYTES: Final = 4 * 1024
_RESPONSE_BYTES_MAX: Final = 256 * 1024
#: So many events are handled, their reports written and the next requests begun, before others are asked for:
#: what a thousand sockets need does not stay in the caches between one and the other.
_EVENTS: Final = 32
#: So many pieces of long responses are put before other brokers' reports at once.
_PIECES_AT_ONCE: Final = 4

#: What is said of a failure, at most.
_DETAIL_BYTES: Final = 8 * 1024

#: So much of the time that a broker gives a SASL session it is used, as by Kafka's clients (KIP-368).
_SESSION_USED: Final = 0.85

_NO_REST: Final = bytearray()

_READY: Final = LinkState.READY
_CONNECTING: Final = LinkState.CONNECTING
_IDLE: Final = LinkState.IDLE


class Lane(Link):
    """A Link with its connection: carries out what the state machine says."""

    __slots__ = (
        "_blocked",
        "_connection",
        "_host",
        "_opening",
        "_port",
        "_rest",
        "_rounds",
        "_sender",
        "_shared_body",
        "_ticket",
        "_traced",
    )

    def __init__(self, sender: Sender, slot: int, host: str, port: int, broker_epoch: int) -> None:
        super().__init__(slot, broker_epoch, sender.memory, sender.fence, sender.settings)
        self._sender = sender
        self._host = host
        self._port = port
        self._connection: Connection | None = None
        # Of a connection that begins with TLS, SASL or ApiVersions, until requests may follow.
        self._opening: Opening | None = None
        # Connections tried: a host with several addresses has them tried in turn.
        self._rounds = 0
        self._ticket = 0
        # What of the frame in flight is not yet written, and whether the kernel had no room for it.
        self._rest: memoryview | bytearray = _NO_REST
        self._shared_body: memoryview | None = None
        self._blocked = False
        # Whether a traceback was reported: the parent gets one, and of later errors their first line.
        self._traced = False

    def _soon(self) -> None:
        """Have ``proceed`` called when all reports are in the pipe.

        If this process is killed, the parent sends again what it has no report of. That must never be more
        than one request of a broker, or the broker would see an old one after a newer one.
        """
        self._sender.after_reports.append(self)

    def proceed(self) -> None:
        """Begin what can begin now."""
        if not self.agreed:
            # What it was given is not made for this broker's versions.
            if self.wants_connection():
                self._connect()
            return
        while self.items and self.state in (_IDLE, _READY) and self.is_stale():
            self._sender.report(STALE, self, sequence=self.drop_stale()[C_SEQUENCE])
        if self.state is _READY:
            if self.items:
                now = monotonic_ns()
                if now < self.expires:
                    self._begin(now)
                else:
                    self._disconnect()
                    self.cut()
                    self._connect()
        elif self.wants_connection():
            self._connect()

    # -- the connection

    def _connect(self) -> None:
        self.connecting(monotonic_ns())
        self._sender.watch_deadline(self.deadline)
        self._ticket = self._sender.new_ticket()
        addresses = self._sender.resolver.resolve(self._ticket, self._host, self._port)
        if addresses is None:
            self._sender.await_name(self._ticket, self)
        else:
            self.resolved(self._ticket, addresses)

    def resolved(self, ticket: int, addresses: list[Address] | OSError) -> None:
        if ticket != self._ticket or self.state is not _CONNECTING:
            return
        if isinstance(addresses, OSError):
            self._fail(Failure.RESOLVE, addresses.errno or 0)
            return
        address, access = addresses[self._rounds % len(addresses)], self._sender.access
        try:
            self._connection = Connection(address) if access is None else access.connect(address, self._host)
        except OSError as problem:
            self._rounds += 1
            self._fail(Failure.CONNECT, problem.errno or 0)
            return
        except Broken as broken:
            self._fail(broken.failure, detail=broken.detail)
            return
        self._sender.watch(self._connection.fd, self, WRITE)

    def _set_up(self, connection: Connection) -> None:
        try:
            opening = self._opening
            if opening is None:
                error = connection.finish()
                if error:
                    self._rounds += 1
                    self._fail(Failure.CONNECT, error)
                    return
                access = self._sender.access
                if access is None:
                    self._ready(connection)
                    return
                self.shaking_hands()
                self._sender.watch_deadline(self.deadline)
                opening = self._opening = access.opening(connection)
            interest = opening.advance()
        except OSError as problem:
            self._fail(Failure.IO, problem.errno or 0)
        except Broken as broken:
            self._fail(broken.failure, detail=broken.detail)
        else:
            if interest:
                self._sender.poller.modify(connection.fd, interest)
            else:
                self._opened(connection, opening)

    def _opened(self, connection: Connection, opening: Opening) -> None:
        ranges = opening.handshake.ranges
        if self.eager and ranges is not None and not self.agree(ranges):
            self._sender.poller.modify(connection.fd, READ)
            self._sender.report(
                VERSIONS, self, sequence=self.agreements, following=json.dumps(ranges).encode()
            )
        else:
            self._ready(connection, opening.handshake)

    def _ready(self, connection: Connection, handshake: Handshake | None = None) -> None:
        self._opening = None
        self._sender.poller.modify(connection.fd, READ)
        if handshake is None:
            self.connected()
        else:
            lifetime, expires = handshake.session_lifetime, NEVER
            if lifetime:
                # Never more new connections than failures would bring.
                expires = monotonic_ns() + max(int(lifetime * _SESSION_USED), self.settings.retry_backoff)
            self.connected(handshake.correlation, expires)
        self.direct = connection.direct
        self._sender.report(CONNECTED, self)
        self._soon()

    def resumed(self, agreement: int) -> None:
        """The parent knows the broker's versions."""
        connection, opening = self._connection, self._opening
        if not self.resume(agreement):
            return
        if connection is not None and opening is not None and opening.over:
            self._ready(connection, opening.handshake)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._opening = None
        self._rest, self._shared_body = _NO_REST, None
        self._blocked = False
        self.direct = -1
        self._ticket = 0
        if connection is not None:
            self._sender.unwatch(connection.fd)
            connection.close()

    def _fail(self, failure: Failure, errno: int = 0, detail: str = "") -> None:
        self._disconnect()
        self.failed(failure, monotonic_ns())
        waiting = self.state is LinkState.WAITING
        self._sender.report(
            FAILED if waiting else IDLE,
            self,
            failure=failure,
            errno=errno,
            sequence=self.items[0][C_SEQUENCE] if waiting and self.items else 0,
            following=detail.encode(errors="replace")[:_DETAIL_BYTES],
        )
        if waiting:
            self._sender.watch_deadline(self.deadline)

    def internal_error(self, problem: Exception) -> None:
        """Serving this broker raised `problem`: its connection fails, and other brokers notice nothing."""
        detail = f"{type(problem).__name__}: {problem}".partition("\n")[0]
        if not self._traced:
            from traceback import format_exception

            self._traced = True
            detail = detail[: _DETAIL_BYTES // 4] + "\n" + "".join(format_exception(problem))
        self._fail(Failure.INTERNAL, detail=detail)

    def _cut(self) -> None:
        """The request was fenced while it was being written: the broker never gets the rest of it."""
        self._disconnect()
        self.cut()
        self._sender.report(IDLE, self)
        self._soon()

    def expire(self) -> None:
        failure = self.expired()
        if failure is None:
            self._soon()
            return
        if self.state is _CONNECTING:
            self._rounds += 1
        self._fail(failure)

    def give_up(self) -> None:
        """The broker was removed."""
        self._disconnect()
        self.items.clear()

    # -- what the parent says of a response

    def go_on(self, sequence: int) -> None:
        if self.state is LinkState.HELD and self.items[0][C_SEQUENCE] == sequence:
            self.go()
            self._soon()

    def try_again(self, sequence: int) -> None:
        if self.state is LinkState.HELD and self.items[0][C_SEQUENCE] == sequence:
            super().again()
            self._fail(Failure.GARBAGE)

    # -- bytes

    def on_event(self, mask: int) -> None:
        connection = self._connection
        if connection is None:
            return
        if not self.up:
            self._set_up(connection)
            return
        if mask & ~WRITE:
            self._read(connection)
        # Reading may have broken the connection.
        if mask & WRITE and self._connection is connection:
            self._write()

    def _read(self, connection: Connection) -> None:
        try:
            data = connection.receive(_RESPONSE_BYTES if self.received is None else self._wanted())
        except BlockingIOError:
            return
        except OSError as problem:
            self.lost(problem.errno or 0)
            return
        except Broken as broken:
            self._fail(broken.failure, detail=broken.detail)
            return
        self.take(data)

    def take(self, data: bytes) -> None:
        """Bytes from the broker; none: it has closed the connection."""
        if not data:
            self._fail(Failure.CLOSED)
            return
        try:
            body = self.receive(data)
        except Broken as broken:
            self._fail(broken.failure, detail=broken.detail)
            return
        if body is None:
            return
        if self.settle(body, self._sender.outbox):
            if self.items:
                self._soon()
            return
        circumstances = (
            self.slot,
            self.items[0][C_SEQUENCE],
            self.attempts + 1,
            self.correlation,
            self.first_byte_ns,
            self.last_byte_ns,
            monotonic_ns(),
        )
        if len(body) <= INLINE:
            self._sender.outbox.append(REPORT.pack(RESPONSE, 0, len(body), *circumstances, 0, 0, body))
        else:
            self._sender.stream(self.slot, body, REPORT.pack(RESPONSE, 0, 0, *circumstances, 0, 0, b""))

    def _wanted(self) -> int:
        """How many bytes to ask for in the middle of a response."""
        return min(max(self.missing(), 1), _RESPONSE_BYTES_MAX)

    def lost(self, errno: int) -> None:
        """A system call on the connection failed."""
        self._fail(Failure.IO, errno)

    def _begin(self, now: int) -> None:
        self._rest, self._shared_body = self.begin(now)
        self._sender.watch_deadline(self.deadline)
        self._write()

    def write_rest(self, head: bytearray, count: int) -> None:
        """The frame that begins with ``head`` was begun, and the kernel took only so many bytes of it."""
        self._rest, self._shared_body = left(head, self.shared_body(), count)
        self._write()

    def _write(self) -> None:
        """Give the kernel what it takes of the frame in flight."""
        connection = self._connection
        assert connection is not None
        rest, shared_body = self._rest, self._shared_body
        try:
            while shared_body is not None:
                if self.is_stale():
                    self._cut()
                    return
                rest, shared_body = left(rest, shared_body, connection.send_parts((rest, shared_body)))
            while len(rest):
                if self.is_stale():
                    self._cut()
                    return
                rest = memoryview(rest)[connection.send(rest) :]
        except BlockingIOError:
            self._rest, self._shared_body = rest, shared_body
            if not self._blocked:
                self._blocked = True
                self._sender.poller.modify(connection.fd, READ | WRITE)
            return
        except OSError as problem:
            self.lost(problem.errno or 0)
            return
        except Broken as broken:
            self._fail(broken.failure, detail=broken.detail)
            return
        self._rest, self._shared_body = _NO_REST, None
        if self._blocked:
            self._blocked = False
            self._sender.poller.modify(connection.fd, READ)
        self.written(monotonic_ns())


def left(
    rest: memoryview | bytearray, shared_body: memoryview | None, count: int
) -> tuple[memoryview, memoryview | None]:
    """What of these two parts is left when so many bytes of them are written."""
    if shared_body is None or count < len(rest):
        return memoryview(rest)[count:], shared_body
    return shared_body[count - len(rest) :], None


_Arguments = ParamSpec("_Arguments")


def _serve(
    lane: Lane,
    call: Callable[_Arguments, None],
    *arguments: _Arguments.args,
    **options: _Arguments.kwargs,
) -> None:
    """Make this call for one broker: an error in it is a failure of that broker's connection alone."""
    try:
        call(*arguments, **options)
    except Exception as problem:  # noqa: BLE001 - whatever it is, the other brokers are served
        lane.internal_error(problem)


class Sender:
    """The loop. What it does with nearly every request is done by ``_exchange``, and here what that leaves.

    ``memory`` is the mapped shared memory, ``fence`` its first int64."""

    def __init__(
        self, commands: int, reports: int, memory: memoryview, fence: memoryview, settings: LinkSettings
    ) -> None:
        self.memory = memory
        self.fence = fence
        self.settings = settings
        #: How connections begin; None: with nothing.
        self.access: Access | None = None
        self.poller = new_poller()
        self.resolver = Resolver()
        #: No lane's deadline is before this.
        self.next_deadline = NEVER
        #: Reports that are not yet in the pipe.
        self.outbox = Outbox()
        #: Lanes to proceed when all reports are in the pipe.
        self.after_reports: list[Lane] = []
        self._commands = commands
        self._reports = reports
        self._lanes: dict[int, Lane] = {}
        self._by_fd: dict[int, Lane] = {}
        self._tickets: dict[int, Lane] = {}
        self._last_ticket = 0
        self._unread = b""
        # The pipe to the parent was full.
        self._blocked = False
        # Long responses on their way to the parent: (slot, the rest, the closing report).
        self._streams: deque[tuple[int, memoryview, bytes]] = deque()
        os.set_blocking(commands, False)
        os.set_blocking(reports, False)

    def run(self) -> None:
        """Until the parent closes the command pipe."""
        with suppress(BrokenPipeError):
            self.start()
            while self.turn():
                pass

    def start(self) -> None:
        self.poller.register(self._commands, READ)
        self.poller.register(self.resolver.fd, READ)
        self._say_ready()
        self._go_on()

    def turn(self) -> bool:
        """Wait for something, and do all that follows from it. False: the parent has closed the command pipe.

        Raises BrokenPipeError when the parent does not read reports any more.
        """
        events = self.poller.wait(self._timeout(), _EVENTS)
        for fd, mask in take_responses(events, self._by_fd, self.outbox, self.after_reports):
            lane = self._by_fd.get(fd)
            if lane is not None:
                _serve(lane, lane.on_event, mask)
            elif fd == self._commands:
                if not self._read_commands():
                    return False
            elif fd == self._reports:
                self._blocked = False
                self.poller.unregister(fd)
            elif fd == self.resolver.fd:
                self._collect_names()
        if self.next_deadline != NEVER and monotonic_ns() >= self.next_deadline:
            self._sweep()
        self._go_on()
        return True

    def _go_on(self) -> None:
        """Write reports, and begin what waited for that."""
        while self.outbox or self._streams or self.after_reports:
            if not self._flush():
                return
            self._proceed()

    def _say_ready(self) -> None:
        self.outbox.append(REPORT.pack(READY, 0, 0, 0, os.getpid(), 0, 0, 0, 0, 0, 0, 0, b""))

    def _timeout(self) -> float | None:
        if self.next_deadline == NEVER:
            return None
        # A little late rather than early: an early wake-up would find nothing to do and come again.
        return max(0.0, (self.next_deadline - monotonic_ns()) / 1e9 + 0.0005)

    def _sweep(self) -> None:
        now = monotonic_ns()
        self.next_deadline = NEVER
        for lane in list(self._lanes.values()):
            if lane.deadline <= now:
                _serve(lane, lane.expire)
            if lane.deadline < self.next_deadline:
                self.next_deadline = lane.deadline

    # -- for lanes

    def watch(self, fd: int, lane: Lane, interest: int) -> None:
        self._by_fd[fd] = lane
        self.poller.register(fd, interest)

    def unwatch(self, fd: int) -> None:
        del self._by_fd[fd]
        self.poller.unregister(fd)

    def watch_deadline(self, deadline: int) -> None:
        self.next_deadline = min(self.next_deadline, deadline)

    def new_ticket(self) -> int:
        self._last_ticket += 1
        return self._last_ticket

    def await_name(self, ticket: int, lane: Lane) -> None:
        self._tickets[ticket] = lane

    def _collect_names(self) -> None:
        for ticket, addresses in self.resolver.collect():
            lane = self._tickets.pop(ticket)
            _serve(lane, lane.resolved, ticket, addresses)

    # -- reports

    def report(
        self,
        kind: int,
        lane: Lane,
        *,
        failure: Failure = Failure.NONE,
        errno: int = 0,
        sequence: int = 0,
        following: bytes = b"",
    ) -> None:
        attempts, size = lane.attempts, len(following)
        record = REPORT.pack(kind, failure, 0, lane.slot, sequence, attempts, 0, 0, 0, 0, errno, size, b"")
        self.outbox.append(record + following)

    def stream(self, slot: int, body: bytes, report: bytes) -> None:
        """Send a long response to the parent in pieces, and then its report."""
        self._streams.append((slot, memoryview(body), report))

    def _fill_from_streams(self) -> None:
        for _ in range(_PIECES_AT_ONCE):
            if not self._streams:
                return
            slot, rest, report = self._streams.popleft()
            piece = rest[:PIECE_BYTES]
            rest = rest[PIECE_BYTES:]
            head = REPORT.pack(PIECE, 0, 0, slot, 0, 0, 0, 0, 0, 0, 0, len(piece), b"")
            self.outbox.append(head + piece)
            if len(rest):
                # Round robin: several long responses share the pipe.
                self._streams.append((slot, rest, report))
            else:
                self.outbox.append(report)

    def _flush(self) -> bool:
        """Write all reports to the pipe; False when it is full."""
        if self._blocked:
            return False
        while self.outbox or self._streams:
            self._fill_from_streams()
            if not self.outbox.write(self._reports):
                self._blocked = True
                self.poller.register(self._reports, WRITE)
                return False
        return True

    def _proceed(self) -> None:
        """Begin the requests that waited for reports to be written; this may make new reports."""
        lanes, self.after_reports = self.after_reports, []
        others, deadline = begin_requests(lanes)
        self.watch_deadline(deadline)
        for lane in others:
            _serve(lane, lane.proceed)

    # -- commands

    def _read_commands(self) -> bool:
        """False when the parent has closed the pipe."""
        try:
            data = os.read(self._commands, _READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        if self._unread:
            data = self._unread + data
        position, size, end = 0, COMMAND.size, len(data)
        while True:
            position = queue_requests(data, position, self._lanes, self.after_reports)
            if end - position < size:
                break
            command: Command = COMMAND.unpack_from(data, position)
            following = command[10]
            if end - position < size + following:
                break
            position += size
            self._obey(command, data[position : position + following])
            position += following
        self._unread = data[position:]
        return True

    def _obey(self, command: Command, following: bytes) -> None:
        """Any command but SEND."""
        kind, slot = command[0], command[3]
        if kind == GO:
            _serve(self._lanes[slot], self._lanes[slot].go_on, command[4])
        elif kind == AGAIN:
            _serve(self._lanes[slot], self._lanes[slot].try_again, command[4])
        elif kind == ADD:
            target = json.loads(following)
            lane = Lane(self, slot, target["host"], target["port"], target["epoch"])
            self._lanes[slot] = lane
            if self.access is not None and self.access.negotiates:
                lane.eager, lane.agreed = True, False
                self.after_reports.append(lane)
        elif kind == REMOVE:
            lane = self._lanes.pop(slot)
            lane.give_up()
            self._streams = deque(stream for stream in self._streams if stream[0] != slot)
            self.report(REMOVED, lane)
        elif kind == CREDENTIALS:
            self.access = Access(Credentials.from_json(following))
        elif kind == RESUME:
            _serve(self._lanes[slot], self._lanes[slot].resumed, command[4])
        elif kind == PING:
            self._say_ready()
