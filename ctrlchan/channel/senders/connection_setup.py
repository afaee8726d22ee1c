"""What a connection begins with before requests may pass: TLS, then the handshake in Kafka's protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ctrlchan.channel.senders.tcp import Address, TcpConnection
from ctrlchan.channel.wire.credentials import Credentials
from ctrlchan.channel.wire.poller import READ, WRITE
from ctrlchan.security.failure import ConnectionFailed, Failure
from ctrlchan.security.handshake import Handshake
from ctrlchan.security.mechanisms import ClientMechanism
from ctrlchan.security.settings import GSSAPI, SaslSettings

if TYPE_CHECKING:
    from ctrlchan.security.tls_context import TlsContexts

__all__ = ["ConnectionSetup", "SecureConnections"]

_READ_BYTES: Final = 16 * 1024


class SecureConnections:
    """Makes connections with a channel's ``Credentials``: one object for all brokers of a sender."""

    def __init__(self, credentials: Credentials) -> None:
        self.negotiates = credentials.negotiate
        self._credentials = credentials
        self._contexts: TlsContexts | None = None
        if credentials.tls is not None:
            from ctrlchan.security.tls_context import TlsContexts

            self._contexts = TlsContexts(credentials.tls)

    def connect(self, address: Address, host: str) -> TcpConnection:
        """Begin to connect. Raises OSError, or ConnectionFailed when our own files cannot be used."""
        if self._contexts is None:
            return TcpConnection(address)
        from ctrlchan.channel.senders.tls import TlsConnection

        return TlsConnection(address, self._contexts.current(), host, self._contexts.settings)

    @property
    def login(self) -> SaslSettings | None:
        """What to log in with before connecting, because that may take long; None for other mechanisms."""
        sasl = self._credentials.sasl
        return sasl if sasl is not None and sasl.mechanism == GSSAPI else None

    def set_up(
        self, connection: TcpConnection, host: str, login: ClientMechanism | None = None
    ) -> ConnectionSetup:
        """Begin what must precede requests on this connection to a broker at `host`.

        ``login``: an exchange of SASL that has begun.
        """
        credentials = self._credentials
        handshake = Handshake(
            credentials.client_id,
            negotiate=credentials.negotiate,
            sasl=credentials.sasl,
            host=host,
            login=login,
        )
        return ConnectionSetup(connection, handshake)


class ConnectionSetup:
    """One connection until requests may pass: call ``advance`` whenever it is ready for what it waits for."""

    def __init__(self, connection: TcpConnection, handshake: Handshake) -> None:
        self.handshake = handshake
        self._connection = connection
        #: Whether requests may follow. The parent may still have to make them for the broker's versions.
        self.done = False
        self._in_tls_handshake = True
        self._unsent = memoryview(b"")

    def advance(self) -> int:
        """Go on; return what to wait for (READ, WRITE or both), or 0 when requests may follow.

        Raises ConnectionFailed.
        """
        try:
            return self._advance()
        except OSError as problem:
            stage = "TLS" if self._in_tls_handshake else self.handshake.stage
            raise ConnectionFailed(Failure.IO, f"{problem.strerror}, during {stage}") from None

    def _advance(self) -> int:
        handshake, connection = self.handshake, self._connection
        if self._in_tls_handshake:
            interest = connection.advance_tls()
            if interest:
                return interest
            self._in_tls_handshake = False
            self._unsent = memoryview(handshake.start())
        while True:
            while len(self._unsent):
                try:
                    self._unsent = self._unsent[connection.send(self._unsent) :]
                except BlockingIOError:
                    return READ | WRITE
            if handshake.done and not self.done:
                self.done = True
                return 0
            try:
                data = connection.receive(_READ_BYTES)
            except BlockingIOError:
                return READ
            if not data:
                raise ConnectionFailed(Failure.CLOSED, f"during {handshake.stage}")
            if self.done:
                raise ConnectionFailed(Failure.SURPLUS)
            self._unsent = memoryview(handshake.receive(data))
