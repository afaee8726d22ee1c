"""Each watch of a controller outlives a lost connection to ZooKeeper within its session."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from ctrlchan.state import Endpoint, SecurityProtocol
from ctrlchan.zookeeper import nodes, paths
from tests.fault.proxy import Proxy
from tests.kafka.waiting import wait_until
from tests.unit.controller.manual_controller import read_json, set_config
from tests.unit.controller.real_cluster import TIMEOUT, RealCluster
from tests.unit.zookeeper.sessions import away


@pytest.fixture
def watched(zookeeper: str, znodes: KazooClient) -> Iterator[tuple[RealCluster, Proxy]]:
    """Three brokers and a topic; the controller reaches ZooKeeper through a proxy."""
    address, _, chroot = zookeeper.partition("/")
    with (
        Proxy(int(address.rpartition(":")[2])) as proxy,
        RealCluster(f"127.0.0.1:{proxy.port}/{chroot}", znodes) as cluster,
    ):
        cluster.start_brokers(1, 2, 3)
        # Below 2.7-IV2 leaders write ISRs themselves, and the controller watches the nodes.
        cluster.active_controller(zookeeper_session_timeout=30.0, ibp="2.6")
        cluster.create_topic("t", {0: [1, 2], 1: [2, 1]})
        cluster.wait_seen("t", {0: 1, 1: 2})
        yield cluster, proxy


@pytest.mark.parametrize("when", ["while it is away", "when it is back"])
def test_changes_around_a_lost_connection_are_found(watched: tuple[RealCluster, Proxy], when: str) -> None:
    cluster, proxy = watched
    (controller,) = cluster.controllers
    znodes = cluster.znodes

    def change(*changes: Callable[[], object]) -> None:
        while_away = when == "while it is away"
        with away(proxy, controller.session):
            for one in changes if while_away else ():
                one()
        for one in () if while_away else changes:
            one()

    def gone(path: str) -> None:
        wait_until(lambda: znodes.exists(path) is None, timeout=TIMEOUT, what=f"{path} is deleted")

    def processed(parent: str) -> None:
        wait_until(lambda: znodes.get_children(parent) == [], timeout=TIMEOUT, what=f"{parent} is empty")

    def request(path: str, **row: object) -> None:
        data = json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0} | row]})
        znodes.create(path, data.encode(), makepath=True)

    def notify(path: str, **data: object) -> None:
        znodes.create(path, json.dumps({"version": 1} | data).encode(), sequence=True, makepath=True)

    # /brokers/topics, and the node of a topic
    change(lambda: cluster.create_topic("new", {0: [3, 1]}))
    cluster.wait_state("new", 0, leader=3)
    change(lambda: cluster.set_assignment("new", {0: [3, 1], 1: [3]}))
    cluster.wait_state("new", 1, leader=3)
    # /brokers/ids, and the node of a broker
    broker = cluster.brokers[2].broker
    more = Endpoint("OTHER", SecurityProtocol.PLAINTEXT, "localhost", 1)
    changed = dataclasses.replace(broker, endpoints=(*broker.endpoints, more))
    change(lambda: cluster.set_registration(changed))
    wait_until(
        lambda: len(cluster.live_brokers(1)[2].endpoints) == 2, timeout=TIMEOUT, what="the changed endpoints"
    )
    change(lambda: cluster.unregister(1))
    cluster.wait_state("t", 0, leader=2, isr=[2])
    cluster.register(1)
    wait_until(lambda: 1 in cluster.live_brokers(2), timeout=TIMEOUT, what="broker 1 is back")
    # /admin/preferred_replica_election
    change(lambda: request(paths.PREFERRED_REPLICA_ELECTION))
    gone(paths.PREFERRED_REPLICA_ELECTION)
    # /admin/reassign_partitions, and the state of a partition that is reassigned
    change(lambda: request(paths.REASSIGN_PARTITIONS, replicas=[3, 2]))
    wait_until(
        lambda: read_json(znodes, paths.topic("t"))["adding_replicas"] == {"0": [3]},
        timeout=TIMEOUT,
        what="the reassignment has begun",
    )
    wait_until(lambda: 0 in cluster.hosted(3, "t"), timeout=TIMEOUT, what="the new replica is there")
    started = cluster.wait_state("t", 0, isr=[2])
    caught_up = nodes.PartitionState(2, started.leader_epoch, started.controller_epoch, [2, 3])
    change(lambda: znodes.set(paths.partition_state("t", 0), nodes.encode_partition_state(caught_up)))
    gone(paths.REASSIGN_PARTITIONS)
    # /isr_change_notification, /log_dir_event_notification
    change(
        lambda: notify(paths.isr_change_notification(), partitions=[{"topic": "t", "partition": 1}]),
        lambda: notify(paths.log_dir_event_notification(), broker=2, event=1),
    )
    processed(paths.ISR_CHANGE_NOTIFICATIONS)
    processed(paths.LOG_DIR_EVENT_NOTIFICATIONS)
    # /config/changes
    cluster.create_topic("unclean", {0: [3, 1]})
    cluster.wait_state("unclean", 0, leader=3)
    cluster.unregister(1)
    cluster.wait_state("unclean", 0, isr=[3])
    cluster.register(1)
    cluster.unregister(3)
    cluster.wait_state("unclean", 0, leader=-1)
    change(
        lambda: set_config(znodes, paths.topic_config("unclean"), unclean_leader_election_enable="true"),
        lambda: znodes.create(
            paths.config_change(),
            json.dumps({"version": 2, "entity_path": "topics/unclean"}).encode(),
            sequence=True,
            makepath=True,
        ),
    )
    cluster.wait_state("unclean", 0, leader=1)
    # /admin/delete_topics
    change(lambda: cluster.delete_topic("unclean"))
    cluster.register(3)
    gone(paths.topic("unclean"))
    assert controller.epoch == 1
    # /controller
    change(lambda: znodes.delete(paths.CONTROLLER))
    wait_until(lambda: controller.epoch == 2, timeout=TIMEOUT, what="the controller is elected again")
