"""The pytest plugin: Kafka clusters and topics as fixtures.

    def test_orders(kafka_cluster, kafka_topic):
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka_cluster.bootstrap_servers})
        ...
        assert [record.value for record in kafka_cluster.records(kafka_topic)] == [b"1", b"2"]

Nothing of ctrlchan but this file is imported until a test asks for a fixture. With pytest-xdist each worker
process has clusters of its own, on free ports.

pytest rewrites the asserts of all modules of a package with a plugin. For this package that would take longer
than the start of a cluster, so ``_WithoutRewriting`` imports it as it is.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol

import pytest

if TYPE_CHECKING:
    from ctrlchan.embedded import EmbeddedCluster
    from ctrlchan.launch.configs import ConfigValue

__all__ = [
    "KafkaClusterFactory",
    "kafka_cluster",
    "kafka_cluster_factory",
    "kafka_cluster_of_test",
    "kafka_cluster_shared",
    "kafka_topic",
    "pytest_addoption",
    "pytest_configure",
]

#: Characters of a test's name in the name of its topic.
_NAME_LENGTH: Final = 60


class _WithoutRewriting(MetaPathFinder):
    """Finds the modules of this package, before pytest's own finder does."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module of this package, None for others."""
        return PathFinder.find_spec(name, path, target) if name.startswith("ctrlchan.") else None


sys.meta_path.insert(0, _WithoutRewriting())


class KafkaClusterFactory(Protocol):
    """What ``kafka_cluster_factory`` returns: a function that starts clusters."""

    def __call__(
        self, count: int | None = None, *, configs: Mapping[str, ConfigValue] | None = None, **arguments: Any
    ) -> EmbeddedCluster:
        """Start a cluster, which ends with the session if nothing ends it before.

        ``count``: None stands for ``kafka_brokers``. ``configs``: count before those of ``kafka_configs``.
        ``arguments``: as for ``EmbeddedCluster``.
        """


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the cluster, for the command line and for the ini file."""
    group = parser.getgroup("ctrlchan", "Kafka cluster of tests")
    group.addoption(
        "--kafka-brokers", type=int, metavar="NUMBER", help="Brokers of the fixture kafka_cluster (1)."
    )
    group.addoption(
        "--kafka-security",
        metavar="PROTOCOL",
        help="Security protocol of the fixture kafka_cluster: SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    parser.addini("kafka_security", "Security protocol of the fixture kafka_cluster.", default="")
    parser.addini(
        "kafka_users",
        "Users of the fixture kafka_cluster with security, one NAME=PASSWORD on each line.",
        type="linelist",
        default=[],
    )
    parser.addini("kafka_brokers", "Brokers of the fixture kafka_cluster.", default="1")
    parser.addini(
        "kafka_configs",
        "Settings of the brokers, one NAME=VALUE on each line, under Kafka's names.",
        type="linelist",
        default=[],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker of ``kafka_cluster_of_test``."""
    config.addinivalue_line(
        "markers", "kafka(count=None, **arguments): how the fixture kafka_cluster_of_test starts its cluster"
    )


@pytest.fixture(scope="session")
def kafka_cluster_factory(request: pytest.FixtureRequest) -> Iterator[KafkaClusterFactory]:
    """Return a function that starts clusters, for fixtures of any scope: see ``KafkaClusterFactory``."""
    from ctrlchan.embedded import EmbeddedCluster

    brokers, settings = _settings(request.config)
    with ExitStack() as clusters:

        def start(
            count: int | None = None,
            *,
            configs: Mapping[str, ConfigValue] | None = None,
            **arguments: Any,
        ) -> EmbeddedCluster:
            cluster = EmbeddedCluster(
                brokers if count is None else count, configs={**settings, **(configs or {})}, **arguments
            )
            clusters.callback(cluster.close)
            return cluster

        yield start


@pytest.fixture(scope="session")
def kafka_cluster_shared(
    request: pytest.FixtureRequest, kafka_cluster_factory: KafkaClusterFactory
) -> Iterator[EmbeddedCluster]:
    """Return the cluster that all tests of the session share. Faults of one test may reach another."""
    with kafka_cluster_factory(**_security(request.config)) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster(kafka_cluster_shared: EmbeddedCluster) -> Iterator[EmbeddedCluster]:
    """Return the cluster of the session: all its brokers live, and none has faults, when a test begins."""
    yield kafka_cluster_shared
    _restore(kafka_cluster_shared)


@pytest.fixture
def kafka_topic(request: pytest.FixtureRequest, kafka_cluster: EmbeddedCluster) -> Iterator[str]:
    """Return the name of a topic that only this test has; the topic is deleted after the test.

    It has the partitions of ``num.partitions`` and the replicas of ``default.replication.factor``.
    """
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:_NAME_LENGTH]
    topic = f"{name}-{secrets.token_hex(4)}"
    kafka_cluster.create_topic(topic)
    yield topic
    # Or the faults of the test would hit the deletion.
    _restore(kafka_cluster)
    _delete(kafka_cluster, topic)


@pytest.fixture
def kafka_cluster_of_test(
    request: pytest.FixtureRequest, kafka_cluster_factory: KafkaClusterFactory
) -> Iterator[EmbeddedCluster]:
    """Return a cluster that only this test has. ``@pytest.mark.kafka(3, configs={...})`` says which."""
    marker = request.node.get_closest_marker("kafka")
    arguments, named = ((), {}) if marker is None else (marker.args, marker.kwargs)
    with kafka_cluster_factory(*arguments, **named) as cluster:
        yield cluster


def _restore(cluster: EmbeddedCluster) -> None:
    """Start the brokers that the test has killed, and end its faults."""
    living = {described["id"] for described in cluster.describe()}
    for killed in sorted({broker.id for broker in cluster.brokers} - living):
        cluster.start_broker(killed)
    cluster.clear_faults()


def _delete(cluster: EmbeddedCluster, topic: str) -> None:
    """Delete a topic, unless the test has deleted it."""
    from ctrlchan.errors import ErrorCode, KafkaError

    try:
        cluster.delete_topics(topic)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise


def _settings(config: pytest.Config) -> tuple[int, dict[str, str]]:
    """Return the number of brokers, and their configs. Raises UsageError for a setting that is not valid."""
    brokers = config.getoption("kafka_brokers")
    if brokers is None:
        text = config.getini("kafka_brokers")
        if not text.isdigit():
            raise pytest.UsageError(f"kafka_brokers = {text}: not a number")
        brokers = int(text)
    return brokers, _pairs(config, "kafka_configs")


def _security(config: pytest.Config) -> dict[str, Any]:
    """Return the arguments that secure the cluster. Raises UsageError for users without security."""
    protocol = config.getoption("kafka_security") or config.getini("kafka_security")
    users = _pairs(config, "kafka_users")
    if not protocol:
        if users:
            raise pytest.UsageError("kafka_users: only with kafka_security")
        return {}
    return {"security": protocol, "users": users or None}


def _pairs(config: pytest.Config, setting: str) -> dict[str, str]:
    """Return the NAME=VALUE lines of a setting. Raises UsageError for another line."""
    found = {}
    for line in config.getini(setting):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{setting}: {line!r} is not NAME=VALUE")
        found[name.strip()] = value.strip()
    return found
