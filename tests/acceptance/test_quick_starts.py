"""The quick starts: each file and each command that they show, as a reader types them one after another."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.test_cluster_command import assert_leaders_moved
from tests.documented import ROOT, Reader, Shown, shown_by
from tests.kafka.ports import free_ports
from tests.kafka.processes import Reaper

FOLDER = ROOT / "docs" / "quickstart"


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(tmp_path)


@contextmanager
def in_the_background(reader: Reader, shown: Shown, last: str) -> Iterator[str]:
    """Run a command until the block ends, as with Ctrl-C; yield what it has printed, up to a line.

    ``last``: how that line begins.
    """
    reaper = Reaper()
    process: Any = psutil.Popen(
        reader.words(shown),
        cwd=reader.folder,
        env=reader.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    reaper.add(process.pid)
    try:
        lines = [""]
        while not lines[-1].startswith(last):
            lines.append(process.stdout.readline())
            assert lines[-1], (shown.words, lines)
        yield "".join(lines)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        reaper.remove(process.pid)
        reaper.close()


def succeed(reader: Reader, shown: Shown) -> str:
    """Run a command that succeeds; return what it has printed."""
    ran = reader.run(shown)
    assert ran.returncode == 0, (shown.words, ran.stdout, ran.stderr)
    assert "does not provide the extra" not in ran.stderr
    return ran.stdout + ran.stderr


def test_tests(reader: Reader) -> None:
    printed = {}
    for shown in shown_by(FOLDER / "tests.md"):
        if shown.name:
            reader.write(shown)
        else:
            printed[shown.words[-1]] = succeed(reader, shown)
    assert "3 passed" in printed["test_orders.py"]
    assert "1 passed" in printed["test_users.py"]
    assert "Ran 1 test" in printed["test_with_unittest.py"]
    assert "1 passed" in printed["test_with_asyncio.py"]


def test_laptop(reader: Reader) -> None:
    # Where other tests, or other people, may have something.
    ports = free_ports(9)
    reader.replaced = {"19092": str(ports), "8080": str(ports + 3), "29092": str(ports + 6)}
    printed, clusters = {}, []
    with ExitStack() as running:
        for shown in shown_by(FOLDER / "laptop.md"):
            if shown.name:
                reader.write(shown)
            elif shown.words[:2] == ["ctrlchan", "cluster"] and "--demo" not in shown.words:
                running.close()
                started = in_the_background(reader, shown, "bootstrap.servers=")
                clusters.append(
                    dict(re.findall(r"^(\S+?)(?:=|: )(.*)", running.enter_context(started), re.M))
                )
                reader.replaced["localhost:9092"] = clusters[-1]["bootstrap.servers"]
            else:
                if shown.words[-1] == "status" and clusters[-1]["page"] != "http://127.0.0.1:9404/":
                    shown.words.append(clusters[-1]["page"].rstrip("/"))
                printed[shown.words[-1]] = succeed(reader, shown)
    assert len(clusters) == 6
    assert clusters[2] == {
        "bootstrap.servers": f"127.0.0.1:{ports}",
        "page": f"http://127.0.0.1:{ports + 3}/",
    }
    assert re.findall(r"order \d", printed["orders.py"]) == ["order 0", "order 1", "order 2"]
    assert {path.name for path in (reader.folder / "data").glob("broker-*")} == {
        "broker-1",
        "broker-2",
        "broker-3",
    }
    demo, last, _ = printed["--demo"].partition("2 topics are left")
    assert_leaders_moved(demo + last)


def test_program(reader: Reader, zookeeper: str) -> None:
    reader.replaced = {"localhost:2181": zookeeper, "19090": str(free_ports(1))}
    printed = {}
    with ExitStack() as running:
        for shown in shown_by(FOLDER / "program.md"):
            if shown.name:
                reader.write(shown)
            elif "broker" in shown.words:
                running.enter_context(in_the_background(reader, shown, "broker 1 listens on"))
            else:
                printed[shown.words[-1]] = succeed(reader, shown)
    channel = printed["channel.py"].splitlines()
    assert len([line for line in channel if ": acknowledged <" in line]) == 6
    assert "'led': 1" in channel[-1]
    assert "NotificationKind.LEADERS_CHANGED" in printed["elections.py"]
    assert "'active': True" in printed["controller.py"]
