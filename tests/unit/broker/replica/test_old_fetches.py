"""Fetch of versions 0 to 3: processors read and wait, handler threads convert."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctrlchan._c.locks import CHECKS_LOCKS
from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.handlers import fetch
from ctrlchan.broker.log._batches import Origin
from ctrlchan.broker.quota._client_quotas import QuotaType
from ctrlchan.broker.quota.requests import RequestQuotas
from ctrlchan.broker.replica._partitions import Partition
from ctrlchan.server.handler_pool import HandlerPool, ListenerHandler
from ctrlchan.server.request_handler import RequestHandler
from tests.kafka.waiting import wait_until
from tests.unit.broker.cores import storing_core
from tests.unit.broker.log.old_formats.entries import read_entries
from tests.unit.broker.log.old_formats.old_logs import entries
from tests.unit.broker.replica.fetching import (
    BROKER,
    FOLLOWER,
    Answered,
    Asked,
    Broker,
    Fetcher,
    broker_in,
    marker,
)
from tests.unit.server.serving import descriptors, wait_until_closed

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER = 1, 3, 6
UNSUPPORTED_VERSION, UNSUPPORTED_COMPRESSION_TYPE = 35, 76
VERSIONS = range(4)
LONG = 600_000  # milliseconds
PRODUCER = {"producer_id": 5, "producer_epoch": 0, "attributes": 0x10}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker with handler threads. Afterwards no descriptor is left."""
    before = descriptors()
    with broker_in(tmp_path) as broker:
        quotas = broker.hot.quotas
        core = storing_core(BROKER, partitions=broker.table, old_fetches=broker.api, quotas=quotas)
        limits = RequestQuotas(quotas)
        broker.server.threads.number_user = limits.number_user
        handler = RequestHandler(core, {1: fetch.API}, limits=limits)
        pool = HandlerPool(broker.server.requests, [ListenerHandler("broker", handler.serve_left)], 2)
        pool.start()
        yield broker
        broker.server.stop()
        assert pool.join(20)
    for partition in broker.table.partitions():
        if partition.log is not None:
            partition.log.close_files()
    broker.table = None  # type: ignore[assignment]
    wait_until_closed(before)


def seen(answered: Answered) -> list[tuple[int, int, bytes | None]]:
    """Return format, offset and value of each record."""
    return [(one.magic, one.offset, one.value) for one in read_entries(answered.records or b"")]


def end_transaction(partition: Partition) -> None:
    partition.append(marker(5, commit=True), origin=Origin.COORDINATOR, required_acks=1).result(20)


def with_marker(broker: Broker) -> Partition:
    """Lead a partition with a record of a transaction, and its marker at offset 1."""
    partition = broker.lead("t")
    broker.append(partition, b"first", sequence=0, **PRODUCER)
    end_transaction(partition)
    return partition


def nothing_waits(broker: Broker) -> None:
    # A request ends after its answer was sent.
    wait_until(lambda: broker.api.counters()["waiting"] == 0, what="no request waits")


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_converted(broker: Broker, version: int) -> None:
    magic = 0 if version < 2 else 1
    orders = broker.lead("orders")
    broker.append(orders, b"a", b"b", timestamp=7)
    broker.append(broker.lead("users"), b"c")
    with Fetcher(broker.server, version) as fetcher:
        answer = fetcher.fetch(Asked("orders", offset=1), Asked("gone"), Asked("users"), Asked("users", 7))
    assert list(answer.partitions) == [("orders", 0), ("users", 0), ("gone", 0), ("users", 7)]
    found = answer.partitions["orders", 0]
    assert (found.error, found.high_watermark) == (0, 2)
    assert seen(found) == [(magic, 1, b"b")]
    assert [one.timestamp for one in read_entries(found.records or b"")] == [7 if magic else -1]
    assert seen(answer.partitions["users", 0]) == [(magic, 0, b"c")]
    for unknown in (("gone", 0), ("users", 7)):
        assert answer.partitions[unknown].error == UNKNOWN_TOPIC_OR_PARTITION
    records, _, size = orders.converted(1)
    assert records == 1
    assert size > len(found.records or b"")
    assert orders.counters[-1] == len(found.records or b"")


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("version", [*VERSIONS, 4, 11, 12])
@pytest.mark.parametrize("magic", [0, 1])
def test_entries_of_a_log_stay_as_they_are(broker: Broker, magic: int, version: int, codec: int) -> None:
    """All but format 1, for a client that knows format 0 alone."""
    orders = broker.lead("orders")
    assert orders.log is not None
    old = entries(magic, codec, 0, [(b"k", b"a", 7), (b"k", b"b", 8)])
    orders.log.append_as_follower(old)
    broker.append(orders, b"c", timestamp=9)
    with Fetcher(broker.server, version) as fetcher:
        found = fetcher.fetch(Asked("orders")).partitions["orders", 0]
    assert (found.error, found.high_watermark) == (0, 3)
    records = found.records or b""
    if version > 3:
        assert records == orders.log.read_file_range(0, 1 << 20).read()
    elif version < 2 <= 2 * magic:
        assert seen(found) == [(0, 0, b"a"), (0, 1, b"b"), (0, 2, b"c")]
    else:
        assert records.startswith(old)
        assert seen(found) == [(magic, 0, b"a"), (magic, 1, b"b"), (0 if version < 2 else 1, 2, b"c")]


