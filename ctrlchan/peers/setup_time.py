"""SetupTime: how long getting a connection ready may take: longer after each failure (KIP-601).

Source: ``ClusterConnectionStates`` of Kafka 3.9.
"""

from __future__ import annotations

__all__ = ["SetupTime"]

#: 2^5 times the first time is longer than any sensible last one.
_MOST_DOUBLINGS = 5


class SetupTime:
    """Seconds for TCP, TLS and SASL: ``first``, doubled after each failure up to ``most``."""

    def __init__(self, first: float = 10.0, most: float = 30.0) -> None:
        self._first = first
        self._most = max(first, most)
        self._failures = 0

    @property
    def seconds(self) -> float:
        """The time for the next attempt."""
        return min(self._most, self._first * (1 << self._failures))

    def failed(self) -> None:
        """Note that an attempt has failed."""
        self._failures = min(self._failures + 1, _MOST_DOUBLINGS)

    def succeeded(self) -> None:
        """Note that a connection is ready."""
        self._failures = 0
