"""The one rule by which an endpoint of a broker is chosen: for connections and in LeaderAndIsr requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["ListenerRule"]


class ListenerRule(NamedTuple):
    """Chooses the endpoint of a listener with this name and, unless it is None, this security protocol."""

    name: str
    #: Code of the security protocol (``SECURITY_PROTOCOLS``).
    protocol: int | None = None
    #: Without such an endpoint, the first one with the protocol is chosen.
    any_name: bool = False

    def choose(self, endpoints: Iterable[tuple[str, int]]) -> int | None:
        """Return the position of the endpoint among these (listener, security protocol), or None."""
        first = None
        for position, (listener, protocol) in enumerate(endpoints):
            if self.protocol is None or protocol == self.protocol:
                if listener == self.name:
                    return position
                if first is None and self.any_name:
                    first = position
        return first
