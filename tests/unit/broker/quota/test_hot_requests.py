"""Produce and Fetch on processors under quotas: throttle times, muted connections, empty answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kio.serial import entity_reader

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.handlers._fetch import FetchApi
from ctrlchan.broker.handlers._hot import BrokerHandler
from ctrlchan.broker.handlers._produce import ProduceApi
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.metadata.published_metadata import PublishedMetadata
from ctrlchan.broker.quota._client_quotas import ClientQuotas, QuotaType
from ctrlchan.broker.replica._partitions import PartitionTable
from ctrlchan.server.socket_server import SocketServer
from tests.unit.broker.log.made_batches import batch
from tests.unit.broker.replica.fetching import FLEXIBLE, Asked, Fetcher, topic_id
from tests.unit.broker.replica.serving import OTHER, OURS, produce_frame, produced
from tests.unit.server.serving import LOCAL, Client

PRODUCE_VERSIONS, FETCH_VERSIONS = (3, 9, 11), (4, 7, 12, 17)
RECORDS = batch([b"0123456789ab"])
#: Windows that a rate is measured over, in seconds.
SECONDS = 10
FETCH_SESSION_ID_NOT_FOUND = 70
#: API keys
PRODUCE, FETCH = 0, 1
#: The first version with tagged fields, and the bytes of those in the header of ``produce_frame``.
FLEXIBLE_PRODUCE, TAGS = 9, 5


class Broker(NamedTuple):
    server: SocketServer
    quotas: ClientQuotas
    hot: BrokerHandler

    def limit(self, kind: int, bound: float | None) -> None:
        """Give the default client id a quota, and remove all others."""
        bounds: list[float | None] = [None] * 4
        bounds[kind] = bound
        self.quotas.set_limits([(None, "", bounds)])

    def rates(self, kind: int) -> list[float]:
        return [rate for of, _, _, rate, _, _ in self.quotas.sensors_now() if of == kind]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that leads ``t-0``, with two batches."""
    table = PartitionTable(OURS)
    metadata = PublishedMetadata()
    quotas = ClientQuotas()
    hot = BrokerHandler([ProduceApi(table, metadata.current), FetchApi(table, metadata.current)], quotas)
    server = SocketServer([LOCAL], hot=hot)
    hot.attach(server.threads)
    server.start()
    led = table.open("t", 0, topic_id("t"))
    led.make_leader(Log(tmp_path / "t-0", LogConfig()), 3, 0, [OURS], [OURS, OTHER])
    for _ in range(2):
        led.append(RECORDS, required_acks=1).result(30)
    yield Broker(server, quotas, hot)
    server.stop()
    table.close()


def throttle_time(size: int, bound: float) -> int:
    """The throttle time of a first request of this size."""
    return round((size / SECONDS - bound) / bound * SECONDS * 1000)


def milliseconds(response: Any) -> int:
    seconds: float = response.throttle_time.total_seconds()
    return round(seconds * 1000)


def body_size(frame: bytes, version: int) -> int:
    """The size of a request of ``produce_frame`` without its header."""
    header = 10 + int.from_bytes(frame[8:10], "big")
    return len(frame) - header - (TAGS if version >= FLEXIBLE_PRODUCE else 0)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_produce(broker: Broker, version: int, acks: int) -> None:
    """The answer comes at once and has the time; the next request waits for it."""
    frame = produce_frame(version, [("t", [(0, RECORDS)])], acks=acks)
    size = body_size(frame, version)
    bound = size / SECONDS / 1.05
    broker.limit(QuotaType.PRODUCE, bound)
    with Client(broker.server) as client:
        began = time.monotonic()
        client.frames(frame, frame)
        first = produced(version, client.answer())
        waited = (time.monotonic() - began) * 1000
        second = produced(version, client.answer())
        waited_twice = (time.monotonic() - began) * 1000
    expected = throttle_time(size, bound)
    assert 490 <= expected <= 510
    assert milliseconds(first) == expected
    assert waited < expected <= waited_twice
    assert milliseconds(second) > expected
    # Both were appended.
    assert [one.responses[0].partition_responses[0].base_offset for one in (first, second)] == [2, 3]


def test_throttle_times_are_counted_by_api(broker: Broker) -> None:
    frame = produce_frame(9, [("t", [(0, RECORDS)])], acks=1)
    with Client(broker.server) as client:
        client.frames(frame)
        assert milliseconds(produced(9, client.answer())) == 0
        before = {key: throttled_ms for key, (_, _, throttled_ms) in broker.hot.totals().items()}
        assert before == {PRODUCE: 0, FETCH: 0}
        broker.limit(QuotaType.PRODUCE, body_size(frame, 9) / SECONDS / 1.05)
        client.frames(frame)
        waited = milliseconds(produced(9, client.answer()))
    assert waited > 0
    after = {key: throttled_ms for key, (_, _, throttled_ms) in broker.hot.totals().items()}
    assert after == {PRODUCE: waited, FETCH: 0}


