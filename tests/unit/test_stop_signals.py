"""Signals that end a command: the first one ends it cleanly, the second one at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

#: Begins as in a terminal: what ``nohup`` or a background job starts ignores signals.
_PROGRAM = """
import os, signal, sys, threading
from ctrlchan.cli.signals import StopSignals
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
hangs = threading.Event()
def main_waits():
    frame = sys._current_frames()[threading.main_thread().ident]
    state = open(f"/proc/self/task/{os.getpid()}/stat").read().rpartition(")")[2].split()[0]
    return frame.f_code.co_name == "wait" and state == "S"
def receive():
    while not main_waits():
        os.sched_yield()
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    hangs.wait(60)
if sys.argv[1] == "thread":
    threading.Thread(target=receive, daemon=True).start()
with StopSignals() as signals:
    if sys.argv[1] == "startup":
        with signals.startup():
            print("starts", flush=True)
            hangs.wait(60)
    print("runs", flush=True)
    print("ends" if signals.wait(60) else "no signal", flush=True)
    if sys.argv[1] == "hangs":
        hangs.wait(60)
"""


@contextmanager
def running(how: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_the_wait(number: int) -> None:
    with running("ends") as process:
        assert line(process) == "runs"
        process.send_signal(number)
        assert line(process) == "ends"
        assert process.wait(20) == 0


def test_a_signal_that_another_thread_receives_ends_the_wait() -> None:
    with running("thread") as process:
        assert line(process) == "runs"
        assert line(process) == "ends"
        assert process.wait(20) == 0


def test_the_second_signal_ends_the_process_at_once() -> None:
    with running("hangs") as process:
        assert line(process) == "runs"
        process.send_signal(signal.SIGTERM)
        assert line(process) == "ends"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 130


def test_a_signal_interrupts_the_startup() -> None:
    with running("startup") as process:
        assert line(process) == "starts"
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=20)
    assert "runs" not in out
    assert "KeyboardInterrupt" in errors
