"""Hanging processes are found, killed and replaced; ``shutdown`` does not wait for hanging callbacks."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

import psutil
import pytest

from ctrlchan.channel import ControllerChannelManager, Outcome, OutcomeKind
from tests.fault.channels import (
    MODES,
    channel_to,
    config,
    ends,
    eventually,
    holdings,
    holds_no_more_than,
    linux_only,
    peers,
    run_in_fork_server,
)
from tests.fault.peer import hang_up, silence
from tests.fault.requests import number_of, update

#: Seconds; longer than a process takes to start on a busy machine.
SENDER_TIMEOUT = 2.0
#: Seconds, for tests in which no process may be killed.
PATIENT = 4.0


def senders_of(channel: ControllerChannelManager) -> dict[int, int]:
    """Return the pid of each broker's sender; 0: it has not started."""
    return {broker_id: broker["sender_pid"] for broker_id, broker in channel.describe()["brokers"].items()}


def stop(pid: int) -> None:
    assert pid > 0
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)


# -- the watchdog


@pytest.mark.parametrize("senders", MODES)
def test_a_stopped_sender_is_replaced(senders: str | int, caplog: pytest.LogCaptureFixture) -> None:
    with peers(2) as brokers, channel_to(brokers, senders=senders, sender_timeout=SENDER_TIMEOUT) as channel:
        channel.wait(channel.send_requests([1, 2], update(0)), 60)
        pid = senders_of(channel)[1]
        stop(pid)
        sent = [channel.send_request(1, update(number)) for number in range(1, 100)]
        outcomes = channel.wait(sent, 60)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
        assert [number_of(exchange.body) for exchange in brokers[0].received] == list(range(100))
        assert senders_of(channel)[1] != pid
        assert not psutil.pid_exists(pid)
    assert f"(pid {pid}) does not answer; it is killed." in caplog.text


def test_a_sender_in_an_endless_loop_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    endless_loop = f"""
from ctrlchan.channel.senders.sender import Sender
proceed = Sender._proceed

def run_in_a_circle(self):
    import os
    if os.path.exists({str(flag)!r}):
        os.unlink({str(flag)!r})
        while True:
            pass
    proceed(self)

Sender._proceed = run_in_a_circle
"""
    run_in_fork_server(monkeypatch, endless_loop)
    with peers(2) as brokers, channel_to(brokers, senders=1, sender_timeout=SENDER_TIMEOUT) as channel:
        channel.wait(channel.send_requests([1, 2], update(0)), 60)
        flag.touch()
        outcomes = channel.wait([one for n in (1, 2) for one in channel.send_requests([1, 2], update(n))], 60)
        assert sum(outcome.sender_deaths for outcome in outcomes) > 0
        for peer in brokers:
            assert [number_of(exchange.body) for exchange in peer.received] == [0, 1, 2]


