"""Connections to ZooKeeper that are cut at each step of a failover, and of the events behind it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from ctrlchan.zookeeper import paths
from tests.kafka.waiting import wait_until
from tests.kafka.zookeeper_proxy import Loss, ZooKeeperProxy
from tests.unit.controller.real_cluster import TIMEOUT, RealCluster

BROKERS = (1, 2, 3)
#: The requests before this one are the session's: ``start`` fails with them.
FIRST = 4
#: So many requests of a controller, from its first on, are lost in turn; a failover has fewer.
STEPS = 70


class Cut:
    """A plan of a proxy: the request with this number is lost, or its answer."""

    def __init__(self, number: int, loss: Loss) -> None:
        self._left = number
        self._loss = loss
        self._lock = threading.Lock()
        self.done = False

    def __call__(self, _opcode: int) -> Loss | None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self.done = True
                return self._loss
            return None


@pytest.fixture
def proxy(cluster: RealCluster) -> Iterator[ZooKeeperProxy]:
    """A proxy that the controllers of the cluster connect through."""
    address, slash, chroot = cluster.zookeeper.partition("/")
    with ZooKeeperProxy(int(address.rpartition(":")[2])) as proxy:
        cluster.zookeeper = f"{proxy.address}{slash}{chroot}"
        yield proxy
        for controller in cluster.controllers:
            controller.close()


def prepare(cluster: RealCluster, number: int) -> None:
    """Leave work for the next controller: a topic to create, one to delete, an election, a reassignment."""
    cluster.create_topic(f"new-{number}", {0: [1, 2, 3], 1: [2, 3, 1]})
    if number:
        cluster.delete_topic(f"new-{number - 1}")
    entry = {"topic": "t", "partition": 0}
    elected = json.dumps({"version": 1, "partitions": [entry]}).encode()
    cluster.znodes.create(paths.PREFERRED_REPLICA_ELECTION, elected, makepath=True)
    target = [1, 2] if number % 2 else [2, 3]
    reassigned = json.dumps({"version": 1, "partitions": [entry | {"partition": 1, "replicas": target}]})
    cluster.znodes.create(paths.REASSIGN_PARTITIONS, reassigned.encode(), makepath=True)


def check(cluster: RealCluster, number: int) -> None:
    """Wait until the work is done, and ZooKeeper and all brokers agree."""
    cluster.wait_seen(f"new-{number}", {0: 1, 1: 2})
    for partition, leader in ((0, 1), (1, 2)):
        node = cluster.state_node(f"new-{number}", partition)
        assert node is not None
        assert (node.leader, node.leader_epoch) == (leader, 0)
    for broker_id in BROKERS:
        cluster.wait_hosted(broker_id, f"new-{number}", {0: 1, 1: 2})
    done = (paths.PREFERRED_REPLICA_ELECTION,) + ((paths.topic(f"new-{number - 1}"),) if number else ())
    for path in done:
        wait_until(lambda path=path: cluster.znodes.exists(path) is None, what=f"{path} is deleted")  # type: ignore[misc]


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("loss", Loss)
def test_a_connection_cut_at_each_step_of_a_failover(
    cluster: RealCluster, proxy: ZooKeeperProxy, loss: Loss, every: int
) -> None:
    cluster.start_brokers(*BROKERS)
    cluster.create_topic("t", {0: [1, 2, 3], 1: [1, 2, 3]})
    first = cluster.active_controller()
    cluster.wait_seen("t", {0: 1, 1: 1})
    first.close()
    epoch = 1
    for number, step in enumerate(range(FIRST, FIRST + STEPS, every)):
        prepare(cluster, number)
        cut = Cut(step, loss)
        proxy.plan = cut
        controller = cluster.active_controller(1000)
        check(cluster, number)
        # Embedded brokers do not replicate: a reassignment to another broker would not end.
        if cluster.znodes.exists(paths.REASSIGN_PARTITIONS):
            cluster.znodes.delete(paths.REASSIGN_PARTITIONS)
        found = controller.epoch
        assert found is not None
        # A cut connection costs no term, as long as the session lives.
        assert found == epoch + 1, f"request {step}: the term ended"
        epoch = found
        controller.close()
        wait_until(
            lambda: cluster.znodes.exists(paths.CONTROLLER) is None, timeout=TIMEOUT, what="the session ended"
        )
        if not cut.done:
            break
    else:
        pytest.fail("the failover has more requests than were cut")
    assert step > FIRST + 20
