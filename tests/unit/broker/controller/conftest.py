"""A controller with its nodes in memory, and two brokers that it directs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ctrlchan.broker.config.broker_config import BrokerConfig
from ctrlchan.broker.controller_client import ControllerClient
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.embedded.controller import LocalController
from ctrlchan.launch.processes import BrokerProcesses
from tests.kafka.waiting import wait_until
from tests.unit.broker.cores import node_of

ClientOf = Callable[[int], ControllerClient]


@pytest.fixture(scope="module")
def controller() -> Iterator[LocalController]:
    local = LocalController(1000)
    yield local
    local.close()


@pytest.fixture(scope="module")
def brokers(controller: LocalController) -> Iterator[BrokerProcesses]:
    configs = [BrokerConfig(id=1), BrokerConfig(id=2)]
    with BrokerProcesses(configs, processes=1, zookeeper=controller.zookeeper) as cluster:
        controller.wait_until_active()
        wait_until(
            lambda: all(one["metadata"]["live_brokers"] == [1, 2] for one in cluster.describe()),
            what="the brokers know one another",
        )
        yield cluster
        controller.stop()


@pytest.fixture
def client_of(controller: LocalController, brokers: BrokerProcesses) -> Iterator[ClientOf]:
    """Makes the client of a broker."""
    clients: list[ControllerClient] = []

    def make(broker_id: int) -> ControllerClient:
        (broker,) = (one for one in brokers.brokers if one.id == broker_id)
        node = node_of(broker_id, epoch=broker.epoch)
        clients.append(ControllerClient(node, MetadataCache(), controller.address))
        return clients[-1]

    yield make
    for client in clients:
        client.stop()
