"""Quotas of a whole cluster: requests of clients set them, and clients are throttled."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from kio.index import load_payload_module
from kio.static.constants import EntityType
from kio.static.primitive import i32Timedelta

from ctrlchan import EmbeddedCluster
from tests.kafka.waiting import wait_until
from tests.unit.broker.local_broker import client_frame, read_client_response

METADATA, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, DESCRIBE, ALTER = 3, 19, 20, 37, 48, 49
TOPIC_ALREADY_EXISTS, INVALID_REQUEST, QUOTA_EXCEEDED = 36, 42, 89
EXACT, ANY = 0, 2
TIMEOUT = i32Timedelta.parse(timedelta(seconds=20))


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1) as started:
        yield started


def ask(cluster: EmbeddedCluster, key: int, version: int, **fields: Any) -> Any:
    """Send a request on a connection of its own, and return the response."""
    frame = client_frame(key, version, **fields)
    endpoint = cluster.brokers[0].endpoints[0]
    with (
        socket.create_connection((endpoint.host, endpoint.port), 30) as connection,
        connection.makefile("rb") as file,
    ):
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        (size,) = struct.unpack(">i", file.read(4))
        return read_client_response(key, version, file.read(size))


def part(api_key: int, version: int, kind: str, /, **fields: Any) -> Any:
    return getattr(load_payload_module(api_key, version, EntityType.request), kind)(**fields)


def alter(cluster: EmbeddedCluster, entity: dict[str, str | None], **values: float | None) -> int:
    """Set quotas of an entity, or remove them (None). Return the error."""
    entry = part(
        ALTER,
        1,
        "EntryData",
        entity=tuple(
            part(ALTER, 1, "EntityData", entity_type=kind, entity_name=name) for kind, name in entity.items()
        ),
        ops=tuple(
            part(ALTER, 1, "OpData", key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ),
    )
    response = ask(cluster, ALTER, 1, entries=(entry,), validate_only=False)
    return int(response.entries[0].error_code)


def described(
    cluster: EmbeddedCluster, kind: str
) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    component = part(DESCRIBE, 1, "ComponentData", entity_type=kind, match_type=ANY, match=None)
    response = ask(cluster, DESCRIBE, 1, components=(component,), strict=False)
    return {
        tuple((one.entity_type, one.entity_name) for one in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


def milliseconds(response: Any) -> int:
    seconds: float = response.throttle_time.total_seconds()
    return round(seconds * 1000)


def wait_for_quotas(cluster: EmbeddedCluster) -> None:
    """Wait until the broker has read the newest quotas: it follows the changes in their order."""

    def throttle_time() -> int:
        """Return for how long a client waits that nobody else is."""
        return milliseconds(ask(cluster, METADATA, 9, client_id="last", topics=()))

    assert alter(cluster, {"client-id": "last"}, request_percentage=1e-9) == 0
    assert described(cluster, "client-id")[(("client-id", "last"),)]
    wait_until(lambda: throttle_time() > 0, what="the quotas are followed")
    assert alter(cluster, {"client-id": "last"}, request_percentage=None) == 0
    wait_until(lambda: throttle_time() == 0, what="the last quota is gone")


def test_quotas_are_set_and_described(cluster: EmbeddedCluster) -> None:
    assert alter(cluster, {"user": "alice"}, producer_byte_rate=5, request_percentage=2.5) == 0
    assert alter(cluster, {"user": None, "client-id": "app"}, consumer_byte_rate=7) == 0
    assert alter(cluster, {"ip": "1.2.3.4"}, connection_creation_rate=3) == 0
    assert alter(cluster, {"user": "alice"}, connection_creation_rate=3) == INVALID_REQUEST
    found = described(cluster, "user")
    assert found[(("user", "alice"),)] == {"producer_byte_rate": 5.0, "request_percentage": 2.5}
    assert found[(("user", None), ("client-id", "app"))] == {"consumer_byte_rate": 7.0}
    assert described(cluster, "ip") == {(("ip", "1.2.3.4"),): {"connection_creation_rate": 3.0}}
    assert alter(cluster, {"user": "alice"}, producer_byte_rate=None, request_percentage=None) == 0
    assert (("user", "alice"),) not in described(cluster, "user")


def closes(cluster: EmbeddedCluster, ip: str) -> bool:
    """Return whether the broker closes a new connection from an address without an answer."""
    frame = client_frame(METADATA, 9, client_id="of an address", topics=())
    endpoint = cluster.brokers[0].endpoints[0]
    with socket.create_connection((endpoint.host, endpoint.port), 30, (ip, 0)) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        try:
            return connection.recv(1) == b""
        except ConnectionResetError:
            return True


def test_connections_of_an_address_are_closed(cluster: EmbeddedCluster) -> None:
    assert not closes(cluster, "127.0.0.2")
    assert alter(cluster, {"ip": "127.0.0.2"}, connection_creation_rate=0) == 0
    wait_until(lambda: closes(cluster, "127.0.0.2"), what="the rate of the address counts")
    assert not closes(cluster, "127.0.0.3")
    assert alter(cluster, {"ip": "127.0.0.2"}, connection_creation_rate=None) == 0
    wait_until(lambda: not closes(cluster, "127.0.0.2"), what="the address has no rate any more")


def test_a_producer_is_throttled_to_its_quota(cluster: EmbeddedCluster) -> None:
    """It sends what twelve seconds allow; the window of ten seconds lets the first ten pass."""
    cluster.create_topic("throttled", 1)
    rate = 40_000
    alter(cluster, {"client-id": "fast"}, producer_byte_rate=rate)
    wait_for_quotas(cluster)
    times: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "fast",
            "batch.size": 10_000,
            "linger.ms": 1,
            "throttle_cb": lambda event: times.append(event.throttle_time),
        }
    )
    began = time.monotonic()
    for _ in range(12 * rate // 1000):
        producer.produce("throttled", b"x" * 1000)
        producer.poll(0)
    assert producer.flush(60) == 0
    took = time.monotonic() - began
    assert took >= 1.5
    assert times
    assert max(times) > 0


def test_other_requests_are_throttled_by_the_request_quota(cluster: EmbeddedCluster) -> None:
    alter(cluster, {"client-id": None}, request_percentage=1e-9)
    wait_until(
        lambda: milliseconds(ask(cluster, METADATA, 9, topics=())) == 1000, what="the quota is followed"
    )
    alter(cluster, {"client-id": None}, request_percentage=None)
    wait_until(lambda: milliseconds(ask(cluster, METADATA, 9, topics=())) == 0, what="the quota is gone")


def create(
    cluster: EmbeddedCluster, version: int, *names: str, partitions: int = 20
) -> tuple[list[int], int]:
    """Create topics; return the error of each, and the throttle time."""
    topics = tuple(
        part(
            CREATE_TOPICS,
            version,
            "CreatableTopic",
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=(),
            configs=(),
        )
        for name in names
    )
    response = ask(cluster, CREATE_TOPICS, version, topics=topics, timeout=TIMEOUT, validate_only=False)
    assert [one.name for one in response.topics] == list(names)
    return [int(one.error_code) for one in response.topics], milliseconds(response)


def test_mutations(cluster: EmbeddedCluster) -> None:
    """The bucket has eleven seconds of mutations; a topic is created as long as it is not below zero."""
    cluster.create_topic("exists", 1)
    alter(cluster, {"user": None}, controller_mutation_rate=1)
    wait_for_quotas(cluster)
    # What fails costs nothing.
    assert create(cluster, 7, "exists", partitions=1000) == ([TOPIC_ALREADY_EXISTS], 0)
    errors, ms = create(cluster, 7, "first", "exists", "second")
    # An error of the topic itself comes first.
    assert errors == [0, TOPIC_ALREADY_EXISTS, QUOTA_EXCEEDED]
    assert 5_000 < ms <= 9_000
    older = part(CREATE_PARTITIONS, 2, "CreatePartitionsTopic", name="exists", count=2, assignments=None)
    response = ask(cluster, CREATE_PARTITIONS, 2, topics=(older,), timeout=TIMEOUT, validate_only=False)
    assert [int(one.error_code) for one in response.results] == [0]
    assert milliseconds(response) > 5_000
    strict = part(CREATE_PARTITIONS, 3, "CreatePartitionsTopic", name="exists", count=4, assignments=None)
    response = ask(cluster, CREATE_PARTITIONS, 3, topics=(strict,), timeout=TIMEOUT, validate_only=False)
    assert [int(one.error_code) for one in response.results] == [QUOTA_EXCEEDED]
    topic = part(DELETE_TOPICS, 6, "DeleteTopicState", name="first", topic_id=None)
    response = ask(cluster, DELETE_TOPICS, 6, topics=(topic,), timeout=TIMEOUT)
    assert [int(one.error_code) for one in response.responses] == [QUOTA_EXCEEDED]
    response = ask(cluster, DELETE_TOPICS, 4, topic_names=("first",), timeout=TIMEOUT)
    assert [int(one.error_code) for one in response.responses] == [0]
    assert milliseconds(response) > 20_000
    alter(cluster, {"user": None}, controller_mutation_rate=None)
    wait_for_quotas(cluster)
    assert create(cluster, 7, "second") == ([0], 0)
