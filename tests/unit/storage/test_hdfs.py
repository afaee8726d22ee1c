"""A name node that does not answer, or is not there, is an error of one line."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ctrlchan.storage import hdfs as hdfs_module
from ctrlchan.storage import names_in, path_of, replace


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def closed() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_silent_name_node_is_named(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_module, "_ANSWER", 0.3)
    path = path_of(f"hdfs://{silent}/live")
    for request in (path.exists, lambda: names_in(path), lambda: replace(path, b"x"), path.read_bytes):
        with pytest.raises(TimeoutError) as problem:
            request()
        assert "no answer for 0.3 s" in str(problem.value)
        assert f"'hdfs://{silent}/" in str(problem.value)
        assert "\n" not in str(problem.value)


def test_a_name_node_that_is_not_there_is_named(closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hdfs_module._ONLY_ONE, "dfs.client.failover.sleep.max.millis", "1")
    with pytest.raises(OSError, match="Connection refused") as problem:
        path_of(f"hdfs://{closed}/live").exists()
    assert f"'hdfs://{closed}/live'" in str(problem.value)
    assert "\n" not in str(problem.value)


def test_ctrl_c_reaches_a_process_that_waits_for_a_name_node(silent: str) -> None:
    code = (
        "import sys, threading\n"
        "from ctrlchan.storage import path_of\n"
        "threading.Timer(1, lambda: print('waits', flush=True)).start()\n"
        "path_of(sys.argv[1]).exists()\n"
    )
    command = [sys.executable, "-c", code, f"hdfs://{silent}/live"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "waits\n"
        os.kill(waiting.pid, signal.SIGINT)
        _, errors = waiting.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors
