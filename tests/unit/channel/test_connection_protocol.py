"""The protocol of one connection, without a socket and without a clock."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

import pytest

from ctrlchan.channel.senders.protocol import ConnectionProtocol
from ctrlchan.channel.senders.states import NEVER, ConnectionState
from ctrlchan.channel.wire.records import COMMAND, SEND
from ctrlchan.channel.wire.settings import ConnectionSettings
from ctrlchan.security.failure import ConnectionFailed, Failure

SETTINGS = ConnectionSettings(
    connection_setup_timeout=10,
    connection_setup_timeout_max=35,
    socket_timeout=50,
    request_timeout=30,
    retry_backoff=5,
    max_response_bytes=100,
)

PREFIX = bytes(range(40))
SHARED_BODY = b"shared_body" * 10
EXPECT = b"\0\0\0\0"


class Setup:
    """A protocol over its own memory."""

    def __init__(self, shared_body: bytes = SHARED_BODY, epoch_at: int = 20) -> None:
        self.memory = bytearray(4096) + PREFIX + shared_body
        self.fence = memoryview(bytearray(8)).cast("q")
        self.fence[0] = -1
        self.shared_body = shared_body
        self.epoch_at = epoch_at
        self.protocol = ConnectionProtocol(3, 77, memoryview(self.memory), self.fence, SETTINGS)

    def command(self, sequence: int = 1, controller_epoch: int = 7, expect: bytes = EXPECT) -> bytes:
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

    def queue_commands(self, commands: Iterable[bytes]) -> None:
        for command in commands:
            self.protocol.queue.append(command)

    def await_response(self, now: int = 0) -> None:
        """Connect, and have the first item written."""
        self.protocol.begin_connecting(now)
        self.protocol.make_ready()
        self.protocol.begin_request(now)
        self.protocol.written(now)


def state_of(protocol: ConnectionProtocol) -> ConnectionState:
    """The state as it is now; mypy remembers an earlier assertion about the attribute."""
    return protocol.state


def response(correlation: int, body: bytes = EXPECT) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation) + body


def test_a_frame_carries_correlation_id_and_broker_epoch() -> None:
    setup = Setup()
    setup.protocol.queue.append(setup.command())
    assert setup.protocol.needs_connection()
    setup.protocol.begin_connecting(100)
    assert setup.protocol.state is ConnectionState.CONNECTING
    assert setup.protocol.deadline == 110
    setup.protocol.make_ready()
    assert setup.protocol.deadline == NEVER
    head, shared_body = setup.protocol.begin_request(200)
    frame = bytearray(PREFIX + SHARED_BODY)
    frame[8:12] = struct.pack(">i", 0)
    frame[20:28] = struct.pack(">q", 77)
    assert head == frame
    assert shared_body is None
    assert setup.protocol.deadline == 230
    assert setup.memory[4096:] == PREFIX + SHARED_BODY


def test_a_frame_without_broker_epoch_gets_only_a_correlation_id() -> None:
    setup = Setup(epoch_at=0)
    setup.protocol.queue.append(setup.command())
    setup.protocol.make_ready()
    head, _ = setup.protocol.begin_request(0)
    assert head == PREFIX[:8] + bytes(4) + PREFIX[12:] + SHARED_BODY


def test_a_large_shared_body_is_not_copied() -> None:
    setup = Setup(shared_body=b"x" * 100_000)
    setup.protocol.queue.append(setup.command())
    setup.protocol.make_ready()
    head, shared_body = setup.protocol.begin_request(0)
    assert len(head) == len(PREFIX)
    assert shared_body is not None
    assert shared_body.obj is setup.memory
    assert bytes(shared_body) == setup.shared_body


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 11, 12, 100])
def test_a_response_arrives_in_pieces_of_any_size(piece: int) -> None:
    setup = Setup()
    setup.protocol.queue.append(setup.command())
    setup.await_response()
    data = response(0)
    bodies = [setup.protocol.receive(data[at : at + piece]) for at in range(0, len(data), piece)]
    assert bodies[-1] == EXPECT
    assert all(body is None for body in bodies[:-1])
    assert setup.protocol.end(EXPECT, 0)
    assert setup.protocol.state is ConnectionState.READY
    assert not setup.protocol.queue


def test_correlation_ids_start_at_0_with_each_connection() -> None:
    setup = Setup()
    setup.queue_commands(setup.command(sequence) for sequence in (1, 2, 3))
    setup.await_response()
    for correlation in (0, 1):
        assert setup.protocol.receive(response(correlation)) == EXPECT
        setup.protocol.end(EXPECT, 0)
        head, _ = setup.protocol.begin_request(0)
        assert head[8:12] == struct.pack(">i", correlation + 1)
        setup.protocol.written(0)
    setup.protocol.fail(Failure.CLOSED, 0)
    setup.protocol.expire()
    setup.await_response()
    assert setup.protocol.receive(response(0)) == EXPECT


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
def test_a_bad_response_fails_the_connection(data: bytes, failure: Failure) -> None:
    setup = Setup()
    setup.protocol.queue.append(setup.command())
    setup.await_response()
    with pytest.raises(ConnectionFailed) as broken:
        setup.protocol.receive(data)
    assert broken.value.failure is failure


def test_bytes_without_a_request_fail_the_connection() -> None:
    setup = Setup()
    setup.protocol.make_ready()
    with pytest.raises(ConnectionFailed):
        setup.protocol.receive(response(0))


def test_a_failure_waits_and_begins_the_same_request_again() -> None:
    setup = Setup()
    setup.protocol.queue.append(setup.command())
    for attempt in (1, 2, 3):
        setup.await_response()
        setup.protocol.receive(response(0)[:6])
        setup.protocol.fail(Failure.CLOSED, 1000)
        assert setup.protocol.state is ConnectionState.BACKING_OFF
        assert setup.protocol.attempts == attempt
        assert setup.protocol.deadline == 1005
        assert not setup.protocol.needs_connection()
        assert setup.protocol.expire() is None
        assert setup.protocol.needs_connection()
    setup.await_response()
    # Nothing is left of the half response.
    assert setup.protocol.receive(response(0)) == EXPECT
    setup.protocol.end(EXPECT, 0)
    assert setup.protocol.attempts == 0


def test_an_idle_connection_that_ends_is_no_failure() -> None:
    setup = Setup()
    setup.protocol.make_ready()
    setup.protocol.fail(Failure.CLOSED, 0)
    assert setup.protocol.state is ConnectionState.IDLE
    assert setup.protocol.deadline == NEVER
    assert setup.protocol.attempts == 0


def test_the_setup_timeout_doubles_up_to_its_maximum_and_falls_back() -> None:
    setup = Setup()
    setup.protocol.queue.append(setup.command())
    seen = []
    for _ in range(4):
        setup.protocol.begin_connecting(0)
        seen.append(setup.protocol.deadline)
        assert setup.protocol.expire() is Failure.CONNECT_TIMEOUT
        setup.protocol.fail(Failure.CONNECT_TIMEOUT, 0)
        setup.protocol.expire()
    assert seen == [10, 20, 35, 35]
    setup.protocol.begin_connecting(0)
    setup.protocol.make_ready()
    setup.protocol.fail(Failure.CLOSED, 0)
    setup.protocol.begin_connecting(0)
    assert setup.protocol.deadline == 10


def test_a_request_that_takes_too_long_expires() -> None:
    setup = Setup()
    setup.protocol.queue.append(setup.command())
    setup.await_response(100)
    assert setup.protocol.deadline == 130
    assert setup.protocol.expire() is Failure.REQUEST_TIMEOUT


@pytest.mark.parametrize("expect", [EXPECT, b""])
def test_any_other_response_is_held_until_the_parent_accepts_it(expect: bytes) -> None:
    setup = Setup()
    setup.queue_commands([setup.command(1, expect=expect), setup.command(2)])
    setup.await_response()
    body = b"\0\0\x0b\0" if expect else b""
    assert setup.protocol.receive(response(0, body)) == body
    assert not setup.protocol.end(body, 0)
    assert setup.protocol.state is ConnectionState.HELD
    assert setup.protocol.deadline == NEVER
    setup.protocol.release_held()
    assert state_of(setup.protocol) is ConnectionState.READY
    assert [command.sequence for command in setup.protocol.queue] == [2]


def test_a_connection_lost_while_a_response_is_held_costs_no_attempt() -> None:
    setup = Setup()
    setup.queue_commands([setup.command(1, expect=b""), setup.command(2)])
    setup.await_response()
    setup.protocol.receive(response(0))
    setup.protocol.end(EXPECT, 0)
    setup.protocol.fail(Failure.CLOSED, 0)
    assert setup.protocol.state is ConnectionState.HELD
    setup.protocol.release_held()
    assert state_of(setup.protocol) is ConnectionState.IDLE
    assert setup.protocol.attempts == 0
    assert [command.sequence for command in setup.protocol.queue] == [2]


def test_a_response_found_to_be_garbage_is_an_attempt() -> None:
    setup = Setup()
    setup.protocol.queue.append(setup.command(1, expect=b""))
    setup.await_response()
    setup.protocol.receive(response(0))
    setup.protocol.end(EXPECT, 0)
    setup.protocol.reject_held()
    setup.protocol.fail(Failure.GARBAGE, 0)
    assert setup.protocol.state is ConnectionState.BACKING_OFF
    assert setup.protocol.attempts == 1
    assert len(setup.protocol.queue) == 1


def test_a_fenced_epoch_is_stale_before_every_attempt() -> None:
    setup = Setup()
    setup.queue_commands([setup.command(1, controller_epoch=7), setup.command(2, controller_epoch=8)])
    assert not setup.protocol.is_stale()
    setup.fence[0] = 7
    assert setup.protocol.is_stale()
    assert setup.protocol.drop_stale().sequence == 1
    assert not setup.protocol.is_stale()


def test_missing_bytes_of_a_response() -> None:
    setup = Setup()
    setup.protocol.queue.append(setup.command())
    setup.await_response()
    assert setup.protocol.missing_bytes() == 0
    setup.protocol.receive(response(0, b"x" * 50)[:20])
    assert setup.protocol.missing_bytes() == 38


def test_socket_timeout_bounds_connecting_and_the_handshake_together() -> None:
    setup = Setup()
    setup.protocol.queue.append(setup.command())
    setup.protocol.begin_connecting(100)
    assert setup.protocol.deadline == 110
    setup.protocol.begin_handshake()
    assert setup.protocol.deadline == 150
    assert setup.protocol.expire() is Failure.HANDSHAKE_TIMEOUT


def test_connecting_ends_at_the_socket_timeout_where_that_is_shorter() -> None:
    setup = Setup()
    setup.protocol.settings = replace(SETTINGS, socket_timeout=4)
    setup.protocol.queue.append(setup.command())
    setup.protocol.begin_connecting(100)
    assert setup.protocol.deadline == 104
    assert setup.protocol.expire() is Failure.HANDSHAKE_TIMEOUT
    # Only the setup timeout doubles.
    setup.protocol.fail(Failure.HANDSHAKE_TIMEOUT, 104)
    assert setup.protocol.setup_timeout == SETTINGS.connection_setup_timeout
