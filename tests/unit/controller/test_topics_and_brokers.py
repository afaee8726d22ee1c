"""Topics and brokers that come and go, on real ZooKeeper with embedded brokers.

Twins of ``ControllerIntegrationTest``: topic creation and expansion, brokers that start, stop and restart,
controlled shutdown.
"""

from __future__ import annotations

import json
import logging
import uuid

import pytest

from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.handlers.controlled_shutdown import controlled_shutdown
from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.state import Broker, Endpoint, SecurityProtocol
from ctrlchan.zookeeper import nodes, paths
from tests.kafka.waiting import wait_until
from tests.unit.controller.real_cluster import TIMEOUT, RealCluster, StateNode

THREE = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
FIRST_EPOCH = 1


@pytest.fixture
def three(cluster: RealCluster) -> RealCluster:
    """Three brokers and an active controller."""
    cluster.start_brokers(1, 2, 3)
    cluster.active_controller()
    return cluster


def shut_down(controller: KafkaController, broker_id: int, epoch: int | None = None) -> list[tuple[str, int]]:
    return controller.loop.call(
        ControllerState.CONTROLLED_SHUTDOWN, lambda core: controlled_shutdown(core, broker_id, epoch)
    ).result(TIMEOUT)


# -- topics


def test_a_new_topic_gets_leaders(three: RealCluster) -> None:
    three.create_topic("t", THREE)
    for partition, replicas in THREE.items():
        node = three.wait_state("t", partition, leader=replicas[0])
        assert node == StateNode(replicas[0], 0, replicas, FIRST_EPOCH, 0)
    three.wait_seen("t", {0: 1, 1: 2, 2: 3})
    for broker_id in (1, 2, 3):
        three.wait_hosted(broker_id, "t", {0: 1, 1: 2, 2: 3})


def test_replicas_that_brokers_give_to_the_controller_go_to_live_brokers(three: RealCluster) -> None:
    """Brokers that create topics take the controller, which is announced to them, for a broker."""
    own = three.controllers[0].controller_id
    three.create_topic("t", {0: [1, own, 3], 1: [own, 2], 2: [1, 2], 3: [own, 1, 2, 3]})
    expected = {0: [1, 2, 3], 1: [3, 2], 2: [1, 2], 3: [1, 2, 3]}
    for partition, replicas in expected.items():
        assert three.wait_state("t", partition, leader=replicas[0]).isr == replicas
    three.wait_seen("t", {partition: replicas[0] for partition, replicas in expected.items()})
    # Added partitions too; those that have a leader stay as they are.
    three.set_assignment("t", {**expected, 4: [own]})
    assert three.wait_state("t", 4, leader=1).isr == [1]
    node = json.loads(three.znodes.get(paths.topic("t"))[0])
    assert node["partitions"] == {
        str(partition): brokers for partition, brokers in (expected | {4: [1]}).items()
    }


def test_topics_that_exist_already_get_leaders_at_failover(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2, 3)
    cluster.create_topic("t", THREE)
    cluster.active_controller()
    cluster.wait_seen("t", {0: 1, 1: 2, 2: 3})


def test_a_topic_whose_first_replica_is_dead_is_led_by_the_next(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2)
    cluster.active_controller()
    cluster.create_topic("t", {0: [3, 2, 1]})
    assert cluster.wait_state("t", 0, leader=2).isr == [2, 1]
    cluster.wait_seen("t", {0: 2})
    assert cluster.seen(1, "t")[0].offline == [3]


def test_a_topic_without_live_replicas_waits_for_one(cluster: RealCluster) -> None:
    cluster.start_brokers(1)
    cluster.active_controller()
    cluster.create_topic("waits", {0: [2]})
    cluster.create_topic("other", {0: [1]})
    cluster.wait_state("other", 0, leader=1)
    assert cluster.state_node("waits", 0) is None
    cluster.start_brokers(2)
    assert cluster.wait_state("waits", 0, leader=2).isr == [2]


def test_many_topics_at_once(three: RealCluster) -> None:
    names = [f"t{number}" for number in range(40)]
    for name in names:
        three.create_topic(name, THREE)
    for name in names:
        three.wait_state(name, 2, leader=3, leader_epoch=0)
    for name in names:
        three.wait_seen(name, {0: 1, 1: 2, 2: 3})


def test_added_partitions_get_leaders(three: RealCluster) -> None:
    three.create_topic("t", {0: [1, 2]})
    three.wait_state("t", 0, leader=1)
    three.set_assignment("t", {0: [1, 2], 1: [3, 1]})
    assert three.wait_state("t", 1, leader=3).isr == [3, 1]
    three.wait_seen("t", {0: 1, 1: 3})
    three.set_assignment("t", {0: [1, 2], 1: [3, 1], 2: [2, 3]})
    three.wait_state("t", 2, leader=2)
    assert three.state_node("t", 0) == StateNode(1, 0, [1, 2], FIRST_EPOCH, 0)


