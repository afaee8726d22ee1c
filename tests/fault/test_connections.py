"""Faulty brokers and connections: every request arrives in order, or its outcome has the reason."""

from __future__ import annotations

import logging
import socket
import struct

import pytest

from ctrlchan.channel import OutcomeKind
from ctrlchan.security.failure import Failure
from tests.fault.channels import channel_to, eventually, peers
from tests.fault.peer import (
    Behaviour,
    Exchange,
    Peer,
    answer,
    cut_after,
    framed,
    hang_up,
    raw,
    response_body,
    silence,
    succeed,
)
from tests.fault.requests import leader_and_isr, number_of, update

RESPONSE_BYTES = len(framed(bytes(4) + b"\0" + response_body(6, 8)))


def in_order(peer: Peer) -> list[int]:
    """Return the numbers received, without immediate repetitions."""
    numbers = [number_of(exchange.body) for exchange in peer.received]
    return [number for at, number in enumerate(numbers) if at == 0 or numbers[at - 1] != number]


def twice(exchange: Exchange) -> None:
    exchange.send(exchange.response() * 2)


BAD: dict[str, tuple[Behaviour, Failure]] = {
    "closes at once": (hang_up, Failure.CLOSED),
    "wrong correlation id": (
        raw(lambda exchange: framed(struct.pack(">i", exchange.correlation_id + 1) + b"\0\0\0\0")),
        Failure.CORRELATION,
    ),
    "http": (raw(lambda exchange: b"HTTP/1.1 400 Bad Request\r\n\r\n"), Failure.RESPONSE_SIZE),
    "negative size": (raw(lambda exchange: b"\xff" * 20), Failure.RESPONSE_SIZE),
    "size zero": (raw(lambda exchange: bytes(20)), Failure.RESPONSE_SIZE),
    "size over the limit": (raw(lambda exchange: b"\x7f" + b"\xff" * 20), Failure.RESPONSE_SIZE),
    "two responses": (twice, Failure.SURPLUS),
    "longer than its size": (raw(lambda exchange: exchange.response() + b"!"), Failure.SURPLUS),
    "garbage in the body": (
        raw(lambda exchange: framed(struct.pack(">i", exchange.correlation_id) + b"\xff" * 30)),
        Failure.GARBAGE,
    ),
    "no body": (raw(lambda exchange: framed(struct.pack(">i", exchange.correlation_id))), Failure.GARBAGE),
    "body too short": (
        raw(lambda exchange: framed(exchange.response()[4:-1])),
        Failure.GARBAGE,
    ),
    "body too long": (
        raw(lambda exchange: framed(exchange.response()[4:] + b"\0")),
        Failure.GARBAGE,
    ),
    "another api's response": (
        raw(
            lambda exchange: framed(
                struct.pack(">i", exchange.correlation_id) + b"\0" + response_body(4, 7, 0, [0, 0])
            )
        ),
        Failure.GARBAGE,
    ),
} | {f"cut after {count} bytes": (cut_after(count), Failure.CLOSED) for count in range(RESPONSE_BYTES)}


@pytest.mark.parametrize("how", BAD)
def test_a_bad_response_closes_the_connection_and_the_request_is_sent_again(how: str) -> None:
    behaviour, failure = BAD[how]
    with peers(1) as [peer], channel_to([peer], max_response_bytes=10_000) as channel:
        # The fault hits the second request, on a connection that worked before.
        peer.script.extend([succeed, behaviour, behaviour])
        sent = [channel.send_request(1, update(number)) for number in range(4)]
        outcomes = channel.wait(sent, 10)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
        assert [outcome.attempts for outcome in outcomes] == [1, 3, 1, 1]
        assert in_order(peer) == [0, 1, 2, 3]
        assert peer.connections == 3
        # Correlation ids start again with each connection.
        assert [exchange.correlation_id for exchange in peer.received] == [0, 1, 0, 0, 1, 2]
        assert channel.describe()["brokers"][1]["last_error"].startswith(failure.text)


