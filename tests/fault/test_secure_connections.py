"""TLS and SASL connections that are cut at every byte of the handshake, to a healthy broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import pytest
import trustme

from ctrlchan import Broker, Endpoint, SecurityProtocol
from ctrlchan.channel import ControllerChannelManager, OutcomeKind
from ctrlchan.security.settings import TlsSettings
from tests.fault.channels import config, eventually
from tests.fault.proxy import FINE, Harm, Plan, Proxy
from tests.fault.requests import leader_and_isr, number_of, update
from tests.fault.secure_peer import SecurePeer
from tests.unit.channel.test_security import Authority, sasl

PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(trustme.CA(), tmp_path_factory.mktemp("authority"))


def settings_of(protocol: str, authority: Authority) -> dict[str, Any]:
    settings: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        settings["tls"] = TlsSettings(ca_file=authority.ca_file, certificate_file=authority.client_file())
    if protocol.startswith("SASL"):
        settings["sasl"] = sasl("SCRAM-SHA-256")
    return settings


@contextmanager
def through(
    protocol: str, authority: Authority, plan: Plan, **more: Any
) -> Iterator[tuple[SecurePeer, Proxy, ControllerChannelManager]]:
    """A broker of this protocol, a proxy in front of it, and a channel to the proxy."""
    context = authority.server(client_auth=True) if protocol.endswith("SSL") else None
    with ExitStack() as stack:
        peer = SecurePeer(protocol=protocol, context=context)
        stack.callback(peer.close)
        proxy = stack.enter_context(Proxy(peer.port, plan))
        settings = settings_of(protocol, authority) | {"retry_backoff": 0} | more
        channel = stack.enter_context(ControllerChannelManager(config(**settings), 7))
        endpoint = Endpoint(protocol, SecurityProtocol[protocol], "127.0.0.1", proxy.port)
        channel.add_broker(Broker(1, 1001, (endpoint,)))
        yield peer, proxy, channel


def cut_requests(at: int, reset: bool) -> tuple[Harm, Harm]:
    return Harm(cut_at=at, reset=reset), FINE


def cut_responses(at: int, reset: bool) -> tuple[Harm, Harm]:
    return FINE, Harm(cut_at=at, reset=reset)


# ``step``: bytes between two cuts. Under TLS the exchange of passwords is the same, in records.
@pytest.mark.parametrize("cut", [cut_requests, cut_responses])
@pytest.mark.parametrize(
    ("protocol", "step"),
    [("SSL", 7), ("SASL_PLAINTEXT", 1), ("SASL_SSL", 11), pytest.param("SSL", 1, marks=pytest.mark.long)],
)
def test_cut_everywhere_until_a_request_is_answered(
    protocol: str, step: int, cut: Callable[[int, bool], tuple[Harm, Harm]], authority: Authority
) -> None:
    """Each connection is cut later than the one before, until a request is answered."""

    def plan(number: int) -> tuple[Harm, Harm]:
        return cut(number * step, number % 2 == 1)

    with through(protocol, authority, plan) as (peer, proxy, channel):
        [outcome] = channel.wait([channel.send_request(1, update(0))], 200)
        assert outcome.kind is OutcomeKind.ACKNOWLEDGED
        assert outcome.attempts >= proxy.connections
        # A handshake of either kind has hundreds of bytes each way.
        assert proxy.connections * step > 250
        proxy.plan = lambda _: (FINE, FINE)
        proxy.drop_connections()
        sent = [channel.send_request(1, make(at)) for at, make in enumerate([leader_and_isr, update], 1)]
        assert {one.kind for one in channel.wait(sent, 20)} == {OutcomeKind.ACKNOWLEDGED}
        numbers = [number_of(exchange.body) for exchange in peer.received]
        # The request arrives more than once only while its responses are cut.
        assert sorted(set(numbers)) == [0, 1, 2]
        assert numbers == sorted(numbers)
        assert numbers.count(1) == numbers.count(2) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_stalled_in_the_middle_of_the_handshake(protocol: str, authority: Authority) -> None:
    places = count(20, 90)

    def plan(number: int) -> tuple[Harm, Harm]:
        harm = Harm(stall_at=next(places) if number < 6 else None)
        return (harm, FINE) if number % 2 else (FINE, harm)

    with through(protocol, authority, plan, socket_timeout=0.3, request_timeout=0.3) as (peer, _, channel):
        [outcome] = channel.wait([channel.send_request(1, update(0))], 60)
        assert outcome.kind is OutcomeKind.ACKNOWLEDGED
        assert outcome.attempts >= 5
        assert {number_of(exchange.body) for exchange in peer.received} == {0}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_halved_and_delayed_it_succeeds_at_once(protocol: str, authority: Authority) -> None:
    slow = Harm(halve=True, delay=0.002)
    with through(protocol, authority, lambda _: (slow, slow)) as (peer, _, channel):
        sent = [channel.send_request(1, update(number, size=50_000)) for number in range(3)]
        assert {outcome.attempts for outcome in channel.wait(sent, 30)} == {1}
        assert [number_of(exchange.body) for exchange in peer.received] == [0, 1, 2]


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_changed_byte_of_a_tls_record_is_never_accepted(protocol: str, authority: Authority) -> None:
    """A changed byte in either direction is never accepted as valid."""
    with through(protocol, authority, lambda _: (FINE, FINE)) as (peer, proxy, channel):
        channel.wait([channel.send_request(1, update(0))], 20)
        places = iter(range(0, 4000, 97))

        def plan(number: int) -> tuple[Harm, Harm]:
            at = next(places, None)
            harm = FINE if at is None else Harm(corrupt_at=at)
            return (harm, FINE) if number % 2 else (FINE, harm)

        proxy.plan = plan
        for number in range(1, 30):
            proxy.drop_connections()
            eventually(lambda: proxy.open_connections == 0)
            [outcome] = channel.wait([channel.send_request(1, update(number))], 30)
            assert outcome.kind is OutcomeKind.ACKNOWLEDGED
        assert next(places, None) is None
        numbers = [number_of(exchange.body) for exchange in peer.received]
        assert sorted(set(numbers)) == list(range(30))
        assert numbers == sorted(numbers)
