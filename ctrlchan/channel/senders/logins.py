"""Kerberos of a sender: the exchanges of GSSAPI begin on a thread, which may wait for the KDC."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeAlias

from ctrlchan.security.mechanisms import ClientMechanism, client_mechanism
from ctrlchan.security.settings import SaslSettings

__all__ = ["Login", "LoginThread"]

#: An exchange that has begun, or why it has not.
Login: TypeAlias = ClientMechanism | Exception


class LoginThread:
    """Gets tickets, one after the other: requests to brokers with a connection do not wait for the KDC.

    Only the first step of an exchange may wait. ``fd`` is readable when ``collect`` has results.
    """

    def __init__(self) -> None:
        self.fd, self._wake = os.pipe()
        os.set_blocking(self.fd, False)
        self._found: deque[tuple[int, Login]] = deque()
        self._tasks: SimpleQueue[tuple[int, SaslSettings, str] | None] = SimpleQueue()
        # Changed by the event loop alone.
        self._wanted: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="logins", daemon=True)
        self._thread.start()

    def begin(self, ticket: int, sasl: SaslSettings, host: str) -> None:
        """Have ``collect`` return an exchange with the broker at this host, with this ticket."""
        self._wanted.add(ticket)
        self._tasks.put((ticket, sasl, host))

    def forget(self, ticket: int) -> None:
        """Do not begin what nobody waits for any more. ``collect`` may still return it."""
        self._wanted.discard(ticket)

    def collect(self) -> list[tuple[int, Login]]:
        """Return (ticket, exchange or error) of what has ended. An expected error is a MechanismError."""
        with suppress(BlockingIOError):
            os.read(self.fd, 4096)
        found = []
        while self._found:
            found.append(self._found.popleft())
            self._wanted.discard(found[-1][0])
        return found

    def _run(self) -> None:
        for ticket, sasl, host in iter(self._tasks.get, None):
            if ticket not in self._wanted:
                continue
            try:
                self._found.append((ticket, client_mechanism(sasl, host)))
            except Exception as problem:  # noqa: BLE001 - the connection that waits for it says why it fails
                self._found.append((ticket, problem))
            os.write(self._wake, b"\0")

    def close(self) -> None:
        """Wait until the thread has done what was to be done, and end it."""
        self._tasks.put(None)
        self._thread.join()
        os.close(self.fd)
        os.close(self._wake)
