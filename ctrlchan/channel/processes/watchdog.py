"""Sender processes that live and do nothing: found, so that they can be killed and replaced.

A sender that has work and says nothing is asked (PING); one that does not answer either, within the sender
timeout, hangs: it is stopped, or in a loop, or waits for something that never comes. Time is counted in
looks, and a look that comes late counts as one: while this process itself did not run, neither did the
senders. A sender that wants to run and is not let, on a machine with too much to do, does not hang.

Senders without work are not looked at, so that an idle channel stays idle.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ctrlchan.channel.wire.records import COMMAND_HEAD, NO_REST, PING

if TYPE_CHECKING:
    from ctrlchan.channel.processes.sender_pool import SenderHandle

__all__ = ["Watchdog"]

#: Looks between the question and the verdict.
_LOOKS: Final = 4
#: A process that runs in a loop gets more than this share of a processor, unless it must share with many.
_STARVED: Final = 0.02

_PING: Final = COMMAND_HEAD.pack(PING, 0, 0, 0, 0) + NO_REST


class Watchdog:
    """``timeout``: seconds that a sender may be silent after it was asked. Not thread-safe."""

    def __init__(self, timeout: float) -> None:
        self.interval = timeout / _LOOKS
        self._timeout = timeout
        # Processor seconds that a silent sender had used when it was asked.
        self._used: dict[SenderHandle, float] = {}
        self._up = 0

    def look(self, senders: Iterable[SenderHandle]) -> list[SenderHandle]:
        """Call about every ``interval`` seconds, after having read what they report, with all that have not
        ended. Those that hang; one whose pid is 0 was never heard of."""
        senders = list(senders)
        up = sum(sender.pid > 0 for sender in senders)
        # Processes are started one after the other: while any of them comes up, the others may follow.
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
            if sender.silent > _LOOKS and not self._is_starved(sender.pid, used[sender]):
                # Another verdict after the same time again.
                sender.silent = 1
                hanging.append(sender)
        self._used = used
        return hanging

    def _is_starved(self, pid: int, used: float) -> bool:
        """Whether it is ready to run and has hardly run."""
        now = _processor_seconds(pid)
        return now is not None and now - used < self._timeout * _STARVED


def _processor_seconds(pid: int) -> float | None:
    """What a process that is running, ready to run, or waiting for a disk has used so far; None for one that
    sleeps or is stopped, and where the system does not tell."""
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
