"""LoginThread: exchanges of GSSAPI begin on a thread, because that may wait for a KDC."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeAlias

from ctrlchan.security.failure import ConnectionFailed, Failure
from ctrlchan.security.mechanisms import NO_TICKET, ClientMechanism, MechanismError, client_mechanism
from ctrlchan.security.settings import SaslSettings

__all__ = ["Login", "LoginThread"]

#: An exchange that has begun, or why it has not: an expected error is a MechanismError.
Login: TypeAlias = ClientMechanism | Exception


class _Task(NamedTuple):
    sasl: SaslSettings
    host: str
    is_wanted: Callable[[], bool]
    done: Callable[[Login], None]


class LoginThread:
    """Begins exchanges, one after the other: whose ticket is there does not wait for whose is not.

    The thread ends when there is nothing to do. Threads may share the object.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tasks: deque[_Task] = deque()
        self._runs = False

    def begin(
        self, sasl: SaslSettings, host: str, is_wanted: Callable[[], bool], done: Callable[[Login], None]
    ) -> None:
        """Have `done` called on the thread with an exchange with the broker at this host, or with an error.

        What is no longer wanted when its turn comes is left out.
        """
        with self._lock:
            self._tasks.append(_Task(sasl, host, is_wanted, done))
            if self._runs:
                return
            self._runs = True
        threading.Thread(target=self._run, name="kerberos-logins", daemon=True).start()

    def login(self, sasl: SaslSettings, host: str, seconds: float) -> ClientMechanism:
        """Return an exchange with the broker at this host. Raises ConnectionFailed, after so many seconds."""
        found: SimpleQueue[Login] = SimpleQueue()
        waits = [True]
        self.begin(sasl, host, lambda: bool(waits), found.put)
        try:
            login = found.get(timeout=seconds)
        except Empty:
            raise ConnectionFailed(Failure.HANDSHAKE_TIMEOUT, NO_TICKET) from None
        finally:
            waits.clear()
        if isinstance(login, MechanismError):
            raise ConnectionFailed(Failure.AUTHENTICATION, str(login))
        if isinstance(login, Exception):
            raise login
        return login

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._tasks:
                    self._runs = False
                    return
                task = self._tasks.popleft()
            if not task.is_wanted():
                continue
            login: Login
            try:
                login = client_mechanism(task.sasl, task.host)
            except Exception as problem:  # noqa: BLE001 - the connection that waits for it says why it fails
                login = problem
            task.done(login)
