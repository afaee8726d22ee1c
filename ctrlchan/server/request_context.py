"""Who sends the requests of a connection, and from where (``RequestContext``, ``KafkaPrincipal``)."""

from __future__ import annotations

from dataclasses import dataclass

from ctrlchan.security.principals import ANONYMOUS, Principal
from ctrlchan.state import SecurityProtocol
from ctrlchan.state.brokers import format_host_port
from ctrlchan.text import printable

__all__ = ["ANONYMOUS", "Principal", "RequestContext"]


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What all requests of a connection have in common. The server makes it once for each connection.

    ``listener``: its name. ``client_host``: the peer's IP address. ``connection_id``: a number that is higher
    than those of all connections that the server accepted before. ``principal``: ANONYMOUS without SASL and
    without the certificate of a client. ``is_forwarded``: a broker has sent the request for a client in an
    Envelope; principal and address are the client's. ``by_token``: the principal has logged in with a
    delegation token (``KafkaPrincipal.tokenAuthenticated``).
    """

    listener: str
    security_protocol: SecurityProtocol
    client_host: str
    client_port: int
    connection_id: int
    principal: Principal = ANONYMOUS
    is_forwarded: bool = False
    by_token: bool = False

    def __str__(self) -> str:
        """Return the peer for log lines, such as ``127.0.0.1:50123 (User:alice)``."""
        return f"{format_host_port(self.client_host, self.client_port)} ({printable(str(self.principal))})"