def test_a_bad_response_to_leader_and_isr_never_lets_the_next_request_pass() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        garbage = BAD["garbage in the body"][0]
        peer.script.extend([garbage, answer(partition_errors=[0, 0]), succeed, garbage, answer()])
        sent = [
            channel.send_request(1, make(number))
            for number, make in enumerate([leader_and_isr, update, leader_and_isr])
        ]
        channel.wait(sent, 10)
        assert [number_of(exchange.body) for exchange in peer.received] == [0, 0, 1, 2, 2]


def test_a_request_is_cut_at_every_byte() -> None:
    with peers(1) as [peer], channel_to([peer], retry_backoff=0.001) as channel:
        size = channel.wait([channel.send_request(1, update(0))], 10)[0].bytes
        peer.drop_connections()
        eventually(lambda: channel.describe()["brokers"][1]["state"] == "disconnected")
        peer.stop_listening()
        with socket.create_server(("127.0.0.1", peer.port)) as server:
            sent = channel.send_request(1, update(1))
            for count in range(size):
                connection, _ = server.accept()
                with connection:
                    assert len(connection.recv(count, socket.MSG_WAITALL)) == count
        peer.listen()
        [outcome] = channel.wait([sent], 10)
        assert outcome.attempts > size
        assert in_order(peer) == [0, 1]


def test_a_refused_connection_is_tried_again_until_the_broker_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with peers(2) as brokers, channel_to(brokers) as channel:
        brokers[0].stop_listening()
        sent = [channel.send_request(1, update(number)) for number in range(3)]
        eventually(lambda: channel.describe()["brokers"][1]["attempts"] >= 5)
        described = channel.describe()["brokers"][1]
        assert described["state"] in ("backing off", "connecting")
        assert described["last_error"] == "connecting failed (Connection refused)"
        assert described["queue_size"] == 3
        channel.wait(channel.send_requests([2], update()), 60)
        brokers[0].listen()
        outcomes = channel.wait(sent, 10)
        assert outcomes[0].attempts >= 6
        assert [outcome.attempts for outcome in outcomes[1:]] == [1, 1]
        assert in_order(brokers[0]) == [0, 1, 2]
    # There is not a line for each attempt.
    lines = [record.getMessage() for record in caplog.records if "was unsuccessful" in record.message]
    assert 3 <= len(lines) < outcomes[0].attempts
    assert "attempt 4: connecting failed (Connection refused)." in lines[2]
    client = "[Controller id=0, targetBrokerId=1] Connection to node 1 (127.0.0.1:"
    assert sum(client in line and "could not be established" in line for line in caplog.messages) == len(
        lines
    )


def test_a_host_name_is_resolved_with_each_connection() -> None:
    from ctrlchan import Broker, Endpoint, SecurityProtocol
    from ctrlchan.channel import ControllerChannelManager
    from tests.fault.channels import config

    with Peer() as peer, ControllerChannelManager(config(), 7) as channel:
        endpoints = [
            Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, host, peer.port)
            for host in ("localhost", "no-such-host.invalid", "x" * 100)
        ]
        channel.startup([Broker(at, 1, (endpoint,)) for at, endpoint in enumerate(endpoints)])
        sent = channel.send_requests([0, 1, 2], update())
        # localhost may have addresses without a listener: they are tried in turn.
        assert channel.wait(sent[:1], 10)[0].kind is OutcomeKind.ACKNOWLEDGED
        for broker_id in (1, 2):
            eventually(lambda id=broker_id: channel.describe()["brokers"][id]["attempts"] >= 2, 30)  # type: ignore[misc]
            last_error = channel.describe()["brokers"][broker_id]["last_error"]
            assert last_error.startswith("the host name could not be resolved")


