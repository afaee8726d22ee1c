"""kafka-configs and a controller that is the only node of its cluster: every request meets it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from ctrlchan import ControllerConfig, KafkaController
from ctrlchan.zookeeper.client import connected
from tests.acceptance.controller.tools import KafkaTools
from tests.unit.controller.server.local_server import ID, plaintext


@pytest.fixture
def alone(kafka_jars_ready: None, zookeeper: str, tmp_path: Path) -> Iterator[KafkaTools]:
    """Kafka's tools, for a controller without brokers."""
    config = ControllerConfig(controller_id=ID, zookeeper=zookeeper, listeners=(plaintext(),))
    with KafkaController(config) as controller:
        controller.wait_until_active(30)
        (endpoint,) = controller.endpoints
        with KafkaTools(tmp_path, f"{endpoint.host}:{endpoint.port}") as tools:
            yield tools


@pytest.fixture
def client(zookeeper: str) -> Iterator[KazooClient]:
    """A client of the test's own chroot."""
    with connected(zookeeper) as client:
        yield client


def _run(tools: KafkaTools, *arguments: str) -> str:
    run = tools.configs(*arguments)
    assert run.status == 0, run
    return run.output


def test_users_clients_and_ips_have_quotas(alone: KafkaTools, client: KazooClient) -> None:
    _run(alone, "--entity-type", "users", "--describe")
    alice = ("--entity-type", "users", "--entity-name", "alice")
    app = ("--entity-type", "clients", "--entity-name", "app")
    _run(alone, *alice, "--alter", "--add-config", "producer_byte_rate=5")
    _run(alone, *alice, "--alter", "--add-config", "SCRAM-SHA-256=[password=secret]")
    _run(alone, *alice, *app, "--alter", "--add-config", "request_percentage=2.5")
    _run(alone, *app, "--alter", "--add-config", "consumer_byte_rate=7")
    _run(
        alone,
        "--entity-type",
        "ips",
        "--entity-default",
        "--alter",
        "--add-config",
        "connection_creation_rate=3",
    )
    assert sorted(json.loads(client.get("/config/users/alice")[0])["config"]) == [
        "SCRAM-SHA-256",
        "producer_byte_rate",
    ]
    described = _run(alone, "--entity-type", "users", "--describe")
    assert "Quota configs for user-principal 'alice' are producer_byte_rate=5.0" in described
    assert (
        "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=4096" in described
    )
    described = _run(alone, *alice, *app, "--describe")
    assert "user-principal 'alice', client-id 'app' are request_percentage=2.5" in described
    assert "client-id 'app' are consumer_byte_rate=7.0" in _run(
        alone, "--entity-type", "clients", "--describe"
    )
    assert "connection_creation_rate=3.0" in _run(alone, "--entity-type", "ips", "--describe")
    _run(alone, *alice, *app, "--alter", "--delete-config", "request_percentage")
    for name in ("producer_byte_rate", "SCRAM-SHA-256"):
        _run(alone, *alice, "--alter", "--delete-config", name)
    assert client.get_children("/config/users") == []


@pytest.mark.parametrize("entity", [("--entity-default",), ("--entity-name", str(ID))])
def test_brokers_have_dynamic_configs(
    alone: KafkaTools, client: KazooClient, entity: tuple[str, ...]
) -> None:
    brokers = ("--entity-type", "brokers", *entity)
    _run(alone, *brokers, "--describe")
    rate = "follower.replication.throttled.rate"
    _run(alone, *brokers, "--alter", "--add-config", f"log.cleaner.threads=2,{rate}=5")
    described = _run(alone, *brokers, "--describe")
    assert "log.cleaner.threads=2 sensitive=false" in described
    node = "<default>" if entity == ("--entity-default",) else str(ID)
    assert json.loads(client.get(f"/config/brokers/{node}")[0])["config"][rate] == "5"
    refused = alone.configs(*brokers, "--alter", "--add-config", "num.partitions=5")
    assert refused.status == 1
    assert "Cannot update these configs dynamically" in refused.output + refused.errors
    _run(alone, *brokers, "--alter", "--delete-config", f"log.cleaner.threads,{rate}")
    assert "log.cleaner.threads=2" not in _run(alone, *brokers, "--describe")
