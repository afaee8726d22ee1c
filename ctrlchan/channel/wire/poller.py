"""Waiting for file descriptors: epoll where there is one, ``selectors`` elsewhere, with one interface.

``selectors`` builds a SelectorKey tuple for each event, which costs as much as reading a small record does.
"""

from __future__ import annotations

import select
import selectors
from typing import Final, TypeAlias

__all__ = ["READ", "WRITE", "EpollPoller", "Poller", "PortablePoller", "new_poller"]

#: What to wait for. In an answer, anything but WRITE means: read, and find out.
READ: Final = 1
WRITE: Final = 4


class PortablePoller:
    """A poller for every platform that ``selectors`` supports."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def register(self, fd: int, interest: int) -> None:
        if fd in self._selector.get_map():
            # A descriptor that was closed while registered; epoll forgets such by itself.
            self._selector.unregister(fd)
        self._selector.register(fd, _SELECTORS_MASK[interest])

    def modify(self, fd: int, interest: int) -> None:
        self._selector.modify(fd, _SELECTORS_MASK[interest])

    def unregister(self, fd: int) -> None:
        self._selector.unregister(fd)

    def wait(self, timeout: float | None, most: int = -1) -> list[tuple[int, int]]:
        """Return (fd, what it is ready for); nothing when `timeout` seconds have passed.

        At most `most` at a time are wanted, the others next time; this poller always returns all.
        """
        return [(key.fd, _INTEREST[mask]) for key, mask in self._selector.select(timeout)]

    def close(self) -> None:
        self._selector.close()


_BOTH: Final = selectors.EVENT_READ | selectors.EVENT_WRITE
_INTEREST: Final = {selectors.EVENT_READ: READ, selectors.EVENT_WRITE: WRITE, _BOTH: READ | WRITE}
_SELECTORS_MASK: Final = {interest: mask for mask, interest in _INTEREST.items()}


class EpollPoller:
    """Linux's epoll, whose masks for reading and writing are READ and WRITE."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.register = self._epoll.register
        self.modify = self._epoll.modify
        self.unregister = self._epoll.unregister
        self.wait = self._epoll.poll
        self.close = self._epoll.close


#: The poller of any platform.
Poller: TypeAlias = EpollPoller | PortablePoller


def new_poller() -> Poller:
    """Return the fastest poller of this platform."""
    return EpollPoller() if hasattr(select, "epoll") else PortablePoller()