def test_a_broker_that_never_answers_is_given_up_after_the_request_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ctrlchan.channel")
    with peers(2) as brokers, channel_to(brokers, request_timeout=1.0) as channel:
        brokers[0].script.extend([silence, cut_after(0)])
        sent = channel.send_requests([1], update(1))
        channel.wait(channel.send_requests([2], update()), 60)
        [outcome] = channel.wait(sent, 60)
        assert outcome.completed_ns - outcome.enqueued_ns >= 1e9
        assert outcome.attempts == 3
        assert outcome.kind is OutcomeKind.ACKNOWLEDGED
    assert f"attempt 1: {Failure.REQUEST_TIMEOUT.text}" in caplog.text
    line = "[Controller id=0, targetBrokerId=1] Disconnecting from node 1 due to request timeout."
    assert line in caplog.text


def test_a_stalled_half_response_runs_into_the_request_timeout_too() -> None:
    with peers(1) as [peer], channel_to([peer], request_timeout=1.0) as channel:
        peer.script.append(raw(lambda exchange: exchange.response()[:7]))
        [outcome] = channel.wait([channel.send_request(1, update(1))], 10)
        assert outcome.attempts == 2
        assert channel.describe()["brokers"][1]["last_error"] == Failure.REQUEST_TIMEOUT.text


def test_a_connection_that_is_not_accepted_runs_into_the_setup_timeout() -> None:
    # A full backlog drops the SYN: connecting neither succeeds nor fails.
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        with Peer() as peer:
            real, peer.port = peer.port, listener.getsockname()[1]
            with channel_to(
                [peer], connection_setup_timeout=0.05, connection_setup_timeout_max=0.1
            ) as channel:
                channel.send_request(1, update())
                eventually(lambda: channel.describe()["brokers"][1]["attempts"] >= 3)
                assert channel.describe()["brokers"][1]["last_error"] == Failure.CONNECT_TIMEOUT.text
            peer.port = real
        for filler in fillers:
            filler.close()


def test_a_slow_reader_delays_nobody_else() -> None:
    with (
        Peer(1, 1001, receive_buffer=4096) as slow,
        Peer(2, 1002) as fast,
        channel_to([slow, fast], senders=1, request_timeout=600) as channel,
    ):
        slow.gate.clear()
        large = channel.send_request(1, update(1, size=20_000_000))
        eventually(slow.has_unread)
        for number in range(200):
            channel.wait([channel.send_request(2, update(number, size=50_000))], 60)
        assert not large.done
        slow.gate.set()
        assert channel.wait([large], 30)[0].attempts == 1
        assert in_order(slow) == [1]


def test_a_connection_lost_in_the_middle_of_a_large_request_begins_it_anew() -> None:
    with Peer(1, 1001, receive_buffer=4096) as peer, channel_to([peer]) as channel:
        peer.gate.clear()
        sent = channel.send_request(1, update(1, size=20_000_000))
        eventually(peer.has_unread)
        peer.drop_connections()
        peer.gate.set()
        [outcome] = channel.wait([sent], 30)
        assert outcome.attempts == 2
        assert in_order(peer) == [1]


def test_an_idle_connection_that_the_broker_closes_costs_nothing() -> None:
    # A request that waits for the back-off does not end within the deadline.
    with peers(1) as [peer], channel_to([peer], retry_backoff=600) as channel:
        for number in range(3):
            [outcome] = channel.wait([channel.send_request(1, update(number))], 60)
            assert outcome.attempts == 1
            peer.drop_connections()
            eventually(lambda: channel.describe()["brokers"][1]["state"] == "disconnected")
        assert peer.connections == 3
        assert in_order(peer) == [0, 1, 2]


def test_a_connection_lost_during_a_callback_does_not_send_again() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:

        def callback(_: object) -> None:
            peer.drop_connections()
            eventually(lambda: not peer._sockets)

        sent = [channel.send_request(1, leader_and_isr(0), callback), channel.send_request(1, update(1))]
        channel.wait(sent, 10)
        assert [number_of(exchange.body) for exchange in peer.received] == [0, 1]
