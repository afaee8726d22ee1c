"""A client's end of a simulated connection: frames out, answers in, in the order of the requests."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.simulation._operating_system import OperatingSystem


class ViolationError(AssertionError):
    """A guarantee that the simulated cluster has broken."""


@dataclass(slots=True, eq=False)
class Pending:
    """A request that must be answered. ``wait_ms``: how long it may be parked.

    ``seen_ms``: when the broker has had all of it for sure, with no request before it.
    """

    correlation_id: int
    what: str
    wait_ms: int
    on_answer: Callable[[bytes], None]
    request: Any = None
    step: int = 0
    seen_ms: int | None = None


class Link:
    """A connection to a broker. ``on_lost`` is called once, when the connection has ended."""

    def __init__(self, system: OperatingSystem, room: int, name: str, on_lost: Callable[[], None]) -> None:
        self.system = system
        self.name = name
        self.pending: deque[Pending] = deque()
        self.is_lost = False
        #: For bytes that may by accident be requests.
        self.ignores_answers = False
        self._number = system.connect(room)
        self._on_lost = on_lost
        self._outbox = b""
        self._inbox = b""
        self._correlation_id = 0

    def next_id(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    def send(self, frame: bytes, pending: Pending | None) -> None:
        """Queue a frame; ``pending`` None: it gets no answer."""
        self.send_bytes(len(frame).to_bytes(4, "big") + frame)
        if pending is not None:
            self.pending.append(pending)

    def send_bytes(self, data: bytes) -> None:
        self._outbox += data

    @property
    def is_sent(self) -> bool:
        """Whether the broker can read all that was sent."""
        return not self._outbox and self.system.is_served(self._number)

    def has_work(self) -> bool:
        return not self.is_lost and (
            bool(self._outbox) or self.system.pending(self._number) > 0 or self._has_ended()
        )

    def _has_ended(self) -> bool:
        return self.system.is_dead or self.system.is_closed(self._number)

    def move(self, chooser: random.Random | None) -> bytes:
        """Move some bytes in both directions, all of them without a chooser. Return what was received."""
        if self.is_lost:
            return b""
        if self._outbox:
            size = (
                len(self._outbox)
                if chooser is None or chooser.random() < 0.6
                else chooser.randint(1, len(self._outbox))
            )
            self.system.write(self._number, self._outbox[:size])
            self._outbox = self._outbox[size:]
        size = self.system.pending(self._number)
        if chooser is not None and size and chooser.random() < 0.4:
            size = chooser.randint(1, size)
        received = self.system.read(self._number, size)
        self._inbox += received
        self._take_answers()
        if not self.is_lost and self._has_ended() and not self.system.pending(self._number):
            self.lose()
        return received

    def _take_answers(self) -> None:
        while not self.is_lost and len(self._inbox) >= 4:
            size = int.from_bytes(self._inbox[:4], "big")
            if len(self._inbox) < 4 + size:
                return
            answer, self._inbox = self._inbox[4 : 4 + size], self._inbox[4 + size :]
            if not self.pending and self.ignores_answers:
                continue
            if not self.pending:
                raise ViolationError(f"{self.name}: an answer without a request: {answer[:40].hex()}")
            pending = self.pending.popleft()
            if int.from_bytes(answer[:4], "big") != pending.correlation_id:
                raise ViolationError(
                    f"{self.name}: the answer {answer[:40].hex()} is not the one to {pending.what}"
                )
            pending.on_answer(answer)

    def shut(self) -> None:
        """Send no more; what the broker still sends is read."""
        self.system.shut(self._number)

    def reset(self) -> None:
        """End the connection; bytes on the way are lost."""
        self.system.reset(self._number)
        self.lose()

    def lose(self) -> None:
        if not self.is_lost:
            self.is_lost = True
            self.pending.clear()
            self._on_lost()
