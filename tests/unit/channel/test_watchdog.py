"""The watchdog's looks, without processes."""

from __future__ import annotations

import os
from typing import Any

from ctrlchan.channel.processes.watchdog import Watchdog
from ctrlchan.channel.wire.records import COMMAND, PING
from tests.fault.channels import linux_only


class FakeSender:
    def __init__(self, pid: int = 2**22 + 1, owes: bool = True) -> None:
        self.pid = pid
        self.silent = 0
        self.asked: list[bytes] = []
        self._owes = owes

    def has_work(self) -> bool:
        return self._owes

    def ask(self, record: bytes) -> None:
        self.asked.append(record)


def look(watchdog: Watchdog, *senders: Any, times: int = 1) -> list[Any]:
    found: list[Any] = []
    for _ in range(times):
        found += watchdog.check(senders)
    return found


def test_the_silent_are_asked_once_and_hang_after_the_timeout() -> None:
    watchdog, sender = Watchdog(10), FakeSender()
    assert watchdog.interval == 2.5
    assert look(watchdog, sender, times=4) == []
    assert [COMMAND.unpack(record)[0] for record in sender.asked] == [PING]
    assert look(watchdog, sender) == [sender]
    # Given up again after the same time, should it still be there.
    assert look(watchdog, sender, times=3) == []
    assert look(watchdog, sender) == [sender]


def test_who_answers_or_owes_nothing_does_not_hang() -> None:
    watchdog, answers, idle = Watchdog(1), FakeSender(), FakeSender(owes=False)
    for _ in range(10):
        assert look(watchdog, answers, idle, times=3) == []
        answers.silent = 0
    assert len(answers.asked) == 10
    assert idle.asked == []


def test_those_that_start_are_waited_for_while_any_comes_up() -> None:
    watchdog, senders = Watchdog(1), [FakeSender(pid=0) for _ in range(10)]
    for sender in senders[:-1]:
        assert look(watchdog, *senders, times=4) == []
        sender.pid = 2**22 + 1
        sender._owes = False
    # Of those that come up, one a look; of the last one nothing was heard for too long.
    assert look(watchdog, *senders, times=5) == []
    assert look(watchdog, *senders) == [senders[-1]]


@linux_only
def test_a_process_that_runs_but_little_is_starved() -> None:
    """This very process: ready to run whenever it looks."""
    sender = FakeSender(pid=os.getpid())
    assert look(Watchdog(1e6), sender, times=50) == []
    # It has run longer than a share of no time at all.
    sender = FakeSender(pid=os.getpid())
    assert look(Watchdog(-1e-9), sender, times=5) == [sender]
