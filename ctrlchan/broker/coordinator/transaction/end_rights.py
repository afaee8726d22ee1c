"""EndRight: the right to end an open transaction, while it is lent to processors. See ``gates.py``."""

from __future__ import annotations

from typing import Protocol

__all__ = ["EndRight"]


class EndRight(Protocol):
    """The right to end one transaction, while it is lent."""

    def take_back(self) -> None:
        """Let processors decide no more. Called in the gate, when the right was not used."""
