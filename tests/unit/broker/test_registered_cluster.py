"""EmbeddedCluster registered in a real ZooKeeper: epochs, a killed broker, its return, a clean end."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from ctrlchan import EmbeddedCluster
from ctrlchan.errors import ConfigError
from tests.kafka.waiting import wait_until


def registered(znodes: KazooClient) -> dict[int, int]:
    """Return the epoch of each registered broker."""
    if znodes.exists("/brokers/ids") is None:
        return {}
    ids = znodes.get_children("/brokers/ids")
    stats = {int(one): znodes.exists(f"/brokers/ids/{one}") for one in ids}
    return {one: stat.czxid for one, stat in stats.items() if stat is not None}


def test_brokers_are_registered_killed_and_started_again(zookeeper: str, znodes: KazooClient) -> None:
    znodes.create("/cluster/id", b'{"version":"1","id":"the-cluster"}', makepath=True)
    with EmbeddedCluster(2, log_dir=None, processes=2, zookeeper=zookeeper, session_timeout=1.0) as cluster:
        epochs = {broker.id: broker.epoch for broker in cluster.brokers}
        assert registered(znodes) == epochs
        assert {one["cluster_id"] for one in cluster.describe()} == {"the-cluster"}
        assert {one["id"]: one["epoch"] for one in cluster.describe()} == epochs
        port = cluster.brokers[0].endpoints[0].port
        cluster.kill_broker(1)
        assert [one["id"] for one in cluster.describe()] == [2]
        wait_until(lambda: list(registered(znodes)) == [2], what="the killed broker's session expires")
        again = cluster.start_broker(1)
        assert again == cluster.brokers[0]
        assert again.endpoints[0].port == port
        assert again.epoch > epochs[1]
        assert registered(znodes) == {1: again.epoch, 2: epochs[2]}
        with pytest.raises(KeyError):
            cluster.kill_broker(3)
    # The end of their sessions removes the registrations at once.
    assert registered(znodes) == {}


def test_a_broker_that_shares_its_process_is_not_killed(zookeeper: str) -> None:
    with (
        EmbeddedCluster(2, log_dir=None, processes=1, zookeeper=zookeeper) as cluster,
        pytest.raises(ConfigError, match="broker 2 shares its process"),
    ):
        cluster.kill_broker(2)
