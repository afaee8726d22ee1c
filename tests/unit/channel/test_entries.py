"""Queueing, handing over and taking reports (``_entries.pyx``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ctrlchan.channel.coalescing.internal_entries import MergedEntry
from ctrlchan.channel.outcome import OutcomeKind, RequestResult, Sent, publish
from ctrlchan.channel.queues._entries import QueueTable, RequestQueue
from ctrlchan.channel.queues.shared_memory import Frame, SharedMemory
from ctrlchan.channel.request import ControlRequest
from ctrlchan.channel.wire.records import COMMAND, EXPECTED, FAILED, REPORT, Command
from tests.fault.requests import update
from tests.unit.channel.recording import RecordingSender

SUCCESS = RequestResult(OutcomeKind.ACKNOWLEDGED)
#: How many requests a sender gets ahead.
WINDOW = 64


class Queue(RequestQueue):
    """A queue that hands over requests without merging."""

    def __init__(self, slot: int = 5, merger: Any = None) -> None:
        self.recorder = RecordingSender()
        super().__init__(slot, self.recorder, merger)

    def hand_over(self) -> None:
        if self.may_hand:
            self.hand(WINDOW)

    def handed_over(self) -> list[int]:
        """Return the sequences of the SEND commands so far."""
        return [Command._make(fields).sequence for fields in COMMAND.iter_unpack(self.recorder.written)]


class Table(QueueTable[Queue]):
    """A table with the queue of one broker, 3."""

    memory: SharedMemory

    def __init__(self) -> None:
        super().__init__(SharedMemory(2**23), [], [])
        self.queue = self.by_id[3] = Queue()

    def request(self, size: int = 100) -> ControlRequest:
        request = update()
        request.frame = Frame(size, 8, 0, 7, b"ok", SUCCESS)
        request.size = size
        self.memory.make_room(request.frame)
        return request

    def send(self, count: int = 1, callback: Any = None) -> list[Sent]:
        request = self.request()
        sent = self.enqueue([3] * count, request, request.frame, callback)
        assert sent is not None
        assert self.not_queued == []
        return sent

    def take(self, data: bytes, position: int = 0, slot: int = 5) -> int:
        self.by_slot.clear()
        self.by_slot[slot] = self.queue
        return self.take_expected(data, position)


@pytest.fixture
def table() -> Any:
    made = Table()
    yield made
    made.memory.close()


def expected(sequence: int, slot: int = 5, attempts: int = 1, response_ns: int = 3) -> bytes:
    return REPORT.pack(
        EXPECTED, 0, 2, slot, sequence, attempts, 40 + sequence, 1, 2, response_ns, 0, 0, b"ok"
    )


def test_a_sender_gets_a_window_of_requests_and_more_when_half_is_left(table: Table) -> None:
    sent = table.send(100)
    queue = table.queue
    assert queue.handed_over() == [1, 2]
    queue.hand_over()
    assert queue.handed_over() == list(range(1, WINDOW + 1))
    assert [one.sequence for one in sent] == [*range(1, WINDOW + 1), *([0] * (100 - WINDOW))]
    assert (queue.handed_bytes, queue.waiting_bytes) == (100 * WINDOW, 100 * (100 - WINDOW))
    reports = b"".join(map(expected, range(1, 33)))
    assert table.take(reports[: 31 * REPORT.size]) == 31 * REPORT.size
    assert len(queue.handed_over()) == WINDOW
    assert table.take(reports, 31 * REPORT.size) == len(reports)
    assert len(queue.handed_over()) == WINDOW + 32
    assert len(queue) == 68


def test_a_sender_gets_a_second_large_request_and_no_third(table: Table) -> None:
    for _ in range(4):
        request = table.request(size=600_000)
        table.enqueue([3], request, request.frame)
    table.queue.hand_over()
    assert table.queue.handed_over() == [1, 2]
    assert (table.queue.handed_bytes, table.queue.waiting_bytes) == (1_200_000, 1_200_000)
    table.take(expected(1))
    assert table.queue.handed_over() == [1, 2, 3]


def test_nothing_follows_a_request_with_a_callback_until_that_has_returned(table: Table) -> None:
    first, second = *table.send(1, callback=print), *table.send(1)
    queue = table.queue
    assert (queue.gate, queue.handed_over()) == (True, [1])
    assert table.take(expected(1)) == REPORT.size
    assert table.called == [(first, queue, False)]
    assert (table.ended, queue.handed_over(), first.outcome) == ([], [1], None)
    queue.gate = False
    queue.hand_over()
    assert queue.handed_over() == [1, 2]
    assert second.frame is not None


def test_a_report_makes_an_outcome_and_the_last_user_frees_the_frame(table: Table) -> None:
    sent = table.send(2)
    sent[0].sender_deaths = 2
    frame = sent[0].frame
    assert frame is not None
    assert table.take(expected(1, attempts=3)) == REPORT.size
    assert (frame.users, frame.pins) == (1, 1)
    table.take(expected(2))
    assert (frame.users, frame.pins, frame.offset, table.memory.used) == (0, 0, -1, 0)
    assert table.ended == sent
    assert publish(table.ended) == []
    outcome = sent[0].outcome
    assert outcome is not None
    assert (outcome.kind, outcome.attempts, outcome.correlation_id) == (OutcomeKind.ACKNOWLEDGED, 5, 41)
    assert (outcome.first_byte_ns, outcome.last_byte_ns, outcome.response_ns) == (1, 2, 3)
    assert sent[0].enqueued_ns <= outcome.completed_ns
    assert (outcome.bytes, outcome.version, outcome.broker_id) == (100, 8, 3)


@pytest.mark.parametrize("cut", range(REPORT.size))
def test_an_incomplete_record_is_left(table: Table, cut: int) -> None:
    table.send(2)
    assert table.take(expected(1) + expected(2)[:cut]) == REPORT.size
    assert len(table.ended) == 1


def other(table: Table) -> bytes:
    return REPORT.pack(FAILED, 0, 0, 5, 2, 1, 0, 0, 0, 0, 0, 0, b"")


def internal_entry(table: Table) -> bytes:
    _, second = table.queue.handed
    merged = MergedEntry(second.request, [second])
    table.queue.handed[1] = merged
    merged.sequence = 2
    return expected(2)


@pytest.mark.parametrize("special", [other, internal_entry])
def test_other_reports_and_internal_entries_are_left_to_the_channel_state(
    table: Table, special: Callable[[Table], bytes]
) -> None:
    table.send(2)
    data = expected(1) + special(table) + expected(3)
    assert table.take(data) == REPORT.size
    assert table.take(data, REPORT.size) == REPORT.size
    assert len(table.queue.handed) == 1


def test_reports_of_removed_brokers_are_skipped(table: Table) -> None:
    table.send(1)
    assert table.take(expected(9, slot=4) + expected(1)) == 2 * REPORT.size
    assert len(table.ended) == 1


def test_an_acknowledged_full_request_ends_the_need_of_a_resync(table: Table) -> None:
    [one, full] = *table.send(), *table.send()
    full.request.full = True
    table.queue.needs_resync = True
    table.take(expected(1))
    assert table.queue.needs_resync
    table.take(expected(2))
    assert not table.queue.needs_resync
    assert table.ended == [one, full]


def test_requests_for_unknown_brokers_are_not_queued(table: Table) -> None:
    request = table.request()
    sent = table.enqueue([4, 2], request, request.frame)
    assert sent is not None
    assert sent == table.not_queued
    assert [one.broker_id for one in sent] == [4, 2]
    assert table.queue.handed_over() == []


def test_a_request_without_room_in_memory_waits(table: Table) -> None:
    request = table.request()
    assert request.frame is not None
    table.memory.free(request.frame)
    request.frame.private = bytearray(100)
    sent = table.enqueue([3], request, request.frame)
    assert sent is not None
    assert list(table.queue.waiting) == sent
    assert table.queue.handed_over() == []
    assert (table.queue.waiting_bytes, table.queue.handed_bytes) == (100, 0)


def test_a_request_counts_as_having_left_the_queue_when_it_is_in_flight(table: Table) -> None:
    sent = table.send(3)
    times = table.queue.queue_times
    # The queue was empty, so the first request did not wait.
    assert (times.count, times.total_ns, times.histogram()[0]) == (1, 0, 1)
    assert [one.left_queue for one in sent] == [True, False, False]
    response_ns = sent[1].enqueued_ns + 1000
    table.take(expected(1, response_ns=response_ns))
    # The second was handed over before, and is in flight since the response to the first.
    assert (times.count, times.total_ns, times.histogram()[10]) == (2, 1000, 1)
    assert [one.left_queue for one in sent] == [True, True, False]


def test_each_of_several_merged_requests_leaves_the_queue_once(table: Table) -> None:
    sent = table.send(3)
    queue = table.queue
    taken = [queue.handed.popleft(), queue.handed.popleft()]
    # A sender process has ended: its requests are merged with the waiting ones, and sent again.
    merged = MergedEntry(table.request(), [*taken, queue.waiting.popleft()])
    queue.append(merged)
    assert queue.handed[-1] is merged
    assert [one.left_queue for one in sent] == [True, True, True]
    assert queue.queue_times.count == 3
    assert sum(queue.queue_times.histogram()) == 3


def test_a_request_that_is_dropped_does_not_leave_the_queue(table: Table) -> None:
    table.send(3)
    queue = table.queue
    while queue.handed:
        queue.finish_first()
    assert queue.queue_times.count == 1
