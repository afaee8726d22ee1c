"""Which endpoint of a broker the controller talks to."""

from __future__ import annotations

from typing import Any

import pytest

from ctrlchan import Broker, ChannelConfig, Endpoint, SecurityProtocol
from ctrlchan.channel.target import Target, targets_of
from ctrlchan.errors import ChannelError
from ctrlchan.state.brokers import brokers_from


def endpoint(
    listener: str, port: int, protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT, host: str = "host"
) -> Endpoint:
    return Endpoint(listener, protocol, host, port)


BROKER = Broker(
    7,
    99,
    (
        endpoint("CLIENT", 1, SecurityProtocol.SSL),
        endpoint("INSIDE", 2),
        endpoint("PLAINTEXT", 3),
        endpoint("CONTROL", 4),
    ),
    rack="r1",
)


@pytest.mark.parametrize(
    ("settings", "port"),
    [
        ({}, 3),
        ({"inter_broker_listener": "INSIDE"}, 2),
        ({"listener_name": "CONTROL"}, 4),
        ({"listener_name": "CONTROL", "inter_broker_listener": "INSIDE"}, 4),
    ],
)
@pytest.mark.parametrize("columns", [False, True])
def test_the_control_plane_listener_comes_first_then_the_inter_broker_listener(
    settings: dict[str, Any], port: int, columns: bool
) -> None:
    given = brokers_from([BROKER]) if columns else [BROKER]
    assert targets_of(given, ChannelConfig(**settings)) == [Target(7, 99, "host", port)]


def test_without_a_listener_of_the_protocols_name_the_first_that_speaks_it_is_taken() -> None:
    broker = Broker(1, 5, (endpoint("CLIENT", 1, SecurityProtocol.SSL), endpoint("A", 2), endpoint("B", 3)))
    assert targets_of([broker], ChannelConfig())[0].port == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listener_name": "NOWHERE"}, "listener NOWHERE"),
        ({"inter_broker_listener": "CLIENT"}, "listener CLIENT"),
    ],
)
def test_a_broker_without_such_an_endpoint_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ChannelError, match=f"broker 7 has no endpoint for {message} .it has: CLIENT, INSIDE"):
        targets_of([BROKER], ChannelConfig(**settings))


def test_a_broker_without_endpoints_is_named() -> None:
    with pytest.raises(ChannelError, match=r"broker 3 .* \(it has: none\)"):
        targets_of([Broker(3)], ChannelConfig())
