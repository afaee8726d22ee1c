"""A sender with Kerberos: its loop goes on while a login waits for the KDC."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from ctrlchan.channel.senders.sender import Sender
from ctrlchan.channel.wire.credentials import Credentials
from ctrlchan.channel.wire.records import (
    ADD,
    COMMAND,
    CREDENTIALS,
    FAILED,
    PING,
    READY,
    REMOVE,
    REMOVED,
    REPORT,
    VERSIONS,
    Report,
)
from ctrlchan.channel.wire.settings import ConnectionSettings
from ctrlchan.security.failure import Failure
from ctrlchan.security.settings import SaslSettings
from tests.fault.fake_kdc import BROKEN, REFUSED, SLOW, FakeKdc
from tests.fault.secure_peer import SecurePeer

SECOND = 10**9
SETTINGS = ConnectionSettings(
    connection_setup_timeout=10 * SECOND,
    connection_setup_timeout_max=10 * SECOND,
    socket_timeout=SECOND // 2,
    request_timeout=30 * SECOND,
    retry_backoff=600 * SECOND,
    max_response_bytes=100_000,
)


class Parent:
    """A sender in this thread, moved turn by turn, and its parent's ends of the pipes."""

    def __init__(self) -> None:
        commands, self._commands = os.pipe()
        self._reports, reports = os.pipe()
        os.set_blocking(self._reports, False)
        self._unread: list[tuple[Report, str]] = []
        self._fds = [commands, self._commands, self._reports, reports]
        memory = memoryview(bytearray(4096))
        self.sender = Sender(commands, reports, memory, memory[:8].cast("q"), SETTINGS)
        self.sender.start()
        sasl = SaslSettings(mechanism="GSSAPI")
        self.command(CREDENTIALS, Credentials(client_id="test", negotiate=True, sasl=sasl).to_json())

    def close(self) -> None:
        for connection in self.sender._by_slot.values():
            connection.remove()
        logins = self.sender._logins
        assert logins is not None
        logins.close()
        self.sender.poller.close()
        self.sender.resolver.close()
        for fd in self._fds:
            os.close(fd)

    def command(self, kind: int, following: bytes = b"", slot: int = 0) -> None:
        os.write(
            self._commands, COMMAND.pack(kind, 0, 0, slot, 0, 0, 0, 0, 0, b"", len(following)) + following
        )
        self.sender.turn()

    def add(self, slot: int, host: str, port: int = 1) -> None:
        self.command(ADD, json.dumps({"host": host, "port": port, "epoch": 1}).encode(), slot)

    def wait_for(self, kind: int, slot: int = 0) -> tuple[Report, str]:
        """Let the sender go on until it has sent such a report; return that."""
        while True:
            self._unread += self._read()
            for index, (report, _) in enumerate(self._unread):
                if (report.kind, report.slot) == (kind, slot):
                    return self._unread.pop(index)
            self.sender.turn()

    def _read(self) -> list[tuple[Report, str]]:
        try:
            data = os.read(self._reports, 1 << 16)
        except BlockingIOError:
            return []
        found, position = [], 0
        while position < len(data):
            report = Report._make(REPORT.unpack_from(data, position))
            position += REPORT.size
            found.append((report, data[position : position + report.following].decode()))
            position += report.following
        return found


@pytest.fixture
def kdc(monkeypatch: pytest.MonkeyPatch) -> FakeKdc:
    return FakeKdc(monkeypatch)


@pytest.fixture
def parent(kdc: FakeKdc) -> Iterator[Parent]:
    made = Parent()
    yield made
    kdc.close()
    made.close()


@pytest.fixture
def broker() -> Iterator[SecurePeer]:
    peer = SecurePeer(protocol="SASL_PLAINTEXT", mechanisms=("GSSAPI",))
    with peer:
        yield peer


def test_the_loop_goes_on_while_a_login_waits(parent: Parent, kdc: FakeKdc, broker: SecurePeer) -> None:
    parent.add(1, "127.0.0.1", broker.port)
    parent.wait_for(VERSIONS, 1)
    parent.add(2, SLOW)
    parent.command(PING)
    parent.wait_for(READY)
    # Those that log in wait for each other, until their time is over.
    parent.add(3, "127.0.0.1", broker.port)
    for slot in (2, 3):
        report, words = parent.wait_for(FAILED, slot)
        assert (report.failure, words) == (Failure.HANDSHAKE_TIMEOUT, "there is no Kerberos ticket yet")
    parent.command(REMOVE, slot=3)
    parent.wait_for(REMOVED, 3)
    kdc.answers.set()
    # Nobody waits for the login of the third connection any more.
    parent.add(4, "127.0.0.1", broker.port)
    parent.wait_for(VERSIONS, 4)
    assert kdc.hosts == ["127.0.0.1", SLOW, "127.0.0.1"]


@pytest.mark.parametrize(
    ("host", "failure", "words"),
    [
        (REFUSED, Failure.AUTHENTICATION, "no ticket for kafka/refused.example"),
        (BROKEN, Failure.INTERNAL, "RuntimeError: of the library"),
    ],
)
def test_a_login_that_fails(
    parent: Parent, broker: SecurePeer, host: str, failure: Failure, words: str
) -> None:
    parent.add(1, host)
    report, detail = parent.wait_for(FAILED, 1)
    assert report.failure == failure
    assert detail.startswith(words)
    parent.add(2, "127.0.0.1", broker.port)
    parent.wait_for(VERSIONS, 2)


def test_a_connection_that_is_removed_while_it_logs_in(
    parent: Parent, kdc: FakeKdc, broker: SecurePeer
) -> None:
    parent.add(1, SLOW)
    parent.command(REMOVE, slot=1)
    parent.wait_for(REMOVED, 1)
    kdc.answers.set()
    parent.add(2, "127.0.0.1", broker.port)
    parent.wait_for(VERSIONS, 2)
