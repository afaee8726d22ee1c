"""Shared memory for request frames: the parent writes it, all senders read it.

A frame is stored once for all its brokers. The memory is one file without a name, which all processes map, so
the kernel frees it when the last process has ended. The file is sparse. Freed pages are kept for the next
frames up to a limit, and then given back. The first eight bytes are the fence (int64); the rest of the first
page is unused.

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
#: If the address space is too small, half the size is tried, and so on down to this.
_SMALLEST: Final = 2**20

#: No epoch is fenced; every epoch is.
UNFENCED: Final = -(2**63)
ALL_FENCED: Final = 2**63 - 1


class SharedMemory(FrameMemory):
    """Memory of ``size`` bytes, or fewer if the platform does not give as much address space."""

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
        """Size of the largest frame that is accepted; a larger one might never find room."""
        return self.size // 2

    def close(self) -> None:
        """Free the memory; no other method may be called after this.

        A caller that is still writing a frame keeps the mapping alive.
        """
        del self._cells
        super().close()
        os.close(self.fd)


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def _nameless_file() -> int:
    """Return a descriptor of a memory file where the kernel has them, else of an unlinked file."""
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
