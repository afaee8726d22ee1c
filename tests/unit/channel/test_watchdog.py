"""The checks of the watchdog, without processes."""

from __future__ import annotations

import os
from typing import Any

from ctrlchan.channel.processes.watchdog import Watchdog
from ctrlchan.channel.wire.records import COMMAND, PING
from tests.fault.channels import linux_only


class FakeSender:
    def __init__(self, pid: int = 2**22 + 1, has_unfinished: bool = True) -> None:
        self.pid = pid
        self.silent = 0
        self.asked: list[bytes] = []
        self._has_unfinished = has_unfinished

    def has_work(self) -> bool:
        return self._has_unfinished

    def ask(self, record: bytes) -> None:
        self.asked.append(record)


def check(watchdog: Watchdog, *senders: Any, times: int = 1) -> list[Any]:
    found: list[Any] = []
    for _ in range(times):
        found += watchdog.check(senders)
    return found


def test_a_silent_sender_gets_one_ping_and_hangs_after_the_timeout() -> None:
    watchdog, sender = Watchdog(10), FakeSender()
    assert watchdog.interval == 2.5
    assert check(watchdog, sender, times=4) == []
    assert [COMMAND.unpack(record)[0] for record in sender.asked] == [PING]
    assert check(watchdog, sender) == [sender]
    # If it still hangs, it is returned again after the same time.
    assert check(watchdog, sender, times=3) == []
    assert check(watchdog, sender) == [sender]


def test_a_sender_that_answers_or_has_no_work_does_not_hang() -> None:
    watchdog, answers, idle = Watchdog(1), FakeSender(), FakeSender(has_unfinished=False)
    for _ in range(10):
        assert check(watchdog, answers, idle, times=3) == []
        answers.silent = 0
    assert len(answers.asked) == 10
    assert idle.asked == []


def test_starting_senders_do_not_hang_while_others_start() -> None:
    watchdog, senders = Watchdog(1), [FakeSender(pid=0) for _ in range(10)]
    for sender in senders[:-1]:
        assert check(watchdog, *senders, times=4) == []
        sender.pid = 2**22 + 1
        sender._has_unfinished = False
    # One sender starts at each check; the last one reports nothing for too long.
    assert check(watchdog, *senders, times=5) == []
    assert check(watchdog, *senders) == [senders[-1]]


@linux_only
def test_a_process_with_hardly_any_processor_time_does_not_hang() -> None:
    """The test uses its own process, which is always ready to run."""
    sender = FakeSender(pid=os.getpid())
    assert check(Watchdog(1e6), sender, times=50) == []
    # With a timeout of nearly zero it has used more than its share.
    sender = FakeSender(pid=os.getpid())
    assert check(Watchdog(-1e-9), sender, times=5) == [sender]
