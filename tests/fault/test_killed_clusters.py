"""A process with an EmbeddedCluster is killed, perhaps with its group: brokers end, and no folder is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.kafka.waiting import wait_until

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys, time
from ctrlchan import EmbeddedCluster
cluster = EmbeddedCluster(2)
print("ready", flush=True)
time.sleep(600)
"""

#: Whether it is the moment to kill the process. Its children so far, and the folder for temporary folders.
Moment = Callable[[list[psutil.Process], Path], bool]

MOMENTS: dict[str, Moment] = {
    "the first broker is started": lambda children, _: len(children) >= 1,
    "both brokers are started": lambda children, _: len(children) >= 2,
    "there is a folder": lambda _, folder: any(folder.iterdir()),
    "there are logs": lambda _, folder: any(folder.glob("*/broker-*")),
    "brokers listen": lambda children, _: any(one.net_connections() for one in children),
    "the cluster is ready": lambda children, folder: len(children) >= 3,
}


def all_ended(processes: list[psutil.Process]) -> bool:
    return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)


@contextmanager
def cluster_process(folder: Path, program: str = PROGRAM) -> Iterator[psutil.Popen]:
    """Run a program with a cluster in a process group of its own; nothing of it is left after its end."""
    process = psutil.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},
        process_group=0,
    )
    try:
        yield process
    finally:
        with suppress(psutil.NoSuchProcess):
            process.kill()
        # The brokers have its standard error: this waits for their end, too.
        _, errors = process.communicate(timeout=60)
    wait_until(lambda: not list(folder.iterdir()), what="no folder is left", timeout=60)
    assert b"Traceback" not in errors


@pytest.mark.parametrize("moment", list(MOMENTS))
def test_nothing_is_left(moment: str, tmp_path: Path) -> None:
    children: list[psutil.Process] = []
    with cluster_process(tmp_path) as process:

        def is_moment() -> bool:
            with suppress(psutil.NoSuchProcess):
                children[:] = process.children(recursive=True)
                return MOMENTS[moment](children, tmp_path)
            return False

        wait_until(is_moment, what=moment, timeout=60)
    wait_until(lambda: all_ended(children), what="its processes have ended", timeout=60)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_for_the_whole_group(number: int, tmp_path: Path) -> None:
    with cluster_process(tmp_path) as process:
        assert process.stdout.readline() == b"ready\n"
        children = process.children(recursive=True)
        os.killpg(process.pid, number)
        assert process.wait(60) == -number
    wait_until(lambda: all_ended(children), what="its processes have ended", timeout=60)


def test_killed_when_the_brokers_have_stopped(tmp_path: Path) -> None:
    dies_then = """
import os, shutil, signal
shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
from ctrlchan import EmbeddedCluster
EmbeddedCluster(2).close()
"""
    with cluster_process(tmp_path, dies_then) as process:
        assert process.wait(60) == -signal.SIGKILL