def test_added_partitions_with_dead_replicas_are_led_by_live_ones(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2)
    cluster.active_controller()
    cluster.create_topic("t", {0: [1]})
    cluster.wait_state("t", 0, leader=1)
    cluster.set_assignment("t", {0: [1], 1: [7, 2]})
    assert cluster.wait_state("t", 1, leader=2).isr == [2]


def test_a_malformed_topic_is_logged_and_harms_no_other(
    three: RealCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "ctrlchan.controller"):
        three.znodes.create(paths.topic("broken"), b"no JSON", makepath=True)
        three.create_topic("t", {0: [1, 2, 3]})
        three.wait_state("t", 0, leader=1)
    assert paths.topic("broken") in caplog.text
    [controller] = three.controllers
    core = controller.current()
    assert core is not None
    assert paths.topic("broken") in core.malformed[paths.TOPICS]
    # A change of another topic does not make it readable.
    three.set_assignment("t", {0: [1, 2, 3], 1: [2]})
    three.wait_state("t", 1, leader=2)
    assert paths.topic("broken") in core.malformed[paths.TOPICS]
    three.znodes.delete(paths.topic("broken"))
    wait_until(lambda: not core.malformed[paths.TOPICS], what="the malformed topic is forgotten")


def test_a_malformed_topic_that_is_repaired_is_created(three: RealCluster) -> None:
    three.znodes.create(paths.topic("broken"), b"no JSON", makepath=True)
    three.create_topic("t", {0: [1]})
    three.wait_state("t", 0, leader=1)
    three.znodes.set(paths.topic("broken"), nodes.encode_topic(uuid.uuid4().bytes, {0: [2]}))
    three.wait_state("broken", 0, leader=2)


def test_topics_without_an_id_are_given_one_at_ibp_2_8(cluster: RealCluster) -> None:
    cluster.start_brokers(1)
    data = b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{}}'
    cluster.znodes.create(paths.topic("old"), data, makepath=True)
    cluster.active_controller()
    cluster.wait_state("old", 0, leader=1)
    cluster.znodes.create(paths.topic("new"), data, makepath=True)
    cluster.wait_state("new", 0, leader=1)
    for name in ("old", "new"):
        topic = nodes.parse_topic(cluster.znodes.get(paths.topic(name))[0])
        assert topic.topic_id is not None
        assert [(one.partition, one.replicas) for one in topic.assignments] == [(0, [1])]


def test_topics_without_an_id_stay_so_below_ibp_2_8(cluster: RealCluster) -> None:
    cluster.start_brokers(1)
    data = b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{}}'
    cluster.znodes.create(paths.topic("old"), data, makepath=True)
    cluster.active_controller(ibp="2.7")
    cluster.wait_state("old", 0, leader=1)
    assert cluster.znodes.get(paths.topic("old"))[0] == data


def test_topic_ids_stay_the_same_under_later_controllers(cluster: RealCluster) -> None:
    cluster.start_brokers(1)
    topic_id = cluster.create_topic("t", {0: [1]})
    for controller_id in (1000, 1001):
        controller = cluster.active_controller(controller_id)
        cluster.wait_seen("t", {0: 1})
        core = controller.current()
        assert core is not None
        assert core.state.topics.ids[core.state.topic_row("t")].tobytes() == topic_id
        controller.close()
    assert nodes.parse_topic(cluster.znodes.get(paths.topic("t"))[0]).topic_id == topic_id


def test_topics_are_given_ids_when_the_ibp_is_raised(cluster: RealCluster) -> None:
    cluster.start_brokers(1)
    data = b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{}}'
    cluster.znodes.create(paths.topic("t"), data, makepath=True)
    old = cluster.active_controller(1000, ibp="2.7")
    cluster.wait_seen("t", {0: 1})
    old.close()
    cluster.active_controller(1001, ibp="2.8")
    cluster.wait_on(
        1,
        lambda broker_id: (
            cluster.topic_id_seen(broker_id, "t")
            == nodes.parse_topic(cluster.znodes.get(paths.topic("t"))[0]).topic_id
        ),
    )


# -- brokers


def test_leaders_move_away_from_a_dead_broker(three: RealCluster) -> None:
    three.create_topic("t", THREE)
    three.wait_seen("t", {0: 1, 1: 2, 2: 3})
    three.kill_brokers(1)
    assert three.wait_state("t", 0, leader=2) == StateNode(2, 1, [2, 3], FIRST_EPOCH, 1)
    # A follower that has died leaves the ISR; the leader epoch is incremented too.
    assert three.wait_state("t", 1, isr=[2, 3]).leader_epoch == 1
    assert three.wait_state("t", 2, isr=[3, 2]).leader_epoch == 1
    three.wait_seen("t", {0: 2, 1: 2, 2: 3})
    assert set(three.live_brokers(2)) == {2, 3}
    assert three.seen(2, "t")[0].offline == [1]