@pytest.mark.parametrize("senders", MODES)
def test_a_sender_that_stops_before_it_is_ready_is_replaced(
    senders: str | int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The fork server has reported its start, but the sender itself has reported nothing."""
    flag = tmp_path / "flag"
    stopped = f"""
from ctrlchan.channel.senders.fork_server import ForkServer
run_sender = ForkServer._run_sender

def stop(self, commands, reports):
    import os, signal
    if os.path.exists({str(flag)!r}):
        os.unlink({str(flag)!r})
        os.kill(os.getpid(), signal.SIGSTOP)
    run_sender(self, commands, reports)

ForkServer._run_sender = stop
"""
    flag.touch()
    run_in_fork_server(monkeypatch, stopped)
    with peers(2) as brokers, channel_to(brokers, senders=senders, sender_timeout=SENDER_TIMEOUT) as channel:
        sent = channel.send_requests([1, 2], update(0))

        def stopped_ones() -> list[int]:
            found = []
            for pid in senders_of(channel).values():
                with suppress(psutil.NoSuchProcess):
                    if pid and psutil.Process(pid).status() == psutil.STATUS_STOPPED:
                        found.append(pid)
            return found

        eventually(lambda: bool(stopped_ones()))
        pids = stopped_ones()
        outcomes = channel.wait(sent, 60)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
        eventually(lambda: not any(psutil.pid_exists(pid) for pid in pids))
        # The fork server works, so it is not replaced.
        assert channel._channel_state is not None
        assert channel._channel_state.pool.fork_servers == 1


def test_a_stopped_fork_server_is_replaced() -> None:
    with (
        peers(2) as brokers,
        channel_to(brokers[:1], senders="per-broker", sender_timeout=SENDER_TIMEOUT) as channel,
    ):
        channel.wait([channel.send_request(1, update(0))], 60)
        [sender] = senders_of(channel).values()
        fork_server = psutil.Process(sender).ppid()
        stop(fork_server)
        # Running senders do not need the fork server.
        channel.wait([channel.send_request(1, update(1))], 60)
        channel.add_broker(brokers[1].broker)
        channel.wait([channel.send_request(2, update(2))], 60)
        assert senders_of(channel)[1] == sender
        assert psutil.Process(senders_of(channel)[2]).ppid() != fork_server


def test_a_hanging_sender_of_a_removed_broker_is_ended() -> None:
    with (
        peers(2) as brokers,
        channel_to(brokers, senders="per-broker", sender_timeout=SENDER_TIMEOUT) as channel,
    ):
        brokers[1].default = silence
        channel.wait([channel.send_request(1, update(0))], 60)
        channel.send_request(2, update(1, size=100_000))
        brokers[1].until(lambda: len(brokers[1].received) == 1)
        pid = senders_of(channel)[2]
        stop(pid)
        channel.remove_broker(2)
        # The frame that the sender may be writing stays in memory.
        eventually(lambda: not psutil.pid_exists(pid))
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)


@pytest.mark.parametrize("behaviour", [silence, hang_up])
def test_a_sender_whose_broker_does_not_answer_does_not_hang(behaviour: object) -> None:
    with peers(1) as [peer], channel_to([peer], sender_timeout=PATIENT) as channel:
        peer.default = behaviour  # type: ignore[assignment]
        channel.send_request(1, update(0))
        peer.until(lambda: len(peer.received) > 0)
        # The sender had started before it sent that; its report may not be read yet.
        eventually(lambda: 0 not in senders_of(channel).values())
        pids = senders_of(channel)
        # It was sent several PINGs, and answered.
        deadline = monotonic() + 2 * PATIENT
        eventually(lambda: monotonic() > deadline)
        assert senders_of(channel) == pids


@contextmanager
def busy_machine() -> Iterator[None]:
    """Run many more busy processes than there are processors."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(8 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


@linux_only
def test_no_sender_is_killed_on_a_busy_machine() -> None:
    with (
        peers(3) as brokers,
        channel_to(brokers, senders="per-broker", sender_timeout=SENDER_TIMEOUT) as channel,
    ):
        channel.wait(channel.send_requests([1, 2, 3], update(0)), 60)
        pids = senders_of(channel)
        with busy_machine():
            deadline = monotonic() + 3
            number = 0
            while monotonic() < deadline:
                number += 1
                channel.wait(channel.send_requests([1, 2, 3], update(number, size=50_000)), 60)
        assert senders_of(channel) == pids


def test_no_sender_is_killed_during_a_long_callback() -> None:
    with peers(2) as brokers, channel_to(brokers, sender_timeout=SENDER_TIMEOUT) as channel:
        channel.wait(channel.send_requests([1, 2], update(0)), 60)
        pids = senders_of(channel)
        begun = monotonic()

        def callback(_: Outcome) -> None:
            eventually(lambda: monotonic() - begun > 2 * SENDER_TIMEOUT)

        sent = [channel.send_request(1, update(1), callback), channel.send_request(2, update(1))]
        channel.wait(sent, 60)
        channel.wait(channel.send_requests([1, 2], update(2)), 60)
        assert senders_of(channel) == pids


def test_an_idle_channel_sends_no_ping() -> None:
    with peers(1) as [peer], channel_to([peer], sender_timeout=SENDER_TIMEOUT) as channel:
        channel.wait([channel.send_request(1, update(0))], 60)
        [pid] = senders_of(channel).values()
        stop(pid)
        deadline = monotonic() + 2 * SENDER_TIMEOUT
        eventually(lambda: monotonic() > deadline)
        # A stopped fork server is found only when it is needed.
        assert psutil.pid_exists(pid)
        os.kill(pid, signal.SIGCONT)
        assert channel.wait([channel.send_request(1, update(1))], 60)[0].attempts == 1


# -- shutdown


def test_shutdown_returns_with_a_stopped_fork_server_and_stopped_senders() -> None:
    with peers(2) as brokers:
        channel = ControllerChannelManager(config(senders="per-broker"), 7)
        channel.startup([peer.broker for peer in brokers])
        channel.wait(channel.send_requests([1, 2], update()), 60)
        pids = list(senders_of(channel).values())
        fork_server = psutil.Process(pids[0]).ppid()
        for pid in (fork_server, pids[0]):
            stop(pid)
        sent = channel.send_request(1, update())
        ends(lambda: channel.shutdown(2))
        assert sent.outcome is not None
        eventually(lambda: not any(psutil.pid_exists(pid) for pid in (fork_server, *pids)))


def test_shutdown_returns_while_a_callback_runs(caplog: pytest.LogCaptureFixture) -> None:
    entered, go = threading.Event(), threading.Event()

    def callback(_: Outcome) -> None:
        entered.set()
        go.wait(600)

    with peers(1) as [peer]:
        before = holdings()
        channel = ControllerChannelManager(config(), 7)
        channel.startup([peer.broker])
        sent = channel.send_request(1, update(), callback)
        assert entered.wait(10)
        ends(lambda: channel.shutdown(0.5))
        eventually(lambda: holdings()["children"] == [])
        # When the callback returns, the rest of the shutdown is done.
        go.set()
        assert channel.wait([sent], 60)[0].kind is OutcomeKind.ACKNOWLEDGED
        eventually(lambda: holdings()["mappings"] == 0)
        eventually(lambda: not peer._sockets)
        eventually(lambda: sum(thread.is_alive() for thread in peer._threads) == 1)
        assert holds_no_more_than(before)
    assert [r.levelno for r in caplog.records if "Shutdown took more than" in r.message] == [logging.ERROR]


def test_shutdown_returns_while_brokers_do_not_answer() -> None:
    with peers(3) as brokers:
        for peer in brokers:
            peer.default = silence
        brokers[2].stop_listening()
        channel = ControllerChannelManager(config(senders="per-broker"), 7)
        channel.startup([peer.broker for peer in brokers])
        sent = [one for n in range(10) for one in channel.send_requests([1, 2, 3], update(n))]
        for peer in brokers[:2]:
            peer.until(lambda peer=peer: len(peer.received) == 1)  # type: ignore[misc]
        # Long before the timeout of the shutdown.
        ends(lambda: channel.shutdown(600))
        assert {one.outcome.kind for one in sent if one.outcome} == {OutcomeKind.BROKER_GONE}
        assert all(one.done for one in sent)
