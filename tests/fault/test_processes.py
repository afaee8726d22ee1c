"""Sender processes that end unexpectedly, and processes that must not be left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from ctrlchan.channel import ControllerChannelManager, Outcome, OutcomeKind
from ctrlchan.channel.processes import sender_pool
from tests.fault.channels import (
    MODES,
    channel_to,
    config,
    ends,
    eventually,
    holdings,
    holds_no_more_than,
    peers,
)
from tests.fault.peer import Peer, silence
from tests.fault.requests import leader_and_isr, number_of, update

every_mode = pytest.mark.parametrize("senders", MODES)
ROOT = Path(__file__).parents[2]


def pids(channel: ControllerChannelManager) -> set[int]:
    """Return the pids of the senders; 0 for one that has not reported yet."""
    return {broker["sender_pid"] for broker in channel.describe()["brokers"].values()}


def kill(pid: int) -> None:
    assert pid > 0
    os.kill(pid, signal.SIGKILL)


def has_ended(pid: int) -> bool:
    """Whether the process has ended; its parent may not have reaped it yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# -- senders


@every_mode
def test_a_killed_sender_is_replaced_and_nothing_is_lost(senders: str | int) -> None:
    with peers(3) as brokers, channel_to(brokers, senders=senders) as channel:
        chance = random.Random(3)
        channel.wait(channel.send_requests([1, 2, 3], update(0)), 10)
        sent = []
        for number in range(1, 301):
            sent += channel.send_requests([1, 2, 3], update(number, size=chance.choice([64, 50_000])))
            if number % 30 == 0:
                channel.wait(sent[-90:-80], 30)
                kill(chance.choice([pid for pid in pids(channel) if pid] or [0]))
                eventually(lambda: 0 not in pids(channel))
        outcomes = channel.wait(sent, 60)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}
        assert any(outcome.sender_deaths for outcome in outcomes)
        assert all(outcome.attempts == 1 + outcome.sender_deaths for outcome in outcomes)
        for peer in brokers:
            numbers = [number_of(exchange.body) for exchange in peer.received]
            # A request is sent twice only if its response may have been lost with the sender.
            assert [n for at, n in enumerate(numbers) if at == 0 or numbers[at - 1] != n] == list(range(301))
        eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)


def test_a_sender_may_end_during_a_callback() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        channel.wait([channel.send_request(1, update(0))], 10)
        [old] = pids(channel)

        def callback(_: Outcome) -> None:
            kill(old)

        sent = [channel.send_request(1, leader_and_isr(1), callback), channel.send_request(1, update(2))]
        outcomes = channel.wait(sent, 10)
        assert outcomes[0].sender_deaths == 0
        assert [number_of(exchange.body) for exchange in peer.received] == [0, 1, 2]
        assert pids(channel) != {old}


def test_senders_survive_the_fork_server() -> None:
    with peers(2) as brokers, channel_to(brokers[:1], senders="per-broker") as channel:
        channel.wait([channel.send_request(1, update(0))], 10)
        [sender] = pids(channel)
        fork_server = psutil.Process(sender).ppid()
        kill(fork_server)
        eventually(lambda: has_ended(fork_server))
        channel.wait([channel.send_request(1, update(1))], 10)
        # Another one is started for new senders.
        channel.add_broker(brokers[1].broker)
        channel.wait([channel.send_request(2, update(2))], 10)
        # The senders of the first fork server are not children of the second.
        kill(sender)
        channel.wait([channel.send_request(1, update(3))], 10)
        assert len({psutil.Process(pid).ppid() for pid in pids(channel)}) == 1


def test_senders_hold_nothing_of_the_fork_servers_however_many_descriptors_the_parent_has() -> None:
    """A sender with a copy of the fork server's socket would hide the fork server's end."""
    with peers(2) as brokers, ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(open(os.devnull))
        with channel_to(brokers[:1], senders="per-broker") as channel:
            channel.wait([channel.send_request(1, update(0))], 10)
            [sender] = pids(channel)
            # Its connection is its only socket.
            assert len(psutil.Process(sender).net_connections("all")) == 1
            fork_server = psutil.Process(sender).ppid()
            kill(fork_server)
            eventually(lambda: has_ended(fork_server))
            channel.add_broker(brokers[1].broker)
            channel.wait([channel.send_request(2, update(1))], 60)


