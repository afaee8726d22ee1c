"""Threads that send requests to other nodes: one at a time, apart from each other, in spite of bad nodes."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from ctrlchan.errors import DecodeError, ErrorCode, KafkaError
from ctrlchan.peers.connection import Address
from ctrlchan.peers.peer_threads import PeerRequest, PeerThreads
from ctrlchan.peers.requests import Answer, OutgoingRequest
from tests.kafka.waiting import wait_until
from tests.unit.peers.nodes import SECONDS, Asked, Node

KEY = 60
VERSIONS = {KEY: (0, 3)}


class Sender:
    """Sends texts to nodes, as many in a request as wait. ``results``: node, and answer or error."""

    def __init__(self, *, timeout: float = SECONDS, idle_seconds: float = SECONDS) -> None:
        self.addresses: dict[int, Address] = {}
        self.results: queue.Queue[tuple[int, Any]] = queue.Queue()
        self._lock = threading.Lock()
        self._texts: dict[int, deque[bytes]] = {}
        self.threads = PeerThreads(
            "test", "a-client", self.addresses.get, self._next, timeout, idle_seconds=idle_seconds
        )

    def send(self, node: int, text: bytes) -> None:
        with self._lock:
            self._texts.setdefault(node, deque()).append(text)
        self.threads.wake(node)

    def result(self) -> tuple[int, Any]:
        return self.results.get(timeout=SECONDS)

    def _next(self, node: int) -> PeerRequest[bytes] | None:
        with self._lock:
            texts = self._texts.pop(node, None)
        if not texts:
            return None
        return PeerRequest(
            OutgoingRequest(KEY, range(1, 3), 2, lambda version: b"v%d %s" % (version, b" ".join(texts))),
            _decode,
            answered=lambda found: self.results.put((node, found)),
            failed=lambda error: self.results.put((node, error)),
        )


def _decode(answer: Answer) -> bytes:
    if answer.body == b"garbage":
        raise DecodeError("garbage", api="Test", version=answer.version)
    return answer.body


@pytest.fixture
def sender() -> Iterator[Sender]:
    made = Sender()
    yield made
    made.threads.stop()


def echo(asked: Asked) -> bytes:
    return asked.body.upper()


def node(answer: Any = echo, versions: Any = VERSIONS) -> Node:
    return Node(answer, versions, {KEY: 2})


def test_a_request_has_the_highest_common_version_and_one_connection(sender: Sender) -> None:
    with node() as one, node(versions={KEY: (0, 1)}) as old:
        sender.addresses |= {1: one.address, 2: old.address}
        for _ in range(3):
            sender.send(1, b"a")
            assert sender.result() == (1, b"V2 A")
        sender.send(2, b"b")
        assert sender.result() == (2, b"V1 B")
        assert one.connections == 1


def test_what_gathers_during_a_request_is_the_next_one(sender: Sender) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def answer(asked: Asked) -> bytes:
        entered.set()
        assert go_on.wait(SECONDS)
        return asked.body

    with node(answer) as slow, node() as other:
        sender.addresses |= {1: slow.address, 2: other.address}
        sender.send(1, b"a")
        assert entered.wait(SECONDS)
        for text in (b"b", b"c", b"d"):
            sender.send(1, text)
        # A slow node delays no other one.
        sender.send(2, b"e")
        assert sender.result() == (2, b"V2 E")
        go_on.set()
        assert [sender.result() for _ in range(2)] == [(1, b"v2 a"), (1, b"v2 b c d")]
        assert [asked.body for asked in slow.asked] == [b"v2 a", b"v2 b c d"]


def test_a_node_that_does_not_answer_in_time() -> None:
    sender = Sender(timeout=0.2)
    ended = threading.Event()

    def answer(asked: Asked) -> bytes:
        if asked.body == b"v2 slow":
            assert ended.wait(SECONDS)
        return asked.body

    try:
        with node(answer) as slow:
            sender.addresses[1] = slow.address
            sender.send(1, b"slow")
            failed, error = sender.result()
            assert (failed, type(error)) == (1, TimeoutError)
            # The late answer comes on a connection that is not used any more.
            ended.set()
            sender.send(1, b"next")
            assert sender.result() == (1, b"v2 next")
            assert slow.connections == 2
    finally:
        sender.threads.stop()


def test_a_node_that_ends_during_a_request(sender: Sender) -> None:
    with node(lambda _: None) as dying:
        sender.addresses[1] = dying.address
        sender.send(1, b"a")
        _, error = sender.result()
    assert isinstance(error, ConnectionError)
    # Nothing listens there any more; then it is back at another port.
    sender.send(1, b"b")
    _, error = sender.result()
    assert isinstance(error, OSError)
    with node() as again:
        sender.addresses[1] = again.address
        sender.send(1, b"c")
        assert sender.result() == (1, b"V2 C")


def test_a_connection_that_the_node_has_closed_meanwhile(sender: Sender) -> None:
    with node() as one:
        sender.addresses[1] = one.address
        sender.send(1, b"a")
        assert sender.result() == (1, b"V2 A")
        one.close_connections()
        sender.send(1, b"b")
        assert sender.result() == (1, b"V2 B")
        assert one.connections == 2


def test_a_node_without_an_address(sender: Sender) -> None:
    sender.send(1, b"a")
    failed, error = sender.result()
    assert (failed, str(error)) == (1, "broker 1 has no address")


@pytest.mark.parametrize("versions", [{}, {KEY: (3, 9)}, {KEY: (0, 0)}])
def test_a_node_without_the_version(sender: Sender, versions: dict[int, tuple[int, int]]) -> None:
    with node(versions=versions) as one:
        sender.addresses[1] = one.address
        for _ in range(2):
            sender.send(1, b"a")
            _, error = sender.result()
            assert isinstance(error, KafkaError)
            assert error.code == ErrorCode.UNSUPPORTED_VERSION
        assert (one.connections, one.asked) == (1, [])


def test_a_node_that_is_given_up(sender: Sender) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def answer(asked: Asked) -> bytes:
        entered.set()
        assert go_on.wait(SECONDS)
        return asked.body

    with node(answer) as stopped, node() as again:
        sender.addresses[1] = stopped.address
        sender.send(1, b"a")
        assert entered.wait(SECONDS)
        sender.threads.check_addresses()
        assert sender.results.empty()
        sender.addresses[1] = again.address
        sender.threads.check_addresses()
        failed, error = sender.result()
        assert (failed, isinstance(error, OSError)) == (1, True)
        sender.send(1, b"b")
        assert sender.result() == (1, b"V2 B")
        go_on.set()


def test_an_answer_that_cannot_be_read_ends_its_connection(sender: Sender) -> None:
    answers = iter([b"garbage", b"fine"])
    with node(lambda _: next(answers)) as one:
        sender.addresses[1] = one.address
        sender.send(1, b"a")
        _, error = sender.result()
        assert isinstance(error, DecodeError)
        sender.send(1, b"b")
        assert sender.result() == (1, b"fine")
        assert one.connections == 2


def test_an_idle_thread_ends_and_another_one_begins() -> None:
    sender = Sender(idle_seconds=0.01)
    try:
        with node() as one:
            sender.addresses[1] = one.address
            for _ in range(2):
                sender.send(1, b"a")
                assert sender.result() == (1, b"V2 A")
                wait_until(lambda: not _threads() or None, what="the end of the idle thread")
            assert one.connections == 2
    finally:
        sender.threads.stop()


def test_stop_ends_a_request_that_is_under_way() -> None:
    sender = Sender()
    entered, go_on = threading.Event(), threading.Event()

    def answer(asked: Asked) -> bytes:
        entered.set()
        assert go_on.wait(SECONDS)
        return asked.body

    with node(answer) as slow:
        sender.addresses[1] = slow.address
        sender.send(1, b"a")
        assert entered.wait(SECONDS)
        sender.threads.stop()
        _, error = sender.result()
        assert isinstance(error, OSError)
        sender.send(1, b"b")
        go_on.set()
    assert not _threads()
    assert sender.results.empty()


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "test-1"]
