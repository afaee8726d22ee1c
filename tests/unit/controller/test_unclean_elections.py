"""Unclean elections as brokers come and go, on a real ZooKeeper.

Twins of ``UncleanLeaderElectionTest``, and of the cases of ``ControllerIntegrationTest`` in which the whole
ISR is offline.
"""

from __future__ import annotations

import json

import pytest
from kazoo.client import KazooClient

from ctrlchan.controller.machines.states import PartitionState
from ctrlchan.protocol import NO_LEADER
from ctrlchan.zookeeper import paths
from tests.unit.controller.manual_controller import (
    ManualController,
    create_topic,
    read_json,
    register_brokers,
    set_config,
)

LEADER, FOLLOWER = 1, 2


@pytest.fixture
def cluster(znodes: KazooClient) -> KazooClient:
    """Brokers 1 and 2; topic t with one partition on both, led by 1."""
    register_brokers(znodes, LEADER, FOLLOWER)
    create_topic(znodes, "t", {0: [LEADER, FOLLOWER]})
    return znodes


def state(znodes: KazooClient) -> tuple[int, list[int], int]:
    """Return leader, ISR and recovery state of t-0."""
    node = read_json(znodes, paths.partition_state("t", 0))
    return node["leader"], node["isr"], node.get("leader_recovery_state", 0)


def leave_the_follower_alone(controller: ManualController, znodes: KazooClient) -> None:
    """Let the follower fall out of sync, then the leader die, then the follower return."""
    controller.stop_broker(znodes, FOLLOWER)
    assert state(znodes) == (LEADER, [LEADER], 0)
    controller.stop_broker(znodes, LEADER)
    assert state(znodes) == (NO_LEADER, [LEADER], 0)
    controller.start_broker(znodes, FOLLOWER)


def test_enabled(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper, unclean_leader_election=True) as controller:
        leave_the_follower_alone(controller, cluster)
        assert state(cluster) == (FOLLOWER, [FOLLOWER], 1)
        assert controller.context.unclean_elections == 1
        # The former leader follows now.
        controller.start_broker(cluster, LEADER)
        assert state(cluster) == (FOLLOWER, [FOLLOWER], 1)


def test_no_recovery_state_below_ibp_3_2(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper, ibp="3.1", unclean_leader_election=True) as controller:
        leave_the_follower_alone(controller, cluster)
        assert state(cluster) == (FOLLOWER, [FOLLOWER], 0)


def test_disabled(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        leave_the_follower_alone(controller, cluster)
        assert state(cluster) == (NO_LEADER, [LEADER], 0)
        assert controller.partitions_in(PartitionState.OFFLINE) == {("t", 0)}
        controller.start_broker(cluster, LEADER)
        assert state(cluster) == (LEADER, [LEADER], 0)
        # A clean change of leaders afterwards.
        path = paths.partition_state("t", 0)
        node = read_json(cluster, path) | {"isr": [LEADER, FOLLOWER]}
        cluster.set(path, json.dumps(node).encode())
        controller.stop_broker(cluster, LEADER)
        assert state(cluster) == (FOLLOWER, [FOLLOWER], 0)
        assert controller.context.unclean_elections == 0


@pytest.mark.parametrize("enabled", [True, False])
def test_a_topic_overrides_the_controller(cluster: KazooClient, zookeeper: str, enabled: bool) -> None:
    set_config(cluster, paths.topic_config("t"), unclean_leader_election_enable=str(enabled).lower())
    with ManualController(zookeeper, unclean_leader_election=not enabled) as controller:
        leave_the_follower_alone(controller, cluster)
        assert state(cluster)[0] == (FOLLOWER if enabled else NO_LEADER)


def test_enabled_for_the_topic_while_it_is_offline(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        leave_the_follower_alone(controller, cluster)
        assert state(cluster)[0] == NO_LEADER
        set_config(cluster, paths.topic_config("t"), unclean_leader_election_enable="true")
        change = json.dumps({"version": 2, "entity_path": "topics/t"}).encode()
        cluster.create(f"{paths.CONFIG_CHANGES}/config_change_", change, sequence=True, makepath=True)
        controller.run_until(lambda: state(cluster)[0] == FOLLOWER, "the follower leads")


def test_a_controlled_start_of_both_brokers_elects_nobody_out_of_sync(
    cluster: KazooClient, zookeeper: str
) -> None:
    """ControllerIntegrationTest.testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElectionDisabled."""
    with ManualController(zookeeper) as controller:
        controller.stop_broker(cluster, FOLLOWER)
        controller.stop_broker(cluster, LEADER)
        controller.fail_over()
        controller.start_broker(cluster, FOLLOWER)
        assert state(cluster) == (NO_LEADER, [LEADER], 0)
