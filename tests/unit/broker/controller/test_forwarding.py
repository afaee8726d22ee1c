"""What a broker forwards: in an Envelope to a controller of ours, as its own request to a JVM broker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from ctrlchan.broker.controller_client import ControllerClient
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.peers import envelope
from ctrlchan.peers.messages import decode_answer
from ctrlchan.peers.requests import Answer
from ctrlchan.server.api import Buffers, CannotAnswer
from ctrlchan.server.kio_entities import decode, message_type
from ctrlchan.server.request_context import Principal, RequestContext
from tests.kafka.ports import free_port
from tests.unit.broker.controller.test_client import OtherController
from tests.unit.broker.cores import node_of
from tests.unit.server.contexts import LOCAL_CLIENT, context

PRODUCE, CREATE_TOPICS, ENVELOPE = 0, 19, 58
SECONDS = 20
OURS = {CREATE_TOPICS: (0, 7), ENVELOPE: (0, 0)}
JVM = OURS | {PRODUCE: (0, 11)}
#: A tagged field's count, as it ends a header and a body.
NO_TAGS = b"\0"
BODY = b"the body"


def answered(code: int, data: bytes | None = None) -> bytes:
    """The answer to an Envelope, with its header's end."""
    content = b"\0" if data is None else bytes([len(data) + 1]) + data
    return NO_TAGS + content + code.to_bytes(2, signed=True) + NO_TAGS


@contextmanager
def client_of(*controllers: OtherController) -> Iterator[ControllerClient]:
    """The client of a broker that finds the next controller once the one before was asked."""
    client = ControllerClient(node_of(1, epoch=1), MetadataCache(), "127.0.0.1:1")

    def find() -> tuple[str, int]:
        asked = [one for one in controllers if any(key == ENVELOPE for key, _ in one.requests)]
        return "127.0.0.1", controllers[min(len(asked), len(controllers) - 1)].port

    client._forwarding._find = find
    yield client
    client.stop()


def forward(client: ControllerClient, host: str = "10.0.0.7") -> Future[Answer]:
    sender = context(client_host=host, principal=Principal.user("alice"))
    return client.forward(CREATE_TOPICS, 7, flexible=True, body=BODY, client_id=b"a-client", context=sender)


@pytest.mark.parametrize("host", ["10.0.0.7", "::1", "fe80::1%lo", "::ffff:10.0.0.7"])
def test_the_envelope_has_principal_and_address(host: str) -> None:
    inner = b"\0\0\0\0" + NO_TAGS + b"the answer"
    with OtherController(OURS, {ENVELOPE: answered(0, inner)}) as ours, client_of(ours) as client:
        assert forward(client, host).result(SECONDS) == Answer(7, b"the answer")
        frame = ours.frames[-1]
    # Key, version, correlation id, client id, tags.
    sent = decode(message_type("envelope", 0, "request"), frame, 8 + 2 + len("broker-1-forwarding") + 1)
    # Key, version, correlation id, client id, tags, and the body as it came.
    expected = b"\0\x13" + b"\0\7" + b"\0\0\0\0" + b"\0\x08a-client" + NO_TAGS + BODY
    assert sent.request_data == expected
    assert envelope.read_principal(sent.request_principal) == (Principal.user("alice"), False)
    plain = host.partition("%")[0]
    family = socket.AF_INET6 if ":" in plain else socket.AF_INET
    assert sent.client_host_address == socket.inet_pton(family, plain)


def test_a_jvm_broker_gets_the_request_itself() -> None:
    """It lists Envelope, and closes the connection of who sends one."""
    with OtherController(JVM, {CREATE_TOPICS: NO_TAGS + b"plain"}) as jvm, client_of(jvm) as client:
        assert forward(client).result(SECONDS) == Answer(7, b"plain")
        assert [key for key, _ in jvm.requests] == [18, CREATE_TOPICS]


class InThisProcess:
    """A controller in the process of the broker. ``answer``: without its header, or what is raised."""

    def __init__(self, answer: bytes | Exception, *, is_active: bool = True) -> None:
        self.is_active = is_active
        self.asked: list[tuple[bytes, RequestContext]] = []
        self._answer = answer

    def serve(self, frame: bytes | memoryview, context: RequestContext) -> Buffers:
        self.asked.append((bytes(frame), context))
        if isinstance(self._answer, Exception):
            raise self._answer
        return b"\0\0\0\0" + NO_TAGS, self._answer

    def serve_own(self, frame: bytes) -> Buffers:
        return self.serve(frame, LOCAL_CLIENT)


