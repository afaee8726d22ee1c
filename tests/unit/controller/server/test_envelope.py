"""Envelope: requests that brokers forward, those of whom they are, and what is no Envelope."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError

from ctrlchan.authorizer.acls import Operation, ResourceType
from ctrlchan.authorizer.interface import Requester
from ctrlchan.channel import ChannelConfig
from ctrlchan.peers.envelope import _principal_data
from ctrlchan.peers.messages import decode_answer
from ctrlchan.server.request_context import Principal
from tests.unit.broker.authorizer.deciding import Deciding, deciding, errors_of, frame_of
from tests.unit.controller.server.local_server import LocalServer, local_server, plaintext
from tests.unit.controller.server.requests import Connection, connection
from tests.unit.server.contexts import context

ENVELOPE, CREATE_TOPICS, ELECT, UPDATE_FEATURES, METADATA = 58, 19, 43, 57, 3
ALICE = _principal_data(context(principal=Principal.user("alice")))
ADDRESS = bytes([10, 0, 0, 7])
INNER = frame_of(ELECT, 2)
#: Correlation id of the samples, and the end of a flexible response header.
HEADER = (77).to_bytes(4) + b"\0"
DENIED = KioError.cluster_authorization_failed


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """A controller with one listener for brokers, and one for others."""
    listeners = plaintext("BROKERS"), plaintext("CLIENTS")
    channel = ChannelConfig(inter_broker_listener="BROKERS")
    with local_server(*listeners, authorizer=Deciding(), channel=channel) as local:
        yield local


@pytest.fixture
def broker(server: LocalServer) -> Iterator[Connection]:
    with connection(server.address("BROKERS")) as one:
        yield one


def fields(data: bytes = INNER, principal: bytes | None = ALICE, address: bytes = ADDRESS) -> dict[str, Any]:
    return {"request_data": data, "request_principal": principal, "client_host_address": address}


def is_broker(requester: Requester, operation: Operation, kind: ResourceType, _name: str) -> bool:
    return requester.principal == "User:ANONYMOUS" and operation == Operation.CLUSTER_ACTION


def inner_answer(answer: Any, api: str = "elect_leaders", version: int = 2) -> Any:
    assert answer.error_code is KioError.none
    assert answer.response_data.startswith(HEADER)
    return decode_answer(api, version, answer.response_data, len(HEADER))


def test_the_inner_request_is_authorized_as_the_clients(broker: Connection) -> None:
    seen: list[Requester] = []

    def decide(requester: Requester, operation: Operation, kind: ResourceType, name: str) -> bool:
        seen.append(requester)
        return is_broker(requester, operation, kind, name) or requester.principal == "User:alice"

    with deciding(decide):
        allowed = inner_answer(broker.ask(ENVELOPE, 0, fields()))
    assert DENIED not in errors_of(allowed)
    assert [(one.principal, one.host, one.api) for one in seen] == [
        ("User:ANONYMOUS", "127.0.0.1", "Envelope"),
        ("User:alice", "10.0.0.7", "ElectLeaders"),
    ]
    assert seen[-1].client_id == "a-client"
    with deciding(is_broker):
        refused = inner_answer(broker.ask(ENVELOPE, 0, fields()))
    assert errors_of(refused) == {DENIED}


@pytest.mark.parametrize(
    ("address", "host"),
    [
        (bytes(15) + b"\1", "0:0:0:0:0:0:0:1"),
        (bytes(10) + b"\xff\xff" + ADDRESS, "10.0.0.7"),
    ],
)
def test_addresses_are_those_of_java(broker: Connection, address: bytes, host: str) -> None:
    seen: list[str] = []

    def decide(requester: Requester, *_: object) -> bool:
        seen.append(requester.host)
        return True

    with deciding(decide):
        inner_answer(broker.ask(ENVELOPE, 0, fields(address=address)))
    assert seen == ["127.0.0.1", host]


def test_a_topic_of_a_client_is_none_of_a_broker(broker: Connection) -> None:
    """ClusterAction is enough for a broker's own topics, not for those of its clients."""

    def decide(_: Requester, operation: Operation, _kind: ResourceType, _name: str) -> bool:
        return operation == Operation.CLUSTER_ACTION

    with deciding(decide):
        answer = broker.ask(ENVELOPE, 0, fields(frame_of(CREATE_TOPICS, 7)))
    [topic] = inner_answer(answer, "create_topics", 7).topics
    assert topic.error_code is KioError.topic_authorization_failed


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ({"principal": None}, 97),
        ({"principal": b""}, 97),
        ({"principal": b"\0\1" + ALICE[2:]}, 97),
        ({"principal": ALICE[:-4]}, 97),
        ({"principal": b"\0\0\0\0\0\0"}, 97),
        ({"address": b""}, 42),
        ({"address": ADDRESS + b"\0"}, 42),
        ({"data": b""}, 35),
        ({"data": INNER[:3]}, 35),
        ({"data": INNER[:9]}, 35),
        ({"data": INNER[:-4]}, 35),
        # No such API; no such version; Envelope, Metadata and another one that is not forwarded.
        ({"data": struct.pack(">hh", 999, 0) + INNER[4:]}, 35),
        ({"data": struct.pack(">hh", ELECT, 99) + INNER[4:]}, 35),
        ({"data": struct.pack(">hh", ELECT, -1) + INNER[4:]}, 35),
        ({"data": frame_of(ENVELOPE, 0)}, 42),
        ({"data": frame_of(METADATA, 12)}, 42),
        ({"data": frame_of(50, 0)}, 42),
        # It may be forwarded, and is not served.
        ({"data": frame_of(55, 1)}, 35),
        # The principal is looked at first, then the address, then the request.
        ({"data": b"", "principal": b"", "address": b""}, 97),
        ({"data": b"", "address": b""}, 42),
    ],
)
def test_what_is_no_envelope(broker: Connection, sent: dict[str, Any], code: int) -> None:
    with deciding(lambda *_: True):
        answer = broker.ask(ENVELOPE, 0, fields(**sent))
        assert (answer.error_code.value, answer.response_data) == (code, None)
        # The connection goes on.
        inner_answer(broker.ask(ENVELOPE, 0, fields()))


def test_who_is_no_broker_is_refused_first(broker: Connection) -> None:
    with deciding(lambda requester, *_: requester.principal == "User:alice"):
        answer = broker.ask(ENVELOPE, 0, fields(b"", b"", b""))
    assert (answer.error_code, answer.response_data) == (DENIED, None)


def test_other_listeners_take_no_envelope(server: LocalServer) -> None:
    with (
        connection(server.address("CLIENTS")) as client,
        deciding(lambda *_: True),
        pytest.raises(ConnectionError),
    ):
        client.ask(ENVELOPE, 0, fields())


def test_a_controller_that_is_not_active() -> None:
    with local_server(active=False) as standby, connection(standby.address()) as broker:
        answer = broker.ask(ENVELOPE, 0, fields())
    assert (answer.error_code, answer.response_data) == (KioError.not_controller, None)


def test_an_answer_of_no_controller_is_the_envelopes() -> None:
    """The broker looks for another controller then."""
    with local_server() as local, connection(local.address()) as broker:
        core, local.core = local.core, None
        local.server._handlers[0].core._current = lambda: core
        answer = broker.ask(ENVELOPE, 0, fields(frame_of(UPDATE_FEATURES, 1)))
    assert (answer.error_code, answer.response_data) == (KioError.not_controller, None)
