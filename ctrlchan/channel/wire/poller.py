"""Waiting for file descriptors: epoll where there is one, ``selectors`` elsewhere, one face for both.

``selectors`` builds a SelectorKey tuple for each event, which costs as much as reading a small record does.
"""

from __future__ import annotations

import select
import selectors
from typing import Final, TypeAlias

__all__ = ["READ", "WRITE", "EpollPoller", "Poller", "PortablePoller", "new_poller"]

#: Interests. In an answer, anything but WRITE means: read, and see what has become of it.
READ: Final = 1
WRITE: Final = 4


class PortablePoller:
    """For any platform that ``selectors`` knows."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def register(self, fd: int, interest: int) -> None:
        if fd in self._selector.get_map():
            # Of a descriptor that was closed without a word, which epoll forgets by itself.
            self._selector.unregister(fd)
        self._selector.register(fd, _SELECTORS_MASK[interest])

    def modify(self, fd: int, interest: int) -> None:
        self._selector.modify(fd, _SELECTORS_MASK[interest])

    def unregister(self, fd: int) -> None:
        self._selector.unregister(fd)

    def wait(self, timeout: float | None, most: int = -1) -> list[tuple[int, int]]:
        """(fd, what it is ready for); empty when ``timeout`` seconds have passed. ``most``: so many are
        wanted at once, the others next time; a platform that cannot choose gives all."""
        return [(key.fd, _INTEREST[mask]) for key, mask in self._selector.select(timeout)]

    def close(self) -> None:
        self._selector.close()


_BOTH: Final = selectors.EVENT_READ | selectors.EVENT_WRITE
_INTEREST: Final = {selectors.EVENT_READ: READ, selectors.EVENT_WRITE: WRITE, _BOTH: READ | WRITE}
_SELECTORS_MASK: Final = {interest: mask for mask, interest in _INTEREST.items()}


class EpollPoller:
    """epoll itself: its masks for reading and writing are READ and WRITE."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self.register = self._epoll.register
        self.modify = self._epoll.modify
        self.unregister = self._epoll.unregister
        self.wait = self._epoll.poll
        self.close = self._epoll.close


#: What this platform does best.
Poller: TypeAlias = EpollPoller | PortablePoller


def new_poller() -> Poller:
    return EpollPoller() if hasattr(select, "epoll") else PortablePoller()