#: A topic of an answer to CreateTopics 7: NOT_CONTROLLER.
REFUSED = b"\0\0\0\0" + b"\2" + b"\2t" + bytes(16) + b"\0\x29" + b"\0" + bytes(6) + b"\1" + NO_TAGS + NO_TAGS


def test_a_controller_in_this_process_gets_it_without_a_connection() -> None:
    local = InThisProcess(b"the answer")
    client = ControllerClient(node_of(1, epoch=1), MetadataCache(), f"127.0.0.1:{free_port()}")
    client.local = local
    try:
        assert forward(client).result(SECONDS) == Answer(7, b"the answer")
    finally:
        client.stop()
    [(frame, asker)] = local.asked
    assert frame == b"\0\x13" + b"\0\7" + b"\0\0\0\0" + b"\0\x08a-client" + NO_TAGS + BODY
    assert (asker.principal, asker.client_host) == (Principal.user("alice"), "10.0.0.7")
    assert asker.is_forwarded


@pytest.mark.parametrize("resigns", [False, True])
def test_what_the_broker_asks_for_itself(resigns: bool) -> None:
    """A controller in this process needs no connection; after its resignation another one is asked."""
    ids = bytes(4) + b"\0\0" + (1000).to_bytes(8) + (100).to_bytes(4) + NO_TAGS
    others = bytes(4) + b"\0\0" + (7000).to_bytes(8) + (100).to_bytes(4) + NO_TAGS
    local = InThisProcess(CannotAnswer("it takes over") if resigns else ids)
    with (
        OtherController({67: (0, 0)}, {67: NO_TAGS + others}) as other,
        client_of(other) as client,
    ):
        client._connections._find = lambda: ("127.0.0.1", other.port)
        client.local = local
        assert client.allocate_producer_ids().result(SECONDS) == (7000 if resigns else 1000, 100)
        assert any(key == 67 for key, _ in other.requests) == resigns
    [(frame, _)] = local.asked
    assert frame[:4] == b"\0\x43\0\0"


@pytest.mark.parametrize("answer", [REFUSED, CannotAnswer("it takes over"), None])
def test_a_controller_in_this_process_that_has_resigned(answer: bytes | Exception | None) -> None:
    """Before the request, or meanwhile: another one is asked."""
    local = InThisProcess(b"" if answer is None else answer, is_active=answer is not None)
    with OtherController(JVM, {CREATE_TOPICS: NO_TAGS + b"plain"}) as other, client_of(other) as client:
        client.local = local
        assert forward(client).result(SECONDS) == Answer(7, b"plain")
    assert len(local.asked) == (answer is not None)


def test_a_former_controller_is_left() -> None:
    done = answered(0, b"\0\0\0\0" + NO_TAGS + b"done")
    with (
        OtherController(OURS, {ENVELOPE: answered(ErrorCode.NOT_CONTROLLER)}) as former,
        OtherController(OURS, {ENVELOPE: done}) as present,
        client_of(former, present) as client,
    ):
        assert forward(client).result(SECONDS).body == b"done"


@pytest.mark.parametrize("code", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 97, ErrorCode.INVALID_REQUEST])
def test_an_error_of_the_envelope_is_none_of_the_client(code: int, caplog: pytest.LogCaptureFixture) -> None:
    with (
        OtherController(OURS, {ENVELOPE: answered(code)}) as ours,
        client_of(ours) as client,
        pytest.raises(KafkaError) as failed,
    ):
        forward(client).result(SECONDS)
    assert failed.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert f"refuses the Envelope with CreateTopics: {ErrorCode.name_of(code)}" in caplog.text


def test_a_version_that_the_controller_cannot_read_closes_the_connection() -> None:
    with (
        OtherController(OURS, {ENVELOPE: answered(ErrorCode.UNSUPPORTED_VERSION)}) as ours,
        client_of(ours) as client,
        pytest.raises(CannotAnswer),
    ):
        forward(client).result(SECONDS)


def test_an_answer_that_is_none_is_asked_for_again() -> None:
    wrong = answered(0, b"\0\0\0\1" + NO_TAGS)
    right = answered(0, b"\0\0\0\0" + NO_TAGS)
    with (
        OtherController(OURS, {ENVELOPE: wrong}) as one,
        OtherController(OURS, {ENVELOPE: right}) as two,
        client_of(one, two) as client,
    ):
        assert forward(client).result(SECONDS).body == b""
    assert decode_answer("envelope", 0, right[1:]).error_code.value == 0
