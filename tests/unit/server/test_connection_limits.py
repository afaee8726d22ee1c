"""What acceptors and processors do about limits of connections: wait, hold, close."""

from __future__ import annotations

import logging

import pytest

from ctrlchan.server._connection_quotas import ConnectionQuotas
from ctrlchan.server.socket_server import (
    AcceptorCounters,
    Listener,
    ListenerLimits,
    SocketServer,
    SocketServerSettings,
    packed_rates,
)
from tests.kafka.waiting import wait_until
from tests.unit.server._echo import EchoHandler
from tests.unit.server.connecting import UNLIMITED, packed
from tests.unit.server.security.simulated_server import SimulatedClient, SimulatedServer
from tests.unit.server.serving import Client

LOCAL = packed("127.0.0.1")
BROKERS = Listener("BROKERS", "127.0.0.1", 0)
CLIENTS = Listener("CLIENTS", "127.0.0.1", 0)


def acceptor(server: SimulatedServer) -> AcceptorCounters:
    return AcceptorCounters(*server.threads.counters()[1][0])


def is_served(client: SimulatedClient) -> bool:
    """Return whether a client that has sent one frame has its answer."""
    return client.answers() == [b"e"]


def test_a_connection_above_the_rate_waits_and_then_those_behind_it() -> None:
    server = SimulatedServer(None)
    server.threads.limit_connections(UNLIMITED, 1, [(UNLIMITED, UNLIMITED)])
    # Eleven samples of a second are ten whole ones: ten connections are 1 in a second.
    clients = [SimulatedClient(server) for _ in range(12)]
    for client in clients:
        client.send(b"e")
    assert [is_served(client) for client in clients] == [True] * 10 + [False] * 2
    server.run(0.999)
    assert not is_served(clients[10])
    assert acceptor(server).blocked_ns == 999_000_000
    server.run(0.001)
    assert is_served(clients[10])
    # It is 12 in 11 seconds now: too many for one second more, and 2 ms.
    assert not is_served(clients[11])
    server.skip(0.999)
    assert not is_served(clients[11])
    server.skip(0.001)
    assert is_served(clients[11])
    assert acceptor(server).blocked_ns == 2_000_000_000
    server.threads.stop(0)


def test_a_raised_rate_does_not_shorten_a_wait() -> None:
    server = SimulatedServer(None)
    server.threads.limit_connections(UNLIMITED, 0, [(UNLIMITED, UNLIMITED)])
    client = SimulatedClient(server)
    client.send(b"e")
    server.threads.limit_connections(UNLIMITED, UNLIMITED, [(UNLIMITED, UNLIMITED)])
    server.skip(0.999)
    assert not is_served(client)
    server.skip(0.001)
    assert is_served(client)
    server.threads.stop(0)


def test_a_connection_waits_for_its_time_and_for_room() -> None:
    server = SimulatedServer(None)
    server.threads.limit_connections(1, UNLIMITED, [(UNLIMITED, 0)])
    first, second = SimulatedClient(server), SimulatedClient(server)
    second.send(b"e")
    server.skip(1)
    server.skip(1)
    server.skip(5)
    assert not is_served(second)
    server.system.shut(first.number)
    server.run(0.001)
    assert is_served(second)
    assert acceptor(server).blocked_ns == 7_001_000_000
    server.threads.stop(0)


def test_a_connection_of_an_address_above_its_rate_is_closed_after_the_throttle_time() -> None:
    server = SimulatedServer(None)
    server.threads.quotas.limit_ip_rates(1, [])
    clients = [SimulatedClient(server) for _ in range(11)]
    clients[10].send(b"e")
    assert server.counters.opened == 10
    server.skip(1)
    assert not clients[10].is_closed
    server.skip(0.001)
    assert clients[10].is_closed
    assert not clients[10].answers()
    assert acceptor(server).ip_throttled == 1
    # The acceptor has not waited.
    assert acceptor(server).blocked_ns == 0
    assert server.threads.quotas.open_of_ip(LOCAL) == 10
    server.threads.stop(0)


