"""Produce and Fetch requests on one connection, made once and sent many times, so that they cost little."""

from __future__ import annotations

import socket
import struct
import time
from typing import Final

from bench.peers.brokers import HOST
from ctrlchan.varints import encode_uvarint
from tests.unit.broker.log.batches import PlainBatch, PlainRecord

__all__ = ["Connection", "batch_of"]

_CORRELATION_ID: Final = 7
_HEADER: Final = struct.Struct(">hhih4sb")
_PRODUCE: Final = (0, 9)
_FETCH: Final = (1, 12)
#: Bytes of a response before what is looked at: size, correlation id, tagged fields.
_RESPONSE_HEADER: Final = 4 + 4 + 1


def batch_of(records: int, record_bytes: int) -> bytes:
    """Return a record batch without compression, of values that do not repeat."""
    now = int(time.time() * 1000)
    values = ((f"{i:08}".encode() * (record_bytes // 8 + 1))[:record_bytes] for i in range(records))
    data = b"".join(PlainRecord(i, key=None, value=value).encoded() for i, value in enumerate(values))
    return PlainBatch(data, records, base_timestamp=now, max_timestamp=now).encoded()


def _read_uvarint(data: bytearray, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] > 0x7F:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | data[at] << shift, at + 1


def _frame(api: tuple[int, int], body: bytes) -> bytes:
    request = _HEADER.pack(*api, _CORRELATION_ID, 4, b"load", 0) + body
    return struct.pack(">i", len(request)) + request


class Connection:
    """One client's connection. Every answer's error code is looked at."""

    def __init__(self, port: int, host: str = HOST) -> None:
        self._socket = socket.create_connection((host, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = bytearray(4 << 20)

    def close(self) -> None:
        self._socket.close()

    def produce(
        self,
        topic: str,
        batch: bytes,
        requests: int,
        *,
        in_flight: int = 5,
        rate: float | None = None,
        acks: int = 1,
    ) -> list[float]:
        """Send Produce requests, after one whose time does not count. ``acks``: 1, or -1 for all.

        ``rate``: requests each second, None: as fast as they are answered. Return the seconds that each
        request took, if there is one in flight.
        """
        name = encode_uvarint(len(topic) + 1) + topic.encode()
        body = b"\0" + struct.pack(">hi", acks, 30_000) + b"\2" + name + b"\2" + struct.pack(">i", 0)
        frame = _frame(_PRODUCE, body + encode_uvarint(len(batch) + 1) + batch + b"\0\0\0")
        error_at = _RESPONSE_HEADER + 1 + len(name) + 1 + 4
        self._socket.sendall(frame)
        size = 4 + int.from_bytes(self._receive(4)[:4], "big")
        self._receive(size - 4)
        took = []
        sent = answered = 0
        view = memoryview(self._answers)
        left = 0
        begin = time.perf_counter()
        while answered < requests:
            if rate is not None:
                time.sleep(max(0.0, begin + sent / rate - time.perf_counter()))
            more = min(in_flight - (sent - answered), requests - sent)
            at = time.perf_counter()
            if more:
                self._socket.sendall(frame * more)
                sent += more
            left += self._socket.recv_into(view[left:])
            whole = left // size
            for i in range(whole):
                if view[i * size + error_at] or view[i * size + error_at + 1]:
                    raise RuntimeError(f"Produce: {bytes(view[i * size : (i + 1) * size])!r}")
            rest = left - whole * size
            view[:rest] = view[whole * size : left]
            left = rest
            answered += whole
            if in_flight == 1 and whole:
                took.append(time.perf_counter() - at)
        return took

    def fetch(
        self, topic: str, max_bytes: int, batch: bytes, records: int, total: int, offset: int = 0
    ) -> int:
        """Read ``total`` bytes of batches like ``batch``, of so many records, from ``offset`` on.

        Return the requests sent.
        """
        name = encode_uvarint(len(topic) + 1) + topic.encode()
        before = struct.pack(">iiiibii", -1, 500, 1, max_bytes, 0, 0, -1) + b"\2" + name + b"\2"
        error_at = _RESPONSE_HEADER + 10 + 1 + len(name) + 1 + 4
        got = requests = 0
        while got < total:
            asked = struct.pack(">iiqiqi", 0, -1, offset, -1, -1, max_bytes)
            self._socket.sendall(_frame(_FETCH, before + asked + b"\0\0\1\1\0"))
            size = 4 + int.from_bytes(self._receive(4)[:4], "big")
            answer = self._receive(size - 4, 4)
            if answer[error_at : error_at + 2] != b"\0\0":
                raise RuntimeError(f"Fetch: {bytes(answer[:100])!r}")
            _, at = _read_uvarint(answer, error_at + 2 + 24)
            size, _ = _read_uvarint(answer, at + 4)
            whole = (size - 1) // len(batch)
            if not whole:
                raise RuntimeError(f"Fetch at offset {offset}: {size - 1} bytes of records")
            offset += whole * records
            got += size - 1
            requests += 1
        return requests

    def ask(self, request: bytes) -> bytes:
        """Send a request, which begins with its header; return the answer without its size."""
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        size = int.from_bytes(self._receive(4)[:4], "big")
        return bytes(self._receive(size)[:size])

    def _receive(self, size: int, at: int = 0) -> bytearray:
        """Receive so many bytes to ``at`` of the buffer of answers, and return the buffer."""
        if len(self._answers) < at + size:
            self._answers.extend(bytes(at + size - len(self._answers)))
        with memoryview(self._answers) as view:
            end = at + size
            while at < end:
                received = self._socket.recv_into(view[at:end])
                if not received:
                    raise ConnectionError("the broker closed the connection")
                at += received
        return self._answers
