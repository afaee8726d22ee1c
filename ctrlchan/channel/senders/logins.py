"""Kerberos of a sender: the event loop goes on while an exchange of GSSAPI begins."""

from __future__ import annotations

from functools import partial

from ctrlchan.channel.senders.results import Results
from ctrlchan.security.logins import Login, LoginThread
from ctrlchan.security.settings import SaslSettings

__all__ = ["Logins"]


class Logins:
    """Begins exchanges for connections that wait for them. ``fd`` is readable when there are results."""

    def __init__(self) -> None:
        self._results: Results[Login] = Results()
        self.fd = self._results.fd
        self._thread = LoginThread()
        # Changed by the event loop alone.
        self._wanted: set[int] = set()

    def begin(self, ticket: int, sasl: SaslSettings, host: str) -> None:
        """Have ``collect`` return an exchange with the broker at this host, with this ticket."""
        self._wanted.add(ticket)
        self._thread.begin(sasl, host, lambda: ticket in self._wanted, partial(self._results.put, ticket))

    def forget(self, ticket: int) -> None:
        """Do not begin what no connection waits for any more. ``collect`` may still return it."""
        self._wanted.discard(ticket)

    def close(self) -> None:
        """Give the descriptors back. No exchange is beginning any more."""
        self._results.close()

    def collect(self) -> list[tuple[int, Login]]:
        """Return (ticket, exchange or error) of what has ended."""
        found = self._results.collect()
        self._wanted.difference_update(ticket for ticket, _ in found)
        return found
