"""ThrottleTimeMs of Produce and Fetch on processors: the number that the request has for its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from ctrlchan.broker.replica._partitions import Partition, PartitionTable
from ctrlchan.server.socket_server import SocketServer
from tests.kafka.waiting import wait_until
from tests.unit.broker.log.made_batches import batch
from tests.unit.broker.replica.fetching import FLEXIBLE, Asked, Fetcher, topic_id
from tests.unit.broker.replica.serving import OTHER, OURS, produce_frame, produced
from tests.unit.server._echo import ThrottlingHandler
from tests.unit.server.serving import LOCAL, Client

MS = 7
SESSIONS_SINCE = 7
NOT_LEADER_OR_FOLLOWER, FETCH_SESSION_ID_NOT_FOUND = 6, 70


class Broker(NamedTuple):
    server: SocketServer
    followed: Partition
    #: Makes another broker the leader of ``followed``.
    resign: Callable[[], None]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker that leads ``t-0``, with one record, alone, and ``t-1`` with a follower in sync."""
    table = PartitionTable(OURS)
    metadata = PublishedMetadata()
    hot = BrokerHandler([ProduceApi(table, metadata.current), FetchApi(table, metadata.current)])
    server = SocketServer([LOCAL], hot=ThrottlingHandler(hot, MS))
    hot.attach(server.threads)
    server.start()
    led = table.open("t", 0, topic_id("t"))
    led.make_leader(Log(tmp_path / "t-0", LogConfig()), 3, 0, [OURS], [OURS])
    led.append(batch([b"value"]), required_acks=1).result(30)
    log = Log(tmp_path / "t-1", LogConfig())
    followed = table.open("t", 1, topic_id("t"))
    followed.make_leader(log, 3, 0, [OURS, OTHER], [OURS, OTHER])
    yield Broker(server, followed, lambda: followed.make_follower(log, OTHER, 4, 1, (OTHER, OURS)))
    server.stop()
    table.close()


def milliseconds(response: Any) -> float:
    return float(response.throttle_time.total_seconds() * 1_000)


@pytest.mark.parametrize("version", range(3, 12))
def test_produce(broker: Broker, version: int) -> None:
    with Client(broker.server) as client:
        client.frames(produce_frame(version, [("t", [(0, batch([b"value"]))])]))
        response = produced(version, client.answer())
    [part] = response.responses[0].partition_responses
    assert int(part.error_code) == 0
    assert milliseconds(response) == MS


@pytest.mark.parametrize("version", range(3, 12))
def test_a_parked_produce_whose_leader_changes(broker: Broker, version: int) -> None:
    """From version 10 on the answer ends with tagged fields."""
    with Client(broker.server) as client:
        client.frames(produce_frame(version, [("t", [(1, batch([b"value"]))])]))
        wait_until(lambda: broker.followed.watchers == 1, what="the request is parked")
        broker.resign()
        response = produced(version, client.answer())
    [part] = response.responses[0].partition_responses
    assert int(part.error_code) == NOT_LEADER_OR_FOLLOWER
    assert milliseconds(response) == MS


@pytest.mark.parametrize("version", range(4, 18))
@pytest.mark.parametrize("session", [0, 5])
def test_fetch(broker: Broker, version: int, session: int) -> None:
    """Also the answer about a session that does not exist, which has no partitions."""
    fields: dict[str, Any] = {"session": session, "epoch": 1} if session else {}
    with Fetcher(broker.server, version) as fetcher:
        fetcher.client.frames(fetcher.frame(Asked("t"), **fields))
        frame = fetcher.client.answer()
        answer = fetcher.read(frame)
    if session and version >= SESSIONS_SINCE:
        assert (answer.error, answer.partitions) == (FETCH_SESSION_ID_NOT_FOUND, {})
    else:
        [one] = answer.partitions.values()
        assert one.batches
    schema: Any = import_module(f"kio.schema.fetch.v{version}.response")
    response, _ = entity_reader(schema.FetchResponse)(frame, 5 if version >= FLEXIBLE else 4)
    assert milliseconds(response) == MS