@every_mode
def test_senders_that_cannot_start_are_started_again_until_they_can(
    senders: str | int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trouble = tmp_path / "trouble"
    trouble.touch()
    (tmp_path / "troubled_fork_server.py").write_text(
        f"""
import os
def main():
    if os.path.exists({str(trouble)!r}):
        raise SystemExit(3)
    from {sender_pool._FORK_SERVER} import main
    main()
"""
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sender_pool, "_FORK_SERVER", "troubled_fork_server")
    monkeypatch.setattr(sender_pool, "_FIRST_DELAY", 0.01)
    with peers(2) as brokers, channel_to(brokers, senders=senders) as channel:
        sent = channel.send_requests([1, 2], update(0))

        def failures() -> list[int]:
            return [broker["sender_failures"] for broker in channel.describe()["brokers"].values()]

        eventually(lambda: len(failures()) == 2 and min(failures()) > 6)
        described = channel.describe()["brokers"]
        assert {broker["queue_size"] for broker in described.values()} == {1}
        assert {broker["state"] for broker in described.values()} == {"backing off"}
        assert all("in a row without a response" in broker["last_error"] for broker in described.values())
        # Timeouts of requests apply meanwhile.
        limited = channel.send_requests([1, 2], update(1), timeout=0.05)
        assert {one.kind for one in channel.wait(limited, 10)} == {OutcomeKind.CANCELLED}
        trouble.unlink()
        assert {one.kind for one in channel.wait(sent, 20)} == {OutcomeKind.ACKNOWLEDGED}
        eventually(lambda: failures() == [0, 0])
        assert "The next one starts in" in caplog.text


def kill_all(channel: ControllerChannelManager, who: str) -> None:
    """Kill all senders, and the fork server too if ``who`` says so."""
    senders = pids(channel)
    [fork_server] = {psutil.Process(pid).ppid() for pid in senders} - {1}
    if who == "fork server":
        kill(fork_server)
        eventually(lambda: has_ended(fork_server))
    for pid in senders:
        kill(pid)
    eventually(lambda: not senders & pids(channel), 30)


@every_mode
@pytest.mark.parametrize("who", ["sender", "fork server"])
def test_a_broker_survives_many_quick_deaths(senders: str | int, who: str) -> None:
    with peers(2) as brokers, channel_to(brokers, senders=senders) as channel:
        channel.wait(channel.send_requests([1, 2], update(0)), 10)
        for peer in brokers:
            peer.gate.clear()
        sent = channel.send_requests([1, 2], update(1))
        for _ in range(7):
            eventually(lambda: all(pids(channel)), 30)
            kill_all(channel, who)
        for peer in brokers:
            peer.gate.set()
        outcomes = channel.wait(sent, 30)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.ACKNOWLEDGED}


def test_a_stopped_sender_does_not_stop_shutdown() -> None:
    with peers(1) as [peer]:
        channel = ControllerChannelManager(config(), 7)
        channel.add_broker(peer.broker)
        channel.wait([channel.send_request(1, update())], 10)
        [pid] = pids(channel)
        os.kill(pid, signal.SIGSTOP)
        sent = channel.send_request(1, update())
        ends(lambda: channel.shutdown(2))
        assert sent.outcome is not None
        assert sent.outcome.kind is OutcomeKind.BROKER_GONE
        eventually(lambda: has_ended(pid))


# -- nothing is left behind


@every_mode
def test_a_channel_leaves_nothing_behind(senders: str | int) -> None:
    with peers(5) as brokers:
        before: dict[str, object] = {}
        for _ in range(3):
            with channel_to(brokers, senders=senders) as channel:
                channel.wait(channel.send_requests([1, 2, 3, 4, 5], update(size=100_000)), 10)
                assert holdings()["children"]
            # The threads of the peers' connections end by themselves.
            eventually(lambda: not any(peer._sockets for peer in brokers))
            eventually(lambda: not any(_is_busy(peer) for peer in brokers))
            after = holdings()
            assert after["children"] == []
            assert after["mappings"] == 0
            before = before or after
            assert holds_no_more_than(before)


