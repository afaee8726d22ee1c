"""queued.max.request.bytes: all connections of a server share the memory of requests that are not handled."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable
from contextlib import ExitStack
from threading import Thread

import pytest

from ctrlchan.broker.config.parts import server_settings
from ctrlchan.errors import ConfigError
from ctrlchan.server._processor import TakenRequest
from ctrlchan.server.socket_server import SocketServer
from tests.kafka.waiting import wait_until
from tests.unit.server.serving import (
    Client,
    EchoHandler,
    handling,
    parked,
    serving,
    still_serves,
    wait_for_connections,
)
from tests.unit.server.tls_serving import TlsClient, tls_listener

POOL = 1000
SIZE = 4  # bytes of the number before a frame
LONG = 600_000  # milliseconds


def wait_for_available(server: SocketServer, available: int) -> None:
    wait_until(
        lambda: server.memory().available == available,
        what=f"{available} bytes that are left",
    )


def received(server: SocketServer) -> int:
    return sum(one.bytes_in for one in server.counters()[0])


def begin(client: Client, size: int, sent: int) -> None:
    """Send the first bytes of a request."""
    client.sendall(struct.pack(">i", size) + b"q" * sent)


def test_without_the_setting_nothing_is_counted() -> None:
    with serving(EchoHandler()) as server, Client(server) as client:
        client.frames(b"q")
        wait_until(lambda: server.requests.size == 1, what="a request")
        assert server.memory() == (0, 0, 0)


def test_a_queued_request_has_memory_until_it_is_answered() -> None:
    with serving(EchoHandler(), queued_max_request_bytes=POOL) as server, Client(server) as client:
        client.frames(b"q" * 100, b"q" * 50)
        wait_for_available(server, POOL - SIZE - 100)
        with handling(server, lambda request: request.answer(b"done")):
            assert client.answers(2) == [b"done", b"done"]
        wait_for_available(server, POOL)


def test_without_memory_other_requests_wait() -> None:
    """A request gets all that it needs while a byte is left (Kafka's pool is not strict)."""
    with (
        serving(EchoHandler(), queued_max_request_bytes=POOL) as server,
        Client(server) as one,
        Client(server) as two,
        Client(server) as hot,
    ):
        one.frames(b"q" * (POOL - SIZE - 1))
        wait_for_available(server, 1)
        two.frames(b"q" * 2000)
        wait_for_available(server, 1 - SIZE - 2000)
        hot.frames(b"e waits")
        taken = [server.requests.take(10), server.requests.take(10)]
        assert server.requests.take(0.05) is None
        assert server.memory().empty_ns > 0
        requests = [one for one in taken if one is not None]
        for request in requests:
            request.answer(b"done")
        assert one.answer() == two.answer() == b"done"
        assert hot.answer() == b"e waits"
        wait_for_available(server, POOL)
        before = server.memory().empty_ns
        # The time without memory has ended.
        assert before == server.memory().empty_ns


@pytest.mark.parametrize("size", [900, 500_000])
def test_a_request_without_memory_is_not_read(size: int) -> None:
    """What is behind the bytes that came with the size of the request stays in the socket."""
    with (
        serving(EchoHandler(), queued_max_request_bytes=POOL) as server,
        Client(server) as slow,
        Client(server) as client,
    ):
        begin(slow, POOL, 10)
        wait_for_available(server, -SIZE)
        begin(client, size, 6)
        wait_until(lambda: server.memory().empty_ns > 0, what="a request without memory")
        before = received(server)
        client.setblocking(False)
        rest = memoryview(b"q" * (size - 6))
        sent = client.send(rest[:800])
        # Another one is accepted meanwhile, and looked at.
        with Client(server) as other:
            other.frames(b"e")
            wait_until(lambda: received(server) == before + SIZE + 1, what="the request of another one")
        assert received(server) == before + SIZE + 1
        client.settimeout(20)
        slow.sendall(b"q" * (POOL - 10))
        with handling(server, lambda request: request.answer(b"%d" % len(request.frame))):
            assert slow.answer() == b"%d" % POOL
            client.sendall(rest[sent:])
            assert client.answer() == b"%d" % size
        wait_for_available(server, POOL)


@pytest.mark.parametrize("end", [Client.close, Client.reset])
def test_a_closed_connection_gives_its_memory_back(end: Callable[[Client], None]) -> None:
    with serving(EchoHandler(), queued_max_request_bytes=POOL) as server:
        slow, waiting = Client(server), Client(server)
        begin(slow, POOL, 10)
        wait_for_available(server, -SIZE)
        waiting.frames(b"e one")
        wait_until(lambda: server.memory().empty_ns > 0, what="a request without memory")
        with Client(server) as other:
            other.frames(b"e two")
            end(slow)
            assert other.answer() == b"e two"
        assert waiting.answer() == b"e one"
        waiting.close()
        wait_for_available(server, POOL)


def test_a_waiting_connection_can_be_closed() -> None:
    with serving(EchoHandler(), queued_max_request_bytes=POOL) as server, Client(server) as slow:
        begin(slow, POOL, 10)
        wait_for_available(server, -SIZE)
        clients = [Client(server) for _ in range(3)]
        for client in clients:
            client.frames(b"e")
        wait_until(lambda: server.memory().empty_ns > 0, what="a request without memory")
        clients[1].reset()
        wait_for_connections(server, 3)
        slow.close()
        assert [clients[0].answer(), clients[2].answer()] == [b"e", b"e"]
        for client in (clients[0], clients[2]):
            client.close()


def test_a_parked_request_has_no_memory() -> None:
    """What lets it end may be another request, which needs some."""
    with serving(EchoHandler(), queued_max_request_bytes=POOL) as server, Client(server) as client:
        client.frames(parked(LONG, b"x" * POOL))
        wait_for_available(server, POOL)
        assert still_serves(server)


def test_a_request_whose_answer_comes_later_has_no_memory() -> None:
    with serving(EchoHandler(), queued_max_request_bytes=POOL) as server, Client(server) as client:
        client.frames(b"q" * POOL)
        request = server.requests.take(10)
        assert request is not None
        assert server.memory().available == -SIZE
        request.return_memory()
        request.return_memory()
        assert server.memory().available == POOL
        assert still_serves(server)
        request.answer(b"late")
        assert client.answer() == b"late"
        assert server.memory().available == POOL


def test_a_waiting_connection_of_tls_costs_no_time() -> None:
    """It has decrypted bytes that its poller does not see: the processor does not look for them on and on."""
    listener = tls_listener()
    with serving(EchoHandler(), listener, queued_max_request_bytes=POOL) as server:
        with TlsClient(server) as slow, TlsClient(server) as client:
            slow.tls.sendall(struct.pack(">i", POOL) + b"q" * 10)
            wait_for_available(server, -SIZE)
            client.frames(b"e" * 100, *[b"e" * 20_000] * 10)
            wait_until(lambda: server.memory().empty_ns > 0, what="a request without memory")
            (before,), _ = server.counters()
            wait_until(
                lambda: server.counters()[0][0].running_ns > before.running_ns + 200_000_000, what="time"
            )
            (after,), _ = server.counters()
            assert after.idle_ns - before.idle_ns > (after.running_ns - before.running_ns) / 2
            slow.tls.sendall(b"q" * (POOL - 10))
            with handling(server, TakenRequest.skip):
                assert [len(one) for one in client.answers(11)] == [100, *[20_000] * 10]
        wait_for_available(server, POOL)


def test_many_clients_share_little_memory() -> None:
    """All requests are answered, and all memory comes back."""
    with (
        ExitStack() as ended,
        serving(None, queued_max_request_bytes=3000, num_network_threads=3) as server,
        handling(server, lambda request: request.answer(request.frame)),
    ):
        failed: list[str] = []

        def ask(seed: int) -> None:
            choose = random.Random(seed)
            with Client(server) as client:
                for number in range(100):
                    frames = [
                        b"%d" % number * choose.choice([1, 10, 1000]) for _ in range(choose.choice([1, 3]))
                    ]
                    client.frames(*frames)
                    if client.answers(len(frames)) != frames:
                        failed.append(f"client {seed}: request {number}")

        threads = [Thread(target=ask, args=[seed]) for seed in range(12)]
        for thread in threads:
            thread.start()
            ended.callback(thread.join)
        for thread in threads:
            thread.join()
        assert not failed
        wait_for_available(server, 3000)


@pytest.mark.parametrize(
    ("memory", "largest", "is_right"),
    [("-1", "100", True), ("0", "100", True), ("100", "100", True), ("99", "100", False)],
)
def test_the_memory_is_enough_for_the_largest_request(memory: str, largest: str, is_right: bool) -> None:
    configs = {"queued.max.request.bytes": memory, "socket.request.max.bytes": largest}
    if is_right:
        assert server_settings(configs).queued_max_request_bytes == int(memory)
    else:
        words = "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
        with pytest.raises(ConfigError, match=re.escape(words)):
            server_settings(configs)
