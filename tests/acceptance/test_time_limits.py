"""Time limits that are over at once, on an EmbeddedCluster and on real Kafka as the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.either_cluster import EitherCluster
from tests.kafka.waiting import wait_until
from tests.unit.controller.server.requests import Connection, connection, part, timeout

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

METADATA, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, ELECT_LEADERS = 3, 19, 20, 37, 43
TIMED_OUT, INVALID_TOPIC, UNKNOWN_TOPIC = 7, 17, 3
#: Milliseconds. Nothing is complete after one.
LIMITS = (1, 0, -1, -(2**31))


@pytest.fixture
def controller(either: EitherCluster) -> Iterator[Connection]:
    """A connection to the broker that clients see as the controller."""
    with connection(controller_address(either.bootstrap.split(",")[0])) as client:
        yield client


def controller_address(broker: str) -> str:
    with connection(broker) as client:
        cluster = client.ask(METADATA, 12, {"topics": ()})
    (found,) = (
        f"{node.host}:{node.port}" for node in cluster.brokers if node.node_id == cluster.controller_id
    )
    return found


def partitions(controller: Connection, topic: str) -> dict[int, int]:
    """Return the leader of each partition, nothing: there is no such topic."""
    (found,) = controller.ask(METADATA, 12, {"topics": (topic,)}).topics
    return {one.partition_index: one.leader_id for one in found.partitions}


@pytest.mark.parametrize("limit", LIMITS)
def test_topics_are_created_grow_and_go_after_the_answer(controller: Connection, limit: int) -> None:
    fields: dict[str, Any] = {"timeout": timeout(limit / 1000), "validate_only": False}
    name = f"limited{limit}"

    def new(name: str) -> Any:
        one = {"name": name, "num_partitions": 2, "replication_factor": 3, "assignments": (), "configs": ()}
        return part(CREATE_TOPICS, 7, "CreatableTopic", **one)

    answer = controller.ask(CREATE_TOPICS, 7, fields | {"topics": (new(name), new("not a topic"))})
    assert {one.name: one.error_code for one in answer.topics} == {
        name: TIMED_OUT,
        "not a topic": INVALID_TOPIC,
    }
    wait_until(lambda: len(partitions(controller, name)) == 2, what="the topic is there")
    checked = controller.ask(CREATE_TOPICS, 7, fields | {"topics": (new("checked"),), "validate_only": True})
    assert [one.error_code for one in checked.topics] == [0]

    grown = part(CREATE_PARTITIONS, 3, "CreatePartitionsTopic", name=name, count=3, assignments=None)
    answer = controller.ask(CREATE_PARTITIONS, 3, fields | {"topics": (grown,)})
    assert [one.error_code for one in answer.results] == [TIMED_OUT]
    wait_until(lambda: len(partitions(controller, name)) == 3, what="the topic has grown")

    gone = [
        part(DELETE_TOPICS, 6, "DeleteTopicState", name=one, topic_id=None) for one in (name, "no-such-topic")
    ]
    answer = controller.ask(DELETE_TOPICS, 6, fields | {"topics": tuple(gone)})
    assert {one.name: one.error_code for one in answer.responses} == {
        name: TIMED_OUT,
        "no-such-topic": UNKNOWN_TOPIC,
    }
    wait_until(lambda: not partitions(controller, name), what="the topic is gone")


def test_leaders_are_elected_after_the_answer(either: EitherCluster) -> None:
    topic = either.create("elected", 6)
    address = either.bootstrap.split(",")[2]
    either.kill_broker(1)
    with connection(address) as client:
        wait_until(lambda: 1 not in partitions(client, topic).values(), what="broker 1 leads nothing")
    either.start_broker(1)
    either.wait_until_whole(topic, 6)
    fields = {"election_type": 0, "topic_partitions": None, "timeout": timeout(0)}
    with connection(controller_address(address)) as controller:
        (elected,) = controller.ask(ELECT_LEADERS, 2, fields).replica_election_results
        assert [(one.error_code, one.error_message) for one in elected.partition_result] == [
            (TIMED_OUT, None)
        ] * 2
        of_broker = {one.partition_id for one in elected.partition_result}
        wait_until(
            lambda: {p for p, leader in partitions(controller, topic).items() if leader == 1} == of_broker,
            what="broker 1 leads its partitions",
        )
        assert controller.ask(ELECT_LEADERS, 2, fields).replica_election_results == ()
