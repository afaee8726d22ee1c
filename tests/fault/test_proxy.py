"""Faulty connections through a proxy to a healthy broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ctrlchan import Broker, Endpoint, SecurityProtocol
from ctrlchan.channel import ControllerChannelManager, OutcomeKind
from ctrlchan.security.failure import Failure
from tests.fault.channels import config, eventually, run_in_fork_server
from tests.fault.peer import Peer, framed, response_body
from tests.fault.proxy import FINE, Harm, Plan, Proxy
from tests.fault.requests import leader_and_isr, number_of, update

RESPONSE_BYTES = len(framed(bytes(4) + b"\0" + response_body(6, 8)))


def in_order(peer: Peer) -> list[int]:
    """Return the numbers received, without immediate repetitions."""
    numbers = [number_of(exchange.body) for exchange in list(peer.received)]
    return [number for at, number in enumerate(numbers) if at == 0 or numbers[at - 1] != number]


@contextmanager
def through(plan: Plan, **settings: Any) -> Iterator[tuple[Peer, Proxy, ControllerChannelManager]]:
    """A broker, a proxy in front of it, and a channel to the proxy."""
    with (
        Peer() as peer,
        Proxy(peer.port, plan) as proxy,
        ControllerChannelManager(config(**settings), 7) as channel,
    ):
        channel.add_broker(proxy.broker())
        yield peer, proxy, channel


def frame_size() -> int:
    with through(lambda _: (FINE, FINE)) as (_, _, channel):
        return channel.wait([channel.send_request(1, update(0))], 10)[0].bytes


@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_cut_at_every_byte_of_request_and_response(reset: bool) -> None:
    size = frame_size()

    def plan(number: int) -> tuple[Harm, Harm]:
        if number < size:
            return Harm(cut_at=number, reset=reset), FINE
        if number < size + RESPONSE_BYTES:
            return FINE, Harm(cut_at=number - size, reset=reset)
        return FINE, FINE

    with through(plan, retry_backoff=0) as (peer, proxy, channel):
        sent = [channel.send_request(1, update(number)) for number in range(3)]
        outcomes = channel.wait(sent, 30)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
        assert [outcome.attempts for outcome in outcomes] == [size + RESPONSE_BYTES + 1, 1, 1]
        assert proxy.connections == size + RESPONSE_BYTES + 1
        # A request arrives twice only if its response was lost; a partly received request does not count.
        # (A response cut before its first byte may be cut before its request has passed.)
        assert RESPONSE_BYTES + 2 <= len(peer.received) <= RESPONSE_BYTES + 3
        assert in_order(peer) == [0, 1, 2]


def test_corrupted_at_every_byte_of_the_response() -> None:
    """A changed byte ends the connection, or the request with an error; the order is kept."""
    harms = [(FINE, Harm(corrupt_at=at)) for at in range(RESPONSE_BYTES)]

    def plan(number: int) -> tuple[Harm, Harm]:
        return harms[number // 2] if number % 2 == 0 else (FINE, FINE)

    with through(plan, request_timeout=1.0, retry_backoff=0) as (peer, proxy, channel):
        for number in range(RESPONSE_BYTES):
            [outcome] = channel.wait([channel.send_request(1, update(number))], 10)
            error_code_at = RESPONSE_BYTES - 3 <= number < RESPONSE_BYTES - 1
            assert outcome.attempts == (1 if error_code_at else 2), number
            assert (outcome.kind is OutcomeKind.ACKNOWLEDGED) is not error_code_at, number
            if error_code_at:
                assert channel.needs_resync(1)
                # The next connection of the plan, without a fault, is not needed.
                proxy.drop_connections()
                eventually(lambda: channel.describe()["brokers"][1]["state"] == "disconnected")
                channel.wait([channel.send_request(1, update(number))], 10)
            proxy.drop_connections()
            eventually(lambda: channel.describe()["brokers"][1]["state"] == "disconnected")
        assert in_order(peer) == list(range(RESPONSE_BYTES))


def test_halved_and_delayed_writes_arrive_at_the_first_attempt() -> None:
    harm = Harm(halve=True, delay=0.005)
    with through(lambda _: (harm, harm)) as (peer, _, channel):
        requests = [
            leader_and_isr(0),
            update(1, size=20_000),
            update(2),
            update(3, size=1_000_000),
            leader_and_isr(4),
        ]
        outcomes = channel.wait([channel.send_request(1, request) for request in requests], 30)
        assert [outcome.attempts for outcome in outcomes] == [1] * 5
        assert [number_of(exchange.body) for exchange in peer.received] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("way", ["requests", "responses"])
def test_a_half_open_connection_is_closed(way: str) -> None:
    """The first request passes; then nothing passes in one direction, and the connection stays open."""
    size = frame_size()

    def plan(number: int) -> tuple[Harm, Harm]:
        if number:
            return FINE, FINE
        return (Harm(stall_at=size), FINE) if way == "requests" else (FINE, Harm(stall_at=RESPONSE_BYTES))

    with through(plan, request_timeout=1.0) as (peer, proxy, channel):
        channel.wait([channel.send_request(1, update(0))], 10)
        sent = [channel.send_request(1, update(number)) for number in (1, 2)]
        outcomes = channel.wait(sent, 10)
        assert [outcome.attempts for outcome in outcomes] == [2, 1]
        assert channel.describe()["brokers"][1]["last_error"] == Failure.REQUEST_TIMEOUT.text
        assert [number_of(exchange.body) for exchange in peer.received] == (
            [0, 1, 2] if way == "requests" else [0, 1, 1, 2]
        )
        assert proxy.connections == 2


@pytest.mark.parametrize("senders", [1, "per-broker"])
def test_a_kilobyte_per_second_delays_nobody_else(senders: str | int) -> None:
    slow_link = [Harm(rate=1024.0)]
    with (
        Peer(1, 1001) as slow,
        Peer(2, 1002) as fast,
        Proxy(slow.port, lambda _: (slow_link[-1], FINE), receive_buffer=4096) as proxy,
        ControllerChannelManager(config(senders=senders, request_timeout=600), 7) as channel,
    ):
        channel.startup([proxy.broker(), fast.broker])
        late = [channel.send_request(1, update(number, size=10_000_000)) for number in range(3)]
        eventually(lambda: proxy.open_connections == 1)
        for number in range(200):
            channel.wait([channel.send_request(2, update(number, size=50_000))], 60)
        assert not any(one.done for one in late)
        assert in_order(fast) == list(range(200))
        # The next connection works.
        slow_link.append(FINE)
        proxy.drop_connections()
        outcomes = channel.wait(late, 30)
        assert [outcome.attempts for outcome in outcomes] == [2, 1, 1]
        assert in_order(slow) == [0, 1, 2]


def test_a_host_name_that_gets_another_address_is_resolved_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each connection resolves the name again; requests are sent to its present address."""
    names = tmp_path / "names.json"
    names.write_text(json.dumps({"broker.test": "127.0.0.2"}))
    resolver = f"""
import socket

def getaddrinfo(host, port, *_, **__):
    import json
    with open({str(names)!r}) as file:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (json.load(file)[host], port))]

socket.getaddrinfo = getaddrinfo
"""
    run_in_fork_server(monkeypatch, resolver)
    with (
        Peer(1) as before,
        Peer(2) as after,
        Proxy(before.port, host="127.0.0.2") as old,
        Proxy(after.port, host="127.0.0.3", port=old.port) as new,
        ControllerChannelManager(config(), 7) as channel,
    ):
        endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "broker.test", old.port)
        channel.add_broker(Broker(1, 1, (endpoint,)))
        channel.wait([channel.send_request(1, update(0))], 10)
        # An existing connection stays; the next one is made to the new address.
        names.write_text(json.dumps({"broker.test": "127.0.0.3"}))
        channel.wait([channel.send_request(1, update(1))], 10)
        old.drop_connections()
        eventually(lambda: channel.describe()["brokers"][1]["state"] == "disconnected")
        channel.wait([channel.send_request(1, update(2))], 10)
        assert in_order(before) == [0, 1]
        assert in_order(after) == [2]
        assert (old.connections, new.connections) == (1, 1)
