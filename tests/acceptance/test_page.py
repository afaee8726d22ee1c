"""The page shows real Kafka as it shows our brokers."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer

from ctrlchan.state.brokers import parse_host_port
from tests.acceptance.either_cluster import REAL, EitherCluster, either_cluster
from tests.kafka.waiting import wait_until
from tests.unit.page.serving import Client, serving


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EitherCluster]:
    with either_cluster(REAL, tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster: EitherCluster) -> Iterator[Client]:
    addresses = [parse_host_port(one) for one in cluster.bootstrap.split(",")]
    with serving(lambda: addresses) as client:
        yield client


def test_topics_messages_and_groups_of_real_kafka(cluster: EitherCluster, client: Client) -> None:
    wanted = {"topic": "a", "partitions": 2, "replicas": 3, "configs": {"retention.ms": "60000"}}
    assert client.post("/api/topics", wanted).value == {"topic": "a"}
    cluster.wait_until_whole("a", 2)
    for number in range(3):
        message = {"topic": "a", "partition": 1, "value": {"text": str(number)}, "key": {"hex": "00"}}
        written = client.post("/api/messages", message).value
        assert (written["partition"], written["offset"]) == (1, number)
    [listed] = client.get("/api/topics?query=a").value["topics"]
    assert listed["size"] > 0
    assert [listed[name] for name in ("partitions", "replicas", "out_of_sync", "messages")] == [2, 3, 0, 3]
    described = client.get("/api/topic?topic=a").value
    assert described["configs"][0] == {"name": "retention.ms", "value": "60000", "source": "topic"}
    assert [sorted(one["isr"]) for one in described["partitions"]] == [[1, 2, 3], [1, 2, 3]]
    assert described["notes"] == []
    messages = client.get("/api/messages?topic=a&from=offset&at=1&partition=1").value["messages"]
    assert [base64.b64decode(one["value"]["base64"]) for one in messages] == [b"1", b"2"]
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe(["a"])
        wait_until(lambda: consumer.poll(1.0), what="a record is consumed")
        consumer.commit(asynchronous=False)
        group = client.get("/api/group?group=g").value
        assert [one["assignment"] for one in group["members"]] == [{"a": [0, 1]}]
        assert sum(one["lag"] or 0 for one in group["offsets"]) == 2
        assert [one["group"] for one in client.get("/api/groups").value["groups"]] == ["g"]
    finally:
        consumer.close()
    assert client.post("/api/topics/delete", {"topic": "a"}).status == 200
    wait_until(lambda: client.get("/api/topic?topic=a").status == 404, what="the topic is deleted")
