"""One cluster for all tests that leave it as they find it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.controller.cluster import ControlledCluster, controlled_cluster
from tests.acceptance.controller.tools import KafkaTools

#: A throttled follower copies one piece of this many bytes in ten seconds.
FETCH_BYTES = 65536


@pytest.fixture(scope="package")
def shared_cluster(
    kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlledCluster]:
    """Three brokers and a controller of the package; brokers that a test kills it starts again."""
    properties = {"replica.fetch.max.bytes": str(FETCH_BYTES)}
    with controlled_cluster(tmp_path_factory.mktemp("controlled"), properties=properties) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared_cluster: ControlledCluster) -> ControlledCluster:
    """The shared cluster, complete again even after a test that failed."""
    shared_cluster.restore()
    return shared_cluster


@pytest.fixture(scope="package")
def tools(
    shared_cluster: ControlledCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaTools]:
    """Kafka's tools, for the shared cluster."""
    with KafkaTools(tmp_path_factory.mktemp("tools"), shared_cluster.rig.bootstrap) as tools:
        yield tools
