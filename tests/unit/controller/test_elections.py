"""Elections on a real ZooKeeper: by request, by the node, automatic, unclean, after changes of settings.

Twins of the election cases of ``ControllerIntegrationTest`` and of ``UncleanLeaderElectionTest``.
"""

from __future__ import annotations

import json

import pytest
from kazoo.client import KazooClient

from ctrlchan.controller.handlers import elections
from ctrlchan.controller.handlers.elections import ElectionType
from ctrlchan.controller.machines.states import PartitionState
from ctrlchan.errors import ErrorCode
from ctrlchan.protocol import NO_LEADER
from ctrlchan.zookeeper import paths
from tests.unit.controller.manual_controller import (
    ManualController,
    create_topic,
    read_json,
    register_brokers,
    set_config,
)

P0 = ("t", 0)
PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN
DEFAULT_BROKER = f"{paths.BROKER_CONFIGS}/<default>"


def leader_of(znodes: KazooClient, topic: str = "t", partition: int = 0) -> int:
    leader: int = read_json(znodes, paths.partition_state(topic, partition))["leader"]
    return leader


def notify(znodes: KazooClient, entity: str) -> None:
    data = json.dumps({"version": 2, "entity_path": entity}).encode()
    znodes.create(f"{paths.CONFIG_CHANGES}/config_change_", data, sequence=True, makepath=True)


def codes(answers: dict[tuple[str, int], tuple[int, str | None]]) -> dict[tuple[str, int], int]:
    return {key: code for key, (code, _) in answers.items()}


@pytest.fixture
def cluster(znodes: KazooClient) -> KazooClient:
    """Three brokers; topic t has one partition on 1, 2, 3, led by 2."""
    register_brokers(znodes, 1, 2, 3)
    create_topic(znodes, "t", {0: [1, 2, 3]}, isr={0: [2, 1, 3]})
    return znodes


@pytest.fixture
def offline(znodes: KazooClient) -> KazooClient:
    """Brokers 1 and 2; topic t has one partition on 1, 2, 3; the only replica in sync, 3, is dead."""
    register_brokers(znodes, 1, 2)
    create_topic(znodes, "t", {0: [1, 2, 3]}, isr={0: [3]})
    return znodes


# -- by request