def test_a_broker_that_returns_is_sent_everything(three: RealCluster) -> None:
    three.create_topic("t", THREE)
    three.wait_seen("t", {0: 1, 1: 2, 2: 3})
    three.kill_brokers(1)
    three.wait_seen("t", {0: 2, 1: 2, 2: 3})
    three.start_brokers(1)
    three.wait_seen("t", {0: 2, 1: 2, 2: 3})
    three.wait_hosted(1, "t", {0: 2, 1: 2, 2: 3})
    wait_until(lambda: set(three.live_brokers(2)) == {1, 2, 3}, what="broker 2 sees broker 1")
    assert three.seen(1, "t")[0].offline == []


def test_partitions_go_offline_with_their_last_replica_and_come_back(three: RealCluster) -> None:
    three.create_topic("t", {0: [1]})
    three.wait_seen("t", {0: 1})
    three.kill_brokers(1)
    assert three.wait_state("t", 0, leader=-1) == StateNode(-1, 1, [1], FIRST_EPOCH, 1)
    three.wait_seen("t", {0: -1})
    three.start_brokers(1)
    assert three.wait_state("t", 0, leader=1).leader_epoch == 2
    three.wait_seen("t", {0: 1})


def test_several_brokers_die_at_once(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2, 3, 4)
    cluster.active_controller()
    cluster.create_topic("t", {0: [1, 2, 3], 1: [2, 1, 4], 2: [1, 2], 3: [4, 3]})
    cluster.wait_seen("t", {0: 1, 1: 2, 2: 1, 3: 4})
    cluster.kill_brokers(1, 2)
    cluster.wait_seen("t", {0: 3, 1: 4, 2: -1, 3: 4})
    assert cluster.wait_state("t", 2, leader=-1).isr in ([1], [2])


def test_a_broker_registered_again_is_sent_everything(three: RealCluster) -> None:
    """The same broker with a new epoch, as after a lost session: its leaders move."""
    three.create_topic("t", THREE)
    three.wait_seen("t", {0: 1, 1: 2, 2: 3})
    transaction = three.znodes.transaction()
    data, _ = three.znodes.get(paths.broker(1))
    transaction.delete(paths.broker(1))
    transaction.create(paths.broker(1), data, ephemeral=True)
    transaction.commit()
    stat = three.znodes.exists(paths.broker(1))
    assert stat is not None
    three.brokers[1].set_epoch(stat.czxid)
    three.wait_state("t", 0, leader=2, leader_epoch=1)
    three.wait_seen("t", {0: 2, 1: 2, 2: 3})
    three.wait_on(2, lambda broker_id: three.live_brokers(broker_id).keys() == {1, 2, 3})


def test_changed_endpoints_are_sent_to_all_brokers(three: RealCluster) -> None:
    three.create_topic("t", THREE)
    three.wait_seen("t", {0: 1, 1: 2, 2: 3})
    [old] = three.brokers[1].broker.endpoints
    added = Endpoint("EXTERNAL", SecurityProtocol.PLAINTEXT, "elsewhere", 9094)
    three.set_registration(Broker(1, three.brokers[1].broker.epoch, (old, added)))
    for broker_id in (1, 2, 3):
        three.wait_on(broker_id, lambda broker_id: three.live_brokers(broker_id)[1].endpoints == (old, added))
    assert three.state_node("t", 0) == StateNode(1, 0, [1, 2, 3], FIRST_EPOCH, 0)


def test_a_malformed_registration_harms_no_other_broker(three: RealCluster) -> None:
    three.znodes.create(paths.broker(9), b"{}", ephemeral=True)
    three.start_brokers(4)
    three.create_topic("t", {0: [4, 9]})
    assert three.wait_state("t", 0, leader=4).isr == [4]


# -- controlled shutdown


def test_controlled_shutdown_moves_leaders_and_stops_followers(three: RealCluster) -> None:
    three.create_topic("t", THREE)
    three.create_topic("alone", {0: [1]})
    three.wait_seen("t", {0: 1, 1: 2, 2: 3})
    [controller] = three.controllers
    epoch = three.brokers[1].broker.epoch
    assert shut_down(controller, 1, epoch) == []
    assert three.wait_state("t", 0, leader=2).isr == [2, 3]
    assert three.wait_state("t", 1, isr=[2, 3]).leader == 2
    three.wait_seen("t", {0: 2, 1: 2, 2: 3})
    # A partition with one replica stays.
    assert three.state_node("alone", 0) == StateNode(1, 0, [1], FIRST_EPOCH, 0)
    three.kill_brokers(1)
    wait_until(lambda: set(three.live_brokers(2)) == {2, 3}, what="broker 1 is gone")
    three.start_brokers(1)
    wait_until(lambda: set(three.live_brokers(2)) == {1, 2, 3}, what="broker 1 is back")
    core = controller.current()
    assert core is not None
    assert core.state.shutting_down == frozenset()


