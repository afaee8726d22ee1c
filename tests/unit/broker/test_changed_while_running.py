"""Dynamic configs of a broker that runs: clients change them, and work on meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from kio.index import load_request_schema

import ctrlchan
from ctrlchan.embedded import EmbeddedCluster
from tests.acceptance.client_frames import DESCRIBE_CONFIGS, client_response, describe_configs_frame
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange
from tests.unit.broker.local_broker import client_frame, read_client_response

OWN, ALL = "1", ""
BROKER, INCREMENTAL_ALTER_CONFIGS = 4, 44
SET, DELETE = 0, 1


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1, log_dir=ctrlchan.TEMPORARY) as one:
        one.create_topic("changed", 1)
        yield one


def ask(cluster: EmbeddedCluster, frame: bytes) -> bytes:
    return exchange("127.0.0.1", cluster.brokers[0].endpoints[0].port, frame)


def change(cluster: EmbeddedCluster, name: str, **configs: str | None) -> str | None:
    """Set configs of a broker, or of all; remove those that are None. Return why not, or None."""
    schema: Any = load_request_schema(INCREMENTAL_ALTER_CONFIGS, 1)
    parts = sys.modules[schema.__module__]
    changes = tuple(
        parts.AlterableConfig(
            name=key.replace("_", "."), config_operation=DELETE if value is None else SET, value=value
        )
        for key, value in configs.items()
    )
    resource = parts.AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=changes)
    frame = client_frame(INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,), validate_only=False)
    (result,) = read_client_response(INCREMENTAL_ALTER_CONFIGS, 1, ask(cluster, frame)).responses
    return str(result.error_message) if result.error_code else None


def described(cluster: EmbeddedCluster, name: str) -> str:
    frame = describe_configs_frame(4, [(BROKER, OWN)])
    configs = client_response(DESCRIBE_CONFIGS, 4, ask(cluster, frame)).results[0].configs
    return next(str(one.value) for one in configs if one.name == name)


def send(producer: Producer, size: int) -> str | None:
    """Send one record; return the name of its error, or None."""
    results: list[Any] = []
    producer.produce("changed", b"x" * size, on_delivery=lambda error, _: results.append(error))
    producer.flush(60)
    return None if results[0] is None else results[0].name()


def changed(cluster: EmbeddedCluster, name: str, **configs: str | None) -> None:
    """Change configs; numbers of threads are compared with those that the broker has seen in ZooKeeper."""
    wait_until(lambda: change(cluster, name, **configs) is None, what="the change is taken")


def test_a_client_works_while_the_broker_changes(cluster: EmbeddedCluster) -> None:
    ended, errors = threading.Event(), []

    def work() -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "log_level": 2})
        while not ended.is_set():
            errors.append(send(producer, 10))

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for threads in ("2", "1"):
            for name, more in ((OWN, "16"), (OWN, "8"), (ALL, "4")):
                changed(
                    cluster,
                    name,
                    num_io_threads=more,
                    background_threads=str(int(more) + 2),
                    num_network_threads=threads,
                    log_cleaner_threads=threads,
                    log_cleaner_backoff_ms=more,
                    producer_id_expiration_ms=f"{more}000000",
                    max_connections=f"{more}00",
                )
            changed(cluster, OWN, num_io_threads=None)
            assert described(cluster, "num.io.threads") == "4"
            changed(cluster, ALL, num_io_threads=None)
            assert described(cluster, "num.io.threads") == "8"
        count = len(errors)
        wait_until(lambda: len(errors) > count + 5, what="records are sent after the changes")
    finally:
        ended.set()
        worker.join()
    assert set(errors) == {None}


def test_defaults_of_topics_count_at_once(cluster: EmbeddedCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "log_level": 2})
    assert send(producer, 5000) is None
    assert None is change(cluster, OWN, message_max_bytes="2000")
    wait_until(lambda: send(producer, 5000) == "MSG_SIZE_TOO_LARGE", what="a record is too large")
    assert send(producer, 100) is None
    assert None is change(cluster, OWN, message_max_bytes=None)
    wait_until(lambda: send(producer, 5000) is None, what="no record is too large")


def test_changes_are_refused(cluster: EmbeddedCluster) -> None:
    for name, configs, reason in (
        ("2", {"num_io_threads": "9"}, "Unexpected broker id, expected 1, but received 2"),
        (OWN, {"num_io_threads": "100"}, "not be greater than double the current value 8"),
        (OWN, {"broker_id": "2"}, "Cannot update these configs dynamically: Set(broker.id)"),
        (ALL, {"advertised_listeners": "PLAINTEXT://a:1"}, "broker id must be specified"),
        (OWN, {"listener_name_external_ssl_key_password": "x"}, "Password encoder secret not configured"),
    ):
        assert reason in (change(cluster, name, **configs) or "it is taken")
