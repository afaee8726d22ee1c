"""Kerberos without a KDC, for tests: exchanges begin at once, or wait, or fail, by the name of the host."""

from __future__ import annotations

import threading

import pytest

from ctrlchan.security.mechanisms import MechanismError
from ctrlchan.security.settings import SaslSettings
from tests.fault.secure_peer import TICKET

__all__ = ["BROKEN", "REFUSED", "SLOW", "FakeKdc"]

SLOW, BROKEN, REFUSED = "slow.example", "broken.example", "refused.example"


class _Exchange:
    """An exchange of GSSAPI that has a ticket."""

    is_over = False

    def begin(self) -> bytes:
        return TICKET

    def proceed(self, challenge: bytes) -> None:
        return None


class FakeKdc:
    """Has a ticket for each host but BROKEN and REFUSED; for SLOW when `answers` is set.

    ``hosts``: those that it was asked for. It counts as long as `patch` does.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.hosts: list[str] = []
        self.answers = threading.Event()
        patch.setattr("ctrlchan.security.logins.client_mechanism", self._exchange)

    def close(self) -> None:
        """Wait until nobody asks any more."""
        self.answers.set()
        for thread in threading.enumerate():
            if thread.name == "kerberos-logins":
                thread.join()

    def _exchange(self, sasl: SaslSettings, host: str) -> _Exchange:
        self.hosts.append(host)
        if host == SLOW:
            assert self.answers.wait(60)
        if host == REFUSED:
            raise MechanismError("no ticket for kafka/refused.example")
        if host == BROKEN:
            raise RuntimeError("of the library")
        return _Exchange()