def test_controlled_shutdown_names_what_cannot_move(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2)
    controller = cluster.active_controller()
    cluster.create_topic("t", {0: [1, 2], 1: [2, 1]})
    cluster.wait_seen("t", {0: 1, 1: 2})
    cluster.kill_brokers(2)
    cluster.wait_state("t", 0, isr=[1])
    cluster.wait_state("t", 1, leader=1)
    assert sorted(shut_down(controller, 1)) == [("t", 0), ("t", 1)]


def test_controlled_shutdown_of_two_brokers_one_after_the_other(three: RealCluster) -> None:
    three.create_topic("t", {0: [1, 2, 3]})
    three.wait_seen("t", {0: 1})
    [controller] = three.controllers
    assert shut_down(controller, 1) == []
    assert three.wait_state("t", 0, leader=2).leader_epoch == 1
    assert shut_down(controller, 2) == []
    assert three.wait_state("t", 0, leader=3).leader_epoch == 2
    assert shut_down(controller, 3) == [("t", 0)]


def test_controlled_shutdown_refuses_old_epochs_and_unknown_brokers(three: RealCluster) -> None:
    [controller] = three.controllers
    with pytest.raises(KafkaError) as raised:
        shut_down(controller, 1, three.brokers[1].broker.epoch - 1)
    assert raised.value.code == ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(KafkaError) as raised:
        shut_down(controller, 7)
    assert raised.value.code == ErrorCode.BROKER_NOT_AVAILABLE
    core = controller.current()
    assert core is not None
    assert core.state.shutting_down == frozenset()


# -- the controller's own entry


def listener() -> Endpoint:
    return Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, "127.0.0.1", 0)


def test_the_controller_is_announced_to_brokers(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2)
    controller = cluster.active_controller(listeners=(listener(),))
    assert len(controller.endpoints) == 1
    for broker_id in (1, 2):
        cluster.wait_on(broker_id, lambda broker_id: set(cluster.live_brokers(broker_id)) == {1, 2, 1000})
        assert cluster.live_brokers(broker_id)[1000].endpoints == controller.endpoints
        assert cluster.live_brokers(broker_id)[1000].rack is None
        assert cluster.controller_seen(broker_id) == 1000
    # It never hosts a replica.
    cluster.create_topic("t", {0: [1000, 1]})
    assert cluster.wait_state("t", 0, leader=2).isr == [2, 1]


def test_replicas_on_the_controller_are_given_to_brokers_at_a_failover(cluster: RealCluster) -> None:
    """Brokers announce a dead controller until the next one is elected."""
    cluster.start_brokers(1, 2, 3)
    cluster.create_topic("led", {0: [1, 1000]})
    led = nodes.encode_partition_state(nodes.PartitionState(1, 0, 0, [1]))
    cluster.znodes.create(paths.partition_state("led", 0), led, makepath=True)
    topic_id = cluster.create_topic("new", {0: [1000, 1], 1: [2, 1], 2: [1, 2, 3, 1000]})
    cluster.active_controller(1000)
    assert cluster.wait_state("new", 0, leader=2).isr == [2, 1]
    assert cluster.wait_state("new", 2, leader=1).isr == [1, 2, 3]
    parsed = nodes.parse_topic(cluster.znodes.get(paths.topic("new"))[0])
    assert {one.partition: one.replicas for one in parsed.assignments} == {0: [2, 1], 1: [2, 1], 2: [1, 2, 3]}
    assert parsed.topic_id == topic_id
    cluster.wait_seen("new", {0: 2, 1: 2, 2: 1})
    cluster.wait_hosted(2, "new", {0: 2, 1: 2, 2: 1})
    # A partition with a leader is reassigned by its operator alone.
    assert [one.replicas for one in cluster.seen(1, "led").values()] == [[1, 1000]]


def test_the_controller_has_a_rack_while_brokers_have_racks(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2, racks={1: "b", 2: "a"})
    cluster.active_controller(listeners=(listener(),))
    cluster.wait_on(1, lambda broker_id: 1000 in cluster.live_brokers(broker_id))
    assert cluster.live_brokers(1)[1000].rack == "a"
    cluster.kill_brokers(1, 2)
    cluster.start_brokers(3)
    cluster.wait_on(3, lambda broker_id: set(cluster.live_brokers(broker_id)) == {3, 1000})
    cluster.wait_on(3, lambda broker_id: cluster.live_brokers(broker_id)[1000].rack is None)
