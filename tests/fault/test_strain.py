"""Many requests, kills, brokers that come and go, full pipes: nothing is lost or left behind."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import psutil
import pytest

from ctrlchan import Broker
from ctrlchan.channel import ControllerChannelManager, ControlRequest, Outcome, OutcomeKind, Sent
from ctrlchan.channel.processes.sender_pool import SenderHandle
from tests.fault.channels import MODES, config, ends, eventually, holdings, linux_only, peers
from tests.fault.peer import Peer
from tests.fault.requests import leader_and_isr, number_of, stop_replica, update

REQUESTS = 10_000
SMALL_PIPE = 4096
#: After so many brokers that come and go resources are counted for the first time.
SETTLED = 200


def senders_of(channel: ControllerChannelManager) -> set[int]:
    """Return the pids of the running senders."""
    return {broker["sender_pid"] for broker in channel.describe()["brokers"].values()} - {0}


@pytest.mark.parametrize("senders", MODES)
def test_senders_killed_at_random_during_ten_thousand_requests(senders: str | int) -> None:
    """All requests arrive in order; only those in flight when a sender was killed arrive twice."""
    chance = random.Random(1)
    kinds: list[Callable[..., ControlRequest]] = [update, leader_and_isr, stop_replica]
    with peers(4) as brokers, ControllerChannelManager(config(senders=senders), 7) as channel:
        channel.startup([peer.broker for peer in brokers])
        kills = 0
        sent = []
        for number in range(REQUESTS // 4):
            make = kinds[chance.choice([0, 0, 0, 1, 2])]
            sent += channel.send_requests([1, 2, 3, 4], make(number, size=chance.choice([64, 64, 30_000])))
            up = senders_of(channel) if chance.random() < 0.03 else set()
            if up:
                # The process may be dead already.
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(sorted(up)), signal.SIGKILL)
                    kills += 1
            if number % 50 == 49:
                channel.wait(sent[-400:-200], 60)
        outcomes = channel.wait(sent, 60)
        assert len(outcomes) == REQUESTS
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
        assert kills >= 20
        for peer in brokers:
            # A request of a killed sender may be read after later ones of its successor. Order holds within a
            # connection, and each connection continues where the one before it ended.
            numbers = [number for one in sorted(received_by_connection(peer).items()) for number in one[1]]
            again = [now for before, now in pairwise(numbers) if now == before]
            assert [n for at, n in enumerate(numbers) if at == 0 or numbers[at - 1] != n] == list(
                range(REQUESTS // 4)
            )
            deaths = {
                number: outcome.sender_deaths
                for number, outcome in enumerate(o for o in outcomes if o.broker_id == peer.broker_id)
            }
            # A request is repeated at most once for each dead sender that had it.
            assert all(again.count(number) <= deaths[number] for number in set(again))
            assert len(again) <= kills
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)


def with_small_pipes(channel: ControllerChannelManager) -> SenderHandle:
    """Return the channel's only sender, with small pipes."""
    channel_state = channel._channel_state
    assert channel_state is not None
    [sender] = channel_state.pool.senders.values()
    for fd in (sender.commands, sender.reports):
        assert fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, SMALL_PIPE) == SMALL_PIPE
    return sender


def many(peer: Peer, count: int) -> list[Broker]:
    """Return brokers that all have this peer as their endpoint."""
    return [Broker(broker_id, 1, peer.broker.endpoints) for broker_id in range(count)]


@linux_only
def test_a_full_command_pipe_blocks_no_caller() -> None:
    """A stopped sender of 100 brokers reads nothing, so its pipe is full long before the last request."""
    with Peer() as peer, ControllerChannelManager(config(senders=1), 7) as channel:
        channel.startup(many(peer, 100))
        channel.wait(channel.send_requests(range(100), update(0)), 30)
        sender = with_small_pipes(channel)
        pid = sender.pid
        os.kill(pid, signal.SIGSTOP)
        sent: list[Sent] = []

        def send() -> None:
            for number in range(1, 41):
                sent.extend(channel.send_requests(range(100), update(number)))

        ends(send)
        assert sender.blocked
        assert not any(one.done for one in sent)
        os.kill(pid, signal.SIGCONT)
        assert {outcome.attempts for outcome in channel.wait(sent, 30)} == {1}
        assert senders_of(channel) == {pid}
        for numbers in received_by_connection(peer).values():
            assert numbers == list(range(41))


