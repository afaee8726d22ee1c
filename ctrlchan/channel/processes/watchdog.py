"""Finds sender processes that hang, so that they can be killed and replaced.

A sender that has work and reports nothing is sent a PING. If it does not answer within the sender timeout
either, it hangs: it is stopped, in an endless loop, or waits for ever. Time is counted in checks, and a late
check counts as one: while this process did not run, the senders may not have run either. A sender that is
ready to run and gets no processor time, because the machine is overloaded, does not hang.

Senders without work are not checked, so an idle channel uses no processor time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ctrlchan.channel.wire.records import COMMAND_HEAD, NO_REST, PING

if TYPE_CHECKING:
    from ctrlchan.channel.processes.sender_pool import SenderHandle

__all__ = ["Watchdog"]

#: Checks between the PING and the decision that a sender hangs.
_CHECKS: Final = 4
#: A process in an endless loop uses more than this share of a processor, unless the machine is overloaded.
_LEAST_SHARE: Final = 0.02

_PING: Final = COMMAND_HEAD.pack(PING, 0, 0, 0, 0) + NO_REST


class Watchdog:
    """Checks sender processes. ``timeout``: seconds for the answer to a PING. Not thread-safe."""

    def __init__(self, timeout: float) -> None:
        self.interval = timeout / _CHECKS
        self._timeout = timeout
        # Processor seconds that a silent sender had used when it was sent a PING.
        self._used: dict[SenderHandle, float] = {}
        self._up = 0

    def check(self, senders: Iterable[SenderHandle]) -> list[SenderHandle]:
        """Return the senders that hang; one with pid 0 was never started by the fork server.

        Call this about every ``interval`` seconds with all senders that have not ended, after reading their
        reports.
        """
        senders = list(senders)
        up = sum(sender.pid > 0 for sender in senders)
        # Processes are started one after another: while any of them starts, the others may follow.
        starting, self._up = up > self._up, up
        hanging = []
        used = {}
        for sender in senders:
            if not sender.has_work() or (sender.pid == 0 and starting):
                sender.silent = 0
                continue
            sender.silent += 1
            if sender.silent == 1:
                sender.ask(_PING)
                used[sender] = _processor_seconds(sender.pid) or 0.0
                continue
            used[sender] = self._used.get(sender, 0.0)
            if sender.silent > _CHECKS and not self._waits_for_processor(sender.pid, used[sender]):
                # If it still hangs it is returned again after the same time.
                sender.silent = 1
                hanging.append(sender)
        self._used = used
        return hanging

    def _waits_for_processor(self, pid: int, used: float) -> bool:
        """Whether the process is ready to run but got hardly any processor time."""
        now = _processor_seconds(pid)
        return now is not None and now - used < self._timeout * _LEAST_SHARE


def _processor_seconds(pid: int) -> float | None:
    """Return the processor seconds used by a process that is running, ready to run, or waiting for a disk.

    Returns None if it sleeps or is stopped, or if the system does not report it.
    """
    if pid <= 0:
        return None
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] not in (b"R", b"D"):
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
