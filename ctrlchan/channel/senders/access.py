"""The way from a connected socket to where requests may pass: TLS, then the handshake's conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ctrlchan.channel.senders.connection import Address, Connection
from ctrlchan.channel.senders.handshake import Handshake
from ctrlchan.channel.senders.link import Broken
from ctrlchan.channel.wire.poller import READ, WRITE
from ctrlchan.channel.wire.records import Failure
from ctrlchan.channel.wire.security import Credentials

if TYPE_CHECKING:
    from ctrlchan.channel.senders.tls import TlsContexts

__all__ = ["Access", "Opening"]

_READ_BYTES: Final = 16 * 1024


class Access:
    """What a sender was told (``Credentials``), ready for use: one for all its brokers."""

    def __init__(self, credentials: Credentials) -> None:
        self.negotiates = credentials.negotiate
        self._credentials = credentials
        self._contexts: TlsContexts | None = None
        if credentials.tls is not None:
            from ctrlchan.channel.senders.tls import TlsContexts

            self._contexts = TlsContexts(credentials.tls)

    def connect(self, address: Address, host: str) -> Connection:
        """Begin to connect. OSError, or Broken when our own files cannot be used."""
        if self._contexts is None:
            return Connection(address)
        from ctrlchan.channel.senders.tls import TlsConnection

        return TlsConnection(address, self._contexts.current(), host)

    def opening(self, connection: Connection) -> Opening:
        credentials = self._credentials
        handshake = Handshake(credentials.client_id, negotiate=credentials.negotiate, sasl=credentials.sasl)
        return Opening(connection, handshake)


class Opening:
    """``advance`` whenever the connection is ready for what it asked for."""

    def __init__(self, connection: Connection, handshake: Handshake) -> None:
        self.handshake = handshake
        self._connection = connection
        #: Requests may follow; the parent may still have to say which.
        self.over = False
        self._shaking = True
        self._unsent = memoryview(b"")

    def advance(self) -> int:
        """What to wait for: READ, READ | WRITE or WRITE; 0 when requests may follow. Raises Broken."""
        try:
            return self._advance()
        except OSError as problem:
            stage = "TLS" if self._shaking else self.handshake.stage
            raise Broken(Failure.IO, f"{problem.strerror}, during {stage}") from None

    def _advance(self) -> int:
        handshake, connection = self.handshake, self._connection
        if self._shaking:
            interest = connection.shake()
            if interest:
                return interest
            self._shaking = False
            self._unsent = memoryview(handshake.start())
        while True:
            while len(self._unsent):
                try:
                    self._unsent = self._unsent[connection.send(self._unsent) :]
                except BlockingIOError:
                    return READ | WRITE
            if handshake.done and not self.over:
                self.over = True
                return 0
            try:
                data = connection.receive(_READ_BYTES)
            except BlockingIOError:
                return READ
            if not data:
                raise Broken(Failure.CLOSED, f"during {handshake.stage}")
            if self.over:
                raise Broken(Failure.SURPLUS)
            self._unsent = memoryview(handshake.receive(data))
