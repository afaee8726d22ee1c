"""Answers with ranges of files."""

from __future__ import annotations

import os
import random
import struct
import threading
from pathlib import Path

import pytest

from ctrlchan.server.socket_server import FileRange
from tests.kafka.waiting import wait_until
from tests.unit.server.serving import Client, EchoHandler, handling, serving, still_serves

CONTENT = random.Random(3).randbytes(9_000_001)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "segment.log"
    path.write_bytes(CONTENT)
    return path


def test_bytes_and_ranges_in_any_order(path: Path) -> None:
    chance = random.Random(4)
    with serving() as server, Client(server) as client, path.open("rb") as file:
        for _ in range(30):
            parts: list[bytes | FileRange] = []
            expected = b""
            for _ in range(chance.randrange(8)):
                position = chance.randrange(len(CONTENT))
                size = chance.choice([0, 1, 5_000, 700_000])
                size = min(size, len(CONTENT) - position)
                if chance.random() < 0.5:
                    parts.append(CONTENT[position : position + size])
                else:
                    parts.append(FileRange(file.fileno(), position, size))
                expected += CONTENT[position : position + size]
            client.frames(b"fetch")
            request = server.requests.take(10)
            assert request is not None
            request.answer(parts)
            assert client.answer() == expected


def test_a_slow_reader_gets_the_right_bytes(path: Path) -> None:
    with serving() as server, Client(server, buffer=4096) as client, path.open("rb") as file:
        client.frames(b"fetch", b"fetch")
        answer: list[bytes | FileRange] = [
            b"head",
            FileRange(file.fileno(), 1, 4_000_000),
            b"between",
            FileRange(file.fileno(), 0, len(CONTENT)),
        ]
        with handling(server, lambda request: request.answer(answer)):
            expected = b"head" + CONTENT[1:4_000_001] + b"between" + CONTENT
            for _ in range(2):
                assert int.from_bytes(client.exactly(4), "big") == len(expected)
                received = bytearray()
                while len(received) < len(expected):
                    received += client.recv(min(50_000, len(expected) - len(received)))
                assert received == expected


def test_a_file_that_is_deleted_meanwhile_is_sent(path: Path) -> None:
    with serving() as server, Client(server, buffer=4096) as client:
        client.frames(b"fetch")
        request = server.requests.take(10)
        assert request is not None
        with path.open("rb") as file:
            request.answer([FileRange(file.fileno(), 0, len(CONTENT))])
        path.unlink()
        assert client.answer() == CONTENT


def test_a_file_that_becomes_shorter_closes_the_connection(path: Path) -> None:
    with serving() as server, Client(server) as client, path.open("rb") as file:
        client.frames(b"fetch")
        request = server.requests.take(10)
        assert request is not None
        request.answer([FileRange(file.fileno(), 0, len(CONTENT) + 1)])
        with pytest.raises(ConnectionError):
            client.answer()
        with Client(server) as other, handling(server, lambda request: request.answer(request.frame)):
            other.frames(b"a")
            assert other.answer() == b"a"


def test_ranges_of_a_hot_handler_are_released_once(path: Path) -> None:
    hot = EchoHandler()
    with serving(hot) as server, path.open("rb") as file:
        with Client(server) as client:
            request = b"f" + struct.pack("=qqq", file.fileno(), 100, 1_000_000)
            sender = threading.Thread(target=client.frames, args=[request, b"e1"] * 20)
            sender.start()
            for _ in range(20):
                assert client.answers(2) == [b"f" + CONTENT[100:1_000_100] + b"f", b"e1"]
            sender.join()
            wait_until(lambda: hot.ranges == 0, what="ranges are released")
        for _ in range(10):
            with Client(server, buffer=4096) as client:
                client.frames(b"f" + struct.pack("=qqq", file.fileno(), 0, len(CONTENT)))
                client.exactly(1_000)
                assert hot.ranges == 1
                client.reset()
            wait_until(lambda: hot.ranges == 0, what="the range of a lost connection is released")
        assert still_serves(server)


def test_ranges_that_cannot_be(path: Path) -> None:
    with serving() as server, Client(server) as client, path.open("rb") as file:
        client.frames(b"fetch")
        request = server.requests.take(10)
        assert request is not None
        before = set(os.listdir("/dev/fd"))
        good = FileRange(file.fileno(), 0, 10)
        for bad in (FileRange(file.fileno(), -1, 10), FileRange(file.fileno(), 0, -1)):
            with pytest.raises(ValueError, match="a file range of"):
                request.answer([good, bad])
        with pytest.raises(OSError, match="descriptor"):
            request.answer([good, FileRange(1 << 20, 0, 10)])
        with pytest.raises(ValueError, match="2 GiB"):
            request.answer([FileRange(file.fileno(), 0, 1 << 31)])
        assert set(os.listdir("/dev/fd")) == before
        request.answer([good])
        assert client.answer() == CONTENT[:10]
