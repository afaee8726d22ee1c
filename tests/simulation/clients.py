"""Producers and consumers, and a client that sends what no client sends."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.simulation import wire
from tests.simulation.link import Link, Pending, ViolationError
from tests.unit.broker.log.made_batches import batch

if TYPE_CHECKING:
    from tests.simulation.history import History

IN_FLIGHT: Final = 5
_BACKOFF_MS: Final = 15
_TIMEOUT_MS: Final = 60
_OUT_OF_ORDER: Final = 45
_DUPLICATE: Final = 46
_OUT_OF_RANGE: Final = 1
_NO_SESSION: Final = frozenset((70, 71))
_IDLE_WAIT_MS: Final = 30


class Client(ABC):
    """Something that has one connection at a time. ``act`` makes one step of its own."""

    def __init__(self, history: History, name: str) -> None:
        self.history = history
        self.name = name
        self.link: Link | None = None
        self._resume_ms = 0
        #: No new work, so that the history can end.
        self.is_ending = False

    @property
    def is_done(self) -> bool:
        return True

    @abstractmethod
    def due_ms(self) -> int | None:
        """Return when ``act`` does something, None where it waits for an answer."""

    @abstractmethod
    def act(self) -> None:
        """Make one step."""

    def _connected(self, index: int) -> Link | None:
        """Return the connection, a new one to the leader of the partition if there is none."""
        if self.link is None or self.link.is_lost:
            system = self.history.leader_of(index)
            if system is None:
                self._back_off()
                return None
            self.link = self.history.connect(system, self.name, self._lost)
            self._opened()
        return self.link

    def _opened(self) -> None:  # noqa: B027  (most clients have nothing to do)
        """Begin with a new connection."""

    def _lost(self) -> None:
        self._back_off()

    def _back_off(self) -> None:
        self._resume_ms = self.history.clock.now_ms + _BACKOFF_MS

    def _leave(self) -> None:
        """Go to another broker, or to the same one anew."""
        if self.link is not None and not self.link.is_lost:
            if self.history.choose.random() < 0.5:
                self.link.reset()
            else:
                # The broker reads, and may append, what is on the way.
                self.link.shut()
                self.link.lose()
        self._back_off()


@dataclass(slots=True, eq=False)
class Sent:
    """A batch of a producer. ``sequence``: -1 without idempotence."""

    sequence: int
    values: list[bytes]
    data: bytes


class Producer(Client):
    """Sends batches of unique values to one partition."""

    def __init__(self, history: History, number: int, index: int, batches: int) -> None:
        super().__init__(history, f"producer {number}")
        self.number = number
        self.index = index
        self.left = batches
        self._values = 0

    def _make(self, producer_id: int, sequence: int) -> Sent:
        choose = self.history.choose
        values = []
        for _ in range(choose.randint(1, 4)):
            self._values += 1
            padding = choose.choice((0, 3, 40, 300))
            values.append(struct.pack(">HI", self.number, self._values) + b"." * padding)
        data = batch(
            values,
            timestamp=self.history.clock.now_ms,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            sequence=sequence,
        )
        self.left -= 1
        return Sent(sequence, values, data)

    def _send(self, link: Link, sents: list[tuple[int, Sent]], acks: int, on_answer) -> None:  # type: ignore[no-untyped-def]
        version = self.history.choose.choice(wire.PRODUCE_VERSIONS)
        number = link.next_id()
        parts = [(self.history.topic, index, sent.data) for index, sent in sents]
        frame = wire.produce_request(version, number, parts, acks, _TIMEOUT_MS)
        what = f"{self.name}: request {number}, acks={acks}, values {sents[0][1].values[0][:6].hex()}"
        pending = Pending(
            number,
            what,
            _TIMEOUT_MS,
            lambda answer: on_answer(wire.read_produce_answer(version, answer)),
            ("produce", acks, [(index, sent.values[-1]) for index, sent in sents]),
        )
        link.send(frame, pending if acks else None)


class IdempotentProducer(Producer):
    """Sends each batch, acks=-1, until it is acknowledged: none may be lost, doubled or out of order."""

    def __init__(self, history: History, number: int, index: int, batches: int) -> None:
        super().__init__(history, number, index, batches)
        self._unacknowledged: deque[Sent] = deque()
        #: How many of them were sent on this connection.
        self._sent = 0
        self._sequence = 0
        #: A broker that was started again knows the last batch alone: earlier ones cannot be sent again.
        self._gave_up = False
        #: One until the first one is acknowledged: a leader takes any first sequence number (KIP-360).
        self._in_flight = 1

    @property
    def is_done(self) -> bool:
        return self._gave_up or (not self._unacknowledged and self.left <= 0)

    def due_ms(self) -> int | None:
        if self._sent >= self._in_flight or self._gave_up:
            return None
        has_more = self._sent < len(self._unacknowledged) or self.left > 0
        return self._resume_ms if has_more else None

    def act(self) -> None:
        if self._sent == len(self._unacknowledged):
            sent = self._make(self.number, self._sequence)
            self._sequence += len(sent.values)
            self._unacknowledged.append(sent)
        link = self._connected(self.index)
        if link is not None:
            sent = self._unacknowledged[self._sent]
            self._sent += 1
            self._send(link, [(self.index, sent)], -1, self._answered)

    def _opened(self) -> None:
        self._sent = 0

    def _lost(self) -> None:
        self._sent = 0
        super()._lost()

    def _answered(self, parts: list[wire.Produced]) -> None:
        ((_, index, error, offset),) = parts
        sent = self._unacknowledged[0]
        if error == 0:
            self.history.record.commit(self.name, index, offset, sent.values)
        if error in (0, _DUPLICATE):
            self.history.record.acknowledge(self.number, index, sent.values)
            self._unacknowledged.popleft()
            self._in_flight = IN_FLIGHT
            self._sent -= 1
        else:
            self.history.note("error", self.name, error)
            self._gave_up = error == _OUT_OF_ORDER and self.history.has_restarted
            self._leave()


class PlainProducer(Producer):
    """Sends each batch once, with any acks: none may be there twice, and none with acks=-1 may be lost."""

    def __init__(self, history: History, number: int, index: int, batches: int) -> None:
        super().__init__(history, number, index, batches)
        self._in_flight: deque[tuple[int, list[tuple[int, Sent]]]] = deque()
        self._last_offset = -1

    def due_ms(self) -> int | None:
        return self._resume_ms if self.left > 0 and len(self._in_flight) < IN_FLIGHT else None

    def act(self) -> None:
        choose = self.history.choose
        link = self._connected(self.index)
        if link is None:
            return
        acks = choose.choice((0, 1, -1, -1))
        sents = [(self.index, self._make(-1, -1))]
        if choose.random() < 0.2:
            sents += [(other, self._make(-1, -1)) for other in self.history.indexes if other != self.index]
        for _, sent in sents:
            self.history.record.send_once(sent.values)
        if acks:
            self._in_flight.append((acks, sents))
        self._send(link, sents, acks, self._answered)

    def _opened(self) -> None:
        self._in_flight.clear()
        self._last_offset = -1

    def _lost(self) -> None:
        self._in_flight.clear()
        super()._lost()

    def _answered(self, parts: list[wire.Produced]) -> None:
        acks, sents = self._in_flight.popleft()
        failed = False
        for (_, index, error, offset), (asked, sent) in zip(parts, sents, strict=True):
            if index != asked:
                raise ViolationError(f"{self.name}: partition {index} answers for {asked}")
            if error:
                failed = True
                continue
            if index == self.index:
                if offset <= self._last_offset:
                    raise ViolationError(f"{self.name}: offset {offset} after {self._last_offset}")
                self._last_offset = offset
            if acks == -1:
                self.history.record.commit(self.name, index, offset, sent.values)
        if failed:
            self._leave()


class Consumer(Client):
    """Reads all partitions that a broker leads, in a session or without one."""

    def __init__(self, history: History, number: int) -> None:
        super().__init__(history, f"consumer {number}")
        self.positions = dict.fromkeys(history.indexes, 0)
        self._version = history.choose.choice(wire.FETCH_VERSIONS)
        self._uses_session = self._version >= 7 and history.choose.random() < 0.7
        self._min_bytes = history.choose.choice((0, 1, 1, 1, 500))
        self._wait_ms = history.choose.choice((0, _IDLE_WAIT_MS, 50))
        self._index = history.choose.choice(history.indexes)
        self._session, self._epoch = 0, 0
        self._asked_at: dict[int, int] = {}
        #: (leader epoch as the controller has it, high watermark) of the last answer of this connection.
        self._watermarks: dict[int, int] = {}

    @property
    def is_done(self) -> bool:
        return all(self.history.committed_end(index) <= at for index, at in self.positions.items())

    def due_ms(self) -> int | None:
        return (
            None if self.link is not None and not self.link.is_lost and self.link.pending else self._resume_ms
        )

    def _opened(self) -> None:
        self._session, self._epoch = 0, 0
        self._asked_at = {}
        self._watermarks = {}

    def act(self) -> None:
        choose = self.history.choose
        link = self._connected(self._index)
        if link is None:
            return
        positions = self.positions
        if self._session:
            positions = {one: at for one, at in positions.items() if self._asked_at.get(one) != at}
        wanted = [
            wire.Wanted(self.history.topic, index, at, choose.choice((100, 900, 10_000)))
            for index, at in positions.items()
        ]
        number = link.next_id()
        frame = wire.fetch_request(
            self._version,
            number,
            wanted,
            max_wait_ms=self._wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=choose.choice((1, 1000, 10_000)),
            session=self._session if self._uses_session else 0,
            epoch=self._epoch if self._uses_session else wire.LATEST_EPOCH,
        )
        self._asked_at.update(positions)
        request = ("consumer", self._min_bytes, dict(self.positions))
        pending = Pending(
            number,
            f"{self.name}: {self.positions}",
            self._wait_ms,
            self._answered,
            request,
            self.history.step,
        )
        link.send(frame, pending)

    def _answered(self, answer: bytes) -> None:
        error, session, parts = wire.read_fetch_answer(self._version, answer)
        if error:
            if error not in _NO_SESSION:
                raise ViolationError(f"{self.name}: error {error}")
            self._session, self._epoch, self._asked_at = 0, 0, {}
            return
        if self._uses_session:
            self._session = session
            self._epoch = self._epoch + 1 if session else 0
        refused = []
        for part in parts:
            if part.error:
                refused.append(part.index)
                # Asked for again with the next request, in a session too.
                self._asked_at.pop(part.index, None)
                continue
            self._take(part)
        if self._wait_ms == 0 and not any(part.records for part in parts):
            self._back_off()
        if refused and not any(part.records for part in parts):
            # Another broker leads them.
            self._index = self.history.choose.choice(refused)
            self._leave()
        elif self.history.choose.random() < 0.02:
            self._leave()

    def _take(self, part: wire.Fetched) -> None:
        position = self.positions[part.index]
        if part.high_watermark < self._watermarks.get(part.index, -1):
            # Of one broker: it falls only if that broker has led, followed, and been truncated below it.
            raise ViolationError(
                f"{self.name}: high watermark {part.high_watermark} of partition {part.index} after "
                f"{self._watermarks[part.index]} on one connection"
            )
        self._watermarks[part.index] = part.high_watermark
        for one in wire.read_batches(part.records):
            if not one.base_offset <= position < one.end_offset:
                raise ViolationError(
                    f"{self.name}: offsets {one.base_offset} to {one.end_offset} at position {position}"
                )
            if one.end_offset > part.high_watermark:
                raise ViolationError(
                    f"{self.name}: offset {one.end_offset - 1} is above the high watermark, "
                    f"{part.high_watermark}"
                )
            self.history.record.commit(self.name, part.index, one.base_offset, one.values)
            position = one.end_offset
        self.positions[part.index] = position


class Intruder(Client):
    """Sends frames that are cut, too large, or no requests. No other client may notice."""

    def due_ms(self) -> int | None:
        return None if self.is_ending else self._resume_ms

    def act(self) -> None:
        choose = self.history.choose
        link = self._connected(choose.choice(self.history.indexes))
        if link is None:
            return
        link.ignores_answers = True
        kind = choose.randrange(6)
        self.history.note("intruder", kind)
        if kind == 0:
            link.send_bytes(struct.pack(">i", choose.choice((-1, -(2**31), 2**31 - 1, 20_001))))
        elif kind == 1:
            link.send_bytes(struct.pack(">i", 500) + choose.randbytes(choose.randint(0, 400)))
            link.shut()
        elif kind == 2:
            frame = wire.produce_request(9, 7, [(self.history.topic, 0, choose.randbytes(70))], -1, 10)
            link.send_bytes(struct.pack(">i", len(frame)) + frame[: choose.randint(1, len(frame))])
            link.shut()
        elif kind == 3:
            # An API that handler threads answer.
            number = link.next_id()
            link.send(
                struct.pack(">hhih", 18, 0, number, -1),
                Pending(number, f"{self.name}: ApiVersions", 0, lambda _: None, ("other",)),
            )
            return
        elif kind == 4:
            link.send_bytes(struct.pack(">i", 3) + b"\0\0\0")
        else:
            link.shut()
        link.move(choose)
        if not link.is_lost and choose.random() < 0.5:
            link.reset()
        self.link = None
        self._back_off()
