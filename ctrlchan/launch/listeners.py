"""Listeners of a broker as users write them: a name, and HOST:PORT.

Security protocols are checked in ``cli/broker_properties.py``.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Mapping

from ctrlchan.errors import ConfigError, InvalidStateError
from ctrlchan.state.brokers import parse_host_port

__all__ = ["addresses", "are_free"]


def addresses(given: Mapping[str, str] | None, place: int = 0) -> dict[str, tuple[str, int]]:
    """Return host and port by the name of a listener.

    ``place``: of the broker in its cluster. Its ports follow those of the broker before it; 0, any free one,
    stays 0. Raises ConfigError for a text that is not HOST:PORT.
    """
    found = {}
    for listener, address in (given or {}).items():
        try:
            host, port = parse_host_port(address)
        except InvalidStateError as error:
            raise ConfigError(f"listener {listener}: {error}") from None
        found[listener] = host, port and port + place
    return found


def are_free(host: str, ports: Iterable[int]) -> bool:
    """Return whether a broker could listen on each of the ports now. Raises ConfigError for no such host."""
    for port in ports:
        try:
            resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except socket.gaierror as error:
            raise ConfigError(f"host {host}: {error.strerror}") from None
        family, kind, _, _, address = resolved[0]
        with socket.socket(family, kind) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(address)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                return False
    return True
