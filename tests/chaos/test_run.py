"""``python -m tests.chaos`` as a command: a short run passes, and a signal leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.chaos.leaks import MARK
from tests.chaos.plan import Fault, Kind, Plan
from tests.kafka.jars import KafkaUnavailableError
from tests.kafka.requirement import miss
from tests.kafka.zookeeper import zookeeper_command

NAMESPACES: list[str] = []
LOOPBACK = ["--loopback"]
#: No other run has this one at the same time.
SEED = f"{os.getpid()}"
FILES = Path("build", "chaos")


@pytest.fixture(autouse=True)
def _zookeeper() -> None:
    try:
        zookeeper_command(Path())
    except KafkaUnavailableError as error:
        miss("real ZooKeeper", error)


@contextmanager
def running(*options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.chaos", "--seed", SEED, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """Read lines up to one with this text, or all."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if text in line:
            break
    return lines


def left() -> list[psutil.Process]:
    """Return the processes of the run that live."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK, "").endswith(f"-{SEED}"):
                found.append(process)
    return found


@pytest.mark.parametrize(
    ("way", "number"),
    [
        pytest.param(NAMESPACES, signal.SIGINT, id="SIGINT"),
        pytest.param(LOOPBACK, signal.SIGTERM, id="SIGTERM, loopback"),
    ],
)
def test_a_signal_leaves_nothing(way: list[str], number: signal.Signals) -> None:
    with running("--seconds", "60", *way) as process:
        started = lines_until(process, "round 1 of 1")
        assert "round 1 of 1" in started[-1], "\n".join(started)
        assert left()
        process.send_signal(number)
        rest = lines_until(process, "there is no such line")
        assert process.wait(60) == 128 + number, "\n".join(rest)
    assert "FAILED: interrupted" in rest
    assert left() == []
    assert list(FILES.glob(f"*-{SEED}")) == []


@pytest.mark.parametrize("way", [NAMESPACES, LOOPBACK], ids=["namespaces", "loopback"])
@pytest.mark.long
def test_every_guarantee_holds(way: list[str]) -> None:
    with running("--seconds", "60", *way) as process:
        lines = lines_until(process, "there is no such line")
        assert process.wait(60) == 0, "\n".join(lines)
    assert lines[-1].startswith("PASSED")
    assert left() == []
    assert list(FILES.glob(f"*-{SEED}")) == []


@pytest.mark.long
def test_a_process_that_hangs_is_found(tmp_path: Path) -> None:
    faults = tuple(Fault(float(at), Kind.ELECT, (), 0.0, 0) for at in range(0, 100, 10))
    plan = tmp_path / "plan.json"
    plan.write_text(Plan(int(SEED), (faults,)).to_json())
    with running("--plan", str(plan)) as process:
        lines_until(process, "round 1 of 1")
        (broker,) = [one for one in left() if f"{one.cmdline()[-1]}".endswith("broker-2/server.properties")]
        broker.suspend()
        lines = lines_until(process, "there is no such line")
        assert process.wait(60) == 1, "\n".join(lines)
    assert [line for line in lines if "FAILED" in line] == [
        "FAILED: broker-2 does not answer for 40 s: stacks-broker-2-*.txt"
    ]
    assert f"again: python -m tests.chaos --plan {plan}" in lines
    assert left() == []
    (files,) = FILES.glob(f"*-{SEED}")
    (stacks,) = files.glob("stacks-*.txt")
    assert stacks.name == f"stacks-broker-2-{broker.pid}.txt"
    assert (files / "disks" / "broker-2").is_dir()
    shutil.rmtree(files)