def test_a_preferred_leader_is_elected(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        controller.forget_requests()
        answers = elections.elect_leaders(controller.core, [P0], PREFERRED)
        assert answers == {P0: (ErrorCode.NONE, None)}
        assert leader_of(cluster) == 1
        assert {broker for _, _, broker in controller.started(is_new=False)} == {1, 2, 3}
        assert codes(elections.elect_leaders(controller.core, [P0], PREFERRED)) == {
            P0: ErrorCode.ELECTION_NOT_NEEDED
        }


def test_a_preferred_leader_that_is_offline_is_not_elected(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        controller.set_live(2, 3)
        answers = elections.elect_leaders(controller.core, [P0], PREFERRED)
        assert codes(answers) == {P0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        assert leader_of(cluster) == 2


def test_a_preferred_leader_out_of_sync_is_not_elected(znodes: KazooClient, zookeeper: str) -> None:
    register_brokers(znodes, 1, 2)
    create_topic(znodes, "t", {0: [1, 2]}, isr={0: [2]})
    with ManualController(zookeeper) as controller:
        answers = elections.elect_leaders(controller.core, [P0], PREFERRED)
        assert codes(answers) == {P0: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        assert leader_of(znodes) == 2


def test_unknown_partitions_and_topics_being_deleted(cluster: KazooClient, zookeeper: str) -> None:
    create_topic(cluster, "dying", {0: [1, 9]})
    cluster.create(paths.deleted_topic("dying"), makepath=True)
    with ManualController(zookeeper) as controller:
        keys = [("unknown", 0), ("t", 5), ("dying", 0), P0]
        assert codes(elections.elect_leaders(controller.core, keys, PREFERRED)) == {
            ("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("t", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("dying", 0): ErrorCode.INVALID_TOPIC_EXCEPTION,
            P0: ErrorCode.NONE,
        }


def test_all_partitions_answer_where_an_election_was_needed(cluster: KazooClient, zookeeper: str) -> None:
    create_topic(cluster, "u", {0: [2, 1], 1: [1, 2]}, isr={1: [2, 1]})
    with ManualController(zookeeper) as controller:
        answers = elections.elect_leaders(controller.core, None, PREFERRED)
        assert codes(answers) == {P0: ErrorCode.NONE, ("u", 1): ErrorCode.NONE}
        assert leader_of(cluster, "u", 1) == 1


def test_an_unclean_leader_is_elected_by_request(offline: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        assert controller.partitions_in(PartitionState.OFFLINE) == {P0}
        answers = elections.elect_leaders(controller.core, [P0], UNCLEAN)
        assert answers == {P0: (ErrorCode.NONE, None)}
        node = read_json(offline, paths.partition_state("t", 0))
        assert (node["leader"], node["isr"], node["leader_recovery_state"]) == (1, [1], 1)


def test_an_unclean_election_is_not_needed_for_a_live_leader(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        answers = elections.elect_leaders(controller.core, [P0], UNCLEAN)
        assert codes(answers) == {P0: ErrorCode.ELECTION_NOT_NEEDED}


def test_an_unclean_election_needs_a_live_replica(znodes: KazooClient, zookeeper: str) -> None:
    register_brokers(znodes, 1)
    create_topic(znodes, "t", {0: [2, 3]})
    with ManualController(zookeeper) as controller:
        answers = elections.elect_leaders(controller.core, [P0], UNCLEAN)
        assert codes(answers) == {P0: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


# -- by the node


def test_a_node_elects_preferred_leaders(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        for _ in range(2):
            elect_by_node(cluster, ("unknown", 3), P0)
            controller.run_until(
                lambda: cluster.exists(paths.PREFERRED_REPLICA_ELECTION) is None, "the node is removed"
            )
            assert leader_of(cluster) == 1


def test_the_node_is_removed_although_the_preferred_leader_is_offline(
    cluster: KazooClient, zookeeper: str
) -> None:
    with ManualController(zookeeper) as controller:
        controller.set_live(2, 3)
        elect_by_node(cluster, P0)
        controller.run_until(
            lambda: cluster.exists(paths.PREFERRED_REPLICA_ELECTION) is None, "the node is removed"
        )
        assert leader_of(cluster) == 2


@pytest.mark.parametrize("data", [b"", b"[", b'{"version":1}', b'{"partitions":[{"topic":1}]}'])
def test_a_malformed_node_is_removed(cluster: KazooClient, zookeeper: str, data: bytes) -> None:
    cluster.create(paths.PREFERRED_REPLICA_ELECTION, data, makepath=True)
    with ManualController(zookeeper):
        assert cluster.exists(paths.PREFERRED_REPLICA_ELECTION) is None


def elect_by_node(znodes: KazooClient, *keys: tuple[str, int]) -> None:
    entries = [{"topic": topic, "partition": number} for topic, number in keys]
    data = json.dumps({"version": 1, "partitions": entries}).encode()
    znodes.create(paths.PREFERRED_REPLICA_ELECTION, data, makepath=True)


# -- automatic


def test_imbalanced_brokers_get_their_partitions_back(znodes: KazooClient, zookeeper: str) -> None:
    register_brokers(znodes, 1, 2)
    # Broker 1 leads nine of its ten partitions, broker 2 eight of its ten: above ten per cent.
    create_topic(znodes, "a", {number: [1, 2] for number in range(10)}, isr={0: [2, 1]})
    create_topic(znodes, "b", {number: [2, 1] for number in range(10)}, isr={0: [1, 2], 1: [1, 2]})
    with ManualController(zookeeper) as controller:
        elections.rebalance(controller.core)
        assert leader_of(znodes, "a", 0) == 2
        assert leader_of(znodes, "b", 0) == 2
        assert leader_of(znodes, "b", 1) == 2
        (first, soon), (event, delay) = controller.loop.timers
        assert (first.name, soon) == (event.name, 5)
        assert event.name == "AutoPreferredReplicaLeaderElection"
        assert delay == controller.core.config.leader_imbalance_check_interval


def test_only_leaders_that_can_be_elected_move(znodes: KazooClient, zookeeper: str) -> None:
    register_brokers(znodes, 1, 2)
    create_topic(znodes, "out", {0: [1, 2]}, isr={0: [2]})
    create_topic(znodes, "dead", {0: [3, 2]}, isr={0: [2, 3]})
    create_topic(znodes, "dying", {0: [1, 2, 3]}, isr={0: [2, 1]})
    create_topic(znodes, "t", {0: [1, 2]}, isr={0: [2, 1]})
    znodes.create(paths.deleted_topic("dying"), makepath=True)
    with ManualController(zookeeper) as controller:
        elections.rebalance(controller.core)
        leaders = {topic: leader_of(znodes, topic) for topic in ("out", "dead", "dying", "t")}
        assert leaders == {"out": 2, "dead": 2, "dying": 2, "t": 1}


def test_a_balanced_cluster_is_left_alone(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper, leader_imbalance_percentage=100) as controller:
        controller.forget_requests()
        elections.rebalance(controller.core)
        assert controller.channel.sent == []
        assert leader_of(cluster) == 2


# -- unclean elections and settings


@pytest.mark.parametrize("enabled", [True, False])
def test_the_controllers_own_setting(offline: KazooClient, zookeeper: str, enabled: bool) -> None:
    with ManualController(zookeeper, unclean_leader_election=enabled) as controller:
        assert leader_of(offline) == (1 if enabled else NO_LEADER)
        expected = PartitionState.ONLINE if enabled else PartitionState.OFFLINE
        assert controller.partitions_in(expected) == {P0}


@pytest.mark.parametrize("enabled", [True, False])
def test_a_topic_overrides_the_controller(offline: KazooClient, zookeeper: str, enabled: bool) -> None:
    set_config(offline, paths.topic_config("t"), unclean_leader_election_enable=str(enabled).lower())
    with ManualController(zookeeper, unclean_leader_election=not enabled):
        assert leader_of(offline) == (1 if enabled else NO_LEADER)


def test_the_default_of_brokers_overrides_the_controller(offline: KazooClient, zookeeper: str) -> None:
    set_config(offline, DEFAULT_BROKER, unclean_leader_election_enable="true")
    with ManualController(zookeeper):
        assert leader_of(offline) == 1


def test_a_topic_overrides_the_default_of_brokers(offline: KazooClient, zookeeper: str) -> None:
    set_config(offline, DEFAULT_BROKER, unclean_leader_election_enable="true")
    set_config(offline, paths.topic_config("t"), unclean_leader_election_enable="false")
    with ManualController(zookeeper):
        assert leader_of(offline) == NO_LEADER


def test_an_invalid_setting_is_ignored(offline: KazooClient, zookeeper: str) -> None:
    set_config(offline, paths.topic_config("t"), unclean_leader_election_enable="invalid")
    with ManualController(zookeeper):
        assert leader_of(offline) == NO_LEADER
    with ManualController(zookeeper, unclean_leader_election=True):
        assert leader_of(offline) == 1


def test_enabling_it_for_a_topic_elects_its_leaders(offline: KazooClient, zookeeper: str) -> None:
    create_topic(offline, "u", {0: [1, 3]}, isr={0: [3]})
    with ManualController(zookeeper) as controller:
        set_config(offline, paths.topic_config("t"), unclean_leader_election_enable="true")
        notify(offline, "topics/t")
        controller.run_until(lambda: leader_of(offline) == 1, "t has a leader")
        assert leader_of(offline, "u") == NO_LEADER


def test_enabling_it_by_default_elects_all_leaders(offline: KazooClient, zookeeper: str) -> None:
    create_topic(offline, "u", {0: [1, 3]}, isr={0: [3]})
    with ManualController(zookeeper) as controller:
        set_config(offline, DEFAULT_BROKER, unclean_leader_election_enable="true")
        notify(offline, "brokers/<default>")
        controller.run_until(lambda: leader_of(offline) == leader_of(offline, "u") == 1, "both have leaders")


def test_changes_of_other_things_elect_nobody(offline: KazooClient, zookeeper: str) -> None:
    notify(offline, "topics/t")
    with ManualController(zookeeper) as controller:
        set_config(offline, DEFAULT_BROKER, unclean_leader_election_enable="true")
        notify(offline, "users/alice")
        notify(offline, "topics/unknown")
        notify(offline, "nonsense")
        offline.create(f"{paths.CONFIG_CHANGES}/config_change_", b"{", sequence=True)
        controller.run_past_changes(offline)
        assert leader_of(offline) == NO_LEADER
