"""A channel that asks each broker for its versions."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest

from ctrlchan import OutcomeKind
from tests.fault.channels import MODES, channel_to, eventually
from tests.fault.peer import Exchange, hang_up
from tests.fault.requests import number_of, update
from tests.fault.secure_peer import SecurePeer

VERSIONS = {"LeaderAndIsr": (0, 7), "StopReplica": (0, 4), "UpdateMetadata": (0, 8)}


@pytest.fixture
def peer() -> Iterator[SecurePeer]:
    with SecurePeer(asked=True) as made:
        assert isinstance(made, SecurePeer)
        yield made


@pytest.mark.parametrize("senders", MODES)
def test_brokers_are_asked_before_there_is_a_request(peer: SecurePeer, senders: str | int) -> None:
    with channel_to([peer], negotiate=True, senders=senders) as channel:
        eventually(lambda: channel.describe()["brokers"][1]["state"] == "connected")
        assert channel.describe()["brokers"][1]["versions"] == VERSIONS
        sent = [channel.send_request(1, update(number)) for number in range(200)]
        assert {outcome.attempts for outcome in channel.wait(sent, 10)} == {1}
    assert peer.questions == [(18, 3)]
    # ApiVersions had 0.
    assert peer.received[0].correlation_id == 1


def test_a_channel_that_does_not_negotiate_has_no_versions() -> None:
    with SecurePeer() as peer, channel_to([peer]) as channel:
        channel.wait([channel.send_request(1, update())], 10)
        assert channel.describe()["brokers"][1]["versions"] is None


def test_requests_wait_until_the_broker_has_answered(peer: SecurePeer) -> None:
    peer.stop_listening()
    with channel_to([peer], negotiate=True) as channel:
        sent = [channel.send_request(1, update(number)) for number in range(100)]
        eventually(lambda: channel.describe()["brokers"][1]["attempts"] >= 3)
        described = channel.describe()["brokers"][1]
        assert (described["in_flight"], described["state"]) == (0, "backing off")
        assert "connecting failed" in described["last_error"]
        peer.listen()
        channel.wait(sent, 10)
        assert channel.describe()["brokers"][1]["attempts"] == 0
    assert [number_of(exchange.body) for exchange in peer.received] == list(range(100))


def test_an_idle_connection_that_is_lost_is_made_again(peer: SecurePeer) -> None:
    with channel_to([peer], negotiate=True) as channel:

        def connected(times: int) -> bool:
            return peer.connections == times and channel.describe()["brokers"][1]["state"] == "connected"

        for times in range(1, 4):
            eventually(partial(connected, times))
            peer.drop_connections()


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_broker_that_comes_back_with_other_versions_gets_all_requests_again(
    peer: SecurePeer, after: int
) -> None:
    """In order, nothing lost; what was in flight may come twice."""

    def upgraded(exchange: Exchange) -> None:
        peer.versions[5] = (0, 3)
        hang_up(exchange)

    peer.script.extend([peer.default] * after)
    peer.script.append(upgraded)
    with channel_to([peer], negotiate=True, retry_backoff=0) as channel:
        sent = [channel.send_request(1, update(number)) for number in range(100)]
        outcomes = channel.wait(sent, 10)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
        assert channel.describe()["brokers"][1]["versions"]["StopReplica"] == (0, 3)
    numbers = [number_of(exchange.body) for exchange in peer.received]
    assert numbers == [*range(after + 1), *range(after, 100)]


def test_requests_that_are_sent_while_versions_change_again_and_again(peer: SecurePeer) -> None:
    turns = iter(range(1000))

    def bounce(exchange: Exchange) -> None:
        turn = next(turns)
        if turn % 7 == 3:
            peer.versions[5] = (0, 3 + turn % 2)
            hang_up(exchange)
        else:
            exchange.send(exchange.response())

    peer.default = bounce
    with channel_to([peer], negotiate=True, retry_backoff=0) as channel:
        sent = [channel.send_request(1, update(number)) for number in range(300)]
        assert {outcome.kind for outcome in channel.wait(sent, 20)} == {OutcomeKind.ACKNOWLEDGED}
    numbers = [number_of(exchange.body) for exchange in peer.received]
    once = [number for at, number in enumerate(numbers) if at == 0 or numbers[at - 1] != number]
    assert once == list(range(300))


def test_a_new_sender_asks_again(peer: SecurePeer) -> None:
    with channel_to([peer], negotiate=True) as channel:

        def is_new(pid: int) -> bool:
            return bool(channel.describe()["brokers"][1]["sender_pid"] != pid)

        for number in range(3):
            [outcome] = channel.wait([channel.send_request(1, update(number))], 10)
            assert outcome.kind is OutcomeKind.ACKNOWLEDGED
            pid = channel.describe()["brokers"][1]["sender_pid"]
            os.kill(pid, signal.SIGKILL)
            eventually(partial(is_new, pid))
    assert [number_of(exchange.body) for exchange in peer.received] == [0, 1, 2]
