"""A listener of the controller has a processor, a request queue and a handler thread of its own (KIP-291)."""

from __future__ import annotations

import pytest

from ctrlchan.server._processor import NetworkThreads
from ctrlchan.server.handler_pool import HandlerPool, ListenerHandler
from ctrlchan.server.socket_server import Listener, SocketServer, SocketServerSettings
from tests.kafka.waiting import wait_until
from tests.unit.server.serving import Client, EchoHandler, serving

DATA = Listener("DATA", "127.0.0.1", 0)
CONTROL = Listener("CONTROL", "127.0.0.1", 0, is_control_plane=True)


def processors(server: SocketServer) -> list[str]:
    """Return the name of the listener of each processor."""
    return [one.listener for one in server.counters()[0]]


def test_without_such_a_listener_there_is_one_queue() -> None:
    with serving(EchoHandler(), DATA) as server:
        assert server.control_requests is None


def test_requests_of_the_controller_are_behind_no_others() -> None:
    with serving(None, DATA, CONTROL, queued_max_requests=1) as server:
        assert server.control_requests is not None
        clients = [Client(server, port=server.ports["DATA"]) for _ in range(3)]
        for client in clients:
            client.frames(b"data")
        wait_until(lambda: server.requests.held == 2, what="held requests")
        with Client(server, port=server.ports["CONTROL"]) as controller:
            controller.frames(b"control")
            request = server.control_requests.take(10)
            assert request is not None
            assert (request.frame, request.context.listener) == (b"control", "CONTROL")
            request.answer(b"done")
            assert controller.answer() == b"done"
        assert (server.requests.size, server.requests.held) == (1, 2)
        assert (server.control_requests.size, server.control_requests.held) == (0, 0)
        for client in clients:
            client.close()


def test_twenty_requests_of_the_controller_may_wait() -> None:
    with serving(None, DATA, CONTROL) as server:
        assert server.control_requests is not None
        control = server.control_requests
        clients = [Client(server, port=server.ports["CONTROL"]) for _ in range(22)]
        for client in clients:
            client.frames(b"control")
        wait_until(lambda: control.held == 2, what="held requests")
        assert (control.size, server.requests.size) == (20, 0)
        for _ in clients:
            request = control.take(10)
            assert request is not None
            request.skip()
        for client in clients:
            client.close()


def test_the_controllers_listener_has_one_processor() -> None:
    with serving(EchoHandler(), DATA, CONTROL, num_network_threads=3) as server:
        assert processors(server) == ["DATA"] * 3 + ["CONTROL"]
        server.reconfigure(SocketServerSettings(num_network_threads=5))
        assert processors(server) == ["DATA"] * 5 + ["CONTROL"]
        with Client(server, port=server.ports["CONTROL"]) as controller:
            controller.frames(b"e hot requests, too")
            assert controller.answer() == b"e hot requests, too"


def test_its_handler_thread_works_while_all_others_are_busy() -> None:
    server = SocketServer([DATA, CONTROL], SocketServerSettings())
    assert server.control_requests is not None
    handlers = [ListenerHandler("broker 1", lambda frame, _context: [b"to ", frame])] * 2
    # Without a thread of the data plane.
    data = HandlerPool(server.requests, handlers, 0)
    control = HandlerPool(server.control_requests, handlers, 1, name="control")
    for part in (data, control, server):
        part.start()
    try:
        with (
            Client(server, port=server.ports["DATA"]) as client,
            Client(server, port=server.ports["CONTROL"]) as controller,
        ):
            client.frames(b"data")
            wait_until(lambda: server.requests.size == 1, what="a request")
            controller.frames(b"control")
            assert controller.answer() == b"to control"
            assert server.requests.size == 1
    finally:
        server.stop()
    assert data.join(10)
    assert control.join(10)


def test_it_shares_no_threads() -> None:
    with pytest.raises(ValueError, match="threads of its own"):
        NetworkThreads(
            [("DATA", -1), ("CONTROL", -1)],
            processors=1,
            max_request_bytes=100,
            queue_capacity=1,
            idle_ns=-1,
            send_buffer=-1,
            is_shared=True,
            control_listener=1,
        )
