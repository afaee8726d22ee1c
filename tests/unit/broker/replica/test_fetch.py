"""Fetch on processors: what is answered, in all versions, and for how long a request waits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.server.request_times import TIME_PARTS
from tests.kafka.waiting import wait_until
from tests.unit.broker.replica.fetching import (
    BATCH,
    BROKER,
    EPOCH,
    FOLLOWER,
    OTHER,
    VALUE,
    Asked,
    Broker,
    Fetcher,
    broker_in,
    marker,
)
from tests.unit.server.serving import descriptors

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER = 1, 3, 6
KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 56, 74, 75
UNSUPPORTED_COMPRESSION_TYPE, UNKNOWN_TOPIC_ID = 76, 100
VERSIONS = range(4, 18)
LONG = 600_000  # milliseconds


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    before = descriptors()
    with broker_in(tmp_path) as broker:
        yield broker
    for partition in broker.table.partitions():
        if partition.log is not None:
            partition.log.close_files()
    broker.table = None  # type: ignore[assignment]
    wait_until(lambda: descriptors() <= before, what="all files are closed")


def waited(broker: Broker, count: int) -> bool:
    return broker.api.counters()["waited"] == count


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_answered(broker: Broker, version: int) -> None:
    broker.lead("orders", 3)
    broker.lead("orders", 1, index=1)
    broker.lead("users", 2)
    with Fetcher(broker.server, version) as fetcher:
        answer = fetcher.fetch(Asked("orders", 0, 1), Asked("orders", 1), Asked("users", 0, 5), Asked("gone"))
    assert answer.error == 0
    assert list(answer.partitions) == [("orders", 0), ("orders", 1), ("users", 0), ("gone", 0)]
    orders = answer.partitions["orders", 0]
    assert (orders.error, orders.high_watermark, orders.last_stable_offset) == (0, 3, 3)
    assert orders.log_start_offset == (0 if version >= 5 else -1)
    assert orders.batches == [(1, 1), (2, 1)]
    assert (orders.aborted, orders.diverging) == (None, (-1, -1))
    assert answer.partitions["orders", 1].batches == [(0, 1)]
    assert (answer.partitions["users", 0].error, answer.partitions["users", 0].records) == (
        OFFSET_OUT_OF_RANGE,
        b"",
    )
    gone = answer.partitions["gone", 0]
    assert gone.error == (UNKNOWN_TOPIC_ID if version >= 13 else UNKNOWN_TOPIC_OR_PARTITION)
    assert (gone.records, gone.aborted, gone.high_watermark) == (b"", [], -1)


def test_partitions_that_the_broker_does_not_know_come_last(broker: Broker) -> None:
    broker.lead("orders", 1)
    broker.lead_elsewhere("elsewhere")
    with Fetcher(broker.server, 12) as fetcher:
        answer = fetcher.fetch(Asked("gone"), Asked("elsewhere"), Asked("orders"))
        assert [(topic, one.error) for (topic, _), one in answer.partitions.items()] == [
            ("elsewhere", NOT_LEADER_OR_FOLLOWER),
            ("orders", 0),
            ("gone", UNKNOWN_TOPIC_OR_PARTITION),
        ]
        # A request for nothing else is not kept waiting.
        assert (
            fetcher.fetch(Asked("gone"), max_wait_ms=LONG).partitions["gone", 0].error
            == UNKNOWN_TOPIC_OR_PARTITION
        )
        assert fetcher.fetch(max_wait_ms=LONG).partitions == {}


def test_the_last_of_equal_partitions_counts(broker: Broker) -> None:
    broker.lead("orders", 5)
    with Fetcher(broker.server) as fetcher:
        answer = fetcher.fetch(Asked("orders", 0, 0), Asked("orders", 0, 4))
    assert answer.partitions["orders", 0].batches == [(4, 1)]


def test_limits_of_bytes(broker: Broker) -> None:
    broker.lead("orders", 10)
    broker.lead("users", 10)
    both = [Asked("orders"), Asked("users")]

    def counts(*asked: Asked, **fields: int) -> list[int]:
        return [len(one.batches) for one in fetcher.fetch(*asked, **fields).partitions.values()]

    with Fetcher(broker.server) as fetcher:
        assert counts(*both) == [10, 10]
        assert counts(*both, max_bytes=3 * BATCH + 1) == [3, 0]
        # The first batch is whole, whatever the limits are; no other one is.
        assert counts(*both, max_bytes=1) == [1, 0]
        assert counts(Asked("orders", max_bytes=0), Asked("users", max_bytes=0)) == [1, 0]
        assert counts(Asked("orders", max_bytes=5 * BATCH), Asked("users", max_bytes=BATCH)) == [5, 1]
        assert counts(Asked("orders", 0, 10), Asked("users"), max_bytes=1) == [0, 1]
        negative = fetcher.fetch(Asked("orders", max_bytes=-1)).partitions["orders", 0]
        assert (negative.error, negative.records) == (-1, b"")


def test_the_broker_has_a_limit_of_its_own(tmp_path: Path) -> None:
    with broker_in(tmp_path, max_bytes=2 * BATCH) as broker, Fetcher(broker.server) as fetcher:
        broker.lead("orders", 10)
        # min.bytes cannot be above the limit.
        answer = fetcher.fetch(Asked("orders"), min_bytes=1 << 20, max_wait_ms=LONG)
        assert len(answer.partitions["orders", 0].batches) == 2


@pytest.mark.parametrize("version", [4, 5, 8, 11, 12, 17])
def test_errors_of_a_partition(broker: Broker, version: int) -> None:
    def error(*, leader_epoch: int = -1, replica: int = -1) -> int:
        asked = Asked("orders", leader_epoch=leader_epoch)
        return fetcher.fetch(asked, replica=replica, max_wait_ms=LONG).partitions["orders", 0].error

    partition = broker.lead("orders", 1)
    with Fetcher(broker.server, version) as fetcher:
        if version >= 9:
            assert error(leader_epoch=EPOCH) == 0
            assert error(leader_epoch=EPOCH - 1) == FENCED_LEADER_EPOCH
            assert error(leader_epoch=EPOCH + 1) == UNKNOWN_LEADER_EPOCH
            assert error(leader_epoch=EPOCH, replica=OTHER) == UNKNOWN_LEADER_EPOCH
        assert error(replica=OTHER) == NOT_LEADER_OR_FOLLOWER
        assert partition.log is not None
        partition.make_follower(partition.log, OTHER, EPOCH + 1, 2, (BROKER, OTHER))
        # From version 11 on a consumer may read from a follower.
        assert error() == (0 if version >= 11 else NOT_LEADER_OR_FOLLOWER)
        assert error(replica=OTHER) == NOT_LEADER_OR_FOLLOWER
        log = partition.log
        partition.set_offline()
        assert error() == (KAFKA_STORAGE_ERROR if version >= 6 else NOT_LEADER_OR_FOLLOWER)
        log.close_files()


def test_zstd_is_for_clients_that_know_it(broker: Broker) -> None:
    broker.lead("orders", 1, config=LogConfig(compression_type="zstd"))
    for version, error in [(9, UNSUPPORTED_COMPRESSION_TYPE), (10, 0)]:
        with Fetcher(broker.server, version) as fetcher:
            answered = fetcher.fetch(Asked("orders")).partitions["orders", 0]
        assert (answered.error, answered.records is None) == (error, version == 9)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_transactions(broker: Broker, version: int) -> None:
    partition = broker.lead("orders", 1)
    transactional = {"producer_id": 5, "producer_epoch": 0, "attributes": 0x10}
    broker.append(partition, VALUE, sequence=0, **transactional)
    with Fetcher(broker.server, version) as fetcher:
        committed = fetcher.fetch(Asked("orders"), isolation=1).partitions["orders", 0]
        assert (committed.batches, committed.high_watermark, committed.last_stable_offset) == ([(0, 1)], 2, 1)
        assert committed.aborted == []
        assert fetcher.fetch(Asked("orders", 0, 1), isolation=1).partitions["orders", 0].batches == []
        assert fetcher.fetch(Asked("orders")).partitions["orders", 0].batches == [(0, 1), (1, 1)]
        # A reader of committed records waits for the end of the transaction.
        fetcher.send(Asked("orders", 0, 1), isolation=1, max_wait_ms=LONG)
        wait_until(lambda: waited(broker, 1), what="the request waits")
        partition.append(marker(5, commit=False), origin=1).result(20)
        committed = fetcher.receive().partitions["orders", 0]
        assert (committed.batches, committed.last_stable_offset) == ([(1, 1), (2, 1)], 3)
        assert committed.aborted == [(5, 1)]
        assert fetcher.fetch(Asked("orders")).partitions["orders", 0].aborted is None
        assert fetcher.fetch(Asked("orders", 0, 3), isolation=1).partitions["orders", 0].aborted == []


def test_a_first_batch_that_is_too_large_has_no_aborted_transactions(broker: Broker) -> None:
    """As with Kafka, where the list goes with the batch; a limit of 0 is no reason to read anything."""
    broker.lead("orders", 1)
    broker.lead("orders", 1, index=1)
    none_aborted: list[tuple[int, int]] = []
    for max_bytes, aborted in [(1, None), (0, none_aborted), (1 << 20, none_aborted)]:
        with Fetcher(broker.server, 11) as fetcher:
            answer = fetcher.fetch(Asked("orders"), Asked("orders", 1, 0, max_bytes), isolation=1)
        assert answer.partitions["orders", 0].aborted == none_aborted
        second = answer.partitions["orders", 1]
        assert (second.aborted, bool(second.records)) == (aborted, max_bytes > 1)


def test_aborted_transactions_of_several_segments(broker: Broker) -> None:
    partition = broker.lead("orders", config=LogConfig(segment_bytes=400, segment_index_bytes=400))
    for sequence in range(20):
        fields = {"producer_id": 5, "producer_epoch": 0, "attributes": 0x10, "sequence": sequence}
        broker.append(partition, VALUE, **fields)
        partition.append(marker(5, commit=sequence % 2 == 0), origin=1).result(20)
    assert partition.log is not None
    assert len(partition.log.segment_offsets()) > 3
    with Fetcher(broker.server) as fetcher:
        offset = 0
        while offset < 40:
            answered = fetcher.fetch(Asked("orders", 0, offset), isolation=1).partitions["orders", 0]
            end = answered.batches[-1][0] + 1
            expected = {(5, first) for first in range(2, 40, 4) if first < end and first + 1 >= offset}
            assert answered.aborted is not None
            # More may be said, as by Kafka: transactions right behind the records.
            assert expected <= set(answered.aborted) <= expected | {(5, end), (5, end + 1), (5, end + 2)}
            offset = end
        # A log that is opened anew knows them, too.
        folder, start = partition.log.folder, fetcher.fetch(Asked("orders"), isolation=1)
        partition.log.close()
        broker.table.remove("orders", 0)
        assert os.listdir(folder)
        again = broker.lead("orders")
        assert again.log is not None
        again.log.update_high_watermark(40)
        assert fetcher.fetch(Asked("orders"), isolation=1) == start


def test_bytes_for_consumers_count_for_their_partition_and_those_for_followers_together(
    broker: Broker,
) -> None:
    orders, users = broker.lead("orders", 2), broker.lead("users", 1)
    copied = broker.lead("copied", 3, replicas=(BROKER, FOLLOWER))
    with Fetcher(broker.server) as fetcher:
        fetcher.fetch(Asked("orders"), Asked("users"))
        fetcher.fetch(Asked("orders", 0, 1))
        fetcher.fetch(Asked("users", 0, 1))
        fetcher.fetch(Asked("copied"), replica=FOLLOWER)
    assert [one.counters[-1] for one in (orders, users, copied)] == [3 * BATCH, BATCH, 0]
    assert broker.api.counters()["bytes_replicated"] == 3 * BATCH


def test_a_request_waits_for_records_of_any_partition(broker: Broker) -> None:
    orders, users = broker.lead("orders", 1), broker.lead("users", 1)
    offsets = {"orders": 1, "users": 1}
    with Fetcher(broker.server) as fetcher:
        for waits, partition in enumerate([orders, users, orders], start=1):
            fetcher.send(*(Asked(topic, 0, offset) for topic, offset in offsets.items()), max_wait_ms=LONG)
            wait_until(partial(waited, broker, waits), what="the request waits")
            broker.append(partition)
            found = {topic: one.batches for (topic, _), one in fetcher.receive().partitions.items()}
            assert found.pop(partition.topic) == [(offsets[partition.topic], 1)]
            assert list(found.values()) == [[]]
            offsets[partition.topic] += 1
    assert broker.api.counters()["expired"] == 0


def test_a_request_waits_for_its_bytes_or_its_time(broker: Broker) -> None:
    partition = broker.lead("orders", 1)
    with Fetcher(broker.server) as fetcher:
        fetcher.send(Asked("orders"), min_bytes=3 * BATCH, max_wait_ms=LONG)
        wait_until(lambda: waited(broker, 1), what="the request waits")
        assert broker.api.counters()["waiting"] == 1
        broker.append(partition)
        broker.append(partition)
        assert len(fetcher.receive().partitions["orders", 0].batches) == 3
        answer = fetcher.fetch(Asked("orders"), min_bytes=9 * BATCH, max_wait_ms=50)
        assert len(answer.partitions["orders", 0].batches) == 3
    assert broker.api.counters()["expired"] == 1
    assert broker.api.counters()["waiting"] == 0


def test_records_of_an_older_segment_are_not_kept_back(broker: Broker) -> None:
    config = LogConfig(segment_bytes=3 * BATCH, segment_index_bytes=400)
    broker.lead("orders", 5, config=config)
    with Fetcher(broker.server) as fetcher:
        answer = fetcher.fetch(Asked("orders"), min_bytes=1 << 20, max_wait_ms=LONG)
        assert len(answer.partitions["orders", 0].batches) == 3
        # Neither are those that the limit of the partition has cut.
        answer = fetcher.fetch(
            Asked("orders", 0, 3, max_bytes=BATCH + 9), min_bytes=BATCH + 9, max_wait_ms=LONG
        )
        assert len(answer.partitions["orders", 0].batches) == 1


def test_waiting_ends_with_the_leadership(broker: Broker) -> None:
    partition = broker.lead("orders", 1)
    log = partition.log
    assert log is not None
    with Fetcher(broker.server) as fetcher:
        waits = 0

        def wait(replica: int = -1) -> None:
            nonlocal waits
            waits += 1
            fetcher.send(Asked("orders", 0, 1), replica=replica, max_wait_ms=LONG)
            wait_until(lambda: waited(broker, waits), what="the request waits")

        wait()
        partition.make_follower(log, OTHER, EPOCH + 1, 2, (BROKER, OTHER))
        partition.make_leader(log, EPOCH + 2, 3, (BROKER, FOLLOWER), (BROKER,))
        # A consumer may go on, a follower may not.
        broker.append(partition)
        assert fetcher.receive().partitions["orders", 0].batches == [(1, 1)]
        fetcher.send(Asked("orders", 0, 2), replica=FOLLOWER, max_wait_ms=LONG)
        wait_until(lambda: waited(broker, 2), what="the follower waits")
        partition.make_follower(log, OTHER, EPOCH + 3, 4, (BROKER, OTHER))
        assert fetcher.receive().partitions["orders", 0].error == NOT_LEADER_OR_FOLLOWER
        waits = 2
        fetcher.version = 17
        fetcher.send(Asked("orders", 0, 2), max_wait_ms=LONG)
        wait_until(lambda: waited(broker, 3), what="the consumer waits")
        broker.table.remove("orders", 0)
        assert fetcher.receive().partitions["orders", 0].error == UNKNOWN_TOPIC_ID
    log.close_files()


def test_a_connection_that_is_closed_leaves_no_watcher(broker: Broker) -> None:
    partition = broker.lead("orders", 1)
    with Fetcher(broker.server) as fetcher:
        fetcher.send(Asked("orders", 0, 1), max_wait_ms=LONG)
        wait_until(lambda: waited(broker, 1), what="the request waits")
        fetcher.client.reset()
    wait_until(lambda: broker.server.counters()[0][0].connections == 0, what="the connection is closed")
    broker.append(partition)
    with Fetcher(broker.server) as fetcher:
        assert len(fetcher.fetch(Asked("orders")).partitions["orders", 0].batches) == 2


def test_a_follower_moves_the_high_watermark(broker: Broker) -> None:
    partition = broker.lead("orders", 3, replicas=(BROKER, FOLLOWER))
    assert partition.high_watermark == 0
    with Fetcher(broker.server) as fetcher, Fetcher(broker.server) as consumer:
        consumer.send(Asked("orders"), max_wait_ms=LONG)
        wait_until(lambda: waited(broker, 1), what="the consumer waits")
        answered = fetcher.fetch(Asked("orders"), replica=FOLLOWER).partitions["orders", 0]
        # A follower reads up to the end of the log.
        assert (len(answered.batches), answered.high_watermark) == (3, 0)
        fetcher.fetch(Asked("orders", 0, 2), replica=FOLLOWER)
        assert consumer.receive().partitions["orders", 0].batches == [(0, 1), (1, 1)]
        # The answer to the request that moves the high watermark says where it was.
        fetcher.send(Asked("orders", 0, 3), replica=FOLLOWER, max_wait_ms=LONG)
        wait_until(lambda: partition.high_watermark == 3, what="the high watermark moves")
        broker.append(partition)
        answered = fetcher.receive().partitions["orders", 0]
        assert (answered.batches, answered.high_watermark) == ([(3, 1)], 3)


def test_a_reader_of_committed_records_waits_for_the_last_stable_offset(broker: Broker) -> None:
    partition = broker.lead("orders", 1, replicas=(BROKER, FOLLOWER))
    broker.append(partition, VALUE, sequence=0, producer_id=5, producer_epoch=0, attributes=0x10)

    def follow(end: int) -> None:
        partition.update_follower(FOLLOWER, end, -1, 10**13)

    follow(2)
    with Fetcher(broker.server) as fetcher, Fetcher(broker.server) as uncommitted:
        fetcher.send(Asked("orders", 0, 1), isolation=1, max_wait_ms=LONG, min_bytes=BATCH + 1)
        wait_until(lambda: waited(broker, 1), what="the reader of committed records waits")
        uncommitted.send(Asked("orders", 0, 2), max_wait_ms=LONG)
        wait_until(lambda: waited(broker, 2), what="the other reader waits")
        assert partition.watchers == 2
        broker.append(partition)
        follow(3)
        # The high watermark has moved: only the other reader was woken.
        assert partition.watchers == 1
        assert uncommitted.receive().partitions["orders", 0].batches == [(2, 1)]
        assert (partition.watchers, broker.api.counters()["waiting"]) == (1, 1)
        partition.append(marker(5, commit=True), origin=1, required_acks=1).result(20)
        assert partition.watchers == 1
        follow(4)
        answered = fetcher.receive().partitions["orders", 0]
        assert (answered.batches, answered.last_stable_offset) == ([(1, 1), (2, 1), (3, 1)], 4)
        # It does not come back for fewer bytes than it wants.
        fetcher.send(Asked("orders", 0, 4), isolation=1, max_wait_ms=LONG, min_bytes=2 * BATCH)
        wait_until(lambda: waited(broker, 3), what="it waits again")
        broker.append(partition)
        follow(5)
        wait_until(lambda: partition.watchers == 1, what="it goes on waiting")
        broker.append(partition)
        follow(6)
        assert fetcher.receive().partitions["orders", 0].batches == [(4, 1), (5, 1)]


def test_a_reader_of_committed_records_waits_at_a_follower(broker: Broker) -> None:
    partition = broker.lead("orders", 1)
    broker.append(partition, VALUE, sequence=0, producer_id=5, producer_epoch=0, attributes=0x10)
    log = partition.log
    assert log is not None
    partition.make_follower(log, OTHER, EPOCH + 1, 2, (BROKER, OTHER))
    with Fetcher(broker.server) as fetcher:
        fetcher.send(Asked("orders", 0, 1), isolation=1, max_wait_ms=LONG)
        wait_until(lambda: waited(broker, 1), what="the request waits")
        end = bytearray(marker(5, commit=False))
        end[:8] = (2).to_bytes(8, "big")
        log.append_as_follower(end)
        partition.follow_watermark(2)
        assert partition.watchers == 1
        partition.follow_watermark(3)
        answered = fetcher.receive().partitions["orders", 0]
    assert (answered.batches, answered.aborted) == ([(1, 1), (2, 1)], [(5, 1)])


def test_a_follower_learns_where_its_log_diverges(broker: Broker) -> None:
    partition = broker.lead("orders", 3, replicas=(BROKER, FOLLOWER))
    log = partition.log
    assert log is not None
    partition.make_leader(log, EPOCH + 2, 2, (BROKER, FOLLOWER), (BROKER, FOLLOWER))
    broker.append(partition)

    def fetched(offset: int, last_epoch: int) -> tuple[int, tuple[int, int], int]:
        asked = Asked("orders", 0, offset, last_epoch=last_epoch)
        answered = fetcher.fetch(asked, replica=FOLLOWER, max_wait_ms=LONG).partitions["orders", 0]
        return answered.error, answered.diverging, len(answered.batches)

    with Fetcher(broker.server) as fetcher:
        assert fetched(3, EPOCH) == (0, (-1, -1), 1)
        assert fetched(2, EPOCH) == (0, (-1, -1), 2)
        # Epoch 7 ends at offset 3 here; this log has no epoch 8.
        assert fetched(4, EPOCH) == (0, (EPOCH, 3), 0)
        assert fetched(2, EPOCH + 1) == (0, (EPOCH, 3), 0)
        assert fetched(9, EPOCH + 2) == (0, (EPOCH + 2, 4), 0)
        assert fetched(2, EPOCH + 3)[0] == OFFSET_OUT_OF_RANGE
        assert fetched(0, EPOCH - 1) == (0, (-1, -1), 4)
        assert fetched(1, EPOCH - 1) == (0, (EPOCH - 1, 0), 0)
        assert partition.followers()[0][1] == 0
        log.update_high_watermark(3)
        log.increment_start_offset(2)
        assert fetched(1, EPOCH)[0] == OFFSET_OUT_OF_RANGE


def test_records_are_sent_from_the_file(broker: Broker) -> None:
    """What the kernel has not sent yet is read from the file: a later change of the file is in the answer."""
    partition = broker.lead("orders")
    size = 800_000
    count = 40
    for _ in range(count):
        broker.append(partition, b"a" * size)
    assert partition.log is not None
    path = partition.log.folder / "00000000000000000000.log"
    with Fetcher(broker.server) as fetcher:
        fetcher.send(Asked("orders", max_bytes=1 << 30))
        head = fetcher.client.exactly(4)
        with path.open("r+b") as file:
            file.seek(-100, os.SEEK_END)
            file.write(b"b" * 50)
        answer = fetcher.read(fetcher.client.exactly(int.from_bytes(head, "big")))
    records = answer.partitions["orders", 0].records
    assert records is not None
    assert records == path.read_bytes()
    assert b"b" * 50 in records


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 17])
def test_bytes_that_are_no_request_are_left_to_python(broker: Broker, version: int) -> None:
    broker.lead("orders", 1)
    with Fetcher(broker.server, version) as fetcher:
        frame = fetcher.frame(
            Asked("orders"), replica=FOLLOWER, forgotten=[("orders", 1)] if version >= 7 else []
        )
        broken = [frame[:size] for size in range(14 + (version >= 12), len(frame))]
        broken.append(fetcher.frame(Asked("orders"), isolation=2))
        for data in broken:
            fetcher.client.frames(data)
            context = broker.server.requests.take(20)
            assert context is not None
            assert context.frame == data
            context.skip()
    assert broker.api.counters()["requests"] == 0


def test_the_time_of_a_request_has_what_it_waited(tmp_path: Path) -> None:
    wait_ms = 200
    with broker_in(tmp_path) as broker:
        broker.lead("alpha")
        with Fetcher(broker.server) as fetcher:
            frame = fetcher.frame(Asked("alpha"), max_wait_ms=wait_ms)
            fetcher.fetch(Asked("alpha"), max_wait_ms=wait_ms)
        assert list(broker.hot.totals().values()) == [(1, len(frame) + 4, 0)]
        # It counts when the processor has sent the answer, which may be here before.
        wait_until(broker.server.request_times, what="the times of a request")
        (times,) = broker.server.request_times().values()
        waited, total = (times.parts[TIME_PARTS.index(name)] for name in ("RemoteTimeMs", "TotalTimeMs"))
        assert wait_ms <= waited.total_ns / 1e6 <= total.total_ns / 1e6
        assert sum(waited.numbers) == sum(total.numbers) == 1
