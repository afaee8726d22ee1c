"""Channels to scripted brokers with short time-outs, and counts of what a process holds."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

import psutil
import pytest

from ctrlchan.channel import ChannelConfig, ControllerChannelManager
from ctrlchan.channel.processes import sender_pool
from ctrlchan.interpreter import child_command
from tests.fault.peer import Peer

__all__ = [
    "BYSTANDERS",
    "MAPPED",
    "channel_to",
    "child_pids",
    "ends",
    "eventually",
    "holdings",
    "linux_only",
    "our_mappings",
    "peers",
    "run_in_fork_server",
]

linux_only = pytest.mark.skipif(
    sys.platform != "linux",
    reason="only Linux can set the sizes of pipes and of the address space, and show processor times",
)

#: Every value of ``senders``; a test with that parameter must pass with all of them.
MODES: tuple[str | int, ...] = ("per-broker", 1, 2)


def config(**settings: Any) -> ChannelConfig:
    fast: dict[str, Any] = {"controller_id": 0, "retry_backoff": 0.01, "senders": 1}
    return ChannelConfig(**(fast | settings))


@contextmanager
def channel_to(peers: Sequence[Peer], **settings: Any) -> Iterator[ControllerChannelManager]:
    with ControllerChannelManager(config(**settings), controller_epoch=7) as channel:
        channel.startup([peer.broker for peer in peers])
        yield channel


@contextmanager
def peers(count: int) -> Iterator[list[Peer]]:
    made = [Peer(broker_id, 1000 + broker_id) for broker_id in range(1, count + 1)]
    try:
        yield made
    finally:
        for peer in made:
            peer.close()


def run_in_fork_server(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Have fork servers run this code first; it can import the same modules as the parent."""

    def command(module: str, *arguments: str) -> list[str]:
        *interpreter, program, given = child_command(module, *arguments)
        set_path, start = program.rsplit("; from ", 1)
        return [*interpreter, f"{set_path}; exec({code!r}, {{}}); from {start}", given]

    monkeypatch.setattr(sender_pool, "child_command", command)


def eventually(condition: Callable[[], bool], timeout: float = 60.0) -> None:
    """Wait for a condition by checking it every few milliseconds, in a long wait less often."""
    begin = monotonic()
    while not condition():
        waited = monotonic() - begin
        assert waited < timeout, f"not within {timeout} s"
        # Conditions may look at all processes of the machine, which takes longer than the first pauses.
        sleep(min(0.005 + waited / 10, 0.1))


def ends(action: Callable[[], object], timeout: float = 60.0) -> None:
    """Run `action` in a thread and assert that it ends."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(timeout)
    assert not thread.is_alive(), f"has not ended in {timeout} s"


#: Processes that existed when the test began, because other tests share them.
BYSTANDERS: set[int] = set()
#: Addresses of our mappings that existed when the test began, because other tests share a channel.
MAPPED: set[str] = set()


def holdings() -> dict[str, Any]:
    """Return the file descriptors, threads, child processes and shared mappings of this test."""
    return {
        "fds": psutil.Process().num_fds(),
        "threads": threading.active_count(),
        "children": [pid for pid in child_pids() if pid not in BYSTANDERS],
        "mappings": len(our_mappings() - MAPPED),
    }


def holds_no_more_than(before: dict[str, Any]) -> bool:
    """Return whether this test has given back all that it took since ``before``, from ``holdings``.

    Less is well: what an earlier test had left to the garbage collector may have gone meanwhile.
    """
    now = holdings()
    return set(now["children"]) <= set(before["children"]) and all(
        now[name] <= before[name] for name in ("fds", "threads", "mappings")
    )


def child_pids() -> list[int]:
    return [child.pid for child in psutil.Process().children(recursive=True)]


def our_mappings() -> set[str]:
    """Return the addresses of our mappings; only on Linux do they have a name to find them by."""
    if sys.platform != "linux":
        return set()
    with open("/proc/self/maps") as maps:
        return {line.split()[0] for line in maps if "memfd:ctrlchan" in line}
