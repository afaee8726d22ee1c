"""Peers that misbehave, limits on connections, addresses."""

from __future__ import annotations

import logging
import select
import socket
import subprocess
import sys
import textwrap
from contextlib import ExitStack, suppress

import psutil
import pytest

from ctrlchan.errors import ConfigError
from ctrlchan.server.socket_server import Listener, SocketServer, SocketServerSettings
from tests.kafka.waiting import wait_until
from tests.unit.server.serving import (
    LOCAL,
    Client,
    EchoHandler,
    connections,
    handling,
    serving,
    sized,
    still_serves,
    wait_for_connections,
)


def test_a_slow_reader_delays_only_itself() -> None:
    frames = [b"e%d" % i + bytes(1_000_000) for i in range(20)]
    with serving(EchoHandler()) as server, Client(server, buffer=4096) as slow, ExitStack() as stack:
        # The server takes no more than it can answer, so this cannot be sent in one go.
        slow.settimeout(0.5)
        data = memoryview(b"".join(map(sized, frames)))
        sent = 0
        with suppress(TimeoutError):
            while sent < len(data):
                sent += slow.send(data[sent:])
        assert server.counters()[0][0].requests < len(frames)
        for client in [stack.enter_context(Client(server)) for _ in range(10)]:
            client.frames(b"e" * 10_000)
            assert client.answer() == b"e" * 10_000
        slow.setblocking(False)
        received = bytearray()
        while len(received) < len(data):
            # Whichever is possible first: the server may have answered all that it has, or take no more.
            readable, writable, _ = select.select([slow], [slow] if sent < len(data) else [], [], 20)
            assert readable or writable
            if writable:
                sent += slow.send(data[sent : sent + 100_000])
            if readable:
                received += slow.recv(1 << 20)
        assert received == data


def test_a_slow_reader_of_small_answers_is_not_read_without_end() -> None:
    """The answers that the server keeps for a peer that does not read are bounded."""
    with serving(EchoHandler()) as server, Client(server, buffer=4096) as client:
        client.settimeout(0.5)
        data = memoryview(sized(b"e" * 100) * 400_000)
        sent = 0
        with suppress(TimeoutError):
            while sent < len(data):
                sent += client.send(data[sent:])
        assert sent < len(data)
        counters = server.counters()[0][0]
        assert counters.requests * 104 - counters.bytes_out < 200_000


@pytest.mark.parametrize("hot", [True, False])
def test_a_half_closed_connection_gets_its_answers(hot: bool) -> None:
    frames = [b"e%d" % i for i in range(1_000)]
    with (
        serving(EchoHandler() if hot else None) as server,
        handling(server, lambda request: request.answer(request.frame)),
        Client(server) as client,
    ):
        client.frames(*frames)
        client.shutdown(socket.SHUT_WR)
        assert client.answers(len(frames)) == frames
        assert client.is_closed()


def test_a_peer_that_is_gone_in_the_middle_of_a_frame() -> None:
    with serving(EchoHandler()) as server:
        for sent in (b"\0", sized(b"e" * 100)[:50], sized(bytes(1_000_000))[:500_000]):
            with Client(server) as client:
                client.sendall(sent)
            with Client(server) as client:
                client.sendall(sent)
                client.reset()
        wait_for_connections(server, 0)
        assert still_serves(server)


def test_announced_sizes_cost_no_memory() -> None:
    with serving(EchoHandler()) as server, ExitStack() as stack:
        before = psutil.Process().memory_info().vms
        for _ in range(200):
            client = stack.enter_context(Client(server))
            client.sendall((100_000_000).to_bytes(4, "big") + bytes(1_000))
        wait_until(lambda: server.counters()[0][0].bytes_in == 200 * 1_004, what="all bytes arrive")
        assert psutil.Process().memory_info().vms - before < 100_000_000


def test_a_reset_in_the_middle_of_an_answer() -> None:
    with serving(EchoHandler()) as server:
        for _ in range(20):
            with Client(server, buffer=4096) as client:
                client.frames(b"e" * 5_000_000)
                client.exactly(10_000)
                client.reset()
        wait_for_connections(server, 0)
        assert still_serves(server)


def test_a_thousand_connections_of_which_half_stall() -> None:
    with serving(EchoHandler(), socket_listen_backlog_size=1000) as server, ExitStack() as stack:
        clients = [stack.enter_context(Client(server)) for _ in range(1_000)]
        for i, client in enumerate(clients):
            client.sendall(sized(b"e%d" % i + bytes(300))[: 200 if i % 2 else None])
        for round_ in range(3):
            for i, client in enumerate(clients[::2]):
                if round_:
                    client.frames(b"e%d" % i + bytes(300))
            for i, client in enumerate(clients[::2]):
                assert client.answer() == b"e%d" % (i if round_ else 2 * i) + bytes(300)
        for i, client in enumerate(clients[1::2]):
            client.sendall(sized(b"e%d" % (2 * i + 1) + bytes(300))[200:])
            assert client.answer() == b"e%d" % (2 * i + 1) + bytes(300)
        assert connections(server) == 1_000


def test_processors_share_the_connections_of_a_listener() -> None:
    with serving(EchoHandler(), num_network_threads=3) as server, ExitStack() as stack:
        for client in [stack.enter_context(Client(server)) for _ in range(9)]:
            client.frames(b"e")
            assert client.answer() == b"e"
        assert [row.connections for row in server.counters()[0]] == [3, 3, 3]


def test_a_processor_that_waits_is_idle() -> None:
    with serving(EchoHandler()) as server:
        wait_until(lambda: server.counters()[0][0].idle_ns > 0, what="the time of its first wait counts")


def test_the_longest_time_that_a_setting_can_have_is_no_limit_of_idle_connections() -> None:
    with serving(EchoHandler(), connections_max_idle_ms=2**63 - 1) as server, Client(server) as client:
        client.frames(b"e")
        assert client.answer() == b"e"


def test_idle_connections_are_closed() -> None:
    # Longer than a busy machine stops this test between two requests.
    with serving(EchoHandler(), connections_max_idle_ms=1_500) as server, Client(server) as idle:
        with Client(server) as active:
            while server.counters()[0][0].idle_closed == 0:
                active.frames(b"e")
                assert active.answer() == b"e"
            assert idle.is_closed()
            active.frames(b"e")
            assert active.answer() == b"e"
        assert server.counters()[0][0].idle_closed == 1


def test_connections_over_the_limit_wait_until_one_closes() -> None:
    with serving(EchoHandler(), max_connections=2) as server:
        first, second, third = Client(server), Client(server), Client(server)
        third.frames(b"e3")
        second.frames(b"e2")
        assert second.answer() == b"e2"
        assert connections(server) == 2
        first.close()
        assert third.answer() == b"e3"
        second.close()
        third.close()


def test_connections_of_one_address_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), serving(EchoHandler(), max_connections_per_ip=2) as server:
        with Client(server) as first, Client(server) as second:
            for client in (first, second):
                client.frames(b"e")
                assert client.answer() == b"e"
            with Client(server) as third:
                assert third.is_closed()
        wait_for_connections(server, 0)
        assert still_serves(server)
        assert server.counters()[1][0].rejected == 1
        wait_until(lambda: caplog.messages, what="the line")
    assert "rejected a connection from 127.0.0.1: it has the maximum of 2 connections" in caplog.text


def test_an_address_may_have_a_limit_of_its_own() -> None:
    overrides = {"localhost": 0, "192.0.2.7": 5}
    with (
        serving(EchoHandler(), max_connections_per_ip_overrides=overrides) as server,
        Client(server) as client,
    ):
        assert client.is_closed()


def test_limits_of_connections_change() -> None:
    with serving(EchoHandler(), max_connections=1) as server:
        first, second = Client(server), Client(server)
        first.frames(b"e")
        assert first.answer() == b"e"
        second.frames(b"e2")
        # The second one is accepted when the limit rises, without another connection.
        server.reconfigure(SocketServerSettings(max_connections=2))
        assert second.answer() == b"e2"
        server.reconfigure(SocketServerSettings(max_connections_per_ip=2))
        with Client(server) as third:
            assert third.is_closed()
        server.reconfigure(SocketServerSettings(max_connections_per_ip_overrides={"127.0.0.1": 3}))
        with Client(server) as third:
            third.frames(b"e3")
            assert third.answer() == b"e3"
            with Client(server) as fourth:
                assert fourth.is_closed()
        first.frames(b"e")
        assert first.answer() == b"e"
        first.close()
        second.close()


