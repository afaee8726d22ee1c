"""What the page says of a cluster and changes in it: topics, messages, groups; also hostile ones."""

from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import confluent_kafka
import pytest

from ctrlchan.embedded.batches import partition_of
from ctrlchan.page.messages import MAX_MESSAGES
from tests.kafka.waiting import wait_until
from tests.unit.page.conftest import ClusterPage
from tests.unit.page.serving import Client, serving

SCRIPT = "<script>alert(1)</script>"
BINARY = bytes(range(256))
_NUMBERS = itertools.count()


def create(client: Client, topic: str, **more: Any) -> None:
    answer = client.post("/api/topics", {"topic": topic, **more})
    assert answer.status == 200, answer.body


def produce(client: Client, topic: str, value: Any, key: Any = None, **more: Any) -> Any:
    answer = client.post("/api/messages", {"topic": topic, "key": key, "value": value, **more})
    assert answer.status == 200, answer.body
    return answer.value


def messages(client: Client, topic: str, **query: Any) -> Any:
    answer = client.get(f"/api/messages?{urlencode({'topic': topic, **query})}")
    assert answer.status == 200, answer.body
    return answer.value


def shown(data: Any) -> bytes:
    content = base64.b64decode(data["base64"])
    assert len(content) == data["size"]
    return content


def values(answer: Any) -> list[bytes]:
    return [shown(one["value"]) for one in answer["messages"]]


def error(answer: Any) -> tuple[int, str]:
    return answer.status, answer.value["error"]


