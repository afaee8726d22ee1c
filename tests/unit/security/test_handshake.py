"""The handshake without a connection: its answers whole, byte by byte, and wrong."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrlchan.channel.wire.credentials import Credentials
from ctrlchan.security.failure import ConnectionFailed, Failure
from ctrlchan.security.handshake import Handshake
from ctrlchan.security.settings import SaslSettings, TlsSettings

SASL = SaslSettings(mechanism="PLAIN", username="admin", password="s3cret")


def answer(correlation: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation) + body


VERSIONS = {4: (0, 7), 5: (0, 4), 6: (0, 8), 17: (0, 1), 18: (0, 3), 36: (0, 2)}
ROWS = b"".join(struct.pack(">hhhB", api, *ends, 0) for api, ends in VERSIONS.items())
API_VERSIONS = answer(0, struct.pack(">hB", 0, len(VERSIONS) + 1) + ROWS + bytes(5))
CHOSEN = answer(1, struct.pack(">hih", 0, 1, 5) + b"PLAIN")
PROVEN = answer(2, b"\0" + struct.pack(">h", 0) + b"\0\1" + bytes(9))


def test_no_handshake() -> None:
    handshake = Handshake("0", negotiate=False, sasl=None)
    assert handshake.done
    assert handshake.start() == b""
    assert handshake.correlation == 0


def test_requests_byte_for_byte() -> None:
    handshake = Handshake("кто", negotiate=False, sasl=SASL)
    name = struct.pack(">h", 6) + "кто".encode()
    asked = [handshake.start(), handshake.receive(API_VERSIONS), handshake.receive(CHOSEN)]
    assert handshake.receive(PROVEN) == b""
    assert handshake.done
    assert handshake.correlation == 3
    token = b"\0admin\0s3cret"
    assert [question[4:] for question in asked] == [
        struct.pack(">hhi", 18, 3, 0) + name + b"\0" + b"\x09ctrlchan\x020\0",
        struct.pack(">hhi", 17, 1, 1) + name + b"\0\5PLAIN",
        struct.pack(">hhi", 36, 2, 2) + name + b"\0" + bytes([len(token) + 1]) + token + b"\0",
    ]
    assert all(struct.unpack_from(">i", question)[0] == len(question) - 4 for question in asked)


def test_answers_byte_by_byte() -> None:
    handshake = Handshake("0", negotiate=True, sasl=SASL)
    handshake.start()
    for whole in (API_VERSIONS, CHOSEN, PROVEN):
        for at in range(len(whole) - 1):
            assert handshake.receive(whole[at : at + 1]) == b""
        handshake.receive(whole[-1:])
    assert handshake.done
    assert handshake.ranges == {4: (0, 7), 5: (0, 4), 6: (0, 8)}


def test_a_broker_that_has_version_0_only() -> None:
    handshake = Handshake("0", negotiate=True, sasl=None)
    handshake.start()
    again = handshake.receive(answer(0, struct.pack(">hi", 35, 0)))
    assert again[4:8] == struct.pack(">hh", 18, 0)
    rows = struct.pack(">hhhhhh", 6, 0, 5, 3, 0, 9)
    assert handshake.receive(answer(1, struct.pack(">hi", 0, 2) + rows)) == b""
    assert handshake.done
    assert handshake.ranges == {6: (0, 5)}


@pytest.mark.parametrize(
    ("bad", "failure"),
    [
        (API_VERSIONS + b"!", Failure.SURPLUS),
        (answer(1, b""), Failure.CORRELATION),
        (answer(0, struct.pack(">hi", 41, 0)), Failure.HANDSHAKE),
        (answer(0, struct.pack(">hB", 0, 200)), Failure.HANDSHAKE),
        (answer(0, b"\0\0" + b"\xff" * 9), Failure.HANDSHAKE),
        (
            API_VERSIONS.replace(struct.pack(">hhh", 17, 0, 1), struct.pack(">hhh", 17, 2, 3)),
            Failure.HANDSHAKE,
        ),
    ],
)
def test_a_wrong_answer_is_refused(bad: bytes, failure: Failure) -> None:
    handshake = Handshake("0", negotiate=False, sasl=SASL)
    handshake.start()
    with pytest.raises(ConnectionFailed) as raised:
        handshake.receive(bad)
    assert raised.value.failure is failure


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@given(garbage=st.lists(st.binary(max_size=60), max_size=5), good=st.integers(0, 2))
@settings(max_examples=150, deadline=None)
def test_garbage_fails_or_is_incomplete_and_nothing_else(
    mechanism: str, garbage: list[bytes], good: int
) -> None:
    sasl = SaslSettings(mechanism=mechanism, username="admin", password="s3cret")
    handshake = Handshake("0", negotiate=True, sasl=sasl)
    handshake.start()
    chosen = answer(1, struct.pack(">hih", 0, 1, len(mechanism)) + mechanism.encode())
    for whole in (API_VERSIONS, chosen)[:good]:
        handshake.receive(whole)
    text = ""
    try:
        for data in garbage:
            handshake.receive(answer(handshake.correlation, data))
            if handshake.done:
                break
    except ConnectionFailed as failed:
        text = str(failed)
    assert "s3cret" not in text


@pytest.mark.parametrize(
    "server_first", ["", "r=,s=,i=", "e=other-error", "r=x,s=c2FsdA==,i=4096", "i=4096", "é"]
)
def test_bad_first_messages_of_scram(server_first: str) -> None:
    handshake = Handshake(
        "0", negotiate=False, sasl=SaslSettings(mechanism="SCRAM-SHA-512", username="a", password="s3cret")
    )
    handshake.start()
    handshake.receive(API_VERSIONS)
    handshake.receive(answer(1, struct.pack(">hih", 0, 1, 13) + b"SCRAM-SHA-512"))
    token = server_first.encode()
    with pytest.raises(ConnectionFailed) as raised:
        handshake.receive(answer(2, b"\0\0\0\0" + bytes([len(token) + 1]) + token + bytes(9)))
    assert raised.value.failure is Failure.AUTHENTICATION


@given(
    nonce=st.text("xyz,= é", max_size=4),
    salt=st.text("AQ=-, é", max_size=8),
    iterations=st.sampled_from(["4096", "1", "x", "٤٠٩٦", ""]),
    more=st.text("ervm=,", max_size=6),
    last=st.text("ve=AQ,é", max_size=8),
)
@settings(max_examples=300, deadline=None)
def test_any_bad_message_of_scram_fails_the_connection(
    nonce: str, salt: str, iterations: str, more: str, last: str
) -> None:
    handshake = Handshake(
        "0", negotiate=False, sasl=SaslSettings(mechanism="SCRAM-SHA-256", username="a", password="s3cret")
    )
    handshake.start()
    handshake.receive(API_VERSIONS)
    first = handshake.receive(answer(1, struct.pack(">hih", 0, 1, 13) + b"SCRAM-SHA-256"))
    ours = first[first.index(b"r=") + 2 : -1].decode()
    token = f"r={ours}{nonce},s={salt},i={iterations}{more}".encode()
    with pytest.raises(ConnectionFailed):
        _send(handshake, token, last.encode())


def _send(handshake: Handshake, *tokens: bytes) -> None:
    for token in tokens:
        size = len(token) + 1
        length = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
        handshake.receive(answer(handshake.correlation, b"\0\0\0\0" + length + token + bytes(9)))


def test_credentials_are_sent_whole_and_not_shown() -> None:
    given = Credentials(
        client_id="0",
        negotiate=True,
        tls=TlsSettings(
            ca_file="ca", key_password="k3y", certificate_pem="c", key_pem="p3m", versions=("TLSv1.3",)
        ),
        sasl=SASL,
    )
    assert Credentials.from_json(given.to_json()) == given
    shown = repr(given) + str(given)
    assert not [secret for secret in ("s3cret", "k3y", "p3m") if secret in shown]


OLD_ROWS = b"".join(struct.pack(">hhh", api, *ends) for api, ends in {6: (0, 3), 17: (0, 0)}.items())


@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_tokens_without_headers_byte_by_byte(piece: int) -> None:
    """After SaslHandshake 0 both sides send tokens behind their size alone."""
    handshake = Handshake("0", negotiate=False, sasl=SASL)
    handshake.start()
    answers = [
        answer(0, struct.pack(">hi", 35, 0)),
        answer(1, struct.pack(">hi", 0, 2) + OLD_ROWS),
        answer(2, struct.pack(">hih", 0, 1, 5) + b"PLAIN"),
        struct.pack(">i", 0),
    ]
    sent = [
        b"".join(handshake.receive(whole[at : at + piece]) for at in range(0, len(whole), piece))
        for whole in answers
    ]
    assert sent[2] == struct.pack(">i", 13) + b"\0admin\0s3cret"
    assert sent[3] == b""
    assert handshake.done
    assert handshake.correlation == 3