@pytest.mark.parametrize("version", VERSIONS)
def test_errors(broker: Broker, version: int) -> None:
    broker.lead("t", 1)
    broker.lead_elsewhere("elsewhere")
    broker.lead("offline", 1).set_offline()
    with Fetcher(broker.server, version) as fetcher:
        answer = fetcher.fetch(Asked("t", offset=5), Asked("elsewhere"), Asked("offline"))
    assert [(one.error, one.records) for one in answer.partitions.values()] == [
        (OFFSET_OUT_OF_RANGE, b""),
        (NOT_LEADER_OR_FOLLOWER, b""),
        (NOT_LEADER_OR_FOLLOWER, b""),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_waits_for_records(broker: Broker, version: int) -> None:
    partition = broker.lead("t", 1)
    with Fetcher(broker.server, version) as fetcher:
        fetcher.send(Asked("t", offset=1), max_wait_ms=LONG)
        wait_until(lambda: partition.watchers == 1, what="the request waits")
        broker.append(partition, b"new")
        assert [one[1:] for one in seen(fetcher.receive().partitions["t", 0])] == [(1, b"new")]
        began = time.monotonic()
        answer = fetcher.fetch(Asked("t", offset=2), max_wait_ms=60)
        assert time.monotonic() - began >= 0.06
        assert (answer.partitions["t", 0].error, answer.partitions["t", 0].records) == (0, b"")
    nothing_waits(broker)


@pytest.mark.parametrize("version", VERSIONS)
def test_markers_of_transactions_are_no_reason_to_answer(broker: Broker, version: int) -> None:
    partition = with_marker(broker)
    with Fetcher(broker.server, version) as fetcher:
        fetcher.send(Asked("t", offset=1), max_wait_ms=LONG)
        wait_until(lambda: partition.watchers == 1, what="the request waits")
        # Another marker, then a record.
        end_transaction(partition)
        wait_until(lambda: partition.watchers == 1, what="the request waits again")
        broker.append(partition, b"second")
        assert [one[1:] for one in seen(fetcher.receive().partitions["t", 0])] == [(3, b"second")]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_wait_for_more_than_markers_ends(broker: Broker, version: int) -> None:
    with_marker(broker)
    with Fetcher(broker.server, version) as fetcher:
        for wait_ms in (80, 0):
            began = time.monotonic()
            found = fetcher.fetch(Asked("t", offset=1), max_wait_ms=wait_ms).partitions["t", 0]
            assert wait_ms <= (time.monotonic() - began) * 1000 < LONG
            assert (found.error, found.high_watermark, found.records) == (0, 2, b"")
    nothing_waits(broker)


def test_an_error_is_answered_beside_markers(broker: Broker) -> None:
    with_marker(broker)
    broker.lead("u", 1)
    with Fetcher(broker.server, 2) as fetcher:
        answer = fetcher.fetch(Asked("t", offset=1), Asked("u", offset=9), max_wait_ms=LONG)
    assert [one.error for one in answer.partitions.values()] == [0, OFFSET_OUT_OF_RANGE]


def test_records_behind_many_markers_are_found(broker: Broker) -> None:
    partition = with_marker(broker)
    for _ in range(20):
        end_transaction(partition)
    broker.append(partition, b"behind")
    with Fetcher(broker.server, 2) as fetcher:
        # Enough for two markers.
        found = fetcher.fetch(Asked("t", offset=1, max_bytes=160), max_wait_ms=LONG).partitions["t", 0]
    assert seen(found) == [(1, 22, b"behind")]


def test_a_connection_may_close_at_any_time(broker: Broker) -> None:
    partition = with_marker(broker)
    for offset in (0, 1, 2):
        for _ in range(20):
            fetcher = Fetcher(broker.server, 1)
            fetcher.send(Asked("t", offset=offset), max_wait_ms=30)
            fetcher.client.close()
    nothing_waits(broker)
    assert partition.watchers == 0


def test_the_end_of_the_server_answers_requests_that_wait(broker: Broker) -> None:
    partition = with_marker(broker)
    with Fetcher(broker.server, 2) as fetcher:
        fetcher.send(Asked("t", offset=1), max_wait_ms=LONG)
        wait_until(lambda: partition.watchers == 1, what="the request waits")
        broker.server.stop()
        assert fetcher.receive().partitions["t", 0].records == b""


@pytest.mark.parametrize("version", VERSIONS)
def test_topics_may_refuse_the_conversion(broker: Broker, version: int) -> None:
    config = LogConfig(message_downconversion_enable=False)
    broker.lead("t", 1, config=config, replicas=(BROKER, FOLLOWER))
    with Fetcher(broker.server, version) as fetcher:
        found = fetcher.fetch(Asked("t")).partitions["t", 0]
        assert (found.error, found.high_watermark, found.records) == (UNSUPPORTED_VERSION, -1, None)
        follower = fetcher.fetch(Asked("t"), replica=FOLLOWER).partitions["t", 0]
        assert (follower.error, len(seen(follower))) == (0, 1)
    with Fetcher(broker.server, 4) as fetcher:
        assert fetcher.fetch(Asked("t"), replica=FOLLOWER).partitions["t", 0].error == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_zstd(broker: Broker, version: int) -> None:
    broker.lead("t", 1, config=LogConfig(compression_type="zstd"))
    with Fetcher(broker.server, version) as fetcher:
        found = fetcher.fetch(Asked("t")).partitions["t", 0]
    assert (found.error, found.records) == (UNSUPPORTED_COMPRESSION_TYPE, None)


def test_limits(broker: Broker) -> None:
    """Before version 3 no batch is kept whole; from then on the first one of the response."""
    for topic in ("a", "b"):
        broker.append(broker.lead(topic), b"x" * 500)
    for version, counts in ((0, [0, 0]), (2, [0, 0]), (3, [1, 0])):
        with Fetcher(broker.server, version) as fetcher:
            answer = fetcher.fetch(Asked("a", max_bytes=50), Asked("b", max_bytes=50))
            assert [len(seen(one)) for one in answer.partitions.values()] == counts
    with Fetcher(broker.server, 3) as fetcher:
        answer = fetcher.fetch(Asked("a"), Asked("b"), max_bytes=50)
        assert [len(seen(one)) for one in answer.partitions.values()] == [1, 0]


@pytest.mark.parametrize("version", VERSIONS)
def test_quotas(broker: Broker, version: int) -> None:
    broker.lead("t", 3)
    bounds: list[float | None] = [None] * 4
    bounds[QuotaType.FETCH] = 1.0
    broker.hot.quotas.set_limits([(None, "", bounds)])
    with Fetcher(broker.server, version) as fetcher:
        fetcher.client.frames(fetcher.frame(Asked("t")))
        frame = fetcher.client.answer()
    # No topics, and from version 1 on the time that the client shall wait.
    assert frame[-4:] == bytes(4)
    assert len(frame) == (8 if version == 0 else 12)
    assert version == 0 or struct.unpack_from(">i", frame, 4)[0] > 0


FRAMES = [
    Fetcher.frame.__get__(type("Names", (), {"version": version, "names": {}, "_topic": Fetcher._topic})())(
        Asked("t", offset=1), Asked("t", 1), Asked("u"), max_wait_ms=5
    )
    for version in VERSIONS
]  # fmt: skip


@pytest.mark.skipif(CHECKS_LOCKS, reason="slow in a debug build")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frame=st.sampled_from(FRAMES), at=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.booleans())
def test_no_frame_does_harm(broker: Broker, frame: bytes, at: int, value: int, cut: bool) -> None:
    if broker.table.get("t", 0) is None:
        with_marker(broker)
    changed = bytearray(frame)
    if cut:
        del changed[4 + at % (len(frame) - 4) :]
    else:
        changed[4 + at % (len(frame) - 4)] = value
    with Fetcher(broker.server, 0) as fetcher:
        fetcher.client.frames(bytes(changed))
    with Fetcher(broker.server, 2) as fetcher, suppress(AssertionError):
        assert [one[1:] for one in seen(fetcher.fetch(Asked("t")).partitions["t", 0])] == [(0, b"first")]
