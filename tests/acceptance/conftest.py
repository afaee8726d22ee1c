"""One rig and one controller for all acceptance tests of a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.acceptance.children import Children
from tests.acceptance.either_cluster import CLUSTERS, EitherCluster, either_cluster
from tests.acceptance.inherited import Inherited, leave_behind
from tests.acceptance.recordings import RealRecordings
from tests.acceptance.zk_controller import ZkController, refused
from tests.acceptance.znodes import ControllerZnodes, TakeOver
from tests.kafka.fixtures import kafka, kafka_jars_ready, pytest_runtest_makereport
from tests.kafka.rig import KafkaRig

__all__ = [
    "kafka",
    "kafka_jars_ready",
    "pytest_runtest_makereport",
]

CONTROLLER_ID = 1000  # no broker's id


@pytest.fixture(scope="session")
def znodes(kafka: KafkaRig) -> Iterator[ControllerZnodes]:
    """The controller's ZooKeeper session; it has not taken over yet."""
    client = KazooClient(hosts=kafka.zookeeper_connect, timeout=30.0)
    client.start(timeout=30)
    yield ControllerZnodes(client, CONTROLLER_ID)
    client.stop()
    client.close()


@pytest.fixture(scope="session")
def inherited(kafka: KafkaRig) -> Inherited:
    """The state that the rig's JVM controller leaves to its successor."""
    return leave_behind(kafka)


@pytest.fixture(scope="session")
def take_over(kafka: KafkaRig, znodes: ControllerZnodes, inherited: Inherited) -> TakeOver:
    """The election that replaces the rig's JVM controller."""
    return znodes.take_over()


@pytest.fixture(scope="session")
def controller(kafka: KafkaRig, znodes: ControllerZnodes, take_over: TakeOver) -> Iterator[ZkController]:
    """The rig's controller from the take-over to the end of the session."""
    with ZkController(kafka, znodes) as controller:
        controller.fail_over()
        # Before the first consumer looks for its coordinator: a broker would write an assignment of its own.
        assert refused(controller.create_topic("__consumer_offsets", {0: [2, 3, 1]})) == []
        yield controller


@pytest.fixture(scope="session")
def recordings(kafka: KafkaRig, znodes: ControllerZnodes, take_over: TakeOver) -> RealRecordings:
    """The answers of the real broker 1 in each scenario; each is recorded once."""
    return RealRecordings(kafka, znodes)


@pytest.fixture(scope="module", params=CLUSTERS)
def either(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EitherCluster]:
    """Three brokers that store records: an EmbeddedCluster, and real Kafka for the same tests again."""
    with either_cluster(request.param, tmp_path_factory.mktemp("either")) as cluster:
        yield cluster


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Children]:
    """Processes that end with the test; their outputs are in its folder."""
    children = Children(tmp_path)
    yield children
    children.close()
