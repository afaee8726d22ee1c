"""A command of the pipeline leaves no process behind after Ctrl-C or a kill."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.fault.channels import eventually

#: A command like those of the package, with a job of two tasks that never ends, or a call of Java that is no
#: job and takes very long, or many short ones.
SCRIPT = """
import pathlib, sys, time
from ctrlchan.cli import main
from ctrlchan.cli.pipeline import app
from ctrlchan.cli.pipeline.common import RunOptions, spark_of

@app.command()
def forever(folder: pathlib.Path, what: str) -> None:
    def work(batches):
        (folder / "runs").touch()
        while True:
            time.sleep(0.05)
            (folder / "alive").touch()
        yield from batches

    with spark_of("forever", RunOptions(master="local[2]", conf={"spark.driver.memory": "600m"})) as spark:
        if what == "call":
            (folder / "runs").touch()
            spark.sparkContext._jvm.java.lang.Thread.sleep(3_600_000)
        while what == "calls":
            (folder / "runs").touch()
            spark.sparkContext._jvm.java.lang.Thread.sleep(100)
        spark.range(2, numPartitions=2).mapInArrow(work, "id long").count()

main(["pipeline", "forever", *sys.argv[1:]])
"""
PATIENCE = 120


@contextmanager
def forever(
    folder: Path, what: str = "job"
) -> Iterator[tuple[subprocess.Popen[bytes], Screen, list[psutil.Process]]]:
    """(the command, with its job running; its terminal; the processes below it)."""
    ours, terminal = pty.openpty()
    script = folder / "forever.py"
    script.write_text(SCRIPT)
    command = subprocess.Popen(
        [sys.executable, str(script), str(folder), what],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        start_new_session=True,
    )
    os.close(terminal)
    screen = Screen(ours)
    below: list[psutil.Process] = []
    try:
        deadline = time.monotonic() + PATIENCE
        while not (folder / "runs").exists():
            assert command.poll() is None, screen.all()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        below = psutil.Process(command.pid).children(recursive=True)
        assert any(process.name() == "java" for process in below)
        yield command, screen, below
    finally:
        for process in [*below, psutil.Process(command.pid)] if command.poll() is None else below:
            if process.is_running():
                process.kill()
        command.wait()
        screen.all()


class Screen:
    """Reads the text written to a terminal, which would block its writers otherwise."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._text = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def shows(self, pattern: str) -> bool:
        return re.search(pattern, self._text) is not None

    def all(self) -> str:
        """Return the whole text, after its last writer has ended."""
        self._reader.join(PATIENCE)
        return self._text

    def _read(self) -> None:
        # Linux raises it when the other end is closed.
        with suppress(OSError):
            while read := os.read(self._terminal, 65_536):
                self._text += re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", read.decode(errors="replace"))
        os.close(self._terminal)


@pytest.mark.parametrize(
    "what", ["job", *(pytest.param(what, marks=pytest.mark.long) for what in ("call", "calls"))]
)
def test_ctrl_c_ends_the_job_and_spark(what: str, tmp_path: Path) -> None:
    with forever(tmp_path, what) as (command, screen, below):
        if what == "job":
            # Progress of the running job, before anything of it is done.
            eventually(lambda: screen.shows(r"forever: stage 0 .* 0/2 tasks"), PATIENCE)
        # To all of them, as a terminal does.
        os.killpg(command.pid, signal.SIGINT)
        assert command.wait(PATIENCE) == 130
        rest = screen.all()
        assert "Traceback" not in rest, rest
        assert "ERROR" not in rest, rest
        # The JVM is waited for; the workers end when they find it gone.
        assert psutil.wait_procs(below, PATIENCE)[1] == []


@pytest.mark.long
def test_a_killed_command_ends_spark(tmp_path: Path) -> None:
    """The JVM reads from the command, and its workers from the JVM."""
    with forever(tmp_path) as (command, _, below):
        command.kill()
        assert command.wait(PATIENCE) == -signal.SIGKILL
        assert psutil.wait_procs(below, PATIENCE)[1] == []


#: In a process of its own: what goes wrong here would break the session of all other tests.
NOTEBOOK = """
import os, pathlib, signal, sys, threading, time
from ctrlchan.pipeline import session, stop
from ctrlchan.pipeline.spark.failures import as_pipeline_errors

folder = pathlib.Path(sys.argv[1])
spark = session(master="local[2]", conf={"spark.driver.memory": "600m"})

def work(batches):
    (folder / "runs").touch()
    while True:
        time.sleep(0.05)
    yield from batches

def press():
    while not (folder / "runs").exists():
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)

for turn in range(3):
    (folder / "runs").unlink(missing_ok=True)
    threading.Thread(target=press, daemon=True).start()
    try:
        with as_pipeline_errors():
            spark.range(2, numPartitions=2).mapInArrow(work, "id long").count()
    except KeyboardInterrupt:
        running = list(spark.sparkContext.statusTracker().getActiveJobsIds())
        print("interrupted", spark.range(3).count(), running)
stop(spark)
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


@pytest.mark.long
def test_in_a_notebook_the_session_goes_on(tmp_path: Path) -> None:
    script = tmp_path / "notebook.py"
    script.write_text(NOTEBOOK)
    ran = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ran.stdout.splitlines() == [*["interrupted 3 []"] * 3, "True"], ran.stderr
