"""Listeners of a broker as users write them: a name, and HOST:PORT."""

from __future__ import annotations

from collections.abc import Mapping

from ctrlchan.errors import ConfigError, InvalidStateError
from ctrlchan.state.brokers import parse_host_port

__all__ = ["addresses"]


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
