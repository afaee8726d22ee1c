"""TLS to ZooKeeper with the contexts that connections to brokers have, too: PEM, PKCS#12 and JKS stores."""

from __future__ import annotations

import ssl
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

from ctrlchan.errors import ConfigError
from ctrlchan.security.failure import ConnectionFailed
from ctrlchan.security.settings import TlsSettings as ClientTls
from ctrlchan.security.tls_context import TlsContexts, check_suite
from ctrlchan.zookeeper.settings import TlsSettings

__all__ = ["TlsHandler"]


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's handler whose connections have these TLS settings. Changed files count for the next one.

    The constructor raises ConfigError for files that cannot be used.
    """

    def __init__(self, tls: TlsSettings) -> None:
        super().__init__()
        self._contexts = TlsContexts(_client_tls(tls))
        self._verify = tls.verify
        try:
            self._contexts.current()
        except ConnectionFailed as failed:
            raise ConfigError(f"zookeeper: {failed.detail}") from None

    def create_connection(
        self, address: tuple[str, int], timeout: float | None = None, hostname: str | None = None, **_: Any
    ) -> ssl.SSLSocket:
        """Connect, and do TLS's handshake. Raises OSError. What kazoo gives of TLS is not used."""
        try:
            context = self._contexts.current()
            if not self._verify:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        except ConnectionFailed as failed:
            raise OSError(failed.detail) from None
        plain = super().create_connection(address, timeout=timeout)
        try:
            secured = context.wrap_socket(plain, server_hostname=hostname or address[0])
        except BaseException:
            plain.close()
            raise
        try:
            check_suite(secured, self._contexts.settings)
        except ConnectionFailed as failed:
            secured.close()
            raise OSError(str(failed)) from None
        return secured


def _client_tls(tls: TlsSettings) -> ClientTls:
    more: dict[str, Any] = {"versions": tls.versions} if tls.versions else {}
    return ClientTls(
        ca_file=tls.ca,
        truststore_password=tls.truststore_password,
        certificate_file=tls.certificate,
        key_file=None if tls.key == tls.certificate else tls.key,
        keystore_password=tls.key_password,
        key_password=tls.key_password,
        verify_host_name=tls.verify_host and tls.verify,
        cipher_suites=tls.cipher_suites,
        **more,
    )
