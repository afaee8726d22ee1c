"""What a client proves to a broker, and what it wants to be proved: TLS files, a SASL user.

Plain values; importing this file loads nothing large. No ``repr`` shows a password or a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

from ctrlchan.security.ciphers import openssl_suites

__all__ = [
    "GSSAPI",
    "MECHANISMS",
    "OAUTHBEARER",
    "PASSWORD_MECHANISMS",
    "SaslSettings",
    "TlsSettings",
    "TokenSettings",
]

OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
#: With user name and password.
PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
#: All that listeners and clients can have.
MECHANISMS: Final = (*PASSWORD_MECHANISMS, OAUTHBEARER, GSSAPI)

#: The fields of TlsSettings that a key store or a trust store is found and opened with.
_STORE_FIELDS: Final = (
    "ca_file", "ca_pem", "truststore_password", "certificate_file", "key_file", "certificate_pem", "key_pem",
    "keystore_password", "key_password",
)  # fmt: skip
#: No connection may use an older version.
_TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, kw_only=True, slots=True)
class TlsSettings:
    """TLS of connections; each setting has the meaning of Kafka's ``ssl.*`` key beside it.

    Files are PEM, PKCS#12 or JKS, which is found out from their content; a client reads them again for the
    next connection when they have changed. All defaults are None but where another is named.

    - ``ca_file``: the certificates that sign brokers' certificates (``ssl.truststore.location``).
    - ``ca_pem``: their text instead of a file (``ssl.truststore.certificates``). With neither, the system's
      certificate authorities are trusted.
    - ``certificate_file``: our certificate, its chain and, unless ``key_file`` has it, its private key
      (``ssl.keystore.location``). With None we show no certificate.
    - ``certificate_pem``, ``key_pem``: their text instead of files (``ssl.keystore.certificate.chain``,
      ``ssl.keystore.key``).
    - ``key_password``: of an encrypted private key (``ssl.key.password``).
    - ``keystore_password``, ``truststore_password``: of PKCS#12 and JKS files (``ssl.keystore.password``,
      ``ssl.truststore.password``).
    - ``verify_host_name``: whether the broker's certificate must be for the host that is connected to
      (``ssl.endpoint.identification.algorithm=https``). Default True.
    - ``versions``: the allowed versions (``ssl.enabled.protocols``), TLSv1.2 and TLSv1.3. Default both.
    - ``cipher_suites``: the allowed cipher suites by IANA's names, in the order of preference
      (``ssl.cipher.suites``). Default those of OpenSSL.

    Raises ConfigError, naming the setting, for settings that exclude or need each other. Files are read when
    a channel is made (``ControllerChannelManager``), which raises ConfigError for one that cannot be used.
    """

    ca_file: str | None = None
    ca_pem: str | None = None
    truststore_password: str | None = field(default=None, repr=False)
    certificate_file: str | None = None
    key_file: str | None = None
    certificate_pem: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
    keystore_password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    verify_host_name: bool = True
    versions: tuple[str, ...] = _TLS_VERSIONS
    cipher_suites: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.ca_file is not None and self.ca_pem is not None:
            _refuse("ca_file and ca_pem: only one of them can be given")
        if self.certificate_file is not None and self.certificate_pem is not None:
            _refuse("certificate_file and certificate_pem: only one of them can be given")
        if (self.certificate_pem is None) != (self.key_pem is None):
            _refuse("certificate_pem and key_pem: neither is of use without the other")
        if self.key_file is not None and self.certificate_file is None:
            _refuse("key_file: of no use without certificate_file")
        unknown = [version for version in self.versions if version not in _TLS_VERSIONS]
        if unknown or not self.versions:
            _refuse(f"versions: {', '.join(unknown) or 'none'} (there are {' and '.join(_TLS_VERSIONS)})")
        try:
            suites = openssl_suites(self.cipher_suites)
        except ValueError as problem:
            _refuse(f"cipher_suites: {problem}")
        if self.cipher_suites and not any(
            suites.tls13 if version == "TLSv1.3" else suites.tls12 for version in self.versions
        ):
            _refuse(f"cipher_suites: none of them is for {' or '.join(self.versions)}")

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are read; they may change."""
        return tuple(file for file in (self.ca_file, self.certificate_file, self.key_file) if file)

    @property
    def has_trust_store(self) -> bool:
        """Whether there is one of our own; else the system's authorities are trusted."""
        return self.ca_file is not None or self.ca_pem is not None

    def with_stores_of(self, other: TlsSettings) -> TlsSettings:
        """Return these settings with the key store and the trust store of other ones."""
        return replace(self, **{name: getattr(other, name) for name in _STORE_FIELDS})


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSettings:
    """Where the tokens of OAUTHBEARER come from: an identity provider, a file, or this process.

    - ``endpoint`` (None): URL of the token endpoint (``sasl.oauthbearer.token.endpoint.url``): ``https://``,
      ``http://``, or ``file:///`` of a file that has the token. None: unsecured tokens, for trying out.
    - ``client_id``, ``client_secret``, ``scope``: of the grant "client credentials" (``clientId``,
      ``clientSecret`` and ``scope`` in JAAS).
    - ``ca_file``, ``truststore_password``: the certificates that sign the endpoint's
      (``ssl.truststore.location`` and ``ssl.truststore.password`` in JAAS). Default the system's.
    - ``claims``: of unsecured tokens, without ``iat`` and ``exp``; ``sub`` is the user
      (``unsecuredLoginStringClaim_sub`` in JAAS).
    - ``lifetime`` (3600): seconds of unsecured tokens.
    """

    endpoint: str | None = None
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str | None = None
    ca_file: str | None = None
    truststore_password: str | None = field(default=None, repr=False)
    claims: Mapping[str, Any] = field(default_factory=dict)
    lifetime: int = 3600

    def __post_init__(self) -> None:
        if self.endpoint is None:
            if not self.claims.get("sub"):
                _refuse("claims: an unsecured token needs a user (sub)")
            if self.lifetime <= 0:
                _refuse(f"lifetime: {self.lifetime} is not positive")
        elif not self.endpoint.startswith(("https://", "http://", "file:///")):
            _refuse(f"endpoint: {self.endpoint!r} is no URL of https, http or file")
        elif not self.endpoint.startswith("file:") and not (self.client_id and self.client_secret):
            _refuse("client_id and client_secret: one of them is empty")


