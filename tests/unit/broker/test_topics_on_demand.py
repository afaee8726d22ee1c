"""Topics that Metadata create in an EmbeddedCluster, and those that are not created."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ctrlchan import TEMPORARY, EmbeddedCluster
from tests.kafka.waiting import wait_until
from tests.unit.controller.server.requests import Connection, connection

METADATA = 3
NO_LEADER_YET, NAME_COLLIDES, TOO_MANY_REPLICAS, UNKNOWN = 5, 17, 38, 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, log_dir=TEMPORARY, configs={"offsets.topic.replication.factor": "2"}) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Iterator[Connection]:
    with connection(cluster.bootstrap_servers) as client:
        yield client


def errors(client: Connection, *names: str, version: int = 12, creates: bool = True) -> dict[str, int]:
    fields = {"topics": names, "allow_auto_topic_creation": creates}
    return {one.name: int(one.error_code) for one in client.ask(METADATA, version, fields).topics}


def test_a_client_asks_again_for_a_topic_that_was_created(client: Connection) -> None:
    assert errors(client, "one.topic") == {"one.topic": NO_LEADER_YET}
    wait_until(lambda: errors(client, "one.topic", creates=False) == {"one.topic": 0}, what="it is there")
    assert errors(client, "one_topic", "other") == {"one_topic": NAME_COLLIDES, "other": NO_LEADER_YET}
    # Before version 4 a client could not say that it wants none.
    assert errors(client, "old", version=3) == {"old": NO_LEADER_YET}


def test_the_answer_says_why_a_topic_is_not_created(client: Connection) -> None:
    assert errors(client, "__consumer_offsets") == {"__consumer_offsets": TOO_MANY_REPLICAS}
    assert errors(client, "unwanted", creates=False) == {"unwanted": UNKNOWN}


def test_the_topic_of_transactions_is_created(client: Connection) -> None:
    name = "__transaction_state"
    assert errors(client, name) == {name: NO_LEADER_YET}
    wait_until(lambda: errors(client, name, creates=False) == {name: 0}, what="it is there")
