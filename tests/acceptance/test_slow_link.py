"""The slow link of the benchmarks: it does what it was set to, nothing else, and leaves nothing behind.

Frames are counted at both ends. Times have lower bounds alone: a busy machine makes any link slower.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import sqrt
from pathlib import Path
from typing import Final

import psutil
import pytest

from bench.links.link import FAR, LinkSettings, SlowLink
from bench.links.namespaces import missing_for_namespaces
from bench.peers.process import ROOT
from tests.kafka.waiting import wait_until

pytestmark = pytest.mark.skipif(missing_for_namespaces() is not None, reason=str(missing_for_namespaces()))

_PORT: Final = 5001
_DATAGRAMS: Final = 20_000
_DATAGRAM: Final = b"x" * 100
#: Bytes of a frame with one such datagram: Ethernet, IP and UDP headers.
_FRAME: Final = 14 + 20 + 8 + len(_DATAGRAM)
_SECONDS: Final = 60.0

#: Echoes what comes over TCP; counts datagrams. A line on standard input asks for the count.
_FAR_END: Final = """
import socket, sys, threading

host, port = sys.argv[1], int(sys.argv[2])
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)  # SO_RCVBUFFORCE
datagrams.bind((host, port))
listener = socket.create_server((host, port))
count = 0

def receive():
    global count
    while datagrams.recv(2048):
        count += 1

def echo():
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while data := connection.recv(1 << 16):
                connection.sendall(data)
        except ConnectionError:
            pass  # a test has ended it

for work in (receive, echo):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
for _ in sys.stdin:
    print(count, flush=True)
"""


@pytest.fixture
def link(tmp_path: Path) -> Iterator[SlowLink]:
    with SlowLink(tmp_path) as link:
        yield link


class FarEnd:
    """A process at the far end: what it has received, and connections to it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def received(self) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def send(self, datagrams: int) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.connect((FAR, _PORT))
            for _ in range(datagrams):
                sender.send(_DATAGRAM)


@pytest.fixture
def far_end(link: SlowLink) -> Iterator[FarEnd]:
    link.set(LinkSettings())
    command = [*link.far_prefix, sys.executable, "-c", _FAR_END, FAR, str(_PORT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield FarEnd(process)


@contextmanager
def connection() -> Iterator[socket.socket]:
    with socket.create_connection((FAR, _PORT), _SECONDS) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield client


def round_trip(client: socket.socket) -> float:
    """Return the milliseconds until a byte has come back."""
    begin = time.perf_counter()
    client.sendall(b"x")
    assert client.recv(1) == b"x"
    return (time.perf_counter() - begin) * 1e3


@pytest.mark.parametrize("round_trip_ms", [1.0, 50.0])
def test_no_round_trip_is_shorter_than_the_delay(
    link: SlowLink, far_end: FarEnd, round_trip_ms: float
) -> None:
    link.set(LinkSettings(round_trip_ms=round_trip_ms))
    begin = time.perf_counter()
    with connection() as client:
        connected = (time.perf_counter() - begin) * 1e3
        assert connected >= round_trip_ms
        assert min(round_trip(client) for _ in range(20)) >= round_trip_ms


def test_a_share_of_the_datagrams_is_lost_and_no_other(link: SlowLink, far_end: FarEnd) -> None:
    loss = 0.01
    link.set(LinkSettings(loss=loss))
    far_end.send(_DATAGRAMS)
    wait_until(lambda: link.report()[0].frames == _DATAGRAMS, timeout=_SECONDS, what="all datagrams are sent")
    there, back = link.report()
    wait_until(
        lambda: far_end.received() == _DATAGRAMS - there.lost,
        timeout=_SECONDS,
        what="all that were not lost are received",
    )
    # Five standard deviations of the binomial distribution.
    assert abs(there.lost - loss * _DATAGRAMS) <= 5 * sqrt(_DATAGRAMS * loss * (1 - loss))
    assert there.bytes == _DATAGRAMS * _FRAME
    assert (there.overflowed, there.missed, back.frames) == (0, 0, 0)


def test_nothing_is_lost_without_loss(link: SlowLink, far_end: FarEnd) -> None:
    link.set(LinkSettings(round_trip_ms=1))
    far_end.send(_DATAGRAMS)
    wait_until(lambda: far_end.received() == _DATAGRAMS, timeout=_SECONDS, what="all datagrams are received")


def test_a_full_queue_drops_and_counts(link: SlowLink, far_end: FarEnd) -> None:
    queue, sent = 100, 2_000
    link.set(LinkSettings(gbit=0.001, queue=queue))
    begin = time.perf_counter()
    far_end.send(sent)
    sending = time.perf_counter() - begin
    wait_until(lambda: link.report()[0].frames == sent, timeout=_SECONDS, what="all datagrams are sent")
    there, _ = link.report()
    assert there.lost == there.missed == 0
    # The rate lets some go while the others come.
    gone = sending * 1e6 / 8 / _FRAME
    assert sent - queue - gone - 10 <= there.overflowed <= sent - queue
    wait_until(
        lambda: far_end.received() == sent - there.overflowed, timeout=_SECONDS, what="the others arrive"
    )


def test_the_rate_is_not_exceeded(link: SlowLink, far_end: FarEnd) -> None:
    gbit, size = 0.1, 5_000_000
    link.set(LinkSettings(gbit=gbit))
    with connection() as client:
        begin = time.perf_counter()
        sender = threading.Thread(target=client.sendall, args=(bytes(size),))
        sender.start()
        left = size
        while left:
            left -= len(client.recv(1 << 16))
        sender.join()
        seconds = time.perf_counter() - begin
    there, back = link.report()
    # Each direction carried all bytes, with headers.
    assert min(there.bytes, back.bytes) > size
    assert seconds >= size * 8 / (gbit * 1e9)


def test_connections_are_ended(link: SlowLink, far_end: FarEnd) -> None:
    with connection() as client:
        round_trip(client)
        link.end_connections()
        with pytest.raises(ConnectionError):
            client.recv(1)
    with connection() as client:
        round_trip(client)


def test_this_process_returns_to_its_namespace(tmp_path: Path) -> None:
    before = os.readlink("/proc/thread-self/ns/net")
    with SlowLink(tmp_path) as other:
        assert os.readlink("/proc/thread-self/ns/net") != before
        other.set(LinkSettings(round_trip_ms=1))
    assert os.readlink("/proc/thread-self/ns/net") == before


_OWNER: Final = """
import json, os, sys, time
from pathlib import Path
import psutil
from bench.links.link import SlowLink

with SlowLink(Path(sys.argv[1])):
    print(json.dumps([one.pid for one in psutil.Process().children(recursive=True)]), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "kill -9"])
def test_nothing_outlives_its_owner(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", _OWNER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as owner:
        assert owner.stdout is not None
        children = [psutil.Process(pid) for pid in json.loads(owner.stdout.readline())]
        # Two namespaces, the program between them, and the reaper.
        assert len(children) == 4
        owner.send_signal(number)
        wait_until(
            lambda: not any(child.is_running() for child in children),
            timeout=_SECONDS,
            what="all processes, and with them namespaces and interfaces, are gone",
        )