@dataclass(frozen=True, kw_only=True, slots=True)
class SaslSettings:
    """How a client authenticates with SASL.

    - ``mechanism``: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI
      (``sasl.mechanism.inter.broker.protocol``).
    - ``username``, ``password``: of PLAIN and SCRAM, as in ``sasl.jaas.config``. Neither may be empty.
    - ``tokenauth`` (False): of SCRAM, that user and password are the id and the HMAC, as Base64, of a
      delegation token (``tokenauth`` in JAAS).
    - ``tokens``: of OAUTHBEARER, where its tokens come from.
    - ``service`` ("kafka"): of GSSAPI, the first part of the brokers' principal
      (``sasl.kerberos.service.name``).
    - ``principal``, ``keytab``: of GSSAPI, as in ``sasl.jaas.config``. Without a keytab tickets are used that
      another program has got: those in ``ticket_cache``, or in the process's own cache. Needs the package
      gssapi.
    - ``extensions``: of OAUTHBEARER, sent beside the token.
    - ``token``: of OAUTHBEARER, the one to send. It is taken from ``tokens`` before a connection is made.

    Raises ConfigError, naming the setting, for a value that cannot work.
    """

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    tokenauth: bool = False
    tokens: TokenSettings | None = None
    service: str = "kafka"
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            _refuse(f"mechanism: {self.mechanism!r} is not {', '.join(MECHANISMS)}")
        if self.mechanism == OAUTHBEARER:
            if self.tokens is None and self.token is None:
                _refuse("tokens: OAUTHBEARER needs them")
        elif self.mechanism == GSSAPI:
            if not self.service:
                _refuse("service: it is empty")
            if self.keytab is not None and not self.principal:
                _refuse("keytab: it needs a principal")
        else:
            self._check_password()
        if self.tokenauth and not self.mechanism.startswith("SCRAM"):
            _refuse(f"tokenauth: {self.mechanism} takes no delegation tokens")

    def _check_password(self) -> None:
        if not self.username:
            _refuse("username: it is empty")
        if not self.password:
            _refuse("password: it is empty")
        if self.mechanism == "PLAIN" and "\0" in self.username + self.password:
            _refuse("username and password: PLAIN cannot carry the character U+0000")

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no log line may have."""
        return tuple(text for text in (self.password, self.token) if text)

    @property
    def package(self) -> str | None:
        """The package that the mechanism needs, or None."""
        return "gssapi" if self.mechanism == GSSAPI else None


def _refuse(reason: str) -> NoReturn:
    # Senders of a channel import this file, and must not load the codec for an error that they never meet.
    from ctrlchan.errors import ConfigError

    raise ConfigError(reason)