def test_produce_without_an_answer(broker: Broker) -> None:
    """With acks=0 the bytes count; the request quota does not hold."""
    frame = produce_frame(9, [("t", [(0, RECORDS)])], acks=0)
    bound = body_size(frame, 9) / SECONDS / 1.03
    broker.limit(QuotaType.PRODUCE, bound)
    with Client(broker.server) as client:
        began = time.monotonic()
        client.frames(frame, produce_frame(9, [("t", [(0, RECORDS)])], acks=1))
        produced(9, client.answer())
        assert (time.monotonic() - began) * 1000 >= 290
    assert len(broker.rates(QuotaType.PRODUCE)) == 1
    broker.limit(QuotaType.REQUEST, 1e-9)
    with Client(broker.server) as client:
        began = time.monotonic()
        client.frames(*[frame] * 5, produce_frame(9, [("t", [(0, RECORDS)])], acks=1))
        assert milliseconds(produced(9, client.answer())) == 1000
        assert (time.monotonic() - began) < 1


def fetched(version: int, frame: bytes) -> Any:
    schema: Any = import_module(f"kio.schema.fetch.v{version}.response")
    return entity_reader(schema.FetchResponse)(frame, 5 if version >= FLEXIBLE else 4)[0]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch(broker: Broker, version: int) -> None:
    """A throttled answer is empty, its bytes do not count, and no session begins."""
    with Fetcher(broker.server, version) as fetcher:
        frame = fetcher.frame(Asked("t"))
        fetcher.client.frames(frame)
        whole = fetcher.client.answer()
        size = len(whole) - (5 if version >= FLEXIBLE else 4) + 4
        bound = size / SECONDS / 1.05
        broker.limit(QuotaType.FETCH, bound)
        began = time.monotonic()
        fetcher.client.frames(frame)
        throttled = fetched(version, fetcher.client.answer())
        waited = (time.monotonic() - began) * 1000
        assert milliseconds(throttled) == throttle_time(size, bound)
        assert throttled.responses == ()
        assert getattr(throttled, "session_id", 0) == 0
        assert waited < 450
        broker.limit(QuotaType.FETCH, None)
        fetcher.client.frames(frame)
        answer = fetcher.client.answer()
        assert (time.monotonic() - began) * 1000 >= 490
        assert fetcher.read(answer).partitions
        # The one that was throttled did not count.
        assert broker.rates(QuotaType.FETCH) == [pytest.approx(size / SECONDS, rel=0.1)]


def test_a_session_is_not_changed_by_a_throttled_fetch(broker: Broker) -> None:
    """The epoch goes on, and the partition is answered next time."""
    with Fetcher(broker.server, 12) as fetcher:
        fetcher.client.frames(fetcher.frame(Asked("t"), session=0, epoch=0))
        session = fetcher.read(fetcher.client.answer()).session
        assert session
        broker.limit(QuotaType.FETCH, 2)
        fetcher.client.frames(fetcher.frame(Asked("t"), session=session, epoch=1))
        throttled = fetched(12, fetcher.client.answer())
        assert milliseconds(throttled) > 0
        assert (throttled.session_id, throttled.responses) == (session, ())
        broker.limit(QuotaType.FETCH, None)
    with Fetcher(broker.server, 12) as fetcher:
        fetcher.client.frames(fetcher.frame(session=session, epoch=2))
        answer = fetcher.read(fetcher.client.answer())
    assert answer.error == 0
    assert answer.partitions


def test_a_fetch_is_not_larger_than_the_windows(broker: Broker) -> None:
    """The first batch is always whole; more than that would only be throttled."""
    with Fetcher(broker.server, 12) as fetcher:
        # Less than two batches in ten seconds.
        broker.limit(QuotaType.FETCH, 15.9)
        fetcher.client.frames(fetcher.frame(Asked("t")))
        answer = fetcher.read(fetcher.client.answer())
    assert [len(one.batches) for one in answer.partitions.values()] == [1]


def test_a_session_that_is_unknown(broker: Broker) -> None:
    """Kafka answers a throttled request of no session without its error."""
    broker.limit(QuotaType.FETCH, 0.5)
    for bound, error in ((0.5, 0), (None, FETCH_SESSION_ID_NOT_FOUND)):
        broker.limit(QuotaType.FETCH, bound)
        with Fetcher(broker.server, 12) as fetcher:
            fetcher.client.frames(fetcher.frame(Asked("t"), session=5, epoch=3))
            response = fetched(12, fetcher.client.answer())
            assert int(response.error_code) == error
            assert (milliseconds(response) > 0) == (bound is not None)


def test_followers_are_not_throttled(broker: Broker) -> None:
    broker.limit(QuotaType.FETCH, 0.001)
    broker.quotas.set_limits([(None, "", [0.001, 0.001, 1e-9, None])])
    with Fetcher(broker.server, 12) as fetcher:
        fetcher.client.frames(fetcher.frame(Asked("t"), replica=OTHER))
        frame = fetcher.client.answer()
    assert milliseconds(fetched(12, frame)) == 0
    assert fetcher.read(frame).partitions
    assert broker.quotas.exempt_percent > 0
    assert broker.quotas.sensors_now() == []


@pytest.mark.parametrize("kind", ["produce", "fetch"])
def test_the_request_quota(broker: Broker, kind: str) -> None:
    """No time is short enough, but nobody waits for longer than a window."""
    broker.limit(QuotaType.REQUEST, 1e-9)
    with Fetcher(broker.server, 12) as fetcher:
        if kind == "produce":
            fetcher.client.frames(produce_frame(9, [("t", [(0, RECORDS)])]))
            assert milliseconds(produced(9, fetcher.client.answer())) == 1000
        else:
            fetcher.client.frames(fetcher.frame(Asked("t")))
            response = fetched(12, fetcher.client.answer())
            assert (milliseconds(response), response.responses) == (1000, ())
    assert broker.rates(QuotaType.REQUEST)[0] > 0
