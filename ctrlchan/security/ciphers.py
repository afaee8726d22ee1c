"""Names of cipher suites: Kafka's settings have those of IANA and Java, OpenSSL has its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = ["TLS13_SUITES", "CipherSuites", "openssl_suites"]

#: TLS 1.3: OpenSSL uses IANA's names.
TLS13_SUITES: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)
#: TLS 1.2: ``TLS_<key exchange>_WITH_<cipher>``.
_KEY_EXCHANGES: Final = {
    "ECDHE_ECDSA": "ECDHE-ECDSA-",
    "ECDHE_RSA": "ECDHE-RSA-",
    "DHE_RSA": "DHE-RSA-",
    "DHE_DSS": "DHE-DSS-",
    "RSA": "",
}
_CIPHERS: Final = {
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
    "AES_256_CBC_SHA384": "AES256-SHA384",
    "AES_256_CBC_SHA256": "AES256-SHA256",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_256_CCM": "AES256-CCM",
    "AES_128_CCM": "AES128-CCM",
    "AES_256_CCM_8": "AES256-CCM8",
    "AES_128_CCM_8": "AES128-CCM8",
}
#: A suite without a meaning of its own: renegotiation is never allowed here.
_SIGNALS: Final = ("TLS_EMPTY_RENEGOTIATION_INFO_SCSV",)


class CipherSuites(NamedTuple):
    """OpenSSL's names of suites, in the order of preference, by the version of TLS that they are for."""

    tls12: tuple[str, ...]
    tls13: tuple[str, ...]


def openssl_suites(names: Iterable[str]) -> CipherSuites:
    """Return OpenSSL's names of suites (``ssl.cipher.suites``).

    Raises ValueError, naming it, for a suite that OpenSSL does not have.
    """
    tls12, tls13 = [], []
    for name in names:
        key_exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
        if name in TLS13_SUITES:
            tls13.append(name)
        elif name.startswith("TLS_") and key_exchange in _KEY_EXCHANGES and cipher in _CIPHERS:
            tls12.append(_KEY_EXCHANGES[key_exchange] + _CIPHERS[cipher])
        elif name not in _SIGNALS:
            raise ValueError(f"{name} is not a cipher suite that can be used here")
    return CipherSuites(tuple(tls12), tuple(tls13))
