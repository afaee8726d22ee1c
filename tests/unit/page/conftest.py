"""A cluster with a page, which the tests of this folder share; each test uses topics of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ctrlchan import TEMPORARY, EmbeddedCluster
from tests.unit.controller.local_controller import local_controller
from tests.unit.page.serving import Client, serving


@dataclass
class ClusterPage:
    """The page of a cluster with two brokers."""

    cluster: EmbeddedCluster
    client: Client


@pytest.fixture(scope="package")
def cluster_page() -> Iterator[ClusterPage]:
    """Its controller's view shows another cluster, of which every kind of table is known."""
    with EmbeddedCluster(2, log_dir=TEMPORARY) as cluster, local_controller() as controller:
        endpoints = [broker.endpoints[0] for broker in cluster.brokers]
        addresses = [(endpoint.host, endpoint.port) for endpoint in endpoints]
        with serving(lambda: addresses, controller.describe) as client:
            yield ClusterPage(cluster, client)