def test_the_number_of_processors_changes() -> None:
    def served(server: SocketServer, clients: list[Client]) -> list[int]:
        for client in clients:
            client.frames(b"e")
            assert client.answer() == b"e"
        return [one.connections for one in server.counters()[0]]

    with serving(EchoHandler()) as server:
        clients = [Client(server)]
        assert served(server, clients) == [1]
        server.reconfigure(SocketServerSettings(num_network_threads=3))
        for _ in range(3):
            clients.append(Client(server))
            served(server, clients)
        assert sorted(served(server, clients)) == [1, 1, 2]
        # Connections of a processor that is one too many go on.
        server.reconfigure(SocketServerSettings(num_network_threads=1))
        for _ in range(2):
            clients.append(Client(server))
            served(server, clients)
        counts = served(server, clients)
        assert (len(counts), sum(counts), counts[1:]) == (3, 6, [1, 1])
        with pytest.raises(ConfigError, match="257 processors"):
            server.reconfigure(SocketServerSettings(num_network_threads=257))
        assert served(server, clients) == counts
        for client in clients:
            client.close()
        wait_for_connections(server, 0)


@pytest.fixture
def ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")


@pytest.mark.usefixtures("ipv6")
def test_ipv6() -> None:
    with serving(None, Listener("SIX", "::1", 0)) as server, Client(server, host="::1") as client:
        client.frames(b"a")
        request = server.requests.take(10)
        assert request is not None
        assert (request.context.listener, request.context.client_host) == ("SIX", "::1")
        request.close()


@pytest.mark.usefixtures("ipv6")
def test_a_listener_without_a_host_has_both_versions_of_ip() -> None:
    with serving(None, Listener("ALL", "", 0)) as server:
        for host in ("127.0.0.1", "::1"):
            with Client(server, host=host) as client:
                client.frames(b"a")
                request = server.requests.take(10)
                assert request is not None
                assert request.context.client_host == host
                request.close()


def test_each_listener_has_its_name_and_port() -> None:
    listeners = [Listener("ONE", "127.0.0.1", 0), Listener("TWO", "127.0.0.1", 0)]
    with serving(None, *listeners) as server:
        for name, port in server.ports.items():
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(sized(b"a"))
                request = server.requests.take(10)
                assert request is not None
                assert request.context.listener == name
                request.close()


def test_a_port_that_is_taken_is_an_error_and_leaves_nothing() -> None:
    with serving() as server, pytest.raises(OSError, match="in use"):
        SocketServer([LOCAL, Listener("TAKEN", "127.0.0.1", server.ports["PLAINTEXT"])])


def test_the_server_goes_on_when_no_descriptor_was_free() -> None:
    """The acceptor pauses: it takes no processor time, and it accepts again when descriptors are free."""
    script = """
        import os, resource
        from tests.kafka.waiting import wait_until
        from tests.unit.server.serving import Client, EchoHandler, serving, still_serves

        with serving(EchoHandler()) as server:
            resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
            client = Client(server)
            client.frames(b"e1")
            assert client.answer() == b"e1"
            # Answered, so it was accepted: the acceptor is another thread than the one that answers.
            waiting = Client(server)
            waiting.frames(b"e2")
            assert waiting.answer() == b"e2"
            fillers = []
            while True:
                try:
                    fillers.append(os.dup(0))
                except OSError:
                    break
            # The one descriptor that is free becomes a client's own, so the server has none for it.
            waiting.frames(b"e3")
            assert waiting.answer() == b"e3"
            os.close(fillers.pop())
            late = Client(server)
            late.frames(b"e4")
            wait_until(lambda: server.counters()[1][0].accept_errors >= 2, what="accept fails")
            before = server.counters()[1][0].accept_errors
            for _ in range(200):
                client.frames(b"e again")
                assert client.answer() == b"e again"
            assert server.counters()[1][0].accept_errors < before + 100, "the acceptor tries without a pause"
            client.frames(b"e5")
            assert client.answer() == b"e5"
            for filler in fillers:
                os.close(filler)
            assert late.answer() == b"e4"
            assert still_serves(server)
            for connection in (client, waiting, late):
                connection.close()
        print("served")
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.stdout == "served\n", result.stderr