def test_few_connections_are_held_for_their_address() -> None:
    server = SimulatedServer(None)
    server.threads.quotas.limit_ip_rates(0, [])
    clients = [SimulatedClient(server) for _ in range(1_003)]
    assert [client.is_closed for client in clients] == [False] * 1_000 + [True] * 3
    server.skip(1.001)
    assert all(client.is_closed for client in clients)
    assert acceptor(server).ip_throttled == 1_003
    server.threads.stop(0)


def test_the_end_closes_what_waits() -> None:
    server = SimulatedServer(None)
    server.threads.quotas.limit_ip_rates(0, [(LOCAL, 0)])
    held = SimulatedClient(server)
    server.threads.limit_connections(UNLIMITED, 0, [(UNLIMITED, UNLIMITED)])
    waiting = SimulatedClient(server)
    assert not held.is_closed
    assert not waiting.is_closed
    server.threads.stop(0)
    assert held.is_closed
    assert waiting.is_closed
    assert acceptor(server).ip_throttled == 1


def test_connections_that_are_too_many_are_closed_one_in_a_turn(caplog: pytest.LogCaptureFixture) -> None:
    server = SimulatedServer(None)
    clients = [SimulatedClient(server) for _ in range(5)]
    # The least recently used ones are the second and the third.
    for number in (3, 0, 4):
        server.skip(0.01)
        clients[number].send(b"e")
    server.threads.limit_connections(3, UNLIMITED, [(UNLIMITED, UNLIMITED)])
    server.threads.turn(0)
    assert [client.is_closed for client in clients] == [False, True, False, False, False]
    server.run()
    assert [client.is_closed for client in clients] == [False, True, True, False, False]
    assert server.counters.excess_closed == 2
    server.threads.stop(0)


def test_brokers_take_the_place_of_clients(caplog: pytest.LogCaptureFixture) -> None:
    """The limit of the server does not hold for the listener of brokers, whose connections stay."""
    quotas = ConnectionQuotas(2, protected=0)
    settings = SocketServerSettings(
        max_connections=3, limits_of_listeners={"brokers": ListenerLimits(max_connections=4)}
    )
    server = SocketServer([BROKERS, CLIENTS], settings, EchoHandler(), quotas=quotas)

    def connect(listener: Listener) -> Client:
        client = Client(server, port=server.ports[listener.name])
        client.frames(b"e")
        assert client.answer() == b"e"
        return client

    server.start()
    try:
        with caplog.at_level(logging.WARNING):
            old, new = connect(CLIENTS), connect(CLIENTS)
            old.frames(b"e")
            assert old.answer() == b"e"
            brokers = [connect(BROKERS) for _ in range(4)]
            assert new.is_closed()
            assert old.is_closed()
            wait_until(lambda: "its least recently used one" in caplog.text, what="the line")
        assert [one.excess_closed for one in server.counters()[0]] == [0, 2]
        assert "on listener CLIENTS" in caplog.text
        for broker in brokers:
            broker.frames(b"e")
            assert broker.answer() == b"e"
        # They have a limit of their own.
        waiting = Client(server, port=server.ports["BROKERS"])
        waiting.frames(b"e")
        brokers.pop().close()
        assert waiting.answer() == b"e"
        for client in (old, new, waiting, *brokers):
            client.close()
    finally:
        server.stop()


def test_rates_of_hosts(caplog: pytest.LogCaptureFixture) -> None:
    others, rows = packed_rates({None: 7, "127.0.0.1": 5, "::1": 6, "no.such.host.invalid": 1})
    assert (others, sorted(rows)) == (7, sorted([(LOCAL, 5), (packed("::1"), 6)]))
    assert "the connection rate of no.such.host.invalid is not limited" in caplog.text
    assert packed_rates({}) == (UNLIMITED, [])