@pytest.fixture
def client(cluster_page: ClusterPage) -> Client:
    return cluster_page.client


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own, with one partition."""
    name = f"{request.node.originalname[5:50]}-{next(_NUMBERS)}"
    create(client, name, partitions=1, replicas=1)
    return name


def write(cluster_page: ClusterPage, topic: str, records: list[dict[str, Any]], **settings: Any) -> None:
    """Write records with a client of another project."""
    servers = {"bootstrap.servers": cluster_page.cluster.bootstrap_servers}
    producer = confluent_kafka.Producer({**servers, **settings})
    failed: list[Any] = []
    for one in records:
        producer.produce(topic, on_delivery=lambda problem, _: failed.append(problem), **one)
    assert producer.flush(60) == 0
    assert failed == [None] * len(records)


def test_a_topic_is_created_described_and_deleted(client: Client) -> None:
    create(client, "created", partitions=3, replicas=2, configs={"retention.ms": "60000"})
    [listed] = client.get("/api/topics?query=REATED").value["topics"]
    expected = {
        "topic": "created",
        "internal": False,
        "partitions": 3,
        "replicas": 2,
        "messages": 0,
        "size": 0,
    }
    assert listed == {**expected, "out_of_sync": 0, "offline": 0}
    produce(client, "created", {"text": "1"}, partition=2)
    described = client.get("/api/topic?topic=created").value
    assert [one["partition"] for one in described["partitions"]] == [0, 1, 2]
    assert sorted({broker for one in described["partitions"] for broker in one["replicas"]}) == [1, 2]
    assert all(one["leader"] in one["isr"] for one in described["partitions"])
    assert [(one["begin"], one["end"]) for one in described["partitions"]] == [(0, 0), (0, 0), (0, 1)]
    assert [one["size"] > 0 for one in described["partitions"]] == [False, False, True]
    assert described["configs"][0] == {"name": "retention.ms", "value": "60000", "source": "topic"}
    assert {"name": "cleanup.policy", "value": "delete", "source": "default"} in described["configs"]
    assert described["notes"] == []
    assert client.post("/api/topics/delete", {"topic": "created"}).status == 200
    assert error(client.get("/api/topic?topic=created")) == (
        404, "there is no such topic or partition: created (UNKNOWN_TOPIC_OR_PARTITION)"
    )  # fmt: skip


def test_the_brokers_settings_say_how_many(client: Client) -> None:
    create(client, "by-default")
    [listed] = client.get("/api/topics?query=by-default").value["topics"]
    assert (listed["partitions"], listed["replicas"]) == (1, 1)


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        ({"topic": SCRIPT}, 400, "the topic name has a character other than"),
        ({"topic": ""}, 400, "the topic name is empty"),
        ({"topic": "a" * 250}, 400, "the topic name has 250 bytes"),
        ({"topic": 1}, 400, "topic is not a text"),
        ({"topic": "a", "partitions": 0}, 400, "partitions: it is not a whole number from 1 to"),
        ({"topic": "a", "partitions": True}, 400, "partitions: it is not a whole number"),
        ({"topic": "a", "partitions": 1.5}, 400, "partitions: it is not a whole number"),
        ({"topic": "a", "replicas": 3}, 400, "this number of replicas is not possible"),
        ({"topic": "a", "replicas": 2**31}, 400, "replicas: it is not a whole number"),
        ({"topic": "a", "configs": {"retention.ms": SCRIPT}}, 400, "a config is not valid"),
        ({"topic": "a", "configs": {SCRIPT: "1"}}, 400, "a config is not valid"),
        ({"topic": "a", "configs": {"retention.ms": 1}}, 400, "retention.ms is not a text"),
        ({"topic": "a", "configs": []}, 200, ""),
        ({"topic": "a", "configs": [1]}, 400, "configs is not an object"),
        ({"topic": "a"}, 409, "there is already a topic of this name"),
    ],
    ids=str,
)
def test_creations_that_fail_say_why(client: Client, change: Any, status: int, text: str) -> None:
    answer = client.post("/api/topics", change)
    assert answer.status == status
    if text:
        assert answer.value["error"].startswith(text)


def test_a_message_comes_back(client: Client, topic: str) -> None:
    before = time.time_ns() // 1_000_000
    headers = [
        {"name": "h", "value": {"hex": "00 FF"}},
        {"name": "h", "value": None},
        {"name": SCRIPT, "value": {"text": ""}},
    ]
    written = produce(client, topic, {"text": '{"a": 1}\n\u20ac'}, {"hex": BINARY.hex()}, headers=headers)
    assert (written["partition"], written["offset"]) == (0, 0)
    answer = messages(client, topic)
    [one] = answer["messages"]
    assert (one["partition"], one["offset"], one["timestamp_type"]) == (0, 0, "CreateTime")
    assert before <= one["timestamp"] == written["timestamp"]
    assert shown(one["key"]) == BINARY
    assert shown(one["value"]) == '{"a": 1}\n€'.encode()
    assert [(shown(name), value and shown(value)) for name, value in one["headers"]] == [
        (b"h", b"\0\xff"), (b"h", None), (SCRIPT.encode(), b"")
    ]  # fmt: skip
    assert (answer["more"], answer["empty"], answer["notes"]) == (False, False, [])


def test_null_and_empty_are_different(client: Client, topic: str) -> None:
    produce(client, topic, None)
    produce(client, topic, {"text": ""}, {"text": ""})
    first, second = messages(client, topic)["messages"]
    assert (first["key"], first["value"]) == (None, None)
    assert second["key"] == second["value"] == {"size": 0, "base64": ""}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_of_other_clients_are_read(cluster_page: ClusterPage, topic: str, codec: str) -> None:
    records: list[dict[str, Any]] = [
        {"value": b"%d" % number * 50, "key": b"k", "headers": [("n", b"%d" % number)]}
        for number in range(300)
    ]
    write(cluster_page, topic, records, **{"compression.type": codec, "linger.ms": 100})
    answer = messages(cluster_page.client, topic, limit=MAX_MESSAGES)
    assert values(answer) == [one["value"] for one in records]
    assert {one["compression"] for one in answer["messages"]} == {codec}
    assert [shown(one["headers"][0][1]) for one in answer["messages"]] == [b"%d" % n for n in range(300)]


def test_pages_of_messages_have_each_once(cluster_page: ClusterPage) -> None:
    client = cluster_page.client
    create(client, "pages", partitions=4, replicas=2)
    write(cluster_page, "pages", [{"value": b"%d" % n, "partition": n % 4} for n in range(100)])
    found: list[tuple[int, int]] = []
    positions = ""
    while True:
        answer = messages(client, "pages", **{"from": "oldest"}, limit=7, positions=positions)
        assert len(answer["messages"]) <= 7
        found += [(one["partition"], one["offset"]) for one in answer["messages"]]
        positions = answer["positions"]
        if not answer["more"]:
            break
    assert sorted(found) == [(partition, offset) for partition in range(4) for offset in range(25)]


def test_the_newest_messages_come_last(cluster_page: ClusterPage, topic: str) -> None:
    write(cluster_page, topic, [{"value": b"%d" % n, "timestamp": 1_000 + n} for n in range(30)])
    answer = messages(cluster_page.client, topic, limit=3)
    assert (values(answer), answer["more"]) == ([b"27", b"28", b"29"], True)
    assert messages(cluster_page.client, topic, limit=30)["more"] is False


def test_messages_from_an_offset_or_a_time(cluster_page: ClusterPage, topic: str) -> None:
    write(cluster_page, topic, [{"value": b"%d" % n, "timestamp": 1_000 + n} for n in range(30)])
    for query, first in (
        ({"from": "offset", "at": 28}, [b"28", b"29"]),
        ({"from": "offset", "at": 30}, []),
        ({"from": "offset", "at": 2**63 - 1}, []),
        ({"from": "time", "at": 1_028}, [b"28", b"29"]),
        ({"from": "time", "at": 5_000}, []),
        ({"from": "oldest", "limit": 2}, [b"0", b"1"]),
        ({"from": "oldest", "limit": 2, "partition": 0}, [b"0", b"1"]),
    ):
        assert values(messages(cluster_page.client, topic, **query)) == first, query


def test_a_large_value_is_cut_with_a_sign(client: Client, topic: str) -> None:
    value = "x" * 500_000
    many = [{"name": "n" * 5_000, "value": {"text": "y" * 5_000}}] * 40
    produce(client, topic, {"text": value}, {"text": "x" * 100_000}, headers=many)
    answer = client.get(f"/api/messages?topic={topic}")
    assert len(answer.body) < 100_000
    [one] = answer.value["messages"]
    assert (one["value"]["size"], one["key"]["size"]) == (500_000, 100_000)
    assert base64.b64decode(one["value"]["base64"]) == b"x" * 2_048
    assert one["headers"][0][1]["size"] == 5_000
    assert (len(one["headers"]), one["more_headers"]) == (30, 10)
    alone = client.get(f"/api/message?topic={topic}&partition=0&offset=0").value
    assert base64.b64decode(alone["value"]["base64"]) == b"x" * 2**18
    assert base64.b64decode(alone["headers"][0][1]["base64"]) == b"y" * 4_096


def test_an_answer_has_a_bounded_number_of_messages(cluster_page: ClusterPage, topic: str) -> None:
    write(cluster_page, topic, [{"value": b"v"}] * (MAX_MESSAGES + 1))
    answer = messages(cluster_page.client, topic, limit=MAX_MESSAGES)
    assert (len(answer["messages"]), answer["more"]) == (MAX_MESSAGES, True)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", "topic is missing"),
        ("topic=a&topic=b", "a parameter is given twice"),
        ("topic", "the query of the URL is not one"),
        ("topic=%ff", "the query of the URL is not one"),
        ("topic=a&limit=0", "limit: '0' is not a whole number from 1 to 500"),
        ("topic=a&limit=501", "limit: '501' is not"),
        ("topic=a&limit=1e3", "limit: '1e3' is not"),
        ("topic=a&partition=-1", "partition: '-1' is not"),
        ("topic=a&from=evil", "from is 'evil', not one of newest, oldest, offset, time"),
        ("topic=a&from=offset", "at is missing"),
        ("topic=a&from=time&at=9223372036854775808", "at: '9223372036854775808' is not"),
        ("topic=a&positions=0", "offset is missing"),
        ("topic=a&positions=0:1:2", "offset: '1:2' is not"),
        ("topic=..", "the topic name is '.' or '..'"),
        (f"topic={'%3C'}", "the topic name has a character"),
        ("topic=a&" + "&".join(f"p{n}=1" for n in range(30)), "the query of the URL is not one"),
    ],
)
def test_wrong_questions_say_what_is_wrong(client: Client, query: str, text: str) -> None:
    status, found = error(client.get(f"/api/messages?{query}"))
    assert status == 400
    assert found.startswith(text)


def test_what_does_not_exist_is_not_created(client: Client, topic: str) -> None:
    before = client.get("/api/topics?internal=yes").value["total"]
    for path in (
        "/api/topic?topic=absent",
        "/api/messages?topic=absent",
        "/api/message?topic=absent&partition=0&offset=0",
        f"/api/messages?topic={topic}&partition=1",
        f"/api/message?topic={topic}&partition=0&offset=0",
        f"/api/message?topic={topic}&partition=1&offset=0",
    ):
        assert client.get(path).status == 404, path
    assert client.post("/api/messages", {"topic": "absent", "value": {"text": "1"}}).status == 404
    assert client.post("/api/messages", {"topic": topic, "partition": 1}).status == 404
    assert client.post("/api/topics/delete", {"topic": "absent"}).status == 404
    assert client.get("/api/topics?internal=yes").value["total"] == before


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"value": {"hex": "0"}}, "value is no hex"),
        ({"value": {"hex": "zz"}}, "value is no hex"),
        ({"value": {"base64": "AA=="}}, "value is neither null nor"),
        ({"value": "text"}, "value is neither null nor"),
        ({"value": {"text": "\ud800"}}, "value has half of a surrogate pair"),
        ({"key": {"text": 1}}, "key is neither null nor"),
        ({"headers": {}}, ""),
        ({"headers": "h"}, "headers is not a list of objects"),
        ({"headers": [{"value": None}]}, "name is missing"),
        ({"headers": [{"name": "h"}] * 101}, "headers: 101 are more than 100"),
        ({"partition": "x"}, "partition: 'x' is not"),
        ({"value": {"text": "x" * 1_100_000}}, "the message is larger than the topic's max.message.bytes"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_messages_that_cannot_be_written_say_why(client: Client, topic: str, message: Any, text: str) -> None:
    answer = client.post("/api/messages", {"topic": topic, **message})
    if text:
        assert answer.status == 400
        assert answer.value["error"].startswith(text)
    else:
        assert answer.status == 200


@pytest.mark.parametrize("code", ["UNKNOWN_TOPIC_OR_PARTITION", "NOT_LEADER_OR_FOLLOWER"])
def test_a_leader_that_has_not_heard_of_its_topic_is_asked_again(
    cluster_page: ClusterPage, topic: str, code: str
) -> None:
    client, cluster = cluster_page.client, cluster_page.cluster
    (partition,) = client.get(f"/api/topic?topic={topic}").value["partitions"]
    cluster.broker(partition["leader"]).fail("Produce", topic, error=code, times=2)
    produce(client, topic, {"text": "1"})
    assert values(messages(client, topic)) == [b"1"]


def test_a_key_has_the_partition_of_kafkas_producer(cluster_page: ClusterPage) -> None:
    client = cluster_page.client
    create(client, "keys", partitions=20, replicas=1)
    keys = [BINARY[:size] for size in (*range(1, 12), 256)] + ["€".encode(), b"customer-17"]
    write(cluster_page, "keys", [{"key": key} for key in keys], partitioner="murmur2")
    found = messages(client, "keys")["messages"]
    assert {shown(one["key"]): one["partition"] for one in found} == {
        key: partition_of(key, 20) for key in keys
    }
    written = produce(client, "keys", None, {"text": "customer-17"})
    assert written["partition"] == partition_of(b"customer-17", 20)
    assert produce(client, "keys", {"text": "1"})["partition"] in range(20)


@pytest.fixture
def group(cluster_page: ClusterPage, topic: str) -> Iterator[str]:
    """A group with a name that must be escaped, one member, and 3 of 10 records committed."""
    write(cluster_page, topic, [{"value": b"%d" % n} for n in range(10)])
    name = f"{SCRIPT}/{topic}"
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster_page.cluster.bootstrap_servers,
            "group.id": name,
            "client.id": SCRIPT,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        for _ in range(3):
            wait_until(lambda: consumer.poll(1.0), what="a record is consumed")
        partition = confluent_kafka.TopicPartition(topic, 0, 3, metadata=SCRIPT)
        consumer.commit(offsets=[partition], asynchronous=False)
        yield name
    finally:
        consumer.close()


def test_a_group_has_members_and_lag(client: Client, group: str, topic: str) -> None:
    listed = client.get(f"/api/groups?{urlencode({'query': topic.upper()})}").value
    assert listed == {
        "total": 1,
        "groups": [{"group": group, "state": "Stable", "members": 1, "topics": [topic], "lag": 7}],
        "notes": [],
    }
    described = client.get(f"/api/group?{urlencode({'group': group})}").value
    # confluent-kafka 2.16 commits a final NUL.
    described["offsets"][0]["metadata"] = described["offsets"][0]["metadata"].removesuffix("\0")
    assert (described["state"], described["assignor"]) == ("Stable", "range")
    [member] = described["members"]
    assert (member["client_id"], member["host"]) == (SCRIPT, "127.0.0.1")
    assert member["assignment"] == {topic: [0]}
    assert described["offsets"] == [
        {
            "topic": topic,
            "partition": 0,
            "committed": 3,
            "end": 10,
            "lag": 7,
            "member": member["member_id"],
            "metadata": SCRIPT,
        }
    ]


def test_a_group_that_does_not_exist(client: Client) -> None:
    status, text = error(client.get("/api/group?group=absent"))
    assert (status, "no broker has a group of this id" in text) == (404, True)


def test_a_cluster_that_is_down_is_an_error_in_plain_words(cluster_page: ClusterPage) -> None:
    with serving(lambda: [("127.0.0.1", 1)]) as client:
        status, text = error(client.get("/api/topics"))
        assert (status, "broker 127.0.0.1:1: Connection refused" in text) == (504, True)
    with serving() as client:
        assert client.get("/api/topics").status == 503
    # One of several is enough.
    endpoint = cluster_page.cluster.brokers[0].endpoints[0]
    with serving(lambda: [("127.0.0.1", 1), (endpoint.host, endpoint.port)]) as client:
        assert client.get("/api/topics").status == 200


def test_a_broker_that_dies_is_said_and_the_rest_is_shown(cluster_page: ClusterPage) -> None:
    client, cluster = cluster_page.client, cluster_page.cluster
    create(client, "one-broker-dies", partitions=4, replicas=1)
    produce(client, "one-broker-dies", {"text": "0"}, partition=0)
    leaders = {
        one["partition"]: one["leader"]
        for one in client.get("/api/topic?topic=one-broker-dies").value["partitions"]
    }
    dead = next(broker for broker in (1, 2) if broker != leaders[0])
    cluster.kill_broker(dead)
    try:
        described = wait_until(
            lambda: next(
                (
                    answer
                    for answer in [client.get("/api/topic?topic=one-broker-dies").value]
                    if "partitions" in answer and None in [one["leader"] for one in answer["partitions"]]
                ),
                None,
            ),
            what="partitions without a leader are shown",
        )
        without = [one for one in described["partitions"] if one["leader"] is None]
        assert [one["partition"] for one in without] == [one for one in leaders if leaders[one] == dead]
        assert all(one["problem"].startswith("a partition has no leader now") for one in without)
        answer = messages(client, "one-broker-dies")
        assert values(answer) == [b"0"]
        assert answer["notes"][0].startswith("Partitions without a leader are left out: ")
        listed = client.get("/api/topics?query=one-broker-dies").value["topics"][0]
        assert (listed["offline"], listed["messages"]) == (2, None)
        lost = {"topic": "one-broker-dies", "value": None, "partition": without[0]["partition"]}
        assert error(client.post("/api/messages", lost))[0] == 503
    finally:
        cluster.start_broker(dead)
    wait_until(
        lambda: not client.get("/api/topics?query=one-broker-dies").value["topics"][0]["offline"],
        what="the partitions have leaders again",
    )


def test_every_answer_is_json_in_ascii(client: Client, topic: str) -> None:
    produce(client, topic, {"text": "</script>€\u2028"})
    answer = client.get(f"/api/messages?topic={topic}")
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.body.isascii()
    assert json.loads(answer.body)["topic"] == topic
