"""Errors of TLS on a connection to a broker, as texts that show what to do."""

from __future__ import annotations

import ssl
from typing import Final

from ctrlchan.security.failure import ConnectionFailed, Failure

__all__ = ["REASON_TEXT", "broken"]

#: OpenSSL's reasons (X509_V_ERR_...) as text that shows what to do.
_VERIFY_TEXT: Final = {
    10: "it has expired",
    9: "it is not yet valid",
    18: "it is signed by itself and not among the trusted certificates",
    19: "an authority that is not trusted has signed it",
    20: "an authority that is not trusted has signed it",
    21: "an authority that is not trusted has signed it",
    62: "it is not for this host name",
    64: "it is not for this IP address",
}
#: The same for ``SSLError.reason``.
REASON_TEXT: Final = {
    "WRONG_VERSION_NUMBER": "the broker does not use TLS on this port",
    "UNSUPPORTED_PROTOCOL": "the broker offers only a protocol version that is not allowed",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the broker has none of the allowed protocol versions",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the broker wants a client certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the broker refuses our certificate, or wants one",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the broker does not accept our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the broker finds that our certificate has expired",
    "TLSV1_ALERT_UNKNOWN_CA": "the broker does not trust the authority of our certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the broker refuses: no common cipher, or it wants a client certificate",
    "NO_PROTOCOLS_AVAILABLE": "this platform's OpenSSL has none of the allowed protocol versions",
}


def broken(problem: ssl.SSLError) -> ConnectionFailed:
    """Return why TLS failed."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        reason = _VERIFY_TEXT.get(problem.verify_code, problem.verify_message)
        return ConnectionFailed(Failure.CERTIFICATE, reason)
    if isinstance(problem, ssl.SSLEOFError):
        return ConnectionFailed(Failure.TLS, "the broker closed the connection in the middle of it")
    reason = problem.reason or ""
    return ConnectionFailed(
        Failure.TLS, REASON_TEXT.get(reason, reason.replace("_", " ").lower() or "no reason given")
    )
