"""Fetch sessions (KIP-227): what an incremental Fetch names, what its answer leaves out, who is evicted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kafka.waiting import wait_until
from tests.unit.broker.replica.fetching import Asked, Broker, Fetcher, broker_in

OFFSET_OUT_OF_RANGE, FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH = 1, 70, 71
UNKNOWN_TOPIC_ID, FETCH_SESSION_TOPIC_ID_ERROR = 100, 106
FOLLOWER = 2
LONG = 600_000  # milliseconds
TOPICS = ("orders", "users", "views")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with broker_in(tmp_path) as broker:
        for topic in TOPICS:
            broker.lead(topic, 1)
        yield broker


@pytest.mark.parametrize("version", [7, 11, 12, 13, 17])
def test_an_incremental_answer_has_the_news(broker: Broker, version: int) -> None:
    orders, users = broker.table.get("orders", 0), broker.table.get("users", 0)
    assert orders is not None
    assert users is not None
    with Fetcher(broker.server, version) as fetcher:
        full = fetcher.fetch(Asked("orders", 0, 1), Asked("users", 0, 1), epoch=0)
        assert full.session > 0
        assert list(full.partitions) == [("orders", 0), ("users", 0)]

        def fetch(*asked: Asked, epoch: int, forgotten: tuple[tuple[str, int], ...] = ()) -> list[str]:
            answer = fetcher.fetch(*asked, session=full.session, epoch=epoch, forgotten=forgotten)
            assert (answer.error, answer.session) == (0, full.session)
            return [topic for topic, _ in answer.partitions]

        assert fetch(epoch=1) == []
        broker.append(users)
        assert fetch(epoch=2) == ["users"]
        # Until the offset is another, the records are sent again.
        assert fetch(epoch=3) == ["users"]
        assert fetch(Asked("users", 0, 2), epoch=4) == []
        # A partition with records has been moved behind the others.
        broker.append(users)
        broker.append(orders)
        assert fetch(epoch=5) == ["orders", "users"]
        assert fetch(Asked("views", 0, 0), epoch=6) == ["orders", "users", "views"]
        assert fetch(epoch=7, forgotten=(("users", 0), ("gone", 0))) == ["orders", "views"]
        assert fetch(Asked("orders", 0, 2), Asked("views", 0, 1), epoch=8) == []
        assert users.log is not None
        # An error is sent each time, and the partition once more when the error is gone.
        assert fetch(Asked("orders", 0, 9), epoch=9) == ["orders"]
        assert fetch(epoch=10) == ["orders"]
        assert fetch(Asked("orders", 0, 2), epoch=11) == ["orders"]
        assert fetch(epoch=12) == []
        assert orders.log is not None
        orders.log.increment_start_offset(1)
        assert fetch(epoch=13) == ["orders"]
        assert fetch(epoch=14) == []
        assert broker.api.counters()["session_partitions"] == 2
        assert fetcher.fetch(session=full.session, epoch=-1).session == 0
        assert broker.api.counters()["sessions"] == broker.api.counters()["session_partitions"] == 0


def test_errors_of_sessions(broker: Broker) -> None:
    with Fetcher(broker.server) as fetcher, Fetcher(broker.server, 12) as old:
        session = fetcher.fetch(Asked("orders"), epoch=0).session

        def error(one: Fetcher, number: int, epoch: int) -> int:
            answer = one.fetch(Asked("orders"), session=number, epoch=epoch)
            assert (answer.session, answer.partitions) == (0, {})
            return answer.error

        assert error(fetcher, session, 2) == INVALID_FETCH_SESSION_EPOCH
        assert error(fetcher, session + 1, 1) == FETCH_SESSION_ID_NOT_FOUND
        for number in (0, -1, -(2**31), 2**31 - 1):
            assert error(fetcher, number, 1) == FETCH_SESSION_ID_NOT_FOUND
        # The names of a session's topics are ids, or they are not.
        assert error(old, session, 1) == FETCH_SESSION_TOPIC_ID_ERROR
        assert fetcher.fetch(session=session, epoch=1).error == 0
        # A new session ends the one that is named.
        assert fetcher.fetch(Asked("orders"), session=session, epoch=0).session not in (0, session)
        assert error(fetcher, session, 2) == FETCH_SESSION_ID_NOT_FOUND


def test_a_session_without_partitions_ends(broker: Broker) -> None:
    with Fetcher(broker.server) as fetcher:
        session = fetcher.fetch(Asked("orders"), epoch=0).session
        answer = fetcher.fetch(session=session, epoch=1, forgotten=[("orders", 0)], max_wait_ms=LONG)
        assert (answer.error, answer.session, answer.partitions) == (0, 0, {})
        assert fetcher.fetch(session=session, epoch=2).error == FETCH_SESSION_ID_NOT_FOUND


def test_an_incremental_request_waits(broker: Broker) -> None:
    partition = broker.table.get("views", 0)
    assert partition is not None
    with Fetcher(broker.server) as fetcher, Fetcher(broker.server) as other:
        session = fetcher.fetch(*(Asked(topic, 0, 1) for topic in TOPICS), epoch=0).session
        fetcher.send(session=session, epoch=1, max_wait_ms=LONG)
        wait_until(lambda: broker.api.counters()["waited"] == 1, what="the request waits")
        broker.append(partition)
        assert list(fetcher.receive().partitions) == [("views", 0)]
        # The client has given up, and goes on with another connection.
        fetcher.send(Asked("views", 0, 2), session=session, epoch=2, max_wait_ms=LONG)
        wait_until(lambda: broker.api.counters()["waited"] == 2, what="the request waits")
        assert other.fetch(session=session, epoch=3).error == 0
        broker.append(partition)
        late = fetcher.receive()
        assert (late.error, late.session, late.partitions) == (INVALID_FETCH_SESSION_EPOCH, session, {})


def test_a_partition_of_a_session_is_found_when_it_comes_and_when_it_comes_back(broker: Broker) -> None:
    with Fetcher(broker.server) as fetcher:
        full = fetcher.fetch(Asked("later", 0, 0), Asked("orders", 0, 1), epoch=0)
        assert full.partitions["later", 0].error == UNKNOWN_TOPIC_ID
        broker.lead("later", 2)
        answer = fetcher.fetch(session=full.session, epoch=1)
        assert len(answer.partitions["later", 0].batches) == 2
        gone = broker.table.get("later", 0)
        broker.table.remove("later", 0)
        assert fetcher.fetch(session=full.session, epoch=2).partitions["later", 0].error == UNKNOWN_TOPIC_ID
        assert gone is not None
        broker.lead("later", 1)
        assert len(fetcher.fetch(session=full.session, epoch=3).partitions["later", 0].batches) == 3


def test_who_is_evicted(tmp_path: Path) -> None:
    with broker_in(tmp_path, sessions=2) as broker, Fetcher(broker.server) as fetcher:
        for topic in TOPICS:
            broker.lead(topic)
        orders, users, views = (Asked(topic) for topic in TOPICS)
        first = fetcher.fetch(orders, epoch=0).session
        second = fetcher.fetch(orders, users, epoch=0).session
        assert 0 < first != second > 0
        # Sessions that are in use are kept, whoever asks, unless a follower does.
        assert fetcher.fetch(orders, users, views, epoch=0).session == 0
        third = fetcher.fetch(orders, replica=FOLLOWER, epoch=0).session
        assert third > 0
        assert fetcher.fetch(session=first, epoch=1).error == FETCH_SESSION_ID_NOT_FOUND
        assert fetcher.fetch(session=second, epoch=1).error == 0
        fetcher.fetch(orders, replica=FOLLOWER, epoch=0)
        assert fetcher.fetch(session=second, epoch=2).error == FETCH_SESSION_ID_NOT_FOUND
        assert fetcher.fetch(orders, replica=FOLLOWER, epoch=0).session == 0
        assert broker.api.counters()["session_evictions"] == 2


def test_an_idle_session_is_evicted(tmp_path: Path) -> None:
    with broker_in(tmp_path, sessions=1, eviction_ms=-1) as broker, Fetcher(broker.server) as fetcher:
        broker.lead("orders")
        first = fetcher.fetch(Asked("orders"), replica=FOLLOWER, epoch=0).session
        assert fetcher.fetch(Asked("orders"), epoch=0).session not in (0, first)
    with broker_in(tmp_path / "none", sessions=0) as broker, Fetcher(broker.server) as fetcher:
        broker.lead("orders")
        assert fetcher.fetch(Asked("orders"), epoch=0).session == 0


STEPS = st.lists(
    st.tuples(
        st.dictionaries(st.tuples(st.sampled_from(TOPICS), st.integers(0, 7)), st.integers(0, 1), max_size=8),
        st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 7)), max_size=6),
    ),
    max_size=12,
)


Step = tuple[dict[tuple[str, int], int], list[tuple[str, int]]]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_a_session_has_the_partitions_of_a_plain_set(broker: Broker, steps: list[Step]) -> None:
    """Each partition with an index above 0 is unknown, and so it is in every answer."""
    with Fetcher(broker.server) as fetcher:
        session = fetcher.fetch(Asked("last", 9), epoch=0).session
        plain = {("last", 9)}
        for epoch, (asked, forgotten) in enumerate(steps, start=1):
            partitions = [Asked(topic, index + 1, offset) for (topic, index), offset in asked.items()]
            gone = [(topic, index + 1) for topic, index in forgotten]
            answer = fetcher.fetch(*partitions, session=session, epoch=epoch, forgotten=gone)
            plain = (plain | {(one.topic, one.partition) for one in partitions}) - set(gone)
            assert (answer.error, set(answer.partitions)) == (0, plain)
            assert broker.api.counters()["session_partitions"] == len(plain)
        fetcher.fetch(session=session, epoch=-1)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(version=st.sampled_from([4, 7, 11, 12, 13, 17]), data=st.data())
def test_changed_bytes_are_answered_refused_or_left_to_python(
    broker: Broker, version: int, data: st.DataObject
) -> None:
    with Fetcher(broker.server, version) as fetcher:
        forgotten = [("views", 1)] if version >= 7 else []
        frame = bytearray(fetcher.frame(Asked("orders"), Asked("users", 3), forgotten=forgotten))
        # The time to wait and the least number of bytes stay.
        begin = 26 + (version >= 12)
        for _ in range(data.draw(st.integers(1, 4))):
            changed = data.draw(st.integers(begin, len(frame) - 1))
            frame[changed] = data.draw(st.sampled_from([0, 1, 2, 17, 127, 128, 255]))
        fetcher.client.frames(bytes(frame), fetcher.frame(Asked("orders")))
        answers = 0
        while answers < 2:
            context = broker.server.requests.take(0.01)
            if context is not None:
                context.skip()
                answers += 1
                continue
            fetcher.client.settimeout(0.01)
            try:
                head = fetcher.client.recv(4)
            except TimeoutError:
                continue
            fetcher.client.settimeout(20)
            last = fetcher.client.exactly(int.from_bytes(head, "big"))
            answers += 1
        assert fetcher.read(last).partitions["orders", 0].error == 0
