"""Thousands of connections of one thread, each of which has one request under way."""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Final

from bench.peers.brokers import HOST
from ctrlchan.closing import Closing

__all__ = ["Crowd"]

#: Connections from one address: there are some 28,000 ports.
_FROM_ONE_ADDRESS: Final = 20_000
_CONNECT_SECONDS: Final = 30.0
#: The longest wait for an answer.
_ANSWER_SECONDS: Final = 120.0
_RECEIVE: Final = 1 << 16
#: Linux: bind chooses the port when the connection is made, so that two addresses may have the same.
_BIND_ADDRESS_NO_PORT: Final = 24


class _Asker:
    """One connection and what it has received of its answer."""

    __slots__ = ("asked_at", "received", "socket")

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.received = bytearray()
        self.asked_at = 0.0


class Crowd(Closing):
    """``count`` connections to a broker, numbered from 0. Closes them at the end of a ``with`` block."""

    def __init__(self, port: int, count: int) -> None:
        self._epoll = select.epoll()
        self._askers: list[_Asker] = []
        self._numbers: dict[int, int] = {}
        try:
            for number in range(count):
                self._connect(number, port)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._askers)

    def close(self) -> None:
        for asker in self._askers:
            asker.socket.close()
        self._epoll.close()

    def send(self, number: int, frame: bytes) -> None:
        asker = self._askers[number]
        asker.asked_at = perf_counter()
        asker.socket.sendall(frame)

    def receive(self, timeout: float) -> list[tuple[int, bytes, float]]:
        """Return the answers of the next moment: connection, answer without its size, seconds it took."""
        answers = []
        for fd, _ in self._epoll.poll(timeout):
            number = self._numbers[fd]
            asker = self._askers[number]
            received = asker.socket.recv(_RECEIVE)
            if not received:
                raise ConnectionError(f"the broker closed connection {number}")
            asker.received += received
            size = 4 + int.from_bytes(asker.received[:4], "big")
            if len(asker.received) >= max(size, 5):
                answers.append((number, bytes(asker.received[4:size]), perf_counter() - asker.asked_at))
                del asker.received[:size]
        return answers

    def ask_all(self, frames: Sequence[bytes], sent: Collection[int] = ()) -> list[bytes]:
        """Send one frame over each connection, all at once; return the answers in their order.

        ``sent``: connections whose frame was sent before.
        """
        for number, frame in enumerate(frames):
            if number not in sent:
                self.send(number, frame)
        answers = self._answers(len(frames))
        return [answers[number] for number in range(len(frames))]

    def ask_these(self, frames: Mapping[int, bytes]) -> list[bytes]:
        """Send frames over connections by number; return the answers in the order of the frames."""
        for number, frame in frames.items():
            self.send(number, frame)
        answers = self._answers(len(frames))
        return [answers[number] for number in frames]

    def _answers(self, count: int) -> dict[int, bytes]:
        answers: dict[int, bytes] = {}
        while len(answers) < count:
            answers.update((number, answer) for number, answer, _ in self._expect())
        return answers

    def ask_in_turn(self, frames: Iterable[bytes], in_flight: int = 50) -> list[float]:
        """Send frames over the first connections, so many at once; return the seconds that each took."""
        took: list[float] = []
        idle = deque(range(min(in_flight, len(self))))
        waiting = 0
        for frame in frames:
            while not idle:
                for number, _, seconds in self._expect():
                    took.append(seconds)
                    idle.append(number)
                    waiting -= 1
            self.send(idle.popleft(), frame)
            waiting += 1
        while waiting:
            received = self._expect()
            took += [seconds for _, _, seconds in received]
            waiting -= len(received)
        return took

    def at_rate(self, frame: bytes, rate: float, seconds: float) -> list[float]:
        """Let one connection after another ask, ``rate`` times a second; return the seconds of each request.

        A connection that still waits for an answer when its turn comes is left out.
        """
        took: list[float] = []
        waiting: set[int] = set()
        begin = perf_counter()
        turn = 0
        while (now := perf_counter() - begin) < seconds or waiting:
            while now < seconds and turn < now * rate:
                number = turn % len(self)
                turn += 1
                if number not in waiting:
                    self.send(number, frame)
                    waiting.add(number)
            for number, _, one in self.receive(max(0.0, min(1.0, (turn + 1) / rate - now))):
                took.append(one)
                waiting.discard(number)
            if now > seconds + _ANSWER_SECONDS:
                raise TimeoutError(f"{len(waiting)} requests have no answer")
        return took

    def keep_asking(self, frame: bytes, seconds: float) -> int:
        """Let each connection ask again whenever it is answered; return the number of answers.

        The requests that are under way at the end stay there.
        """
        answered = 0
        for number in range(len(self)):
            self.send(number, frame)
        begin = perf_counter()
        while perf_counter() - begin < seconds:
            for number, _, _ in self.receive(0.1):
                answered += 1
                self.send(number, frame)
        return answered

    def _expect(self) -> list[tuple[int, bytes, float]]:
        """Return at least one answer. Raises TimeoutError."""
        deadline = perf_counter() + _ANSWER_SECONDS
        while perf_counter() < deadline:
            if received := self.receive(_ANSWER_SECONDS):
                return received
        raise TimeoutError("no request was answered in time")

    def _connect(self, number: int, port: int) -> None:
        connected = socket.socket()
        asker = _Asker(connected)
        self._askers.append(asker)
        connected.settimeout(_CONNECT_SECONDS)
        if number >= _FROM_ONE_ADDRESS:
            connected.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
            connected.bind((f"127.0.1.{number // _FROM_ONE_ADDRESS}", 0))
        connected.connect((HOST, port))
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._numbers[connected.fileno()] = number
        self._epoll.register(connected.fileno(), select.EPOLLIN)
