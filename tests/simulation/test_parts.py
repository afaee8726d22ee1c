"""The parts of the simulator that its checks depend on, and the product's side of them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.replica._partitions import PartitionTable
from ctrlchan.errors import KafkaError
from tests.simulation import wire
from tests.simulation._operating_system import OperatingSystem, SimulatedClock
from tests.simulation.link import Link, Pending, ViolationError
from tests.simulation.record import Record
from tests.unit.broker.log.made_batches import batch, checked
from tests.unit.server.serving import serving

STORAGE_ERROR = 56


def test_no_turn_is_taken_beside_the_threads() -> None:
    with serving() as server:
        for index in (0, -1, 256):
            with pytest.raises(ValueError, match="processor"):
                server.threads.turn(index)
            with pytest.raises(ValueError, match="acceptor"):
                server.threads.accept(index)


def test_a_table_without_a_thread_serves_its_events_on_the_callers(tmp_path: Path) -> None:
    clock = SimulatedClock(5_000)
    before = threading.active_count()
    table = PartitionTable(1, isr_wanted=lambda *_: None, clock=clock, has_thread=False)
    partition = table.open("t", 0)
    log = Log(tmp_path / "t-0", LogConfig())
    partition.make_leader(log, 0, 0, (1, 2), (1, 2))
    waiting = partition.append(batch([b"x"]), timeout_ms=70)
    assert table.serve_events() == 70_000_000
    assert not waiting.done()
    clock.advance(70_000_000)
    table.serve_events()
    assert waiting.result()[0] == 7  # REQUEST_TIMED_OUT
    assert threading.active_count() == before
    table.close()


def test_a_full_disk_fails_writes_until_it_has_room(tmp_path: Path) -> None:
    system = OperatingSystem(1)
    log = Log(tmp_path / "t-0", LogConfig())
    log.append_as_leader(checked(batch([b"before"])), 0)
    size = log.size
    system.enter()
    try:
        system.fill_disk(0)
        with pytest.raises(KafkaError) as failed:
            log.append_as_leader(checked(batch([b"x" * 100])), 0)
    finally:
        OperatingSystem.leave()
    assert failed.value.code == STORAGE_ERROR
    log.close_files()
    again = Log(tmp_path / "t-0", LogConfig())
    assert (again.end_offset, again.size) == (1, size)
    again.close()


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    system = OperatingSystem(3)
    log = Log(tmp_path / "t-0", LogConfig())
    log.append_as_leader(checked(batch([b"before"])), 0)
    system.enter()
    try:
        system.die_at(0)
        with pytest.raises(KafkaError):
            log.append_as_leader(checked(batch([b"x" * 100])), 0)
        assert system.is_dead
        left = (tmp_path / "t-0" / f"{0:020}.log").read_bytes()
        log.close_files()
    finally:
        OperatingSystem.leave()
    assert (tmp_path / "t-0" / f"{0:020}.log").read_bytes() == left
    again = Log(tmp_path / "t-0", LogConfig())
    assert again.end_offset == 1
    again.close()


def test_requests_and_answers_are_read_as_they_were_written() -> None:
    for version in wire.PRODUCE_VERSIONS:
        parts = [("t", 0, b"one"), ("t", 1, b"two")]
        request = wire.read_produce_request(wire.produce_request(version, 7, parts, -1, 30))
        assert (request.correlation_id, request.acks, request.timeout_ms) == (7, -1, 30)
        assert request.parts == parts
        answer = wire.produce_answer(request, [(0, 4), (6, -1)])
        assert wire.read_produce_answer(version, answer) == [("t", 0, 0, 4), ("t", 1, 6, -1)]
        with pytest.raises(ValueError, match="behind the answer"):
            wire.read_produce_answer(version, answer + b"\0")
    found = wire.read_batches(
        batch([b"a", b"bc"], base_offset=5, producer_id=3, producer_epoch=0, sequence=8)
    )
    assert [(one.base_offset, one.end_offset, one.sequence, one.values) for one in found] == [
        (5, 7, 8, [b"a", b"bc"])
    ]


def test_an_answer_to_no_request_is_a_violation() -> None:
    link = Link(OperatingSystem(1), 100, "client", lambda: None)
    link._inbox = b"\0\0\0\4\0\0\0\1"
    with pytest.raises(ViolationError, match="without a request"):
        link.move(None)
    link = Link(OperatingSystem(1), 100, "client", lambda: None)
    link.pending.append(Pending(2, "request 2", 0, lambda _: None))
    link._inbox = b"\0\0\0\4\0\0\0\1"
    with pytest.raises(ViolationError, match="not the one to request 2"):
        link.move(None)


def test_what_was_promised_is_not_forgotten() -> None:
    record = Record()
    record.commit("producer", 0, 5, [b"a", b"b"])
    record.commit("consumer", 0, 6, [b"b", b"c"])
    with pytest.raises(ViolationError, match="was committed"):
        record.commit("consumer", 0, 7, [b"d"])

    record = Record()
    record.acknowledge(1, 0, [b"a", b"b"])
    log = wire.read_batches(batch([b"a", b"b"], producer_id=1, producer_epoch=0, sequence=0))
    record.check_log("leader", 0, log, 2)
    with pytest.raises(ViolationError, match="lost"):
        record.check_log("leader", 0, [], 0)
    turned = wire.read_batches(batch([b"b", b"a"], producer_id=1, producer_epoch=0, sequence=0))
    with pytest.raises(ViolationError, match="order"):
        record.check_log("leader", 0, turned, 2)
    twice = wire.read_batches(batch([b"a", b"a", b"b"], producer_id=1, producer_epoch=0, sequence=0))
    with pytest.raises(ViolationError, match="offsets 0 and 1"):
        record.check_log("leader", 0, twice, 3)
