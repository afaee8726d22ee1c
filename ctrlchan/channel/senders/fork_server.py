"""The fork server: the process that starts the sender processes of one channel.

A threaded parent must not fork. ``multiprocess``'s own fork server may, but it has every child import the
parent's ``__main__`` again, costs 14 ms and 6 MB a child, and outlives its use. This fork server is one small
single-threaded process that has imported all that a sender needs; its children are ``multiprocess`` processes
that share its pages and start in a millisecond. It starts them, reports how they end, and ends them when the
parent has ended.

In, over the control socket: start records. Out: exit records (``wire/records.py``). When the parent closes
the socket, the fork server ends with all its children.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import resource
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from time import monotonic
from typing import Any, Final

import multiprocess

from ctrlchan.channel.senders.sender import Sender
from ctrlchan.channel.wire.records import EXIT, REPORT, START, STARTED
from ctrlchan.channel.wire.settings import ConnectionSettings

__all__ = ["main"]

#: Seconds between two checks that the parent lives: its own children may keep its pipes open.
_PARENT_CHECK: Final = 0.3
_STANDARD_ERROR: Final = 2
#: Seconds that senders have to end by themselves before they are killed.
_GRACE: Final = 0.3


class ForkServer:
    """Starts sender processes until ``parent``, a pid, has ended or has closed ``control``."""

    def __init__(
        self,
        control: socket.socket,
        shared: int,
        parent: int,
        controller_id: int,
        settings: ConnectionSettings,
    ) -> None:
        self._control = control
        self._parent = parent
        self._controller_id = controller_id
        self._settings = settings
        size = os.fstat(shared).st_size
        self._memory = memoryview(mmap.mmap(shared, size, mmap.MAP_SHARED, mmap.PROT_READ))
        os.close(shared)
        # This process has one thread, so it may fork.
        self._fork = multiprocess.get_context("fork")
        self._children: dict[int, Any] = {}
        # Children close all up to here; the control socket has the number that it had in the parent.
        self._highest_fd = max(16, control.fileno())
        control.setblocking(False)
        self._ended, ended = os.pipe()
        os.set_blocking(self._ended, False)
        os.set_blocking(ended, False)
        # Without a handler Python writes nothing to the wake-up descriptor; the handler itself does nothing.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(ended, warn_on_full_buffer=False)
        self._poll = select.poll()
        self._poll.register(control.fileno(), select.POLLIN)
        self._poll.register(self._ended, select.POLLIN)

    def run(self) -> None:
        """Serve until the parent has closed the control socket or has ended."""
        control = self._control.fileno()
        alive = True
        while alive and os.getppid() == self._parent:
            ready = [fd for fd, _ in self._poll.poll(_PARENT_CHECK * 1000)]
            if self._ended in ready:
                self._report_exits()
            if control in ready:
                alive = self._receive()
        self._end()

    def _receive(self) -> bool:
        """Start the senders that are asked for; return False when the parent has closed the socket."""
        while True:
            try:
                message, fds, _, _ = socket.recv_fds(self._control, START.size, 2)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if len(message) < START.size or len(fds) < 2:
                return False
            self._start(*START.unpack(message), *fds)

    def _start(self, number: int, broker_id: int, commands: int, reports: int) -> None:
        serves = f"sender-{number}" if broker_id < 0 else f"to-broker-{broker_id}-send-thread"
        name = f"Controller-{self._controller_id}-{serves}"
        child = self._fork.Process(target=self._run_sender, args=(commands, reports), name=name)
        child.start()
        with suppress(OSError):
            # An empty pipe has room. The parent needs the pid of a process that hangs before it is ready.
            os.write(reports, REPORT.pack(STARTED, 0, 0, 0, child.pid, 0, 0, 0, 0, 0, 0, 0, b""))
        os.close(commands)
        os.close(reports)
        self._children[number] = child
        self._highest_fd = max(self._highest_fd, child.sentinel, commands, reports)

    def _run_sender(self, commands: int, reports: int) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # The fork server has closed the pipes of other senders; its own descriptors are closed here.
        low, high = sorted((commands, reports))
        os.closerange(3, low)
        os.closerange(low + 1, high)
        os.closerange(high + 1, self._highest_fd + 16)
        fence = self._memory[:8].cast("q")
        Sender(commands, reports, self._memory, fence, self._settings).run()
        # Without waiting for name look-ups in daemon threads.
        os._exit(0)

    def _report_exits(self) -> None:
        """Report children that have ended. (Not by their sentinels: a sender closes its copy.)"""
        with suppress(BlockingIOError):
            os.read(self._ended, 4096)
        for number, child in list(self._children.items()):
            if child.exitcode is not None:
                del self._children[number]
                with suppress(OSError):
                    self._control.send(EXIT.pack(number, child.pid, child.exitcode))
                child.close()

    def _end(self) -> None:
        """Wait until the senders end, as they do when their pipes are closed, and kill those that do not."""
        deadline = monotonic() + _GRACE
        self._poll.unregister(self._control.fileno())
        self._report_exits()
        while self._children and monotonic() < deadline:
            self._poll.poll(max(0.0, deadline - monotonic()) * 1000)
            self._report_exits()
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.join()


def main() -> None:
    """Run a fork server. ``argv[1]`` is JSON: control, shared, parent, controller_id, settings, modules."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _open_standard_descriptors()
    given = json.loads(sys.argv[1])
    # A broker needs a few file descriptors, and only the hard limit is meant as a limit.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for name in given["modules"]:
        import_module(name)
    # The garbage collector must not write into the pages of what was imported: children share them.
    gc.collect()
    gc.freeze()
    settings = ConnectionSettings(**given["settings"])
    with socket.socket(fileno=given["control"]) as control:
        ForkServer(control, given["shared"], given["parent"], given["controller_id"], settings).run()


def _open_standard_descriptors() -> None:
    """Open the null device for each standard descriptor that is closed.

    A pipe to the parent must not get the number of standard error, which is written to when a program fails.
    """
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= _STANDARD_ERROR:
        fd = os.open(os.devnull, os.O_RDWR)
    os.close(fd)
