"""A process with an EmbeddedCluster is killed while it starts: its brokers end, and no folder is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
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


@pytest.mark.parametrize("moment", list(MOMENTS))
def test_nothing_is_left(moment: str, tmp_path: Path) -> None:
    process = psutil.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    children: list[psutil.Process] = []

    def is_moment() -> bool:
        with suppress(psutil.NoSuchProcess):
            children[:] = process.children(recursive=True)
            return MOMENTS[moment](children, tmp_path)
        return False

    try:
        wait_until(is_moment, what=moment, timeout=60)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until(lambda: all_ended(children), what="its processes have ended", timeout=60)
    wait_until(lambda: not list(tmp_path.iterdir()), what="no folder is left", timeout=60)
    _, errors = process.communicate()
    assert b"Traceback" not in errors
