"""What processes hold more of than before, and what a run leaves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.leaks import MARK, Sample, grown, left_behind, sample

EARLY = Sample(1, processes=2, threads=20, descriptors=100, deleted=(), memory=100 << 20)
#: Opens descriptors, a file that has no name any more, threads and a child; prints a line, and waits.
HOLDER = """
import subprocess, sys, threading
held = [open('/dev/null') for _ in range(50)]
file = open(sys.argv[1] + '/log', 'w'); import os; os.unlink(file.name)
named = open(sys.argv[1] + '/segment', 'w')
for _ in range(3): threading.Thread(target=threading.Event().wait, daemon=True).start()
child = subprocess.Popen(['sleep', '1000'])
print(child.pid, flush=True)
sys.stdin.read()
child.kill()
"""

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="/proc")


@contextmanager
def holder(folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield process
        process.communicate("")


@linux_only
def test_a_sample_counts_what_a_process_and_its_children_hold(tmp_path: Path) -> None:
    with holder(tmp_path, {}) as process:
        found = sample(process.pid, str(tmp_path))
    assert (found.processes, found.threads) == (2, 5)
    # The named file of the log directory does not count.
    assert 53 <= found.descriptors <= 60
    assert found.deleted == (f"{tmp_path}/log (deleted)",)
    assert found.memory > 1 << 20


@pytest.mark.parametrize(
    ("name", "most"), [("processes", 2), ("threads", 28), ("descriptors", 148), ("memory", 164 << 20)]
)
def test_more_than_before(name: str, most: int) -> None:
    assert grown("broker", EARLY, replace(EARLY, **{name: most})) == []  # type: ignore[arg-type]
    (line,) = grown("broker", EARLY, replace(EARLY, **{name: most + 1}))  # type: ignore[arg-type]
    assert line.startswith(f"broker: {name} grew from ")


def test_a_file_without_a_name() -> None:
    assert grown("broker", EARLY, replace(EARLY, deleted=("/x/1.log (deleted)",))) == [
        "broker has an open file without a name: /x/1.log (deleted)"
    ]


@linux_only
def test_a_process_that_is_left(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"tmpfs /tmp tmpfs rw 0 0\nchaos {tmp_path}/run-2/disk tmpfs rw 0 0\n")
    mark = f"{tmp_path}"
    with holder(tmp_path, {MARK: mark}) as process:
        lines = left_behind(mark, tmp_path / "run", mounts)
        # The process and its child.
        assert len(lines) == 2
        assert f"process {process.pid} is left: " in "".join(lines)
    assert left_behind(mark, tmp_path / "run", mounts) == []
    assert left_behind(mark, tmp_path / "run-2", mounts) == [f"{tmp_path}/run-2/disk is still mounted"]
