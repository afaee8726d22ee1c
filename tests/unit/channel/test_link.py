"""The conversation with one broker, moved by hand."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

import pytest

from ctrlchan.channel.senders._exchange import Outbox
from ctrlchan.channel.senders.link import Broken, Link, LinkSettings
from ctrlchan.channel.wire.records import COMMAND, SEND, Failure
from ctrlchan.channel.wire.states import NEVER, LinkState

SETTINGS = LinkSettings(
    connection_setup_timeout=10,
    connection_setup_timeout_max=35,
    socket_timeout=50,
    request_timeout=30,
    retry_backoff=5,
    max_response_bytes=100,
)

PREFIX = bytes(range(40))
TAIL = b"shared_body" * 10
EXPECT = b"\0\0\0\0"


class Bench:
    """A link over its own memory."""

    def __init__(self, shared_body: bytes = TAIL, epoch_at: int = 20) -> None:
        self.memory = bytearray(4096) + PREFIX + shared_body
        self.fence = memoryview(bytearray(8)).cast("q")
        self.fence[0] = -1
        self.shared_body = shared_body
        self.epoch_at = epoch_at
        self.outbox = Outbox()
        self.link = Link(3, 77, memoryview(self.memory), self.fence, SETTINGS)

    def item(self, sequence: int = 1, controller_epoch: int = 7, expect: bytes = EXPECT) -> bytes:
        return COMMAND.pack(
            SEND,
            len(expect),
            self.epoch_at,
            3,
            sequence,
            4096,
            len(PREFIX) + len(self.shared_body),
            len(PREFIX),
            controller_epoch,
            expect,
            0,
        )

    def queue(self, items: Iterable[bytes]) -> None:
        for item in items:
            self.link.items.append(item)

    def await_response(self, now: int = 0) -> None:
        """Connect, and have the first item written."""
        self.link.connecting(now)
        self.link.connected()
        self.link.begin(now)
        self.link.written(now)


def state_of(link: Link) -> LinkState:
    """The state as it is now; mypy remembers what an earlier assertion said of the attribute."""
    return link.state


def response(correlation: int, body: bytes = EXPECT) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation) + body


def test_a_frame_carries_correlation_id_and_broker_epoch() -> None:
    bench = Bench()
    bench.link.items.append(bench.item())
    assert bench.link.wants_connection()
    bench.link.connecting(100)
    assert bench.link.state is LinkState.CONNECTING
    assert bench.link.deadline == 110
    bench.link.connected()
    assert bench.link.deadline == NEVER
    head, shared_body = bench.link.begin(200)
    frame = bytearray(PREFIX + TAIL)
    frame[8:12] = struct.pack(">i", 0)
    frame[20:28] = struct.pack(">q", 77)
    assert head == frame
    assert shared_body is None
    assert bench.link.deadline == 230
    assert bench.memory[4096:] == PREFIX + TAIL


def test_a_version_without_broker_epoch_is_left_alone() -> None:
    bench = Bench(epoch_at=0)
    bench.link.items.append(bench.item())
    bench.link.connected()
    head, _ = bench.link.begin(0)
    assert head == PREFIX[:8] + bytes(4) + PREFIX[12:] + TAIL


def test_a_large_shared_body_is_not_copied() -> None:
    bench = Bench(shared_body=b"x" * 100_000)
    bench.link.items.append(bench.item())
    bench.link.connected()
    head, shared_body = bench.link.begin(0)
    assert len(head) == len(PREFIX)
    assert shared_body is not None
    assert shared_body.obj is bench.memory
    assert bytes(shared_body) == bench.shared_body


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 11, 12, 100])
def test_a_response_arrives_in_pieces_of_any_size(piece: int) -> None:
    bench = Bench()
    bench.link.items.append(bench.item())
    bench.await_response()
    data = response(0)
    bodies = [bench.link.receive(data[at : at + piece]) for at in range(0, len(data), piece)]
    assert bodies[-1] == EXPECT
    assert all(body is None for body in bodies[:-1])
    assert bench.link.settle(EXPECT, bench.outbox)
    assert bench.link.state is LinkState.READY
    assert not bench.link.items


def test_correlation_ids_start_at_0_with_each_connection() -> None:
    bench = Bench()
    bench.queue(bench.item(sequence) for sequence in (1, 2, 3))
    bench.await_response()
    for correlation in (0, 1):
        assert bench.link.receive(response(correlation)) == EXPECT
        bench.link.settle(EXPECT, bench.outbox)
        head, _ = bench.link.begin(0)
        assert head[8:12] == struct.pack(">i", correlation + 1)
        bench.link.written(0)
    bench.link.failed(Failure.CLOSED, 0)
    bench.link.expired()
    bench.await_response()
    assert bench.link.receive(response(0)) == EXPECT


@pytest.mark.parametrize(
    ("data", "failure"),
    [
        (response(1), Failure.CORRELATION),
        (struct.pack(">ii", 3, 0), Failure.RESPONSE_SIZE),
        (struct.pack(">ii", -1, 0), Failure.RESPONSE_SIZE),
        (struct.pack(">ii", 101, 0), Failure.RESPONSE_SIZE),
        (b"HTTP/1.1 400 Bad Request", Failure.RESPONSE_SIZE),
        (response(0) + b"x", Failure.SURPLUS),
        (response(0) + response(1), Failure.SURPLUS),
    ],
)
def test_a_response_that_is_none_breaks_the_connection(data: bytes, failure: Failure) -> None:
    bench = Bench()
    bench.link.items.append(bench.item())
    bench.await_response()
    with pytest.raises(Broken) as broken:
        bench.link.receive(data)
    assert broken.value.failure is failure


def test_bytes_that_nobody_asked_for_break_the_connection() -> None:
    bench = Bench()
    bench.link.connected()
    with pytest.raises(Broken):
        bench.link.receive(response(0))


def test_a_failure_waits_and_begins_the_same_request_again() -> None:
    bench = Bench()
    bench.link.items.append(bench.item())
    for attempt in (1, 2, 3):
        bench.await_response()
        bench.link.receive(response(0)[:6])
        bench.link.failed(Failure.CLOSED, 1000)
        assert bench.link.state is LinkState.WAITING
        assert bench.link.attempts == attempt
        assert bench.link.deadline == 1005
        assert not bench.link.wants_connection()
        assert bench.link.expired() is None
        assert bench.link.wants_connection()
    bench.await_response()
    # Nothing is left of the half response.
    assert bench.link.receive(response(0)) == EXPECT
    bench.link.settle(EXPECT, bench.outbox)
    assert bench.link.attempts == 0


def test_an_idle_connection_that_ends_is_no_failure() -> None:
    bench = Bench()
    bench.link.connected()
    bench.link.failed(Failure.CLOSED, 0)
    assert bench.link.state is LinkState.IDLE
    assert bench.link.deadline == NEVER
    assert bench.link.attempts == 0


def test_the_setup_timeout_doubles_up_to_its_maximum_and_falls_back() -> None:
    bench = Bench()
    bench.link.items.append(bench.item())
    seen = []
    for _ in range(4):
        bench.link.connecting(0)
        seen.append(bench.link.deadline)
        assert bench.link.expired() is Failure.CONNECT_TIMEOUT
        bench.link.failed(Failure.CONNECT_TIMEOUT, 0)
        bench.link.expired()
    assert seen == [10, 20, 35, 35]
    bench.link.connecting(0)
    bench.link.connected()
    bench.link.failed(Failure.CLOSED, 0)
    bench.link.connecting(0)
    assert bench.link.deadline == 10


def test_a_request_that_takes_too_long_expires() -> None:
    bench = Bench()
    bench.link.items.append(bench.item())
    bench.await_response(100)
    assert bench.link.deadline == 130
    assert bench.link.expired() is Failure.REQUEST_TIMEOUT


@pytest.mark.parametrize("expect", [EXPECT, b""])
def test_any_other_response_is_held_until_the_parent_says_go(expect: bytes) -> None:
    bench = Bench()
    bench.queue([bench.item(1, expect=expect), bench.item(2)])
    bench.await_response()
    body = b"\0\0\x0b\0" if expect else b""
    assert bench.link.receive(response(0, body)) == body
    assert not bench.link.settle(body, bench.outbox)
    assert bench.link.state is LinkState.HELD
    assert bench.link.deadline == NEVER
    bench.link.go()
    assert state_of(bench.link) is LinkState.READY
    assert [item[4] for item in bench.link.items] == [2]


def test_a_connection_lost_while_a_response_is_held_costs_no_attempt() -> None:
    bench = Bench()
    bench.queue([bench.item(1, expect=b""), bench.item(2)])
    bench.await_response()
    bench.link.receive(response(0))
    bench.link.settle(EXPECT, bench.outbox)
    bench.link.failed(Failure.CLOSED, 0)
    assert bench.link.state is LinkState.HELD
    bench.link.go()
    assert state_of(bench.link) is LinkState.IDLE
    assert bench.link.attempts == 0
    assert [item[4] for item in bench.link.items] == [2]


def test_a_response_found_to_be_garbage_is_an_attempt() -> None:
    bench = Bench()
    bench.link.items.append(bench.item(1, expect=b""))
    bench.await_response()
    bench.link.receive(response(0))
    bench.link.settle(EXPECT, bench.outbox)
    bench.link.again()
    bench.link.failed(Failure.GARBAGE, 0)
    assert bench.link.state is LinkState.WAITING
    assert bench.link.attempts == 1
    assert len(bench.link.items) == 1


def test_a_fenced_epoch_is_stale_before_every_attempt() -> None:
    bench = Bench()
    bench.queue([bench.item(1, controller_epoch=7), bench.item(2, controller_epoch=8)])
    assert not bench.link.is_stale()
    bench.fence[0] = 7
    assert bench.link.is_stale()
    assert bench.link.drop_stale()[4] == 1
    assert not bench.link.is_stale()


def test_missing_tells_how_much_of_a_response_is_to_come() -> None:
    bench = Bench()
    bench.link.items.append(bench.item())
    bench.await_response()
    assert bench.link.missing() == 0
    bench.link.receive(response(0, b"x" * 50)[:20])
    assert bench.link.missing() == 38


def test_socket_timeout_bounds_connecting_and_the_handshake_together() -> None:
    bench = Bench()
    bench.link.items.append(bench.item())
    bench.link.connecting(100)
    assert bench.link.deadline == 110
    bench.link.shaking_hands()
    assert bench.link.deadline == 150
    assert bench.link.expired() is Failure.HANDSHAKE_TIMEOUT


def test_connecting_ends_at_the_socket_timeout_where_that_is_shorter() -> None:
    bench = Bench()
    bench.link.settings = replace(SETTINGS, socket_timeout=4)
    bench.link.items.append(bench.item())
    bench.link.connecting(100)
    assert bench.link.deadline == 104
    assert bench.link.expired() is Failure.HANDSHAKE_TIMEOUT
    # Only the setup timeout doubles.
    bench.link.failed(Failure.HANDSHAKE_TIMEOUT, 104)
    assert bench.link.setup_timeout == SETTINGS.connection_setup_timeout
