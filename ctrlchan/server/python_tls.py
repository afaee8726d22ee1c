"""TLS of Python's ``ssl`` for listeners where no libssl can be loaded: contexts, and sessions in memory.

Processors move the bytes, and take the GIL to call a session: ``_loop/python_tls.pxi``.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from typing import Final

from ctrlchan.security.certificates import Certificate, certificates_in, read_certificate
from ctrlchan.security.der import MalformedName
from ctrlchan.security.tls_context import VERSIONS, load_authorities, load_chain
from ctrlchan.server._openssl import TlsContextError
from ctrlchan.server.tls_failures import number_of

__all__ = ["PythonTlsContext", "TlsSession"]

_VERIFY_MODES: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
#: Sessions that a TLS 1.3 client may resume, for each connection.
_TICKETS: Final = 1
#: The largest text of a reason that is none of OpenSSL's
_REASON_SIZE: Final = 200


class PythonTlsContext:
    """A certificate with its key, and what clients must show and may use.

    Arguments, attributes and errors are those of ``TlsContext``. Python's ssl has no choice among the suites
    of TLS 1.3: all of them are given, or none.
    """

    def __init__(
        self,
        *,
        chain: bytes,
        key: bytes,
        password: bytes | None = None,
        trusted: bytes | None = None,
        client_auth: str = "none",
        versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3"),
        suites: tuple[str, ...] = (),
        suites13: tuple[str, ...] = (),
    ) -> None:
        own = _certificates("chain", chain)[0]
        self.subject: Final = own.subject
        self.alternative_names: Final = own.alternative_names
        self.expires: Final = own.expires
        self._context: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.options |= ssl.OP_NO_RENEGOTIATION
        self._context.num_tickets = _TICKETS
        _choose_versions(self._context, versions, suites, suites13)
        _load_own(self._context, chain + b"\n" + key if key != chain else chain, password)
        self._context.verify_mode = _VERIFY_MODES[client_auth]
        if client_auth != "none":
            _trust(self._context, trusted)

    def session(self) -> TlsSession:
        """Return the TLS of a new connection."""
        return TlsSession(self._context)


class TlsSession:
    """TLS of one connection, in memory: it gets records, and gives out bytes to be sent.

    Only ``why`` raises nothing.
    """

    __slots__ = ("_incoming", "_outgoing", "_tls", "has_ended")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        #: The peer has said goodbye (close_notify): nothing is received any more.
        self.has_ended = False

    def shake_hands(self, record: memoryview) -> bool:
        """Take a record of the handshake. Return whether it was the last one."""
        self._incoming.write(record)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def take(self, record: memoryview) -> None:
        """Take a record, whose content is for ``read``."""
        self._incoming.write(record)

    def read(self, room: memoryview) -> int:
        """Decrypt into the room. Return how many bytes there were."""
        size = 0
        try:
            size = self._tls.read(len(room), room)  # type: ignore[assignment]
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLZeroReturnError:
            pass
        # Python returns 0 for the peer's first close_notify.
        self.has_ended = size == 0
        return size

    def pending(self) -> int:
        """Return how many bytes of the last record are decrypted and not read."""
        return self._tls.pending()

    def write(self, data: memoryview) -> None:
        """Encrypt data, for ``output``."""
        self._tls.write(data)

    def output(self) -> bytes:
        """Return what is to be sent to the peer."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def say_goodbye(self) -> None:
        """Write close_notify, for ``output``; the peer's is not waited for."""
        with suppress(ssl.SSLError):
            self._tls.unwrap()

    def subject(self) -> bytes | None:
        """Return the name in the peer's certificate as DER, or None if he has shown none."""
        shown = self._tls.getpeercert(binary_form=True)
        return None if shown is None else read_certificate(shown).subject

    @staticmethod
    def why(problem: BaseException) -> int:
        """Return the number of the reason why TLS has failed."""
        return number_of(_reason(problem))


def _reason(problem: BaseException) -> str:
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"certificate verify failed ({problem.verify_message})"
    if isinstance(problem, ssl.SSLError) and problem.reason:
        return problem.reason.replace("_", " ").lower()
    return f"{type(problem).__name__}: {problem}"[:_REASON_SIZE]


def _certificates(part: str, pem: bytes) -> list[Certificate]:
    """Return what the certificates of a text say. Raises TlsContextError for none, or for a damaged one."""
    found: list[Certificate] = []
    try:
        found.extend(map(read_certificate, certificates_in(pem.decode("ascii", "replace"))))
    except MalformedName as problem:
        raise TlsContextError(part, f"certificate {len(found) + 1} cannot be read: {problem}") from None
    if not found:
        raise TlsContextError(part, "no certificate in PEM is in it")
    return found


def _choose_versions(
    context: ssl.SSLContext, versions: tuple[str, ...], suites: tuple[str, ...], suites13: tuple[str, ...]
) -> None:
    wanted = set(versions)
    if suites or suites13:
        wanted &= ({"TLSv1.2"} if suites else set()) | ({"TLSv1.3"} if suites13 else set())
    if not wanted:
        raise TlsContextError("suites", f"none of the cipher suites is for {' or '.join(versions)}")
    context.minimum_version = min(VERSIONS[version] for version in wanted)
    context.maximum_version = max(VERSIONS[version] for version in wanted)
    if suites:
        try:
            context.set_ciphers(":".join(suites))
        except ssl.SSLError:
            raise TlsContextError("suites", "this OpenSSL has none of the cipher suites of TLS 1.2") from None
    all13 = [one["name"] for one in context.get_ciphers() if one["protocol"] == "TLSv1.3"]
    if suites13 and not set(all13) <= set(suites13):
        raise TlsContextError(
            "suites", f"Python's ssl needs all suites of TLS 1.3 ({', '.join(all13)}), or none of them"
        )


def _load_own(context: ssl.SSLContext, pem: bytes, password: bytes | None) -> None:
    text = pem.decode("ascii", "replace")
    try:
        load_chain(context, text, None if password is None else password.decode())
    except (OSError, ValueError) as problem:
        if not isinstance(problem, ssl.SSLError | ValueError):
            raise TlsContextError("", _reason(problem)) from None
        reason = getattr(problem, "reason", None)
        if reason == "KEY_VALUES_MISMATCH":
            raise TlsContextError("key", "the private key is not that of the certificate") from None
        if reason in _WEAK:
            raise TlsContextError("chain", _reason(problem)) from None
        if "ENCRYPTED" in text:
            given = "has no password here" if password is None else "has another password"
            raise TlsContextError("key", f"the private key is encrypted and {given}") from None
        raise TlsContextError("key", "no private key in PEM that can be read") from None


#: Certificates that OpenSSL can read, and does not use.
_WEAK: Final = ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK")


def _trust(context: ssl.SSLContext, pem: bytes | None) -> None:
    """Trust certificates of a text, or those of the system."""
    if pem is None:
        context.set_default_verify_paths()
        return
    _certificates("trusted", pem)
    try:
        load_authorities(context, pem.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as problem:
        raise TlsContextError("trusted", _reason(problem)) from None
