"""The pytest plugin: fixture ``kafka_cluster`` and its options.

    def test_orders(kafka_cluster):
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
        ...
        assert [record.value for record in kafka_cluster.records("orders")] == [b"1", b"2"]

Nothing of ctrlchan but this file is imported until a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ctrlchan.embedded import EmbeddedCluster

__all__ = ["kafka_cluster", "kafka_cluster_shared", "pytest_addoption"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the cluster, for the command line and for the ini file."""
    group = parser.getgroup("ctrlchan", "Kafka cluster of tests")
    group.addoption(
        "--kafka-brokers", type=int, metavar="NUMBER", help="Brokers of the fixture kafka_cluster (1)."
    )
    parser.addini("kafka_brokers", "Brokers of the fixture kafka_cluster.", default="1")
    parser.addini(
        "kafka_configs",
        "Settings of the brokers, one NAME=VALUE on each line, under Kafka's names.",
        type="linelist",
        default=[],
    )


@pytest.fixture(scope="session")
def kafka_cluster_shared(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """Return the cluster that all tests of the session share. Faults of one test may reach another."""
    from ctrlchan.embedded import EmbeddedCluster
    from ctrlchan.launch.log_dirs import TEMPORARY

    brokers, configs = _settings(request.config)
    with EmbeddedCluster(brokers, log_dir=TEMPORARY, configs=configs) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster(kafka_cluster_shared: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    """Return the cluster of the session: all its brokers live, and none has faults, when a test begins."""
    cluster = kafka_cluster_shared
    yield cluster
    living = {described["id"] for described in cluster.describe()}
    for killed in sorted({broker.id for broker in cluster.brokers} - living):
        cluster.start_broker(killed)
    cluster.clear_faults()


def _settings(config: pytest.Config) -> tuple[int, dict[str, str]]:
    """Return the number of brokers, and their configs. Raises UsageError for a setting that is not valid."""
    brokers = config.getoption("kafka_brokers")
    if brokers is None:
        text = config.getini("kafka_brokers")
        if not text.isdigit():
            raise pytest.UsageError(f"kafka_brokers = {text}: not a number")
        brokers = int(text)
    configs = {}
    for line in config.getini("kafka_configs"):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"kafka_configs: {line!r} is not NAME=VALUE")
        configs[name.strip()] = value.strip()
    return brokers, configs
