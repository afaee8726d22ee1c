"""The end of a server: what is in progress ends, nothing stays."""

from __future__ import annotations

import gc
import threading
from contextlib import ExitStack, suppress

from ctrlchan.server.socket_server import SocketServer
from tests.kafka.waiting import wait_until
from tests.unit.server.serving import (
    LOCAL,
    Client,
    EchoHandler,
    descriptors,
    handling,
    parked,
    serving,
)


def test_stop_lets_a_request_in_progress_end() -> None:
    with serving() as server, Client(server) as busy, Client(server) as idle:
        busy.frames(b"a", b"b")
        request = server.requests.take(10)
        assert request is not None
        stopping = threading.Thread(target=server.stop, args=[20])
        stopping.start()
        assert idle.is_closed()
        request.answer(b"done")
        # The next request is not begun.
        assert busy.answer() == b"done"
        assert busy.is_closed()
        stopping.join()
        assert server.requests.closed
        assert server.requests.take(10) is None


def test_stop_answers_parked_requests() -> None:
    hot = EchoHandler()
    with serving(hot) as server, Client(server) as client:
        client.frames(parked(600_000, b"x"))
        wait_until(lambda: hot.parked == 1, what="a parked request")
        server.stop(20)
        assert client.answer() == b"\x02x"
        assert client.is_closed()


def test_stop_sends_an_answer_to_the_end() -> None:
    with serving(EchoHandler()) as server, Client(server, buffer=4096) as client:
        client.frames(b"e" * 8_000_000)
        client.exactly(10)
        stopping = threading.Thread(target=server.stop, args=[20])
        stopping.start()
        client.exactly(8_000_000 + 4 - 10)
        assert client.is_closed()
        stopping.join()


def test_stop_closes_what_does_not_end_in_time() -> None:
    with serving(EchoHandler()) as server, Client(server, buffer=4096) as reader, Client(server) as asker:
        reader.frames(b"e" * 8_000_000)
        asker.frames(b"q")
        request = server.requests.take(10)
        assert request is not None
        server.stop(0.1)
        assert asker.is_closed()
        request.answer(b"too late")


def test_stop_under_load() -> None:
    before = descriptors()
    server = SocketServer([LOCAL], hot=EchoHandler())
    server.start()

    def load(client: Client, frame: bytes) -> None:
        with suppress(OSError), client:
            while True:
                client.frames(frame, frame)
                client.answers(2)

    with handling(server, lambda request: request.answer(request.frame)), ExitStack() as stack:
        for i in range(20):
            frame = [b"e", b"q", parked(1), b"e" * 100_000][i % 4]
            thread = threading.Thread(target=load, args=[Client(server), frame])
            thread.start()
            stack.callback(thread.join)
        wait_until(lambda: server.counters()[0][0].requests > 2_000, what="load")
        server.stop()
        assert server.counters()[0][0].connections == 0
    assert descriptors() <= before


def test_stop_may_be_called_by_several_threads_and_again() -> None:
    with serving(EchoHandler()) as server:
        threads = [threading.Thread(target=server.stop) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        server.stop()


def test_a_server_that_is_never_started_leaves_nothing() -> None:
    before = descriptors()
    server = SocketServer([LOCAL])
    server.stop()
    del server
    SocketServer([LOCAL])
    gc.collect()
    assert descriptors() <= before


def test_stop_wakes_a_thread_that_waits_for_requests() -> None:
    with serving() as server:
        results: list[object] = [0]
        thread = threading.Thread(target=lambda: results.append(server.requests.take(600)))
        thread.start()
        server.stop()
        thread.join()
        assert results == [0, None]


def test_servers_come_and_go() -> None:
    before = descriptors()
    for _ in range(30):
        with serving(EchoHandler()) as server, Client(server) as client:
            client.frames(b"e")
            assert client.answer() == b"e"
    assert descriptors() <= before