def _is_busy(peer: Peer) -> bool:
    return sum(thread.is_alive() for thread in peer._threads) > 1


@every_mode
def test_brokers_that_come_and_go_leave_nothing_behind(senders: str | int) -> None:
    with peers(2) as brokers, channel_to(brokers[:1], senders=senders) as channel:
        channel.wait([channel.send_request(1, update())], 10)
        eventually(lambda: len(pids(channel)) == 1 and 0 not in pids(channel))
        counts = []
        for round_ in range(60):
            channel.add_broker(brokers[1].broker)
            sent = channel.send_request(2, update(round_, size=10_000))
            if round_ % 2:
                channel.wait([sent], 10)
            channel.remove_broker(2)
            channel.wait([sent], 10)
            if round_ in (9, 59):
                eventually(lambda: channel.describe()["shared_memory_bytes"] == 0)
                expected = 2 + (senders == 2)
                eventually(lambda count=expected: len(holdings()["children"]) <= count)  # type: ignore[misc]
                eventually(lambda: not brokers[1]._sockets and not _is_busy(brokers[1]))
                counts.append((holdings()["fds"], holdings()["threads"], len(holdings()["children"])))
        assert counts[0] == counts[1]


# -- end of the parent

PRELUDE = """
import os, signal, sys, threading, time
from ctrlchan import Broker, ChannelConfig, ControllerChannelManager, Endpoint, SecurityProtocol
from tests.fault.requests import update

def channel_to(port):
    channel = ControllerChannelManager(ChannelConfig(senders="per-broker"), 7)
    endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", port)
    channel.startup([Broker(broker_id, 1, (endpoint,)) for broker_id in (1, 2, 3)])
    return channel

def push(channel):
    return {outcome.kind.value for outcome in channel.wait(channel.send_requests([1, 2, 3], update()), 30)}
"""


@pytest.fixture
def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}


@pytest.fixture
def peer() -> Iterator[Peer]:
    with Peer() as made:
        yield made


def program(body: str, port: int) -> str:
    return PRELUDE + f"PORT = {port}\n" + textwrap.dedent(body)


MAIN = """
channel = channel_to(PORT)
print(*push(channel))
channel.shutdown()
"""


