"""A node of a run with a small process in it: it starts, hangs, ends and crashes."""

from __future__ import annotations

import io
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos import nodes
from tests.chaos.nodes import ChaosError
from tests.chaos.report import Progress, Result, result_lines
from tests.chaos.stacks import write_stacks
from tests.kafka.processes import Reaper
from tests.kafka.waiting import wait_until
from tests.unit.chaos.small_node import READY, SmallNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SmallNode]:
    reaper = Reaper()
    node = SmallNode("node", tmp_path / "node", reaper)
    yield node
    node.kill()
    reaper.close()


def test_a_node_is_started_killed_and_frozen(node: SmallNode) -> None:
    node.start(threading.Event())
    first = node.pid
    assert node.up_since is not None
    node.check_alive()
    assert not node.has_ended()
    with node.frozen():
        # It need not answer now.
        assert node.up_since is None
    assert node.up_since is not None
    node.kill()
    assert (node.pid, node.up_since) == (None, None)
    node.check_alive()
    node.start(threading.Event())
    assert node.pid not in (None, first)


def test_a_node_that_ends_by_itself_is_a_failure(node: SmallNode) -> None:
    node.code = READY.replace(
        "signal.pause()", "pathlib.Path('../end').exists() or __import__('time').sleep(0.5)"
    )
    node.start(threading.Event())
    wait_until(node.has_ended, what="it ends")
    with pytest.raises(ChaosError, match="ended with status 0"):
        node.check_alive()


def test_a_start_that_fails_is_tried_again(node: SmallNode) -> None:
    node.code = (
        "import pathlib, sys; pathlib.Path('once').exists() or (pathlib.Path('once').touch(), sys.exit(1)); "
    )
    node.code += READY
    node.start(threading.Event())
    assert node.failed_starts == 1


def test_a_crash_is_a_failure_at_any_time(node: SmallNode) -> None:
    node.code = "import os, signal; os.kill(os.getpid(), signal.SIGBUS)"
    with pytest.raises(ChaosError, match="ended by SIGBUS"):
        node.start(threading.Event())
    node.kill()
    node.code = READY
    node.start(threading.Event())
    # Something that a full disk may do.
    node.up_since = None
    node.signal(signal.SIGSEGV)
    with pytest.raises(ChaosError, match="ended by SIGSEGV"):
        wait_until(node.has_ended, what="it crashes")


def test_a_node_ends_by_sigterm_with_status_0(node: SmallNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.code = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); " + READY
    node.start(threading.Event())
    node.terminate()
    assert node.pid is None
    node.code = READY
    node.start(threading.Event())
    with pytest.raises(ChaosError, match="ended with status -15"):
        node.terminate()
    monkeypatch.setattr(nodes, "END_SECONDS", 0.2)
    node.code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + READY
    node.start(threading.Event())
    with pytest.raises(ChaosError, match="does not end after SIGTERM") as caught:
        node.terminate()
    assert caught.value.node is node


def test_nobody_waits_for_a_node_when_the_run_has_ended(node: SmallNode) -> None:
    node.code = "import time; time.sleep(1000)"
    given_up = threading.Event()
    thread = threading.Thread(target=node.start, args=[given_up])
    thread.start()
    given_up.set()
    thread.join(30)
    assert not thread.is_alive()


def test_stacks_of_a_process_are_written(node: SmallNode, tmp_path: Path) -> None:
    node.start(threading.Event())
    assert node.pid is not None
    write_stacks(node.pid, tmp_path, "node")
    (file,) = tmp_path.glob("stacks-node-*.txt")
    assert f"{node.pid} comm: python" in file.read_text()


def test_the_report_says_how_to_repeat() -> None:
    result = Result(7, "make chaos SEED=7", 61.2, 1, Counter({"kill": 2}), 10, 11)
    passed = result_lines(result, None)
    assert passed[-1].startswith("PASSED")
    assert "1 rounds in 61 s, seed 7" in passed
    assert "faults: 2 × kill" in passed
    result.failures.append("t-1: record 1:1 is lost")
    failed = result_lines(result, Path("build/chaos/x"))
    assert failed[-3:] == [
        "files: build/chaos/x",
        "FAILED: t-1: record 1:1 is lost",
        "again: make chaos SEED=7",
    ]


def test_progress_is_a_line_now_and_then() -> None:
    out = io.StringIO()
    progress = Progress(out)
    progress.show("starting", {"faults": 1})
    progress.show("starting", {"faults": 2})
    progress.say(["result"])
    assert out.getvalue() == "    0 s  starting  1 faults\nresult\n"
