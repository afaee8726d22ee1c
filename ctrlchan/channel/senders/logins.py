"""Kerberos of a sender: the event loop goes on while an exchange of GSSAPI begins."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress

from ctrlchan.security.logins import Login, LoginThread
from ctrlchan.security.settings import SaslSettings

__all__ = ["Logins"]


class Logins:
    """Begins exchanges for connections that wait for them. ``fd`` is readable when there are results."""

    def __init__(self) -> None:
        self.fd, self._wake = os.pipe()
        os.set_blocking(self.fd, False)
        self._thread = LoginThread()
        self._found: deque[tuple[int, Login]] = deque()
        # Changed by the event loop alone.
        self._wanted: set[int] = set()

    def begin(self, ticket: int, sasl: SaslSettings, host: str) -> None:
        """Have ``collect`` return an exchange with the broker at this host, with this ticket."""
        self._wanted.add(ticket)
        self._thread.begin(sasl, host, lambda: ticket in self._wanted, lambda login: self._end(ticket, login))

    def forget(self, ticket: int) -> None:
        """Do not begin what no connection waits for any more. ``collect`` may still return it."""
        self._wanted.discard(ticket)

    def collect(self) -> list[tuple[int, Login]]:
        """Return (ticket, exchange or error) of what has ended."""
        with suppress(BlockingIOError):
            os.read(self.fd, 4096)
        found = []
        while self._found:
            found.append(self._found.popleft())
            self._wanted.discard(found[-1][0])
        return found

    def _end(self, ticket: int, login: Login) -> None:
        self._found.append((ticket, login))
        os.write(self._wake, b"\0")
