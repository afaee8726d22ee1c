"""Produce on the thread of a processor: raw frames through a real socket server."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctrlchan._c.locks import CHECKS_LOCKS
from ctrlchan.broker.log._log import READ_LOG_END
from ctrlchan.errors import ErrorCode
from tests.kafka.waiting import wait_until
from tests.unit.broker.log.batches import PlainBatch
from tests.unit.broker.log.made_batches import batch, headers
from tests.unit.broker.replica.serving import (
    OTHER,
    OURS,
    QUEUED,
    ProduceServer,
    outcomes,
    produce_frame,
    produced,
    producing,
)
from tests.unit.server.serving import sized

VERSIONS = range(3, 12)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProduceServer]:
    with producing(tmp_path) as server:
        yield server


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_appended_and_acknowledged(server: ProduceServer, version: int) -> None:
    partition = server.lead()
    other = server.lead("other", 3)
    records = batch([b"a", b"b"], producer_id=7, producer_epoch=0, sequence=0)
    with server.client() as client:
        for acks in (-1, 1):
            client.frames(
                produce_frame(
                    version, [("t", [(0, batch([b"x"]))]), ("other", [(3, batch([b"y"]))])], acks=acks
                )
            )
            answer = client.answer()
        client.frames(produce_frame(version, [("t", [(0, records)])]))
        first = client.answer()
        client.frames(produce_frame(version, [("t", [(0, records)])], client_id=None))
        repeated = client.answer()
    body = produced(version, answer)
    assert outcomes(version, answer) == [("t", 0, 0, 1), ("other", 3, 0, 1)]
    [part] = body.responses[0].partition_responses
    assert part.log_append_time is None
    assert getattr(part, "log_start_offset", 0) == 0
    assert getattr(part, "record_errors", ()) == ()
    assert getattr(part, "error_message", None) is None
    assert body.throttle_time.total_seconds() == 0
    # A duplicate has the offset that it has had.
    assert outcomes(version, first) == outcomes(version, repeated) == [("t", 0, 0, 2)]
    assert headers(partition.read(0, 10**6)) == [(0, 1), (1, 1), (2, 2)]
    assert headers(other.read(0, 10**6)) == [(0, 1), (1, 1)]
    assert server.queued == []
    assert server.api.counters == (4, 0, 0)


def test_many_requests_of_one_connection_are_answered_in_order(server: ProduceServer) -> None:
    partition = server.lead()
    with server.client() as client:
        client.frames(*[produce_frame(9, [("t", [(0, batch([b"%d" % n]))])]) for n in range(100)])
        answers = client.answers(100)
    assert [outcomes(9, answer)[0][3] for answer in answers] == list(range(100))
    assert partition.log is not None
    assert partition.log.end_offset == 100


def test_a_request_may_name_many_partitions(server: ProduceServer) -> None:
    for index in range(40):
        server.lead(index=index)
    topics = [("t", [(index, batch([b"x"])) for index in range(40)])]
    with server.client() as client:
        client.frames(produce_frame(7, topics), produce_frame(11, []))
        assert outcomes(7, client.answer()) == [("t", index, 0, 0) for index in range(40)]
        assert outcomes(11, client.answer()) == []


def test_without_acknowledgement_nothing_is_answered(server: ProduceServer) -> None:
    partition = server.lead()
    with server.client() as client:
        client.frames(
            produce_frame(3, [("t", [(0, batch([b"x"]))])], acks=0),
            produce_frame(3, [("t", [(0, batch([b"y"]))])], acks=1),
        )
        assert outcomes(3, client.answer()) == [("t", 0, 0, 1)]
    assert partition.high_watermark == 2


def test_an_error_without_acknowledgement_closes_the_connection(server: ProduceServer) -> None:
    server.lead()
    gap = batch([b"x"], producer_id=7, producer_epoch=0, sequence=5)
    with server.client() as client:
        client.frames(
            produce_frame(
                3, [("t", [(0, batch([b"x"], producer_id=7, producer_epoch=0, sequence=0))])], acks=0
            ),
            produce_frame(3, [("t", [(0, gap)])], acks=0),
        )
        assert client.is_closed()


@pytest.mark.parametrize("version", VERSIONS)
def test_errors_of_the_append_are_those_of_their_partition(server: ProduceServer, version: int) -> None:
    server.lead()
    server.lead("other")
    begin = batch([b"x"], producer_id=7, producer_epoch=1, sequence=0)
    gap = batch([b"x"], producer_id=7, producer_epoch=1, sequence=5)
    old = batch([b"x"], producer_id=7, producer_epoch=0, sequence=1)
    with server.client() as client:
        client.frames(
            produce_frame(version, [("t", [(0, begin)])]),
            produce_frame(version, [("t", [(0, gap)]), ("other", [(0, batch([b"x"]))])]),
            produce_frame(version, [("t", [(0, old)])]),
        )
        answers = client.answers(3)
    assert outcomes(version, answers[1]) == [
        ("t", 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        ("other", 0, 0, 0),
    ]
    assert outcomes(version, answers[2]) == [("t", 0, ErrorCode.INVALID_PRODUCER_EPOCH, -1)]


def test_a_closed_log_is_a_storage_error(server: ProduceServer) -> None:
    log = server.lead().log
    assert log is not None
    log.close_files()
    with server.client() as client:
        client.frames(produce_frame(9, [("t", [(0, batch([b"x"]))])]))
        assert outcomes(9, client.answer()) == [("t", 0, ErrorCode.KAFKA_STORAGE_ERROR, -1)]


def test_log_append_time_is_answered(server: ProduceServer) -> None:
    server.lead(message_timestamp_type="LogAppendTime")
    before = time.time()
    with server.client() as client:
        client.frames(produce_frame(9, [("t", [(0, batch([b"x"]))])]))
        [topic] = produced(9, client.answer()).responses
    assert abs(topic.partition_responses[0].log_append_time.timestamp() - before) < 600


def test_records_are_flushed_where_the_topic_says_so(server: ProduceServer) -> None:
    partition = server.lead(flush_messages=3)
    assert partition.log is not None
    frame = produce_frame(9, [("t", [(0, batch([b"x"]))])])
    with server.client() as client:
        for end in (1, 2):
            client.frames(frame)
            assert outcomes(9, client.answer()) == [("t", 0, 0, end - 1)]
        assert partition.log.recovery_point == 0
        # No processor waits for the disk.
        client.frames(frame)
        assert client.answer() == QUEUED
    partition.append(batch([b"x"]), required_acks=1).result(20)
    assert partition.log.recovery_point == partition.log.end_offset == 3


@pytest.mark.parametrize("version", [3, 11])
def test_all_in_sync_replicas_acknowledge(server: ProduceServer, version: int) -> None:
    partition = server.lead(replicas=(OURS, OTHER))
    alone = server.lead("alone")
    frame = produce_frame(version, [("t", [(0, batch([b"x", b"y"]))]), ("alone", [(0, batch([b"z"]))])])
    with server.client() as client, server.client() as leader_only:
        client.frames(frame)
        wait_until(lambda: partition.watchers == 1, what="the request is parked")
        leader_only.frames(produce_frame(version, [("t", [(0, batch([b"z"]))])], acks=1))
        assert outcomes(version, leader_only.answer()) == [("t", 0, 0, 2)]
        partition.update_follower(OTHER, 1, -1, 10**13)
        assert partition.watchers == 1
        partition.update_follower(OTHER, 2, -1, 10**13)
        assert outcomes(version, client.answer()) == [("t", 0, 0, 0), ("alone", 0, 0, 0)]
    assert (partition.high_watermark, alone.high_watermark) == (2, 1)


@pytest.mark.parametrize("version", [3, 9])
def test_parked_request_gives_the_memory_of_its_records_back(server: ProduceServer, version: int) -> None:
    size, number = 4 << 20, 20
    partition = server.lead(replicas=(OURS, OTHER), max_message_bytes=size + 1000)
    frame = produce_frame(version, [("t", [(0, batch([b"x" * size]))])])
    process = psutil.Process()
    with ExitStack() as clients:
        opened = [clients.enter_context(server.client()) for _ in range(number)]
        before = process.memory_info().rss
        for watchers, client in enumerate(opened, 1):
            client.frames(frame)
            wait_until(lambda count=watchers: partition.watchers == count, what="it is parked")  # type: ignore[misc]
        assert process.memory_info().rss - before < number * size // 2
        partition.update_follower(OTHER, number, -1, 10**13)
        for offset, client in enumerate(opened):
            assert outcomes(version, client.answer()) == [("t", 0, 0, offset)]


@pytest.mark.parametrize("version", [3, 11])
@pytest.mark.parametrize("size", [10, 5_000, 100_000, 500_000])
def test_requests_behind_a_parked_one_are_answered_after_it(
    server: ProduceServer, version: int, size: int
) -> None:
    led = [server.lead(topic, replicas=(OURS, OTHER)) for topic in ("t", "other")]
    value = b"x" * size
    frame = produce_frame(version, [("t", [(0, batch([value]))]), ("other", [(0, batch([b"y"]))])])
    with server.client() as client:
        client.frames(frame)
        wait_until(lambda: led[1].watchers == 1, what="the first one is parked")
        client.frames(frame, frame)
        for offset in range(3):
            for partition in led:
                wait_until(lambda one=partition: one.watchers == 1, what="it is parked")  # type: ignore[misc]
                partition.update_follower(OTHER, offset + 1, -1, 10**13)
            found = outcomes(version, client.answer())
            assert found == [("t", 0, 0, offset), ("other", 0, 0, offset)]


def test_a_request_waits_for_all_of_its_partitions(server: ProduceServer) -> None:
    led = [server.lead(index=index, replicas=(OURS, OTHER)) for index in range(20)]
    with server.client() as client:
        client.frames(produce_frame(9, [("t", [(index, batch([b"x"])) for index in range(20)])]))
        for partition in reversed(led):
            wait_until(lambda one=partition: one.watchers == 1, what="it is watched")  # type: ignore[misc]
            partition.update_follower(OTHER, 1, -1, 10**13)
        assert [error for _, _, error, _ in outcomes(9, client.answer())] == [0] * 20


@pytest.mark.parametrize("timeout_ms", [-1, 0, 30])
def test_the_wait_ends_with_its_time(server: ProduceServer, timeout_ms: int) -> None:
    partition = server.lead(replicas=(OURS, OTHER))
    with server.client() as client:
        client.frames(produce_frame(9, [("t", [(0, batch([b"x"]))])], timeout_ms=timeout_ms))
        assert outcomes(9, client.answer()) == [("t", 0, ErrorCode.REQUEST_TIMED_OUT, 0)]
    assert partition.watchers == 0
    assert server.api.counters == (1, 1, 1)


@pytest.mark.parametrize("version", [9, 11])
def test_the_wait_ends_with_the_leadership(server: ProduceServer, version: int) -> None:
    partition = server.lead(replicas=(OURS, OTHER))
    log = partition.log
    assert log is not None
    with server.client() as client:
        client.frames(produce_frame(version, [("t", [(0, batch([b"x"]))])]))
        wait_until(lambda: partition.watchers == 1, what="the request is parked")
        partition.make_follower(log, OTHER, 4, 1, (OURS, OTHER))
        answer = client.answer()
    assert outcomes(version, answer) == [("t", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)]
    if version >= 10:
        [topic] = produced(version, answer).responses
        leader = topic.partition_responses[0].current_leader
        assert (leader.leader_id, leader.leader_epoch) == (OTHER, 4)


def test_a_connection_that_closes_gives_up_its_request(server: ProduceServer) -> None:
    partition = server.lead(replicas=(OURS, OTHER))
    with server.client() as client:
        client.frames(produce_frame(9, [("t", [(0, batch([b"x"]))])]))
        wait_until(lambda: partition.watchers == 1, what="the request is parked")
        server.table.remove("t", 0)
        client.answer()
        partition = server.lead(index=1, replicas=(OURS, OTHER))
        client.frames(produce_frame(9, [("t", [(1, batch([b"x"]))])]))
        wait_until(lambda: partition.watchers == 1, what="the request is parked")
        client.reset()
    wait_until(lambda: partition.watchers == 0, what="nobody waits")


def test_the_end_of_the_server_answers_parked_requests(tmp_path: Path) -> None:
    with producing(tmp_path) as server:
        partition = server.lead(replicas=(OURS, OTHER))
        client = server.client()
        client.frames(produce_frame(9, [("t", [(0, batch([b"x"]))])]))
        wait_until(lambda: partition.watchers == 1, what="the request is parked")
    with client:
        assert outcomes(9, client.answer())[0][2] == ErrorCode.REQUEST_TIMED_OUT


PLAIN = batch([b"x"])
GZIP = PlainBatch(PLAIN[61:], 1, attributes=1).encoded()
TRANSACTIONAL = PlainBatch(PLAIN[61:], 1, attributes=0x10, producer_id=1).encoded()
IN_TRANSACTION = batch([b"x"], attributes=0x10, producer_id=1, producer_epoch=0, sequence=0)

UNUSUAL = {
    "a version that is not served": b"\0\0\0\x0c" + produce_frame(9, [])[4:],
    "a topic that is not hosted": produce_frame(9, [("u", [(0, PLAIN)])]),
    "a partition that is not hosted": produce_frame(9, [("t", [(0, PLAIN), (9, PLAIN)])]),
    "a partition of another leader": produce_frame(9, [("t", [(0, PLAIN), (1, PLAIN)])]),
    "a partition twice": produce_frame(9, [("t", [(0, PLAIN), (0, PLAIN)])]),
    "an internal topic": produce_frame(9, [("__consumer_offsets", [(0, PLAIN)])]),
    "compressed records": produce_frame(9, [("t", [(0, GZIP)])]),
    "transactional records": produce_frame(9, [("t", [(0, TRANSACTIONAL)])]),
    "a topic without partitions": produce_frame(9, [("t", [(0, PLAIN)]), ("u", [])]),
    "no records": produce_frame(9, [("t", [(0, b"")])]),
    "null for records": produce_frame(9, [("t", [(0, None)])]),
    "two batches": produce_frame(9, [("t", [(0, PLAIN + PLAIN)])]),
    "a wrong CRC": produce_frame(9, [("t", [(0, PLAIN[:-1] + b"\x01")])]),
    "a cut batch": produce_frame(9, [("t", [(0, PLAIN[:-1])])]),
    "unknown acks": produce_frame(9, [("t", [(0, PLAIN)])], acks=2),
    "a body that is cut": produce_frame(9, [("t", [(0, PLAIN)])])[:-3],
    "a header that is cut": produce_frame(9, [("t", [(0, PLAIN)])])[:9],
    "no frame": b"",
}


@pytest.mark.parametrize("frame", UNUSUAL.values(), ids=UNUSUAL)
def test_what_is_unusual_is_left_to_the_request_queue(server: ProduceServer, frame: bytes) -> None:
    plain = server.lead()
    follower = server.lead(index=1)
    assert follower.log is not None
    follower.make_follower(follower.log, OTHER, 4, 1, (OURS, OTHER))
    server.lead("__consumer_offsets")
    with server.client() as client:
        client.frames(frame)
        assert client.answer() == QUEUED
    assert server.queued == [frame]
    assert plain.log is not None
    assert plain.log.end_offset == 0


@pytest.mark.parametrize("count", [7, 8, 9, 16, 17, 1000])
def test_a_partition_that_comes_again_is_found_wherever_it_is(server: ProduceServer, count: int) -> None:
    for index in range(count):
        server.lead(index=index)
    wanted = list(range(count))
    repeated = [
        produce_frame(9, [("t", [(index, PLAIN) for index in [*wanted[:at], again, *wanted[at:]]])])
        for again, at in ((0, 1), (0, count), (count - 1, 0), (count // 2, count))
    ]
    with server.client() as client:
        for frame in repeated:
            client.frames(frame)
            assert client.answer() == QUEUED
        client.frames(produce_frame(9, [("t", [(index, PLAIN) for index in wanted])]))
        assert outcomes(9, client.answer()) == [("t", index, 0, 0) for index in wanted]
    assert server.queued == repeated


def test_a_partition_twice_is_found_while_another_processor_appends_to_it(tmp_path: Path) -> None:
    """Between the two entries of one request another processor handles requests for the same partition."""
    rounds, at_once = 10, 1000
    with producing(tmp_path, num_network_threads=2) as server, ExitStack() as stack:
        partition = server.lead()
        # Every record is looked at, so that the second entry is read late. A checked build takes longer.
        many = batch([b""] * (10_000 if CHECKS_LOCKS else 100_000))
        between = [(index, many) for index in range(1, 9)]
        for index, _ in between:
            server.lead(index=index, max_message_bytes=len(many))
        twice = sized(produce_frame(9, [("t", [(0, PLAIN), *between, (0, PLAIN)])], acks=1))
        once = produce_frame(9, [("t", [(0, PLAIN)])], acks=1)
        one, other = stack.enter_context(server.client()), stack.enter_context(server.client())
        for _ in range(rounds):
            # It is read when its last byte comes.
            one.sendall(twice[:-1])
            other.frames(*[once] * at_once)
            one.sendall(twice[-1:])
            assert one.answer() == QUEUED
            assert {outcomes(9, answer)[0][2] for answer in other.answers(at_once)} == {ErrorCode.NONE}
        assert partition.log is not None
        assert partition.log.end_offset == rounds * at_once


FRAMES = [
    produce_frame(version, [("t", [(0, PLAIN)]), ("u", [(0, PLAIN)])], acks=acks, timeout_ms=1)
    for version, acks in ((3, -1), (8, 1), (11, -1))
] + [
    produce_frame(
        version, [("t", [(0, IN_TRANSACTION)]), ("u", [(0, PLAIN)])], transactional_id="tx", timeout_ms=1
    )
    for version in (3, 9)
]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), frame=st.sampled_from(FRAMES))
def test_no_frame_does_harm(server: ProduceServer, data: st.DataObject, frame: bytes) -> None:
    """Damaged frames are answered, queued or close their connection; the log stays readable."""
    if server.table.get("t", 0) is None:
        begun = server.lead()
        server.lead("u")
        server.table.verifies_transactions = True
        guard = begun.begin_verification(1, 0, 0)
        assert begun.append(IN_TRANSACTION, verification_guard=guard).result()[0] == 0
    damaged = bytearray(frame)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(4, len(damaged) - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))
    with server.client() as client:
        client.frames(bytes(damaged[:cut]), frame)
        client.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            while client.recv(65536):
                pass
    for topic in "tu":
        partition = server.table.get(topic, 0)
        assert partition is not None
        offset = 0
        for base, count in headers(partition.read(0, 10**7, isolation=READ_LOG_END)):
            assert base == offset
            offset += count
