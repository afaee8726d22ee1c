"""Ctrl-C and violence: what a command of the pipeline leaves behind, which is nothing."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pytest

from tests.fault.channels import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A command like those of the package, with a job of two tasks that never ends.
SCRIPT = """
import pathlib, sys, time
from ctrlchan.cli import main
from ctrlchan.cli.pipeline import app
from ctrlchan.cli.pipeline.common import spark_of

@app.command()
def forever(folder: pathlib.Path) -> None:
    def work(batches):
        (folder / "runs").touch()
        while True:
            time.sleep(0.05)
            (folder / "alive").touch()
        yield from batches

    with spark_of("forever", "local[2]", ["spark.driver.memory=600m"]) as spark:
        spark.range(2, numPartitions=2).mapInArrow(work, "id long").count()

main(["pipeline", "forever", sys.argv[1]])
"""
PATIENCE = 120


@contextmanager
def forever(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, list[psutil.Process]]]:
    """(the command, with its job running; its terminal; the processes below it)."""
    ours, terminal = pty.openpty()
    script = folder / "forever.py"
    script.write_text(SCRIPT)
    command = subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        start_new_session=True,
    )
    os.close(terminal)
    below: list[psutil.Process] = []
    try:
        deadline = time.monotonic() + PATIENCE
        while not (folder / "runs").exists():
            assert command.poll() is None, said(ours)
            assert time.monotonic() < deadline
            time.sleep(0.05)
        below = psutil.Process(command.pid).children(recursive=True)
        assert any(process.name() == "java" for process in below)
        yield command, ours, below
    finally:
        for process in [*below, psutil.Process(command.pid)] if command.poll() is None else below:
            if process.is_running():
                process.kill()
        command.wait()
        os.close(ours)


def said(terminal: int, pattern: str | None = None) -> str:
    """What it has written, until it fits the pattern; without one, all there is by its end."""
    text = ""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                read = os.read(terminal, 65_536)
            except OSError:
                # Linux says so when nobody has the other end open any more.
                break
            if not read:
                break
            text += re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", read.decode(errors="replace"))
        if pattern is not None and re.search(pattern, text):
            break
    return text


def test_ctrl_c_cancels_the_job_and_ends_spark(tmp_path: Path) -> None:
    with forever(tmp_path) as (command, terminal, below):
        # Progress of the running job, before anything of it is done.
        assert re.search(r"forever: stage 0 .* 0/2 tasks", said(terminal, "0/2 tasks"))
        # To all of them, as a terminal does.
        os.killpg(command.pid, signal.SIGINT)
        assert command.wait(PATIENCE) == 130
        rest = said(terminal)
        assert "Traceback" not in rest, rest
        assert "ERROR" not in rest, rest
        # The JVM is waited for; the workers end when they find it gone.
        assert psutil.wait_procs(below, PATIENCE)[1] == []


def test_what_is_killed_takes_spark_with_it(tmp_path: Path) -> None:
    """The JVM reads from the command, and its workers from the JVM."""
    with forever(tmp_path) as (command, _, below):
        command.kill()
        assert command.wait(PATIENCE) == -signal.SIGKILL
        assert psutil.wait_procs(below, PATIENCE)[1] == []


def test_in_a_notebook_the_session_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (tmp_path / "runs").touch()
        while True:
            time.sleep(0.05)
        yield from batches

    def press() -> None:
        while not (tmp_path / "runs").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    with pytest.raises(KeyboardInterrupt):
        spark.range(2, numPartitions=2).mapInArrow(work, "id long").count()
    presser.join()
    eventually(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds())
    assert spark.range(3).count() == 3
