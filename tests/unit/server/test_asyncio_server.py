"""The socket server: frames in every size and cut, peers that misbehave, a clean end."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any

import psutil
import pytest

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.errors import ConfigError, DecodeError
from ctrlchan.launch.embedded import EmbeddedBroker
from ctrlchan.server.api import Buffers
from ctrlchan.server.asyncio_server import FrameHandler, Server
from ctrlchan.server.request_context import ANONYMOUS, Principal, RequestContext
from ctrlchan.state import SecurityProtocol
from tests.kafka.waiting import wait_until
from tests.kafka.wire import receive_frame
from tests.unit.broker.local_broker import CORRELATION_ID, EPOCH, Part, client_frame, control_frame

UPDATE = control_frame(UPDATE_METADATA, 8, [Part()])
METADATA = client_frame(3, 12, topics=["alpha"])
SMALL_BUFFER = 64 * 1024

Answer = Buffers | Future[Buffers]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1, epoch=EPOCH, max_request_bytes=1 << 20) as broker:
        yield broker


def sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def numbered(frame: bytes, correlation_id: int) -> bytes:
    return sized(frame[:4] + correlation_id.to_bytes(4, "big") + frame[8:])


def connect(broker: EmbeddedBroker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=10)


def is_closed_after(connection: socket.socket, data: bytes) -> bool:
    """Return whether the broker closes the connection, without an answer, when it gets ``data``."""
    connection.sendall(data)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def still_serves(broker: EmbeddedBroker) -> bool:
    with connect(broker) as connection:
        connection.sendall(sized(UPDATE))
        return receive_frame(connection)[:4] == CORRELATION_ID.to_bytes(4, "big")


def test_a_frame_byte_by_byte(broker: EmbeddedBroker) -> None:
    with connect(broker) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in sized(UPDATE):
            connection.sendall(bytes([byte]))
        assert receive_frame(connection)[:4] == CORRELATION_ID.to_bytes(4, "big")


def test_requests_of_one_connection_are_answered_in_order(broker: EmbeddedBroker) -> None:
    """Also those whose answers are made on a thread, between others that are answered at once."""
    frames = [numbered(METADATA if i % 3 == 0 else UPDATE, i) for i in range(300)]
    with connect(broker) as connection:
        connection.sendall(b"".join(frames))
        assert [int.from_bytes(receive_frame(connection)[:4], "big") for _ in frames] == list(range(300))


def test_a_slow_broker_applies_at_once_and_answers_late() -> None:
    with EmbeddedBroker(1, epoch=EPOCH, response_delay=600) as broker, connect(broker) as connection:
        connection.sendall(sized(UPDATE) * 2)
        wait_until(
            lambda: [one["requests"] for one in broker.describe()["apis"].values()] == [1],
            what="the first request",
        )
        assert broker.describe()["metadata"]["partitions"] == 1
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
    with pytest.raises(ConfigError, match="response_delay"):
        EmbeddedBroker(1, response_delay=-1)


def test_a_slow_broker_keeps_the_order() -> None:
    """Other connections do not wait for it."""
    with EmbeddedBroker(1, epoch=EPOCH, response_delay=0.001) as broker:
        frames = [numbered(METADATA if i % 3 == 0 else UPDATE, i) for i in range(60)]
        with connect(broker) as connection, connect(broker) as other:
            connection.sendall(b"".join(frames))
            other.sendall(sized(UPDATE))
            receive_frame(other)
            assert [int.from_bytes(receive_frame(connection)[:4], "big") for _ in frames] == list(range(60))


def test_connections_do_not_wait_for_one_another(broker: EmbeddedBroker) -> None:
    with connect(broker) as half, connect(broker) as whole:
        half.sendall(sized(UPDATE)[:-1])
        whole.sendall(sized(UPDATE))
        receive_frame(whole)
        half.sendall(sized(UPDATE)[-1:])
        receive_frame(half)


@pytest.mark.parametrize("size", [-1, -(2**31), (1 << 20) + 1, 2**31 - 1])
def test_a_size_that_is_not_allowed_closes(broker: EmbeddedBroker, size: int) -> None:
    with connect(broker) as connection:
        assert is_closed_after(connection, struct.pack(">i", size))
    assert still_serves(broker)


@pytest.mark.parametrize(
    "frame", [b"", b"\0", bytes(3), bytes(40), b"\xff" * 100, UPDATE[:-1], UPDATE + b"\0"]
)
def test_a_frame_that_cannot_be_read_closes(broker: EmbeddedBroker, frame: bytes) -> None:
    with connect(broker) as connection:
        assert is_closed_after(connection, sized(frame))
    assert still_serves(broker)


def test_a_bad_frame_does_not_cancel_the_answer_before_it(broker: EmbeddedBroker) -> None:
    with connect(broker) as connection:
        connection.sendall(sized(UPDATE) + sized(b"\xff" * 9))
        assert receive_frame(connection)[:4] == CORRELATION_ID.to_bytes(4, "big")
        assert connection.recv(1) == b""


def test_garbage_affects_only_its_connection(broker: EmbeddedBroker) -> None:
    """Garbage is answered or closes its connection; other connections are not affected."""
    choose = random.Random(5)
    for _ in range(150):
        data = bytearray(sized(choose.choice([UPDATE, METADATA])))
        for _ in range(choose.randrange(1, 6)):
            data[choose.randrange(len(data))] = choose.randrange(256)
        with connect(broker) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
    assert still_serves(broker)


def test_a_cut_connection_leaves_nothing(broker: EmbeddedBroker) -> None:
    # Linux shows the broker's descriptors among ours; so does macOS.
    before = psutil.Process().num_fds()
    for cut in (0, 3, 4, 20, len(sized(UPDATE)) - 1):
        with connect(broker) as connection:
            connection.sendall(sized(UPDATE)[:cut])
    with connect(broker) as connection:
        connection.sendall(struct.pack(">i", 1 << 20) + bytes(500_000))
    wait_until(lambda: psutil.Process().num_fds() <= before, what="the broker closes its ends", timeout=10)
    assert still_serves(broker)


def test_idle_connections_own_no_receive_memory() -> None:
    with EmbeddedBroker(1, epoch=EPOCH) as broker:
        runner: Any = broker._runner

        def memory() -> list[int]:
            return sorted(one.memory for one in runner._service._server.connections)

        def owned() -> list[int]:
            return broker.inspect(lambda _: memory())

        large = control_frame(UPDATE_METADATA, 8, [Part("alpha", i) for i in range(3_000)])
        with ExitStack() as stack:
            connections = [stack.enter_context(connect(broker)) for _ in range(50)]
            for number, connection in enumerate(connections):
                connection.sendall(sized(large if number % 2 else UPDATE))
                receive_frame(connection)
            assert owned() == [0] * 50
            # An incomplete frame has its own memory, and no more.
            connections[0].sendall(sized(UPDATE)[:-1])
            connections[1].sendall(sized(UPDATE)[:3])
            wait_until(lambda: owned()[-2:] == [3, len(UPDATE)], what="the incomplete frames")
            connections[0].sendall(sized(UPDATE)[-1:])
            connections[1].sendall(sized(UPDATE)[3:])
            receive_frame(connections[0])
            receive_frame(connections[1])
            assert owned() == [0] * 50
        wait_until(lambda: owned() == [], what="the broker closes its ends")


def test_requests_that_are_sent_ahead_own_memory_until_they_are_handled() -> None:
    release = threading.Event()

    def wait() -> Buffers:
        release.wait(10)
        return (b"",)

    def client(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(sized(b"wait") + b"".join(sized(bytes([n])) for n in range(200)))
            other = socket.create_connection(("127.0.0.1", port), timeout=10)
            with other:
                # Another connection uses the shared receive buffer in between.
                other.sendall(sized(b"x" * 1_000))
                assert receive_frame(other) == b""
            release.set()
            for _ in range(201):
                assert receive_frame(connection) == b""

    seen: list[bytes] = []

    def handle(frame: memoryview) -> Answer:
        seen.append(bytes(frame))
        return later(wait) if bytes(frame) == b"wait" else (b"",)

    serve(handle, client)
    assert [one for one in seen if len(one) < 1_000] == [b"wait", *(bytes([n]) for n in range(200))]


class _AnyName:
    """An authenticator: the first frame is a name."""

    def __init__(self) -> None:
        self.done = False
        self.principal = ANONYMOUS

    def receive(self, frame: memoryview) -> Buffers | None:
        if bytes(frame) == b"who":
            return None
        self.done, self.principal = True, Principal.user(bytes(frame).decode())
        return (b"welcome",)


def test_a_request_has_the_context_of_its_connection() -> None:
    """The principal changes when the peer has authenticated; the rest is the connection's."""
    contexts: list[RequestContext] = []

    def handle(_: memoryview, context: RequestContext) -> Answer:
        contexts.append(context)
        return (str(context.principal).encode(),)

    def client(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            names = []
            for frame in (b"who", b"alice", b"a", b"b"):
                connection.sendall(sized(frame))
                names.append(receive_frame(connection))
            assert names == [b"User:ANONYMOUS", b"welcome", b"User:alice", b"User:alice"]
            peer = connection.getsockname()[1]
        first, second, third = contexts
        assert first == dataclasses.replace(second, principal=ANONYMOUS)
        assert second is third
        assert (second.listener, second.security_protocol) == ("SASL", SecurityProtocol.SASL_PLAINTEXT)
        assert str(second) == f"127.0.0.1:{peer} (User:alice)"
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(sized(b"who"))
            assert receive_frame(connection) == b"User:ANONYMOUS"
        assert contexts[-1].connection_id != first.connection_id

    run_server(
        handle,
        client,
        listener="SASL",
        security_protocol=SecurityProtocol.SASL_PLAINTEXT,
        authenticator=_AnyName,
    )


def test_lines_about_bad_clients_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(1) as broker:
        for _ in range(40):
            with connect(broker) as connection:
                assert is_closed_after(connection, sized(b"\xff" * 9))
    lines = [one for one in caplog.records if "closing the connection" in one.getMessage()]
    assert 1 <= len(lines) < 20, "five at once, then one in ten seconds"


def test_announced_bytes_cost_nothing_before_they_come() -> None:
    with EmbeddedBroker(1) as broker:
        before = psutil.Process().memory_info().rss
        connections = [connect(broker) for _ in range(20)]
        for connection in connections:
            connection.sendall(struct.pack(">i", 100 << 20) + bytes(10))
        assert still_serves(broker)
        grown = psutil.Process().memory_info().rss - before
        for connection in connections:
            connection.close()
    assert grown < 50 << 20, f"{grown:,} bytes for 20 announcements of 100 MiB"


def test_a_peer_that_does_not_read_blocks_only_itself(broker: EmbeddedBroker) -> None:
    topics = [f"topic-{number:03}" for number in range(60)]
    update = control_frame(UPDATE_METADATA, 8, [Part(topic, i) for topic in topics for i in range(100)])
    with connect(broker) as connection:
        connection.sendall(sized(update))
        receive_frame(connection)
    with socket.socket() as greedy:
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.settimeout(0.2)
        greedy.connect(("127.0.0.1", broker.port))
        # Bytes behind a client's request are ignored; here they fill the kernel's buffers sooner.
        request = sized(client_frame(3, 12, topics=None) + bytes(10_000))
        with pytest.raises(TimeoutError):
            greedy.sendall(request * 5_000)
        # The kernel's buffers hold some answers and many requests; the broker has not read the rest.
        assert still_serves(broker)
        wait_until(lambda: "Metadata" in broker.describe()["apis"], what="the first answer")
        assert broker.describe()["apis"]["Metadata"]["requests"] < 100
        greedy.settimeout(10)
        assert len(receive_frame(greedy)) > 100_000
    assert still_serves(broker)


def test_idle_connections_are_closed() -> None:
    with EmbeddedBroker(1, idle_timeout=0.2) as broker, connect(broker) as idle, connect(broker) as busy:
        idle.sendall(sized(UPDATE)[:10])
        closed = threading.Event()

        def wait() -> None:
            assert idle.recv(1) == b""
            closed.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        deadline = time.monotonic() + 60
        while not closed.is_set() and time.monotonic() < deadline:
            busy.sendall(sized(UPDATE))
            receive_frame(busy)
            closed.wait(0.02)
        waiter.join()
        assert closed.is_set()
        busy.sendall(sized(UPDATE))
        receive_frame(busy)


def test_close_drops_connections_and_frees_the_port(broker: EmbeddedBroker) -> None:
    connections = [connect(broker) for _ in range(10)]
    connections[0].sendall(sized(UPDATE)[:7])
    for connection in connections[1:]:
        connection.sendall(sized(UPDATE))
        receive_frame(connection)
    port = broker.port
    broker.close()
    for connection in connections:
        with connection:
            assert is_closed_after(connection, b"")
    with EmbeddedBroker(1, port=port) as again:
        assert still_serves(again)


def test_a_port_that_is_taken(broker: EmbeddedBroker) -> None:
    with pytest.raises(OSError, match="in use"):
        EmbeddedBroker(2, port=broker.port)


def later(make: Callable[[], Buffers]) -> Future[Buffers]:
    """Make an answer on a thread."""
    answer: Future[Buffers] = Future()

    def run() -> None:
        try:
            answer.set_result(make())
        except Exception as error:  # noqa: BLE001  (the server gets it)
            answer.set_exception(error)

    threading.Thread(target=run).start()
    return answer


def run_server(handle: FrameHandler, client: Callable[[int], Any], **options: Any) -> None:
    """Runs ``client(port)`` on a thread while a server with this handler listens."""

    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            server = Server(handle, "127.0.0.1", 0, executor=executor, **options)
            port = await server.start()
            try:
                await asyncio.get_running_loop().run_in_executor(None, client, port)
            finally:
                await server.stop()

    asyncio.run(main())


def serve(handle: Callable[[memoryview], Answer], client: Callable[[int], Any], **options: Any) -> None:
    """Do the same with a handler that does not ask for the context."""
    run_server(lambda frame, _: handle(frame), client, **options)


def test_frames_of_every_size_arrive_whole() -> None:
    """Around the edges of the small buffer, in pieces of every size, at once and on a thread."""
    choose = random.Random(11)
    edges = [SMALL_BUFFER + delta for delta in range(-9, 10)]
    sizes = [*edges, *(choose.randrange(200) for _ in range(300)), 3_000_000, *edges, 0, 1, SMALL_BUFFER * 2]
    frames = [choose.randbytes(size) for size in sizes]

    def echo(frame: memoryview) -> Answer:
        answer: Buffers = (bytes(frame),)
        return answer if len(frame) % 2 else later(lambda: answer)

    def client(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            stream = b"".join(sized(frame) for frame in frames)

            def send() -> None:
                at = 0
                while at < len(stream):
                    step = choose.choice([1, 3, 100, 5_000, SMALL_BUFFER, 500_000])
                    connection.sendall(stream[at : at + step])
                    at += step

            sender = threading.Thread(target=send)
            sender.start()
            for frame in frames:
                assert receive_frame(connection) == frame
            sender.join()

    serve(echo, client, max_request_bytes=4_000_000)


def test_future_answers_keep_the_order_and_block_only_their_connection() -> None:
    """A future answer holds up the next request of its connection, and no other connection."""
    asked: SimpleQueue[Future[Buffers]] = SimpleQueue()

    def handle(frame: memoryview) -> Answer:
        if bytes(frame) != b"wait":
            return (bytes(frame),)
        answer: Future[Buffers] = Future()
        asked.put(answer)
        return answer

    def client(port: int) -> None:
        with (
            socket.create_connection(("127.0.0.1", port), timeout=10) as connection,
            socket.create_connection(("127.0.0.1", port), timeout=10) as other,
        ):
            connection.sendall(sized(b"0") + sized(b"wait") + sized(b"2"))
            assert receive_frame(connection) == b"0"
            answer = asked.get(timeout=10)
            other.sendall(sized(b"x"))
            assert receive_frame(other) == b"x"
            answer.set_result((b"1",))
            assert [receive_frame(connection), receive_frame(connection)] == [b"1", b"2"]

    serve(handle, client)


def test_a_future_answer_that_fails_closes_only_its_connection() -> None:
    def fail(error: Exception) -> Answer:
        answer: Future[Buffers] = Future()
        answer.set_exception(error)
        return answer

    def handle(frame: memoryview) -> Answer:
        if bytes(frame) == b"garbage":
            return fail(DecodeError("garbage", api="Test"))
        return fail(RuntimeError("a mistake")) if bytes(frame) == b"mistake" else (b"",)

    def client(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as other:
            for bad in (b"garbage", b"mistake"):
                with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                    assert is_closed_after(connection, sized(bad))
            other.sendall(sized(b"x"))
            assert receive_frame(other) == b""

    serve(handle, client)


def test_a_lost_connection_does_not_cancel_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    """What a request does is done to its end; a server that has stopped drops the answer."""
    asked: SimpleQueue[Future[Buffers]] = SimpleQueue()
    left: list[Future[Buffers]] = []

    def handle(_: memoryview) -> Answer:
        answer: Future[Buffers] = Future()
        asked.put(answer)
        return answer

    def client(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(sized(b"wait"))
            answer = asked.get(timeout=10)
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(sized(b"for ever"))
            left.append(asked.get(timeout=10))
            answer.set_result((b"late",))
            assert not left[0].cancelled()

    serve(handle, client)
    left[0].set_result((b"too late",))
    assert not caplog.messages


def test_a_frame_keeps_its_memory() -> None:
    """Columns may refer to a frame long after the next one has come."""
    kept: list[memoryview] = []

    def keep(frame: memoryview) -> Answer:
        kept.append(frame)
        return (b"",)

    frames = [bytes([number]) * size for number, size in enumerate([10, 70_000, 10, 5, 70_000, 65_000])]

    def client(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            for frame in frames:
                connection.sendall(sized(frame))
                assert receive_frame(connection) == b""

    serve(keep, client)
    assert [bytes(frame) for frame in kept] == frames


@pytest.mark.parametrize("error", [DecodeError("unreadable"), RuntimeError("a bug")])
@pytest.mark.parametrize("on_a_thread", [False, True])
def test_a_handler_that_fails_closes_its_connection(error: Exception, on_a_thread: bool) -> None:
    def fail() -> Buffers:
        raise error

    def handle(frame: memoryview) -> Answer:
        if bytes(frame) == b"well":
            return (b"",)
        return later(fail) if on_a_thread else fail()

    def client(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            assert is_closed_after(connection, sized(b"fail"))
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(sized(b"well"))
            assert receive_frame(connection) == b""

    serve(handle, client)


def test_the_server_ends_while_an_answer_is_made() -> None:
    making, finish = threading.Event(), threading.Event()

    def make() -> Buffers:
        making.set()
        finish.wait(10)
        return (b"",)

    def client(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(sized(b"long"))
            assert making.wait(10)
            threading.Timer(0.05, finish.set).start()

    serve(lambda frame: later(make), client)
