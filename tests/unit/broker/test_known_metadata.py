"""Metadata on processors: an answer is repeated until the metadata change, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ctrlchan._codec import UPDATE_METADATA
from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.broker.faults import Fault
from ctrlchan.broker.handlers._known_metadata import MetadataApi
from ctrlchan.broker.metadata.published_metadata import PublishedMetadata
from ctrlchan.broker.quota._client_quotas import QuotaType
from ctrlchan.broker.server import BrokerServer
from ctrlchan.errors import ErrorCode
from tests.kafka.wire import exchange
from tests.unit.broker.local_broker import LiveBroker, Part, client_frame, control_frame, read_client_response

METADATA = 3
UNKNOWN_TOPIC = 3
VERSIONS = (0, 3, 8, 9, 12)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BrokerServer]:
    config = BrokerConfig(
        id=1,
        log_dirs=[str(tmp_path)],
        more_listeners=[("OTHER", "127.0.0.1", 0)],
        configs={"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT"},
    )
    started = BrokerServer(config)
    started.start()
    started.serve()
    update(started, Part("alpha", 0), Part("alpha", 1), Part("beta", 0))
    yield started
    started.stop()


def ask(server: BrokerServer, frame: bytes, listener: str = "PLAINTEXT") -> bytes:
    return exchange("127.0.0.1", server.ports[listener], frame)


def update(server: BrokerServer, *parts: Part, live: Sequence[LiveBroker] | None = None) -> None:
    """Send an UpdateMetadata. Broker 1 has both listeners, by default; 2 has one of them."""
    if live is None:
        live = [LiveBroker(1, (("PLAINTEXT", 0), ("OTHER", 0))), LiveBroker(2)]
    ask(server, control_frame(UPDATE_METADATA, 8, parts, live=live, broker_epoch=-1))


def repeated(server: BrokerServer) -> int:
    return server.hot.totals()[METADATA][0]


def handled(server: BrokerServer) -> int:
    return server.requests_of("Metadata")


def leaders(answer: bytes, version: int = 12) -> dict[tuple[str, int], int]:
    response: Any = read_client_response(METADATA, version, answer)
    return {
        (topic.name, one.partition_index): one.leader_id
        for topic in response.topics
        for one in topic.partitions
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("topics", [["alpha"], ["beta", "alpha"], ["alpha", "unknown"], None])
def test_the_same_request_gets_the_same_answer(
    server: BrokerServer, version: int, topics: list[str] | None
) -> None:
    asked = ([] if version == 0 else None) if topics is None else topics
    frame = client_frame(METADATA, version, topics=asked)
    first = ask(server, frame)
    assert (handled(server), repeated(server)) == (1, 0)
    assert [ask(server, frame) for _ in range(3)] == [first] * 3
    assert (handled(server), repeated(server)) == (1, 3)
    assert ("alpha", 0) in leaders(first, version)


def test_correlation_id_and_client_id_are_of_each_request(server: BrokerServer) -> None:
    frame = client_frame(METADATA, 12, topics=["alpha"], client_id="first")
    first = ask(server, frame)
    other = client_frame(METADATA, 12, topics=["alpha"], client_id="of another length")
    changed = ask(server, other[:4] + (99).to_bytes(4, "big") + other[8:])
    assert repeated(server) == 1
    assert changed[:4] == (99).to_bytes(4, "big")
    assert changed[4:] == first[4:]


def test_another_request_is_not_the_same(server: BrokerServer) -> None:
    answers = [
        ask(server, client_frame(METADATA, version, topics=[topic]))
        for version in (9, 12)
        for topic in ("alpha", "beta")
    ]
    assert (handled(server), repeated(server)) == (4, 0)
    assert len(set(answers)) == 4


def test_a_listener_has_its_own_answers(server: BrokerServer) -> None:
    frame = client_frame(METADATA, 12, topics=["alpha"])
    brokers = {}
    for _ in range(2):
        for listener in ("PLAINTEXT", "OTHER"):
            response: Any = read_client_response(METADATA, 12, ask(server, frame, listener))
            brokers[listener] = [node.node_id for node in response.brokers]
    assert brokers == {"PLAINTEXT": [1, 2], "OTHER": [1]}
    assert (handled(server), repeated(server)) == (2, 2)


def test_an_update_ends_all_answers(server: BrokerServer) -> None:
    frame = client_frame(METADATA, 12, topics=["alpha"])
    for leader in (1, 2, 1):
        update(server, Part("alpha", 0, leader=leader, leader_epoch=leader))
        for _ in range(2):
            assert leaders(ask(server, frame)) == {("alpha", 0): leader, ("alpha", 1): 1}
    assert (handled(server), repeated(server)) == (3, 3)


def test_topics_alone_are_not_repeated(server: BrokerServer) -> None:
    """Without a partition it may be an answer of a broker that waits for its metadata."""
    frame = client_frame(METADATA, 12, topics=["unknown"])
    for _ in range(2):
        (topic,) = read_client_response(METADATA, 12, ask(server, frame)).topics
        assert topic.error_code.value == UNKNOWN_TOPIC
    assert (handled(server), repeated(server)) == (2, 0)


def test_a_kraft_controller_is_another_broker_each_time(server: BrokerServer) -> None:
    live = [LiveBroker(1), LiveBroker(2)]
    ask(
        server,
        control_frame(UPDATE_METADATA, 8, [Part("alpha", 0)], live=live, broker_epoch=-1, kraft=True),
    )
    frame = client_frame(METADATA, 12, topics=["alpha"])
    seen = {read_client_response(METADATA, 12, ask(server, frame)).controller_id for _ in range(60)}
    assert seen == {1, 2}
    assert repeated(server) == 0


def test_a_fault_hits_a_request_that_was_answered_before(server: BrokerServer) -> None:
    frame = client_frame(METADATA, 12, topics=["alpha"])
    first = ask(server, frame)
    server.core.faults.add(Fault(api="Metadata", error=ErrorCode.UNKNOWN_SERVER_ERROR, times=1))
    (topic,) = read_client_response(METADATA, 12, ask(server, frame)).topics
    assert topic.error_code.value == ErrorCode.UNKNOWN_SERVER_ERROR
    assert (repeated(server), server.describe()["apis"]["Metadata"]["errors"]) == (
        0,
        {"UNKNOWN_SERVER_ERROR": 1},
    )
    server.core.faults.clear()
    assert ask(server, frame) == first
    assert repeated(server) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_repeated_answer_is_throttled(server: BrokerServer, version: int) -> None:
    frame = client_frame(METADATA, version, topics=["alpha"])
    first = ask(server, frame)
    limits = [1e-9 if kind == QuotaType.REQUEST else None for kind in range(4)]
    server.hot.quotas.set_limits([(None, "", limits)])
    throttled = ask(server, frame)
    assert repeated(server) == 1
    assert server.hot.totals()[METADATA][2] == 1000
    if version >= 3:
        response: Any = read_client_response(METADATA, version, throttled)
        assert response.throttle_time.total_seconds() == 1
    assert leaders(throttled, version) == leaders(first, version)


def test_there_is_no_room_for_all_requests(server: BrokerServer) -> None:
    """Clients choose what they ask: answers that find no room are made by handler threads, as before."""
    frames = [client_frame(METADATA, 12, topics=["alpha", f"unknown-{i}"]) for i in range(1_100)]
    with ThreadPoolExecutor(4) as threads:
        first = list(threads.map(lambda frame: ask(server, frame), frames))
        assert (handled(server), repeated(server)) == (1_100, 0)
        assert list(threads.map(lambda frame: ask(server, frame), frames)) == first
    assert repeated(server) == 1_024
    update(server, Part("alpha", 0))
    assert [ask(server, frames[0]) for _ in range(2)] == [first[0]] * 2
    assert repeated(server) == 1_025


def test_an_answer_of_former_metadata_is_not_kept() -> None:
    """The metadata have changed while it was made: nobody knows of which ones it is."""
    metadata = PublishedMetadata()
    api = MetadataApi(metadata.current)
    before = metadata.snapshot
    metadata.publish()
    api.add(before, 12, "PLAINTEXT", b"request", b"body")
    assert api.known == 0
    api.add(metadata.snapshot, 12, "PLAINTEXT", b"request", b"body")
    assert api.known == 1


def test_requests_and_updates_meanwhile(server: BrokerServer) -> None:
    """Each answer is of one moment: both partitions of a topic change their leader together."""
    frame = client_frame(METADATA, 12, topics=["alpha"])
    ended = False

    def change() -> None:
        for epoch in range(200):
            leader = 1 + epoch % 2
            update(server, *(Part("alpha", n, leader=leader, leader_epoch=epoch) for n in range(2)))

    def look() -> int:
        number = 0
        while not ended:
            found = set(leaders(ask(server, frame)).values())
            assert len(found) == 1
            number += 1
        return number

    with ThreadPoolExecutor(3) as threads:
        looking = [threads.submit(look) for _ in range(2)]
        try:
            threads.submit(change).result(60)
        finally:
            ended = True
        assert all(one.result(60) > 0 for one in looking)
    assert leaders(ask(server, frame)) == {("alpha", 0): 2, ("alpha", 1): 2}
