"""Memory that the parent writes and all senders read: request frames, each once, however many brokers get it.

One file without a name, mapped by everybody, so that the kernel takes it back when the last of them is gone,
however they went. It is sparse and larger than it will ever be filled; what was freed is kept for the next
frame up to a limit and then given back. The first page holds cells; the first of them is the fence.

Every method is called with the channel's lock held; the bytes of a new frame are written without it.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Final

from ctrlchan.channel.queues._frames import Frame, FrameMemory
from ctrlchan.errors import ChannelError

__all__ = ["Frame", "SharedMemory"]

_PAGE: Final = mmap.PAGESIZE
#: An address space that is too small for the file asked for is offered halves, down to this.
_SMALLEST: Final = 2**20

#: No epoch is fenced; every epoch is.
UNFENCED: Final = -(2**63)
ALL_FENCED: Final = 2**63 - 1


class SharedMemory(FrameMemory):
    """``size`` bytes were asked for; fewer when the platform does not give as much address space."""

    def __init__(self, size: int) -> None:
        self.fd = _nameless_file()
        try:
            available, mapping = _map(self.fd, size)
        except BaseException:
            os.close(self.fd)
            raise
        super().__init__(mapping, available)
        self._cells = self.view[:8].cast("q")
        self.fence = UNFENCED

    @property
    def fence(self) -> int:
        """The highest controller epoch that senders must not send."""
        return self._cells[0]

    @fence.setter
    def fence(self, epoch: int) -> None:
        self._cells[0] = epoch

    @property
    def largest(self) -> int:
        """A frame above this is not worth waiting for: it might never find room."""
        return self.size // 2

    def close(self) -> None:
        """Nothing may be called any more. A frame that is being written has the mapping to itself, which goes
        with it."""
        del self._cells
        super().close()
        os.close(self.fd)


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def _nameless_file() -> int:
    """Memory as a file where the kernel has that, else a file that was unlinked."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ctrlchan", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _map(fd: int, size: int) -> tuple[int, mmap.mmap]:
    size = _pages(size)
    while True:
        try:
            os.ftruncate(fd, size)
            return size, mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as problem:
            if size // 2 < _SMALLEST:
                raise ChannelError(f"no shared memory for requests: {problem}") from problem
            size = _pages(size // 2)
