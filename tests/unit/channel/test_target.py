"""Which endpoint of a broker the channel connects to."""

from __future__ import annotations

from typing import Any

import pytest

from ctrlchan import Broker, ChannelConfig, Endpoint, SecurityProtocol
from ctrlchan._codec import Brokers, StringColumn
from ctrlchan.channel.target import Target, targets_of
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
    assert targets_of(given, ChannelConfig(**settings)) == ([Target(7, 99, "host", port)], {})


def test_without_a_listener_of_the_protocols_name_the_first_with_the_protocol_is_used() -> None:
    broker = Broker(1, 5, (endpoint("CLIENT", 1, SecurityProtocol.SSL), endpoint("A", 2), endpoint("B", 3)))
    [target], _ = targets_of([broker], ChannelConfig())
    assert target.port == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listener_name": "NOWHERE"}, "listener NOWHERE"),
        ({"inter_broker_listener": "CLIENT"}, "listener CLIENT"),
    ],
)
def test_a_broker_without_such_an_endpoint_is_left_out(settings: dict[str, Any], message: str) -> None:
    other = Broker(8, 1, (*BROKER.endpoints, endpoint("NOWHERE", 5), endpoint("CLIENT", 6)))
    targets, left_out = targets_of([BROKER, other], ChannelConfig(**settings))
    assert [target.broker_id for target in targets] == [8]
    assert left_out == {
        7: f"broker 7 has no endpoint for {message} (it has: CLIENT, INSIDE, PLAINTEXT, CONTROL)"
    }


def test_a_broker_without_endpoints_is_left_out() -> None:
    targets, left_out = targets_of([Broker(3)], ChannelConfig())
    assert not targets
    assert "(it has: none)" in left_out[3]


@pytest.mark.parametrize(
    "host", ["", "a\0b", "\ud800", "a b", "a\n", "\x1b[31m", "\x7f", "host\u2028", "\udcff.example"]
)
@pytest.mark.parametrize("columns", [False, True])
def test_a_broker_with_a_bad_host_is_left_out(host: str, columns: bool) -> None:
    broker = Broker(7, 99, (endpoint("PLAINTEXT", 1, host=host),))
    if columns and not host.isascii():
        host = "utf-8"
    given = brokers_from([broker]) if columns and host != "utf-8" else [broker]
    assert targets_of(given, ChannelConfig())[1][7].startswith("broker 7: host: ")


def test_a_broker_with_a_host_in_columns_that_is_not_utf8_is_left_out() -> None:
    whole = brokers_from([Broker(7, 99, (endpoint("PLAINTEXT", 1, host="host"),))])
    brokers = Brokers(
        whole.ids,
        whole.epochs,
        whole.racks,
        whole.endpoint_starts,
        whole.endpoint_lengths,
        whole.ports,
        StringColumn.from_strings([b"\xff\xfe"]),
        whole.listeners,
        whole.security_protocols,
    )
    assert targets_of(brokers, ChannelConfig())[1][7].startswith("broker 7: host: ")


@pytest.mark.parametrize("epoch", [2**63, -(2**63) - 1])
def test_a_broker_with_an_epoch_beyond_int64_is_left_out(epoch: int) -> None:
    _, left_out = targets_of([Broker(7, epoch, (endpoint("PLAINTEXT", 1),))], ChannelConfig())
    assert left_out[7].startswith("broker 7: epoch: ")


@pytest.mark.parametrize(("rack", "shown"), [(None, "null"), ("r1", "r1")])
@pytest.mark.parametrize("columns", [False, True])
def test_a_target_is_shown_as_kafkas_node(rack: str | None, shown: str, columns: bool) -> None:
    broker = Broker(7, 99, (endpoint("PLAINTEXT", 1),), rack=rack)
    [target], _ = targets_of(brokers_from([broker]) if columns else [broker], ChannelConfig())
    assert str(target) == f"host:1 (id: 7 rack: {shown})"


def test_the_rack_makes_no_new_generation() -> None:
    assert Target(7, 99, "host", 1, "a") == Target(7, 99, "host", 1)
