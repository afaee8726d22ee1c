"""Exceptions that interrupt a public call at any point: Ctrl-C, a time-out made of SIGALRM, a debugger.

Whatever they interrupt, every earlier request ends and nothing stays in use.
"""

from __future__ import annotations

import gc
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import ctrlchan
from ctrlchan.channel import ControllerChannelManager, OutcomeKind, Sent
from tests.fault.channels import channel_to, config, eventually, holdings, holds_no_more_than, peers
from tests.fault.peer import silence
from tests.fault.requests import leader_and_isr
from tests.fault.test_merging import one_row

PACKAGE = str(Path(ctrlchan.__file__).parent)


class Interruption(BaseException):
    """An exception as a signal handler raises it."""


@contextmanager
def interrupted_at(step: int) -> Iterator[None]:
    """Raise Interruption at the given line, and at every third one after it.

    Counted are the lines of the package that run in the block.
    """
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event in ("line", "call"):
            count += 1
            if count >= step and (count - step) % 3 == 0:
                raise Interruption
        return trace

    before = sys.gettrace()
    try:
        sys.settrace(trace)
        yield
    except Interruption:
        pass
    finally:
        sys.settrace(before)


def backlog(channel: ControllerChannelManager, count: int) -> list[Sent]:
    return [one for number in range(count) for one in channel.send_requests([1, 2], one_row(number))]


# Python only reports an exception in a generator that is being closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("call", ["send", "cancel", "add", "remove", "startup", "resign", "shutdown"])
@pytest.mark.parametrize("seed", range(2))
def test_every_request_ends_whatever_interrupts_a_call(call: str, seed: int) -> None:
    chance = random.Random(f"{call} {seed}")
    before = holdings()
    with peers(2) as brokers:
        for peer in brokers:
            peer.script.append(silence)
        channel = ControllerChannelManager(config(max_backlog_bytes=20_000), 7)
        channel.startup([peer.broker for peer in brokers])
        sent = backlog(channel, 70)
        calls: dict[str, Callable[[], Any]] = {
            "send": lambda: sent.extend(backlog(channel, 70)),
            "cancel": lambda: channel.cancel(chance.sample(sent, 20)),
            "add": lambda: channel.add_broker(brokers[0].broker),
            "remove": lambda: channel.remove_broker(2),
            "startup": lambda: channel.startup([peer.broker for peer in brokers]),
            "resign": channel.resign,
            "shutdown": lambda: channel.shutdown(20),
        }
        for _ in range(12):
            with interrupted_at(chance.randrange(1, 120)), suppress(Exception):
                calls[call]()
        if call not in ("resign", "shutdown"):
            sent += backlog(channel, 3)
            for broker_id in list(channel.describe()["brokers"]):
                channel.remove_broker(broker_id)
            assert len(channel.wait(sent, 20)) == len(sent)
            eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)
        channel.shutdown(20)
        assert len(channel.wait(sent, 20)) == len(sent)
    eventually(lambda: holds_no_more_than(before))


@pytest.fixture
def no_gc_callbacks() -> Iterator[None]:
    """Remove callbacks of the garbage collector: Python only reports an exception that interrupts one.

    Hypothesis adds one when any of its tests has run in this process.
    """
    callbacks = gc.callbacks.copy()
    gc.callbacks.clear()
    yield
    gc.callbacks.extend(callbacks)


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals come to the main thread"
)
@pytest.mark.usefixtures("no_gc_callbacks")
@pytest.mark.parametrize("merges", [True, False])
def test_a_storm_of_alarms_loses_no_request(merges: bool) -> None:
    chance = random.Random(11)

    def raise_interruption(number: int, frame: FrameType | None) -> None:
        raise Interruption

    with peers(2) as brokers:
        brokers[0].script.append(silence)
        with channel_to(brokers, merge_update_metadata=merges, socket_timeout=60.0) as channel:
            sent: list[Sent] = []
            handler = signal.signal(signal.SIGALRM, raise_interruption)
            interruptions = 0
            try:
                for number in range(300):
                    try:
                        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00002, 0.002))
                        for _ in range(200):
                            sent += channel.send_requests([1, 2], one_row(number))
                    except Interruption:
                        interruptions += 1
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
            finally:
                signal.signal(signal.SIGALRM, handler)
            assert interruptions > 100
            # Requests to the broker that answers end by themselves, the others when their broker is removed.
            channel.wait([one for one in sent if one.broker_id == 2], 60)
            channel.remove_broker(1)
            channel.wait(sent, 20)
            eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)
            [outcome] = channel.wait(channel.send_requests([2], leader_and_isr(1)), 20)
            assert outcome.kind is OutcomeKind.ACKNOWLEDGED
