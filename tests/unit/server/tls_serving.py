"""A TLS listener of the echo handler, clients of Python's ssl, and the certificates of both."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

import trustme

from ctrlchan.protocol import SecurityProtocol
from ctrlchan.security.listener_security import ClientAuth, ListenerSecurity
from ctrlchan.security.principal_rules import PrincipalRules
from ctrlchan.security.settings import TlsSettings
from ctrlchan.server.socket_server import Listener, SocketServer
from tests.unit.server.serving import Client, sized


@cache
def authority() -> trustme.CA:
    return trustme.CA()


@cache
def certificate(name: str) -> trustme.LeafCert:
    """Return a certificate whose subject has this common name, for servers and clients alike."""
    return issued(name)


def issued(
    name: str, *hosts: str, by: trustme.CA | None = None, expires: datetime | None = None
) -> trustme.LeafCert:
    """Return a new certificate; those of one name have the same subject."""
    return (by or authority()).issue_cert(
        *(hosts or ("localhost",)),
        common_name=name,
        organization_name="ctrlchan",
        organization_unit_name="tests",
        not_after=expires,
    )


def pem_of(issued: trustme.LeafCert) -> dict[str, Any]:
    """Return the chain and the key as arguments of TlsSettings."""
    chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
    return {"certificate_pem": chain.decode(), "key_pem": issued.private_key_pem.bytes().decode()}


def authority_pem() -> str:
    return authority().cert_pem.bytes().decode()


def tls_listener(
    client_auth: str = "none", rules: str = "DEFAULT", *, more: Mapping[str, Any] | None = None, **tls: Any
) -> Listener:
    """Return a listener with TLS; ``more``: arguments of ListenerSecurity; ``tls``: of TlsSettings."""
    settings = TlsSettings(**(pem_of(certificate("broker")) | {"ca_pem": authority_pem()} | tls))
    security = ListenerSecurity(
        tls=settings, client_auth=ClientAuth(client_auth), principal_rules=PrincipalRules(rules), **more or {}
    )
    return Listener("SECURE", "127.0.0.1", 0, SecurityProtocol.SSL, security)


def client_context(name: str | None = None, version: str | None = None) -> ssl.SSLContext:
    """Return a context of a client. ``name``: of its certificate. ``version``: the only one it speaks."""
    context = ssl.create_default_context()
    authority().configure_trust(context)
    if name is not None:
        certificate(name).configure_cert(context)
    if version is not None:
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    return context


class TlsClient:
    """A client of raw frames over TLS, on a socket that tests can use below it."""

    def __init__(
        self,
        server: SocketServer,
        context: ssl.SSLContext | None = None,
        *,
        buffer: int = 0,
        session: ssl.SSLSession | None = None,
    ) -> None:
        raw = Client(server, buffer=buffer)
        try:
            self.tls = (context or client_context()).wrap_socket(
                raw, server_hostname="localhost", session=session
            )
        except BaseException:
            raw.close()
            raise

    def __enter__(self) -> TlsClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.tls.close()

    def frames(self, *frames: bytes) -> None:
        self.tls.sendall(b"".join(map(sized, frames)))

    def exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.tls.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise ConnectionError(f"closed after {len(parts)} of {size} bytes")
            parts += part
        return bytes(parts)

    def answer(self) -> bytes:
        return self.exactly(int.from_bytes(self.exactly(4), "big"))

    def answers(self, count: int) -> list[bytes]:
        return [self.answer() for _ in range(count)]
