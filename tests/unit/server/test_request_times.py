"""The times of requests, part by part, on a clock that moves only when a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryFile

import pytest

from ctrlchan.server._processor import TakenRequest
from ctrlchan.server.request_times import BOUNDS_MS, TIME_PARTS, PartTimes, RequestTimes
from tests.unit.server.security.simulated_server import SimulatedServer
from tests.unit.server.serving import parked, sized

KEY = 3
HEADER = bytes([0, KEY])
ROOM = 1 << 20


class MeasuredServer(SimulatedServer):
    """Keeps the requests of handler threads for the test."""

    def __init__(self) -> None:
        super().__init__(None)
        self.held = []

    def send(self, *frames: bytes, room: int = ROOM) -> int:
        """Send requests of the API on a new connection, and let the processor see them. Return its number."""
        connection = self.connect(room)
        self.system.write(connection, b"".join(sized(HEADER + frame) for frame in frames))
        self.run()
        return connection

    def connect(self, room: int = ROOM) -> int:
        connection = self.system.connect(room)
        self.run()
        return connection

    def pass_ms(self, ms: int) -> None:
        """Let time pass in which no thread does anything."""
        self.clock.advance(ms * 1_000_000)

    @property
    def queued(self) -> list[TakenRequest]:
        assert self.held is not None
        return self.held

    @property
    def times(self) -> RequestTimes:
        number, parts = self.threads.request_times()[KEY]
        return RequestTimes(number, tuple(PartTimes(*part) for part in parts))

    def ms(self) -> dict[str, float]:
        """Return the milliseconds of all parts that are not 0."""
        parts = zip(TIME_PARTS, self.times.parts, strict=True)
        return {name: part.total_ns / 1e6 for name, part in parts if part.total_ns}


@pytest.fixture
def server() -> Iterator[MeasuredServer]:
    server = MeasuredServer()
    yield server
    server.held = None


def test_bounds_grow() -> None:
    assert sorted(set(BOUNDS_MS)) == list(BOUNDS_MS)


def test_a_request_waits_for_a_thread_and_is_handled_there(server: MeasuredServer) -> None:
    connection = server.connect()
    server.system.write(connection, sized(HEADER + b"q"))
    server.threads.turn(0)
    server.pass_ms(5)
    request = server.threads.take(0)
    assert request is not None
    server.pass_ms(7)
    request.answer(b"done")
    assert server.system.read(connection, 100) == sized(b"done")
    assert server.ms() == {"RequestQueueTimeMs": 5, "LocalTimeMs": 7, "TotalTimeMs": 12}
    assert server.times.requests == 1


def test_what_comes_after_the_thread_has_returned_is_remote_time(server: MeasuredServer) -> None:
    server.send(b"q")
    (request,) = server.queued
    server.pass_ms(3)
    request.return_memory()
    server.pass_ms(4)
    request.answer(b"done")
    assert server.ms() == {"LocalTimeMs": 3, "RemoteTimeMs": 4, "TotalTimeMs": 7}


def test_a_parked_request_has_remote_time(server: MeasuredServer) -> None:
    server.send(parked(20))
    server.run(0.03)
    # One more, because the current millisecond has begun.
    assert server.ms() == {"RemoteTimeMs": 21, "TotalTimeMs": 21}


def test_an_answer_waits_for_its_processor(server: MeasuredServer) -> None:
    """A handler thread sends no ranges of files."""
    connection = server.send(b"q")
    (request,) = server.queued
    with TemporaryFile() as file:
        file.write(b"stored")
        file.flush()
        request.answer([b"<", (file.fileno(), 0, 6), b">"])
    server.pass_ms(9)
    server.run()
    assert server.system.read(connection, 100) == sized(b"<stored>")
    assert server.ms() == {"ResponseQueueTimeMs": 9, "TotalTimeMs": 9}


@pytest.mark.parametrize("kind", [b"e", b"q"], ids=["processor", "thread"])
def test_an_answer_counts_when_its_last_byte_is_sent(server: MeasuredServer, kind: bytes) -> None:
    """Whoever has made it: its peer does not read for 50 ms."""
    connection = server.send(kind + b"x" * 3000, room=1000)
    for request in server.queued:
        request.answer(b"x" * 3000)
    server.run()
    assert KEY not in server.threads.request_times()
    server.pass_ms(50)
    while server.system.pending(connection):
        server.system.read(connection, 1000)
        server.run()
    assert server.ms() == {"ResponseSendTimeMs": 50, "TotalTimeMs": 50}


def test_all_answers_that_wait_for_their_peers_count(server: MeasuredServer) -> None:
    """Two connections with many answers each, which the processor serves in turns."""
    connections = [server.send(*[b"e" + b"x" * 100] * 200, room=1000) for _ in range(2)]
    server.pass_ms(10)
    received = [0, 0]
    while any(map(server.system.pending, connections)):
        for number, connection in enumerate(connections):
            received[number] += len(server.system.read(connection, 1000))
        server.run()
    assert received == [200 * (4 + 2 + 101) - 200 * 2] * 2
    assert server.times.requests == 400
    assert sum(server.times.parts[-1].numbers) == 400


def test_a_request_that_the_hot_handler_goes_on_with_counts_once(server: MeasuredServer) -> None:
    connection = server.send(b"q")
    (request,) = server.queued
    server.pass_ms(2)
    request.go_on(0, 0)
    server.run()
    # The echo handler leaves it again.
    again = server.queued[1]
    server.pass_ms(4)
    again.answer(b"done")
    assert server.system.read(connection, 100) == sized(b"done")
    assert server.times.requests == 1
    assert server.ms() == {"LocalTimeMs": 6, "TotalTimeMs": 6}


def test_requests_without_an_answer_count(server: MeasuredServer) -> None:
    server.send(b"n", b"q")
    (request,) = server.queued
    server.pass_ms(8)
    request.skip()
    assert server.times.requests == 2
    assert server.ms() == {"LocalTimeMs": 8, "TotalTimeMs": 8}


def test_answers_that_nobody_gets_do_not_count(server: MeasuredServer) -> None:
    connection = server.send(b"e" + b"x" * 3000, room=1000)
    server.system.reset(connection)
    server.run()
    server.send(b"c")
    assert KEY not in server.threads.request_times()


@pytest.mark.parametrize(
    "frame", [b"", b"e", b"e123", b"\xff\xffq"], ids=["empty", "byte", "large", "negative"]
)
def test_frames_without_an_api_key_do_not_count(server: MeasuredServer, frame: bytes) -> None:
    connection = server.connect()
    server.system.write(connection, sized(frame))
    server.run()
    for request in server.queued:
        request.answer(b"done")
    assert server.system.pending(connection)
    assert server.threads.request_times() == {}


@pytest.mark.parametrize(("ms", "bound"), [(0, 0.05), (1, 1.0), (2, 2.5), (2000, 2_500), (40_000, None)])
def test_a_time_is_in_the_bucket_of_its_bound(server: MeasuredServer, ms: int, bound: float | None) -> None:
    server.send(b"q")
    (request,) = server.queued
    server.pass_ms(ms)
    request.answer(b"done")
    numbers = [0] * (len(BOUNDS_MS) + 1)
    numbers[len(BOUNDS_MS) if bound is None else BOUNDS_MS.index(bound)] = 1
    assert list(server.times.parts[-1].numbers) == numbers
