"""The watchdog of a process whose threads cannot get the GIL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.kafka.waiting import wait_until

#: Waits for a mutex with the GIL, for ever, as two threads do that wait for each other.
FREEZE = """
import ctypes, os, sys, threading
from ctrlchan._c import watchdog

def kept_waiting():
    threading.Event().wait()

def holds_the_gil():
    # No signal ends this wait. Zeros are a mutex.
    mutex, c = ctypes.create_string_buffer(256), ctypes.PyDLL(None)
    c.pthread_mutex_lock(mutex)
    c.pthread_mutex_lock(mutex)

watchdog.start(parent=PARENT, tick_seconds=0.05)
threading.Thread(target=kept_waiting, daemon=True).start()
print(os.getpid(), flush=True)
holds_the_gil()
"""


def _start(code: str, stdin: int | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_stacks_of_a_frozen_process_are_written() -> None:
    frozen = _start(FREEZE.replace("PARENT", "None"))
    assert frozen.stderr is not None
    lines = []
    try:
        for line in frozen.stderr:
            lines.append(line)
            # faulthandler writes the current thread last, the oldest call at its end.
            if "<module>" in line:
                break
    finally:
        frozen.kill()
        frozen.communicate()
    text = "".join(lines)
    assert f"process {frozen.pid}: no thread could get the GIL for 0.5 seconds" in text
    assert "in kept_waiting" in text
    assert "in holds_the_gil" in text
    if sys.platform == "linux":
        assert f"thread {frozen.pid} (" in text
        assert "lock" in text


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_a_signal_writes_the_stacks_of_python() -> None:
    running = _start(FREEZE.replace("PARENT", "None").replace("holds_the_gil()\n", "kept_waiting()\n"))
    assert running.stdout is not None
    running.stdout.readline()
    running.send_signal(signal.SIGUSR2)
    assert running.stderr is not None
    lines = []
    for line in running.stderr:
        lines.append(line)
        if "<module>" in line:
            break
    running.kill()
    running.communicate()
    assert "in kept_waiting" in "".join(lines)
    assert "no thread could get the GIL" not in "".join(lines)


def test_a_frozen_process_ends_with_its_parent() -> None:
    parent = _start(
        "import os, subprocess, sys, time\n"
        f"code = {FREEZE!r}.replace('PARENT', str(os.getpid()))\n"
        "subprocess.Popen([sys.executable, '-c', code])\n"
        "time.sleep(1000)\n"
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    # The pipe is open as long as the child has it.
    _, errors = parent.communicate(timeout=60)
    assert f"process {child}: killed, as its parent is gone" in errors


def test_a_process_that_was_stopped_is_not_frozen() -> None:
    """Time in which the process may not run is no time without the GIL."""
    running = _start(
        FREEZE.replace("PARENT", "None").replace("holds_the_gil()\n", "sys.stdin.read()\n"),
        stdin=subprocess.PIPE,
    )
    assert running.stdout is not None
    running.stdout.readline()
    os.kill(running.pid, signal.SIGSTOP)
    stopped = psutil.Process(running.pid)
    wait_until(lambda: stopped.status() == psutil.STATUS_STOPPED, what="the process stops")
    # More than what would be a freeze.
    subprocess.run(["sleep", "1"], check=True)
    os.kill(running.pid, signal.SIGCONT)
    _, errors = running.communicate(input="", timeout=60)
    assert (running.returncode, errors) == (0, "")


def test_a_process_ends_while_the_watchdog_asks_for_the_gil() -> None:
    """Who asks for it when Python has ended finds no interpreter: a segmentation fault."""
    for _ in range(30):
        ran = subprocess.run(
            [sys.executable, "-c", "from ctrlchan._c import watchdog; watchdog.start(tick_seconds=1e-6)"],
            # Ten of these ticks without the GIL are a freeze: stacks may be written.
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0