@linux_only
def test_a_full_report_pipe_blocks_senders_and_loses_nothing() -> None:
    """While a callback runs no reports are read, and there are more than the pipe holds."""
    with Peer() as peer, ControllerChannelManager(config(senders=1), 7) as channel:
        channel.startup(many(peer, 50))
        channel.wait(channel.send_requests(range(50), update(0)), 30)
        with_small_pipes(channel)
        entered, go = threading.Event(), threading.Event()

        def callback(_: Outcome) -> None:
            entered.set()
            assert go.wait(30)

        sent = [channel.send_request(0, update(1), callback)]
        assert entered.wait(10)
        for number in range(1, 31):
            sent += channel.send_requests(range(1, 50), update(number))
        # Each sender has sent its requests and reported them; the pipe holds some reports of 96 bytes.
        peer.until(lambda: len(peer.received) > 51 + SMALL_PIPE // 96)
        go.set()
        assert {outcome.kind for outcome in channel.wait(sent, 30)} == {OutcomeKind.ACKNOWLEDGED}
        for numbers in received_by_connection(peer).values():
            assert numbers in ([0, 1], list(range(31)))


def received_by_connection(peer: Peer) -> dict[int, list[int]]:
    received: dict[int, list[int]] = {}
    for exchange in list(peer.received):
        received.setdefault(exchange.connection, []).append(number_of(exchange.body))
    return received


@pytest.mark.parametrize("cycles", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_brokers_that_come_and_go_leave_nothing_behind(cycles: int) -> None:
    with peers(2) as brokers, ControllerChannelManager(config(senders=2), 7) as channel:
        channel.add_broker(brokers[0].broker)
        counts = []
        for cycle in range(1, cycles + 1):
            channel.add_broker(brokers[1].broker)
            sent = channel.send_request(2, update(cycle, size=10_000))
            if cycle % 3 == 0:
                channel.wait([sent], 10)
            channel.remove_broker(2)
            channel.wait([sent], 10)
            # After the first round everything exists that is made on first use.
            if cycle in (SETTLED, cycles):
                counts.append(at_rest(channel, brokers))
        assert counts[0] == counts[1]


def at_rest(channel: ControllerChannelManager, brokers: list[Peer]) -> dict[str, Any]:
    """Return what this process and its children hold, when all of them are idle."""
    [other] = channel.send_requests([1], update(0))
    channel.wait([other], 10)
    eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)
    eventually(lambda: not brokers[1]._sockets)
    eventually(lambda: sum(thread.is_alive() for thread in brokers[1]._threads) == 1)
    brokers[1]._threads = [thread for thread in brokers[1]._threads if thread.is_alive()]
    brokers[1].received.clear()
    held = holdings()
    held["descriptors of children"] = sorted(psutil.Process(pid).num_fds() for pid in held["children"])
    return held


def test_per_broker_processes_that_come_and_go_leave_nothing_behind() -> None:
    with peers(2) as brokers, ControllerChannelManager(config(senders="per-broker"), 7) as channel:
        channel.add_broker(brokers[0].broker)
        counts = []
        for cycle in range(250):
            channel.add_broker(brokers[1].broker)
            sent = channel.send_request(2, update(cycle))
            if cycle % 5 == 0:
                channel.wait([sent], 10)
            channel.remove_broker(2)
            if cycle in (49, 249):
                eventually(lambda: len(holdings()["children"]) == 2)
                counts.append(at_rest(channel, brokers))
        # The pipes of the process that ended last may still be open at either count.
        assert all(abs(count.pop("fds") - psutil.Process().num_fds()) <= 4 for count in counts)
        assert counts[0] == counts[1]
