"""The fast path of a request: what it does, where it stops, and that the slow path has the same results."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, repeat
from time import monotonic_ns
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrlchan.channel.senders import broker_connection
from ctrlchan.channel.senders._fast_path import (
    ReportBuffer,
    SocketDriver,
    begin_requests,
    queue_requests,
    take_responses,
)
from ctrlchan.channel.senders._request import CommandQueue, RequestInFlight
from ctrlchan.channel.senders.broker_connection import BrokerConnection
from ctrlchan.channel.senders.sender import Sender
from ctrlchan.channel.senders.states import NEVER, ONE_PIECE, ConnectionState
from ctrlchan.channel.senders.tcp import Address, TcpConnection
from ctrlchan.channel.wire.poller import READ, WRITE
from ctrlchan.channel.wire.records import (
    AGAIN,
    COMMAND,
    EXPECTED,
    FAILED,
    GO,
    INLINE,
    READY,
    REPORT,
    RESPONSE,
    SEND,
    Report,
)
from ctrlchan.channel.wire.settings import ConnectionSettings

PREFIX = bytes(range(40))
EPOCH_AT = 20
BROKER_EPOCH = 77
EXPECT = b"\0\0\0\0"
MEMORY_BYTES = 1_100_000
MEMORY = bytes(64) + PREFIX + os.urandom(MEMORY_BYTES - 64 - len(PREFIX))


def command(
    sequence: int, size: int = 100, *, slot: int = 3, epoch: int = 7, expect: bytes = EXPECT, offset: int = 64
) -> bytes:
    return COMMAND.pack(
        SEND, len(expect), EPOCH_AT, slot, sequence, offset, size, len(PREFIX), epoch, expect, 0
    )


def frame(size: int, correlation: int) -> bytes:
    """Return the bytes that the broker must get."""
    data = bytearray(MEMORY[64 : 64 + size])
    struct.pack_into(">i", data, 8, correlation)
    struct.pack_into(">q", data, EPOCH_AT, BROKER_EPOCH)
    return bytes(data)


def response(correlation: int, body: bytes = EXPECT) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation) + body


class RecordingDriver(SocketDriver):
    """A driver over one end of a pair of sockets; ``left`` has the calls that the fast path makes."""

    def __init__(self) -> None:
        self.fence = memoryview(bytearray(8)).cast("q")
        super().__init__(RequestInFlight(3, BROKER_EPOCH, memoryview(MEMORY), self.fence, 1000))
        self.left: list[tuple[Any, ...]] = []
        self.ours, self.peer = socket.socketpair()
        self.ours.setblocking(False)
        self.plain_socket = self.ours.fileno()
        self.protocol.state = ConnectionState.READY

    def write_rest(self, head: bytearray, count: int) -> None:
        self.left.append(("write_rest", bytes(head), count))

    def io_failed(self, problem: int) -> None:
        self.left.append(("io_failed", problem))

    def take(self, data: bytes) -> None:
        self.left.append(("take", data))

    def internal_error(self, problem: Exception) -> None:
        self.left.append(("internal_error", str(problem)))


def state_of(driver: SocketDriver) -> ConnectionState:
    """The state as it is now; mypy remembers an earlier assertion about the attribute."""
    return driver.protocol.state


@pytest.fixture
def driver() -> Iterator[RecordingDriver]:
    made = RecordingDriver()
    with made.ours, made.peer:
        yield made


def begin(driver: RecordingDriver) -> bool:
    others, deadline = begin_requests([driver])
    assert others in ([], [driver])
    assert deadline == (NEVER if others else driver.protocol.deadline)
    return not others


def receive(driver: RecordingDriver, mask: int = READ) -> tuple[bool, list[Report]]:
    reports, after = ReportBuffer(), list[RecordingDriver]()
    event = (driver.plain_socket, mask)
    others = take_responses([event, (-1, READ)], {driver.plain_socket: driver}, reports, after)
    assert others in ([(-1, READ)], [event, (-1, READ)])
    settled = bool(len(reports))
    assert after == ([driver] if settled and driver.protocol.queue else [])
    return len(others) == 1, reports_of(reports)


def reports_of(reports: ReportBuffer) -> list[Report]:
    reader, writer = os.pipe()
    try:
        assert reports.write(writer)
        os.close(writer)
        return [Report._make(fields) for fields in REPORT.iter_unpack(os.read(reader, 1 << 16))]
    finally:
        os.close(reader)


# -- one request


@pytest.mark.parametrize("size", [len(PREFIX), 100, ONE_PIECE, ONE_PIECE + 1, 50_000])
def test_a_request_and_its_expected_response(driver: RecordingDriver, size: int) -> None:
    for correlation in range(3):
        driver.protocol.queue.append(command(correlation + 10, size))
        before = monotonic_ns()
        assert begin(driver)
        assert state_of(driver) is ConnectionState.AWAITING
        assert driver.protocol.deadline == driver.protocol.first_byte_ns + 1000
        assert driver.peer.recv(size, socket.MSG_WAITALL) == frame(size, correlation)
        driver.peer.send(response(correlation))
        taken, [report] = receive(driver)
        assert taken
        assert before <= report.first_byte_ns <= report.last_byte_ns <= report.response_ns <= monotonic_ns()
        times = (report.first_byte_ns, report.last_byte_ns, report.response_ns)
        inline = EXPECT.ljust(INLINE, b"\0")
        assert report == (EXPECTED, 0, 4, 3, correlation + 10, 1, correlation, *times, 0, 0, inline)
        assert state_of(driver) is ConnectionState.READY
        assert driver.protocol.deadline == NEVER
    assert driver.left == []


def test_attempts_that_failed_before_are_counted(driver: RecordingDriver) -> None:
    driver.protocol.attempts = 2
    for correlation, attempts in enumerate((3, 1)):
        driver.protocol.queue.append(command(1))
        assert begin(driver)
        driver.peer.send(response(correlation))
        _, [report] = receive(driver)
        assert report.attempts == attempts


def test_correlation_ids_wrap_around(driver: RecordingDriver) -> None:
    driver.protocol.correlation = 2**31 - 1
    for correlation in (2**31 - 1, 0):
        driver.protocol.queue.append(command(1))
        assert begin(driver)
        assert driver.peer.recv(1000) == frame(100, correlation)
        driver.peer.send(response(correlation))
        assert receive(driver)[0]


@pytest.mark.parametrize(
    "why",
    ["no connection", "not plain", "nothing to send", "in flight", "other versions", "fenced", "expired"],
)
def test_requests_that_the_fast_path_does_not_begin(driver: RecordingDriver, why: str) -> None:
    if why != "nothing to send":
        driver.protocol.queue.append(command(1, epoch=7))
    if why == "not plain":
        driver.plain_socket = -1
    elif why == "no connection":
        driver.protocol.state = ConnectionState.IDLE
    elif why == "in flight":
        driver.protocol.state = ConnectionState.AWAITING
    elif why == "other versions":
        driver.protocol.versions_accepted = False
    elif why == "expired":
        driver.protocol.expires = monotonic_ns()
    driver.fence[0] = 7 if why == "fenced" else 6
    state = driver.protocol.state
    assert not begin(driver)
    assert driver.protocol.state is state
    driver.peer.setblocking(False)
    with pytest.raises(BlockingIOError):
        driver.peer.recv(1)


def test_a_frame_that_the_kernel_takes_in_part(driver: RecordingDriver) -> None:
    size = MEMORY_BYTES - 64
    driver.protocol.queue.append(command(1, size))
    assert begin(driver)
    [(what, head, count)] = driver.left
    assert what == "write_rest"
    assert head == frame(size, 0)[: len(PREFIX)]
    assert len(PREFIX) < count < size
    assert driver.protocol.state is ConnectionState.SENDING
    assert driver.peer.recv(count, socket.MSG_WAITALL) == frame(size, 0)[:count]


def test_a_frame_that_the_kernel_does_not_take(driver: RecordingDriver) -> None:
    with suppress(BlockingIOError):
        while True:
            driver.ours.send(bytes(10_000))
    driver.protocol.queue.append(command(1))
    assert begin(driver)
    assert driver.left == [("write_rest", frame(100, 0), 0)]
    assert driver.protocol.state is ConnectionState.SENDING


def test_a_connection_that_is_gone(driver: RecordingDriver) -> None:
    driver.protocol.queue.append(command(1))
    driver.peer.close()
    assert begin(driver)
    assert driver.left == [("io_failed", errno.EPIPE)]


@pytest.mark.parametrize("size", [100, 50_000])
@pytest.mark.parametrize("offset", [MEMORY_BYTES - 99, MEMORY_BYTES, 2**64 - 1])
def test_a_frame_outside_the_memory_is_refused(driver: RecordingDriver, size: int, offset: int) -> None:
    driver.protocol.queue.append(command(1, size, offset=offset))
    assert begin(driver)
    [(what, text)] = driver.left
    assert what == "internal_error"
    assert text.startswith(f"a frame of {size} bytes at {offset}")
    with pytest.raises(ValueError, match="which is not in the memory"):
        driver.protocol.begin(bytearray(40), 0)


@pytest.mark.parametrize("size", [0, 11, 27])
def test_a_frame_without_room_for_its_ids_is_refused(driver: RecordingDriver, size: int) -> None:
    driver.protocol.queue.append(command(1))
    with pytest.raises(ValueError, match="a frame of 100 bytes"):
        driver.protocol.begin(bytearray(size), 0)


# -- one response


@pytest.mark.parametrize(
    "data",
    [response(0)[:cut] for cut in range(1, 12)]
    + [
        response(1),
        response(0, b"\0\0\0\1"),
        response(0, EXPECT + b"\0"),
        struct.pack(">ii", 7, 0) + EXPECT,
        struct.pack(">ii", 9, 0) + EXPECT,
        response(0) + b"\0",
        response(0) * 2,
        response(0, b""),
        response(0, b"\0" * 5000),
        b"HTTP/1.1 400 Bad Request",
    ],
)
def test_other_bytes_than_the_expected_response_go_to_the_protocol(
    driver: RecordingDriver, data: bytes
) -> None:
    driver.protocol.queue.append(command(1))
    begin(driver)
    driver.peer.send(data)
    assert receive(driver) == (True, [])
    assert driver.left == [("take", data[:4096])]
    assert driver.protocol.state is ConnectionState.AWAITING
    assert len(driver.protocol.queue) == 1


def test_a_request_without_an_expected_response(driver: RecordingDriver) -> None:
    driver.protocol.queue.append(command(1, expect=b""))
    begin(driver)
    driver.peer.send(response(0, b""))
    receive(driver)
    assert driver.left == [("take", response(0, b""))]


def test_the_end_of_a_connection_while_a_response_is_awaited(driver: RecordingDriver) -> None:
    driver.protocol.queue.append(command(1))
    begin(driver)
    driver.peer.close()
    receive(driver)
    assert driver.left[0] in (("take", b""), ("io_failed", errno.ECONNRESET))


def test_a_connection_that_is_reset_while_a_response_is_awaited() -> None:
    driver = RecordingDriver()
    with socket.create_server(("127.0.0.1", 0)) as server, driver.ours, driver.peer:
        ours = socket.create_connection(server.getsockname())
        peer = server.accept()[0]
        with ours:
            driver.plain_socket = ours.fileno()
            driver.protocol.queue.append(command(1))
            begin(driver)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.close()
            receive(driver)
            assert driver.left == [("io_failed", errno.ECONNRESET)]


def test_an_event_without_bytes_changes_nothing(driver: RecordingDriver) -> None:
    driver.protocol.queue.append(command(1))
    begin(driver)
    assert receive(driver) == (True, [])
    assert driver.left == []


def test_an_error_in_one_driver_leaves_the_others_alone() -> None:
    drivers = [RecordingDriver() for _ in range(3)]

    def fail(data: bytes) -> None:
        raise RuntimeError("a defect")

    with ExitStack() as stack:
        for driver in drivers:
            stack.enter_context(driver.ours)
            stack.enter_context(driver.peer)
            driver.protocol.queue.append(command(1))
        drivers[1].take = fail  # type: ignore[method-assign]
        assert begin_requests(drivers)[0] == []
        drivers[0].peer.send(response(0))
        drivers[1].peer.send(b"not a response")
        drivers[2].peer.send(response(0))
        events = [(driver.plain_socket, READ) for driver in drivers]
        reports = ReportBuffer()
        assert take_responses(events, {driver.plain_socket: driver for driver in drivers}, reports, []) == []
        assert [report.kind for report in reports_of(reports)] == [EXPECTED, EXPECTED]
        assert [driver.left for driver in drivers] == [[], [("internal_error", "a defect")], []]


@pytest.mark.parametrize("why", ["nothing awaited", "half is here", "not plain", "writable as well"])
def test_responses_that_the_fast_path_does_not_read(driver: RecordingDriver, why: str) -> None:
    driver.protocol.queue.append(command(1))
    begin(driver)
    fd = driver.plain_socket
    if why == "nothing awaited":
        driver.protocol.state = ConnectionState.READY
    elif why == "half is here":
        driver.protocol.received = bytearray(b"\0")
    driver.peer.send(response(0))
    if why == "not plain":
        driver.plain_socket = -1
        event = (fd, READ)
        assert take_responses([event], {fd: driver}, ReportBuffer(), []) == [event]
    else:
        assert receive(driver, READ | WRITE if why == "writable as well" else READ) == (False, [])
    assert driver.ours.recv(100) == response(0)
    assert driver.left == []


# -- commands and reports


@given(st.lists(st.one_of(st.integers(0, 2**64 - 1), st.none()), max_size=200))
def test_a_command_queue_is_a_deque(steps: list[int | None]) -> None:
    queue, twin = CommandQueue(), deque[Any]()
    for step in steps:
        if step is not None:
            queue.append(command(step))
            twin.append(COMMAND.unpack(command(step)))
        elif twin:
            assert queue.popleft() == twin.popleft()
        else:
            with pytest.raises(IndexError):
                queue.popleft()
        assert len(queue) == len(twin)
        assert list(queue) == list(twin)
    queue.clear()
    assert not queue
    with pytest.raises(ValueError, match="a command of 47 bytes"):
        queue.append(command(1)[:-1])


@given(st.integers(0, 5 * COMMAND.size), st.integers(0, COMMAND.size))
def test_commands_are_queued_as_far_as_they_are_whole(end: int, begin_at: int) -> None:
    drivers = {slot: RecordingDriver() for slot in (0, 1)}
    try:
        other = COMMAND.pack(GO, 0, 0, 0, 5, 0, 0, 0, 0, b"", 0)
        data = bytes(begin_at) + b"".join(command(n, slot=n % 2) for n in range(3)) + other + command(9)
        after: list[RecordingDriver] = []
        position = queue_requests(data[: begin_at + end], begin_at, drivers, after)
        count = min(3, end // COMMAND.size)
        assert position == begin_at + count * COMMAND.size
        assert [len(drivers[slot].protocol.queue) for slot in drivers] == [(count + 1) // 2, count // 2]
        # Each once: the second command for a slot finds it busy.
        assert after == list(drivers.values())[: min(count, 2)]
    finally:
        for driver in drivers.values():
            driver.ours.close()
            driver.peer.close()


def test_a_command_for_an_unknown_slot() -> None:
    with pytest.raises(KeyError):
        queue_requests(command(1), 0, {}, list[RecordingDriver]())


def test_reports_are_written_as_far_as_the_pipe_takes_them() -> None:
    reports = ReportBuffer()
    reader, writer = os.pipe()
    try:
        os.set_blocking(writer, False)
        put = got = b""
        for number in range(30):
            data = os.urandom(7_919 * number)
            reports.append(data)
            put += data
            if reports.write(writer):
                assert len(reports) == 0
            assert len(put) - len(reports) >= len(got)
            if len(reports):
                got += os.read(reader, 50_000)
        while len(got) < len(put):
            got += os.read(reader, 50_000)
            reports.write(writer)
        assert got == put
        os.close(reader)
        reports.append(b"x")
        with pytest.raises(BrokenPipeError):
            reports.write(writer)
    finally:
        os.close(writer)


# -- both ways


class SlowConnection(TcpConnection):
    """A connection that the fast path does not use."""

    __slots__ = ()

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.plain_socket = -1


SETTINGS = ConnectionSettings(
    connection_setup_timeout=10 * 10**9,
    connection_setup_timeout_max=10 * 10**9,
    socket_timeout=30 * 10**9,
    request_timeout=30 * 10**9,
    retry_backoff=0,
    max_response_bytes=100_000,
)


class Rig:
    """A sender in this thread, moved turn by turn, its parent's ends of the pipes, and a scripted broker."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._broker: socket.socket | None = None
        commands, self._commands = os.pipe()
        self._reports, reports = os.pipe()
        self._fds = [commands, self._commands, self._reports, reports]
        self.fence = memoryview(bytearray(8)).cast("q")
        self._sender = Sender(commands, reports, memoryview(MEMORY), self.fence, SETTINGS)
        os.set_blocking(self._reports, False)
        self._unread = b""
        self.reports: list[tuple[Report, bytes]] = []
        #: Frames as the broker got them.
        self.frames: list[bytes] = []
        host, port = server.getsockname()
        self._sender._by_slot[3] = self.connection = BrokerConnection(
            self._sender, 3, host, port, BROKER_EPOCH
        )
        self._sender.start()
        assert self.read_reports()[0][0][0] == READY

    def close(self) -> None:
        self.connection.remove()
        self.hang_up()
        self._sender.poller.close()
        self._sender.resolver.close()
        for fd in self._fds:
            os.close(fd)

    def write_command(self, data: bytes) -> None:
        os.write(self._commands, data)
        self._sender.turn()

    def read_reports(self) -> list[tuple[Report, bytes]]:
        """The reports that are new."""
        try:
            data = self._unread + os.read(self._reports, 1 << 20)
        except BlockingIOError:
            return []
        found: list[tuple[Report, bytes]] = []
        position = 0
        while len(data) - position >= REPORT.size:
            report = Report._make(REPORT.unpack_from(data, position))
            end = position + REPORT.size + report.following
            if end > len(data):
                break
            found.append((report, data[position + REPORT.size : end]))
            position = end
        self._unread = data[position:]
        self.reports += found
        return found

    def connect(self) -> None:
        """Move until a request has gone out."""
        while self.connection.protocol.state is not ConnectionState.AWAITING:
            self._sender.turn()

    def hang_up(self) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    def read_frame(self, size: int) -> None:
        if self._broker is None:
            self._broker = self._server.accept()[0]
            self._broker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frames.append(self._broker.recv(size, socket.MSG_WAITALL))

    def send(self, data: bytes) -> bool:
        """Have the sender read exactly this now; False when it has closed the connection."""
        tcp = self.connection._connection
        assert self._broker is not None
        if data:
            self._broker.sendall(data)
        else:
            self._broker.shutdown(socket.SHUT_WR)
        self._sender.turn()
        while data and self.connection._connection is tcp and self._is_unread():
            self._sender.turn()
        return self.connection._connection is tcp

    def _is_unread(self) -> bool:
        assert self.connection._connection is not None
        try:
            return bool(self.connection._connection._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False


#: What the broker answer to a request: made of the correlation id.
ANSWERS: dict[str, Any] = {
    "as expected": response,
    "an error": lambda correlation: response(correlation, b"\0\x0b\0\0"),
    "longer than a report": lambda correlation: response(correlation, b"\1" * 70_000),
    "shorter": lambda correlation: response(correlation, b"\0"),
    "nothing": lambda correlation: response(correlation, b""),
    "another correlation id": lambda correlation: response(correlation + 1),
    "more": lambda correlation: response(correlation) + b"\0",
    "too large": lambda correlation: struct.pack(">ii", 100_001, correlation),
    "the end": lambda correlation: b"",
    "a half": lambda correlation: response(correlation)[:6],
    "a word": lambda correlation: response(correlation)[:3],
}
ANSWER = st.tuples(st.sampled_from(list(ANSWERS)), st.lists(st.integers(1, 14), max_size=5), st.booleans())
REQUEST = st.tuples(st.sampled_from([100, 200, ONE_PIECE + 1]), st.booleans(), st.lists(ANSWER, max_size=3))


def conversation(
    rig: Rig, requests: list[tuple[int, bool, list[tuple[str, list[int], bool]]]]
) -> list[tuple[Any, ...]]:
    """What is reported when requests, queued at once, are answered by these scripts and then as expected."""
    rig.write_command(
        b"".join(
            command(number, size, expect=EXPECT if plain else b"")
            for number, (size, plain, _) in enumerate(requests)
        )
    )
    for number, (size, _, answers) in enumerate(requests):
        script = chain(answers, repeat(("as expected", list[int](), True)))
        while len(rig.connection.protocol.queue) == len(requests) - number:
            rig.connect()
            rig.read_frame(size)
            answer, cuts, accept = next(script)
            data: bytes = ANSWERS[answer](rig.connection.protocol.correlation)
            connected = True
            for begin_at, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
                if connected and begin_at < min(end, len(data)):
                    connected = rig.send(data[begin_at:end])
            if (
                connected
                and rig.connection.protocol.state is ConnectionState.AWAITING
                and len(rig.connection.protocol.queue) == len(requests) - number
            ):
                connected = rig.send(b"")
            while rig.connection.protocol.state is ConnectionState.HELD:
                kinds = [report.kind for report, _ in rig.read_reports()]
                if RESPONSE in kinds:
                    kind = GO if accept else AGAIN
                    rig.write_command(COMMAND.pack(kind, 0, 0, 3, number, 0, 0, 0, 0, b"", 0))
                    connected = connected and accept
                else:
                    rig._sender.turn()
            if not connected:
                rig.hang_up()
    rig.read_reports()
    return [without_times(report, following) for report, following in rig.reports]


def without_times(report: Report, following: bytes) -> tuple[Any, ...]:
    if report.kind in (EXPECTED, RESPONSE):
        assert 0 < report.first_byte_ns <= report.last_byte_ns <= report.response_ns <= monotonic_ns()
    kept = (*report._replace(first_byte_ns=0, last_byte_ns=0, response_ns=0), following)
    return kept if report.kind != READY else (READY,)


@contextmanager
def rig(slow: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    with monkeypatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as server:
        if slow:
            patch.setattr(broker_connection, "TcpConnection", SlowConnection)
        made = Rig(server)
        try:
            yield made
        finally:
            made.close()


@settings(max_examples=200, deadline=None)
@given(requests=st.lists(REQUEST, min_size=1, max_size=4))
def test_both_paths_have_the_same_results(
    requests: list[tuple[int, bool, list[tuple[str, list[int], bool]]]],
) -> None:
    """For any answers, cut anywhere: the same frames to the broker, the same reports to the parent."""
    seen = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        for slow in (False, True):
            with rig(slow, monkeypatch) as made:
                seen.append((conversation(made, requests), made.frames))
                assert len([1 for report, _ in made.reports if report.kind in (EXPECTED, RESPONSE)]) >= len(
                    requests
                )
                assert not made.connection.protocol.queue
    assert seen[0] == seen[1]


@pytest.mark.parametrize("slow", [False, True])
def test_every_cut_of_an_expected_response(slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = len(response(0))
    answers = [("as expected", [cut], True) for cut in range(1, whole)]
    answers.append(("as expected", list(range(1, whole)), True))
    with rig(slow, monkeypatch) as made:
        reports = conversation(made, [(100, True, [answer]) for answer in answers])
        assert [report[0] for report in reports].count(EXPECTED) == len(answers)
        assert FAILED not in [report[0] for report in reports]
        assert made.frames == [frame(100, number) for number in range(len(answers))]
