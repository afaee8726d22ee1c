"""PeerSecurity: how connections to other nodes begin, and that sessions of SASL do not end.

Each of Kafka's security protocols: TLS by the standard library on the caller's thread, SASL by the handshake
that the controller's channel has, too.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from ctrlchan.security.failure import ConnectionFailed, Failure
from ctrlchan.security.handshake import Handshake
from ctrlchan.security.settings import GSSAPI, OAUTHBEARER, SaslSettings, TlsSettings

if TYPE_CHECKING:
    import ssl

    from ctrlchan.security.handshake import Ranges
    from ctrlchan.security.logins import LoginThread
    from ctrlchan.security.mechanisms import ClientMechanism
    from ctrlchan.security.tls_context import TlsContexts

__all__ = ["PeerSecurity", "SetupError"]

#: A session of SASL is renewed after this part of its time (Kafka: 85 to 95 %).
_SESSION_USED: Final = 0.85
#: How long a connection waits for a Kerberos ticket: a thread that is to end waits no longer.
_LOGIN_SECONDS: Final = 10.0
_NO_ANSWER: Final = "the node closed the connection; perhaps it does not accept our certificate, or wants one"


class SetupError(ConnectionError):
    """A connection that cannot begin: TLS or SASL failed. The message repeats no secret."""

    def __init__(self, failed: ConnectionFailed) -> None:
        super().__init__(str(failed))
        self.failure = failed.failure


class PeerSecurity:
    """The security of the connections of one node. Threads may share it.

    ``tls``: None for connections without TLS, ``sasl``: None for those without SASL. Files that change are
    read again for the next connection; while they cannot be used, what they had before counts. The
    constructor raises ConfigError for files that cannot be used.
    """

    def __init__(self, tls: TlsSettings | None = None, sasl: SaslSettings | None = None) -> None:
        self._sasl = sasl
        self._lock = threading.Lock()
        self._contexts: TlsContexts | None = None
        self._tokens: Any = None
        if tls is not None:
            # Imported here, as below: connections without TLS and tokens need neither.
            from ctrlchan.security.tls_context import TlsContexts

            self._contexts = TlsContexts(tls)
            _check(self._contexts)
        self._logins: LoginThread | None = None
        if sasl is not None and sasl.mechanism == GSSAPI:
            from ctrlchan.security.logins import LoginThread

            self._logins = LoginThread()
        if sasl is not None and sasl.mechanism == OAUTHBEARER:
            from ctrlchan.security.tokens import TokenSource

            self._tokens = TokenSource(sasl)

    @property
    def has_sasl(self) -> bool:
        return self._sasl is not None

    @property
    def has_tls(self) -> bool:
        return self._contexts is not None

    @property
    def tls(self) -> TlsSettings | None:
        return None if self._contexts is None else self._contexts.settings

    def use_stores(self, tls: TlsSettings) -> None:
        """Begin new connections with the stores of other settings. Raises ConfigError: those before stay."""
        from ctrlchan.security.tls_context import TlsContexts

        assert self._contexts is not None
        contexts = TlsContexts(self._contexts.settings.with_stores_of(tls))
        _check(contexts)
        with self._lock:
            self._contexts = contexts

    def begin_tls(self, plain: Any, host: str) -> ssl.SSLSocket:
        """Do TLS's handshake on a connected socket; return the one to use. Raises SetupError."""
        import ssl

        from ctrlchan.security.tls_context import check_suite
        from ctrlchan.security.tls_errors import broken

        try:
            with self._lock:
                assert self._contexts is not None
                settings, context = self._contexts.settings, self._contexts.current()
            secured = context.wrap_socket(
                plain, server_hostname=host.rstrip("."), do_handshake_on_connect=False
            )
            try:
                secured.do_handshake()
                check_suite(secured, settings)
            except BaseException:
                secured.close()
                raise
            return secured
        except ConnectionFailed as failed:
            raise SetupError(failed) from None
        except ssl.SSLError as problem:
            raise SetupError(broken(problem)) from None
        except TimeoutError:
            raise SetupError(ConnectionFailed(Failure.HANDSHAKE_TIMEOUT, "TLS")) from None
        except (OSError, ValueError) as problem:
            raise SetupError(ConnectionFailed(Failure.TLS, str(problem))) from None

    def handshake(
        self, client_id: str, host: str, versions: Ranges | None = None, correlation: int = 0
    ) -> Handshake:
        """Return the handshake of a connection, or of one more authentication on it. Raises SetupError."""
        login: ClientMechanism | None = None
        try:
            sasl = self._sasl if self._tokens is None else self._tokens.current()
            if self._logins is not None and sasl is not None:
                login = self._logins.login(sasl, host, _LOGIN_SECONDS)
        except ConnectionFailed as failed:
            raise SetupError(failed) from None
        return Handshake(
            client_id,
            negotiate=False,
            sasl=sasl,
            host=host,
            login=login,
            versions=versions,
            correlation=correlation,
        )

    def explained(self, problem: OSError, *, is_first: bool) -> OSError:
        """Return an error of a connection as one that people understand.

        ``is_first``: nothing has been received yet. With TLS 1.3 a server refuses our certificate then.
        """
        if self._contexts is None or isinstance(problem, TimeoutError | SetupError):
            return problem
        import ssl

        from ctrlchan.security.tls_errors import broken

        if isinstance(problem, ssl.SSLError) and not isinstance(problem, ssl.SSLEOFError):
            return SetupError(broken(problem))
        if is_first:
            return SetupError(ConnectionFailed(Failure.TLS, _NO_ANSWER))
        return problem


def renewal_time(lifetime_ns: int, now: float) -> float | None:
    """Return when to authenticate again, in monotonic seconds, or None for never."""
    return now + lifetime_ns / 1e9 * _SESSION_USED if lifetime_ns else None


def _check(contexts: TlsContexts) -> None:
    from ctrlchan.errors import ConfigError

    try:
        contexts.current()
    except ConnectionFailed as failed:
        raise ConfigError(failed.detail) from None
