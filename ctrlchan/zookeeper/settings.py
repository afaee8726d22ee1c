"""How to connect to ZooKeeper: servers, time limits, TLS, authentication, and the ACLs of new nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from ctrlchan.errors import ConfigError
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.client import check_servers

__all__ = ["MAX_REQUEST_BYTES", "SaslSettings", "TlsSettings", "ZooKeeperSettings", "acl_of"]

#: ``jute.maxbuffer`` of a server, by default: a longer request makes the server close the connection.
MAX_REQUEST_BYTES: Final = 0xFFFFF


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS to ZooKeeper. Files are PEM, PKCS#12 or JKS, which is found out from their content.

    ``ca``: certificates that the server's must be signed by, or None for those of the system.
    ``certificate``, ``key``: those of this client, where the server asks for them (``ssl.clientAuth``); one
    file may have both. ``key_password``: of an encrypted key, or of the store that has it.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    truststore_password: str | None = field(default=None, repr=False)
    #: ``zookeeper.ssl.endpoint.identification.algorithm``: the certificate must name the server's host.
    verify_host: bool = True
    #: Whether the server's certificate is verified at all.
    verify: bool = True
    #: Of TLS (``zookeeper.ssl.enabled.protocols``); none: all that are served.
    versions: tuple[str, ...] = ()
    #: By IANA's names (``zookeeper.ssl.cipher.suites``); none: those of OpenSSL.
    cipher_suites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """SASL to ZooKeeper by the package pure-sasl: DIGEST-MD5 (user name and password) or GSSAPI."""

    mechanism: str = "DIGEST-MD5"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    service: str = "zookeeper"
    principal: str | None = None

    def options(self) -> dict[str, Any]:
        """Return kazoo's ``sasl_options``."""
        given = {
            "mechanism": self.mechanism,
            "service": self.service,
            "username": self.username,
            "password": self.password,
            "principal": self.principal,
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperSettings:
    """The settings of a ``ZooKeeperSession``. Times are in seconds.

    ``connect``: ``HOST:PORT[,HOST:PORT…][/chroot]``. ``digest``: user name and password of the scheme
    "digest". ``set_acl``: new nodes may be changed by their creator alone (Kafka's ``zookeeper.set.acl``).
    Raises ConfigError for values that cannot work.
    """

    connect: str
    #: ``zookeeper.session.timeout.ms``, with Kafka's default. The server may grant another.
    session_timeout: float = 18.0
    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None
    digest: tuple[str, str] | None = field(default=None, repr=False)
    set_acl: bool = False
    #: Bytes of one request: ``jute.maxbuffer`` of the servers.
    max_request_bytes: int = MAX_REQUEST_BYTES

    def __post_init__(self) -> None:
        check_servers(self.connect)
        if self.session_timeout <= 0:
            raise ConfigError(f"zookeeper: a session timeout of {self.session_timeout:g} s is not positive")
        if self.max_request_bytes < 1024:
            raise ConfigError(f"zookeeper: requests of {self.max_request_bytes} bytes are too short")
        if self.set_acl and not (self.sasl or self.digest or (self.tls and self.tls.certificate)):
            # As Kafka: without a name, nobody is the creator.
            raise ConfigError("zookeeper: set_acl needs SASL, digest or a TLS certificate of this client")
        if self.sasl is not None:
            _check_sasl()


def _check_sasl() -> None:
    import importlib.util

    if importlib.util.find_spec("puresasl") is None:
        raise ConfigError("zookeeper: SASL needs the package pure-sasl (pip install 'ctrlchan[sasl]')")


def acl_of(path: str, set_acl: bool) -> tuple[Any, ...]:
    """Return kazoo's ACLs of a new node. Source: ``ZkData.defaultAcls``."""
    # Old consumers write below ``/consumers``.
    if not set_acl or path == paths.CONSUMERS:
        return tuple(OPEN_ACL_UNSAFE)
    if path.startswith(paths.SENSITIVE):
        return tuple(CREATOR_ALL_ACL)
    return (*CREATOR_ALL_ACL, *READ_ACL_UNSAFE)
