"""The process that stands for brokers: what it answers, counts and refuses."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import pytest

from ctrlchan._codec import ControlResponse, response_header_version
from ctrlchan.calibration.sinks import Sinks
from ctrlchan.protocol import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from tests.kafka.wire import receive_frame

_VERSIONS = [
    *((LEADER_AND_ISR, version) for version in range(8)),
    *((STOP_REPLICA, version) for version in range(5)),
    *((UPDATE_METADATA, version) for version in range(9)),
]


@pytest.fixture(scope="module")
def sinks() -> Iterator[Sinks]:
    with Sinks(2) as running:
        yield running


def _request(api_key: int, version: int, correlation_id: int, more: int = 0) -> bytes:
    return struct.pack(">ihhi", 8 + more, api_key, version, correlation_id) + bytes(more)


def _connected(sinks: Sinks, place: int = 0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", sinks.ports[place]), timeout=10)


@pytest.mark.parametrize(("api_key", "version"), _VERSIONS)
def test_each_version_is_acknowledged(sinks: Sinks, api_key: int, version: int) -> None:
    before = sinks.report()
    begin = time.monotonic_ns()
    with _connected(sinks) as client:
        client.sendall(_request(api_key, version, 77, 1_000))
        answer = receive_frame(client)
    after = sinks.report()
    assert answer[:4] == (77).to_bytes(4)
    body = answer[4 + response_header_version(api_key, version) :]
    expected = ControlResponse(api_key=api_key, version=version, error_code=0).encode()
    assert body == expected
    assert after.requests - before.requests == 1
    assert after.bytes - before.bytes == 12 + 1_000
    assert begin < after.last_answer_ns < time.monotonic_ns()


def test_requests_in_pieces_and_many_at_once(sinks: Sinks) -> None:
    with _connected(sinks, 0) as slow, _connected(sinks, 1) as fast:
        fast.sendall(b"".join(_request(UPDATE_METADATA, 8, number, number) for number in range(200)))
        for byte in _request(UPDATE_METADATA, 8, 5, 3)[:-1]:
            slow.sendall(bytes([byte]))
        assert [receive_frame(fast)[:4] for _ in range(200)] == [number.to_bytes(4) for number in range(200)]
        slow.sendall(b"\0")
        assert receive_frame(slow)[:4] == (5).to_bytes(4)


def test_a_body_of_many_megabytes(sinks: Sinks) -> None:
    size = 64 << 20
    before = sinks.report().bytes
    with _connected(sinks) as client:
        client.sendall(_request(UPDATE_METADATA, 8, 1, size))
        receive_frame(client)
    assert sinks.report().bytes - before == 12 + size


@pytest.mark.parametrize(
    "prefix",
    [
        (7, UPDATE_METADATA, 8),
        (-1, UPDATE_METADATA, 8),
        (8, 3, 8),
        (8, UPDATE_METADATA, 9),
        (8, UPDATE_METADATA, -1),
        (8, -1, 0),
        (8, 32_767, 32_767),
    ],
)
def test_other_requests_end_their_connection_alone(sinks: Sinks, prefix: tuple[int, int, int]) -> None:
    with _connected(sinks) as good, _connected(sinks) as bad:
        bad.sendall(struct.pack(">ihhi", *prefix, 1))
        assert bad.recv(1) == b""
        good.sendall(_request(STOP_REPLICA, 0, 9))
        assert receive_frame(good)[:4] == (9).to_bytes(4)


def test_several_lines_at_once(sinks: Sinks) -> None:
    first = sinks.ask("report\nreport\nreport")
    assert [sinks._read(), sinks._read()] == [first, first]