@pytest.mark.parametrize("how", ["-c", "stdin", "script", "module", "interactive"])
def test_any_main_module_works_and_is_not_run_again(
    how: str, peer: Peer, environment: dict[str, str], tmp_path: Path
) -> None:
    # There is no `if __name__ == "__main__"`, on purpose.
    text = program(MAIN, peer.port)
    (tmp_path / "unguarded.py").write_text(text)
    command, stdin = {
        "-c": (["-c", text], None),
        "stdin": ([], text),
        "script": ([str(tmp_path / "unguarded.py")], None),
        "module": (["-m", "unguarded"], None),
        "interactive": (["-i", "-q"], "from unguarded import *\n"),
    }[how]
    environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
    ran = subprocess.run(
        [sys.executable, *command], input=stdin, capture_output=True, text=True, timeout=60, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "acknowledged\n"
    assert ran.stderr.replace(">>> ", "").strip() == ""


def start(body: str, port: int, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program(body, port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        _, errors = process.communicate(timeout=10)
        pytest.fail(errors)
    return line


def test_a_forgotten_shutdown_is_done_at_exit(peer: Peer, environment: dict[str, str]) -> None:
    process = start("channel = channel_to(PORT)\nprint(*push(channel))", peer.port, environment)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (0, "acknowledged\n", "")


@pytest.mark.parametrize("with_child", [False, True])
def test_no_process_stays_when_the_parent_is_killed(
    with_child: bool, peer: Peer, environment: dict[str, str], tmp_path: Path
) -> None:
    # The folders in which a named file would be.
    environment["TMPDIR"] = str(tmp_path)
    # A forked child of the parent holds copies of all its pipes.
    body = f"""
    channel = channel_to(PORT)
    push(channel)
    if {with_child}:
        import warnings
        warnings.simplefilter("ignore")
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
    print(*[broker["sender_pid"] for broker in channel.describe()["brokers"].values()], flush=True)
    time.sleep(60)
    """
    with start(body, peer.port, environment) as process:
        senders = [psutil.Process(int(pid)) for pid in line_of(process).split()]
        fork_server = senders[0].parent()
        assert fork_server is not None
        below = psutil.Process(process.pid).children(recursive=True)
        child = [one for one in below if one not in (*senders, fork_server)]
        assert len(child) == with_child
        process.kill()
        process.wait(10)
        eventually(lambda: all(has_ended(one.pid) for one in (*senders, fork_server)), 60)
        # No named file is left behind, and connections are closed.
        assert not os.path.isdir("/dev/shm") or not [n for n in os.listdir("/dev/shm") if "ctrlchan" in n]
        assert list(tmp_path.iterdir()) == []
        eventually(lambda: not peer._sockets)
        for one in child:
            one.kill()


def test_ctrl_c_interrupts_wait_and_everything_ends(peer: Peer, environment: dict[str, str]) -> None:
    peer.default = silence
    body = """
    channel = channel_to(PORT)
    with channel:
        sent = channel.send_requests([1, 2, 3], update())
        while any(not broker["sender_pid"] for broker in channel.describe()["brokers"].values()):
            time.sleep(0.01)
        try:
            print(*[broker["sender_pid"] for broker in channel.describe()["brokers"].values()], flush=True)
            channel.wait(sent)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    print(*{one.outcome.kind.value for one in sent}, threading.active_count(), flush=True)
    """
    with start(body, peer.port, environment) as process:
        senders = [int(pid) for pid in line_of(process).split()]
        peer.until(lambda: len(peer.received) == 3)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=20)
        assert out == "interrupted\nbroker gone 1\n"
        assert errors == ""
        assert all(has_ended(pid) for pid in senders)


def test_senders_do_not_get_a_terminals_ctrl_c() -> None:
    with peers(1) as [peer], channel_to([peer]) as channel:
        channel.wait([channel.send_request(1, update())], 10)
        [pid] = pids(channel)
        assert os.getpgid(pid) != os.getpgid(0)
        os.kill(pid, signal.SIGINT)
        channel.wait([channel.send_request(1, update())], 10)
        assert pids(channel) == {pid}


def test_a_sender_imports_neither_numpy_nor_arrow_nor_the_codec() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "import sys, ctrlchan.channel.senders.fork_server; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout.split()
    assert not {"numpy", "pyarrow", "ctrlchan._codec", "ctrlchan.errors"} & set(found)


def test_many_senders_start_in_parallel() -> None:
    with peers(1) as [peer]:
        brokers = []
        for broker_id in range(1, 101):
            peer.broker_id = broker_id
            brokers.append(peer.broker)
        with ControllerChannelManager(config(senders="per-broker"), 7) as channel:
            channel.startup(brokers)
            sent = channel.send_requests(range(1, 101), update())
            channel.wait(sent, 30)
            assert len(pids(channel)) == 100


def test_threads_that_send_while_the_channel_ends_get_an_outcome_or_an_error() -> None:
    from ctrlchan.errors import ChannelClosedError

    for _ in range(5):
        with peers(2) as brokers:
            channel = ControllerChannelManager(config(), 7)
            channel.startup([peer.broker for peer in brokers])
            problems: list[BaseException] = []

            def work(
                channel: ControllerChannelManager = channel, problems: list[BaseException] = problems
            ) -> None:
                sent = []
                try:
                    while True:
                        sent += channel.send_requests([1, 2], update(size=200_000))
                except ChannelClosedError:
                    pass
                except BaseException as problem:  # noqa: BLE001
                    problems.append(problem)
                try:
                    channel.wait(sent, 10)
                except TimeoutError as problem:
                    problems.append(problem)

            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            brokers[0].until(lambda peer=brokers[0]: len(peer.received) > 20)  # type: ignore[misc]
            channel.shutdown(10)
            for thread in threads:
                thread.join(20)
            assert problems == []
