"""Elections, resignation, races, lost sessions: on real ZooKeeper.

Twins of ``ControllerIntegrationTest``, ``ControllerFailoverTest`` and ``ControllerEpoch`` cases.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable

import pytest

from ctrlchan.controller.events.event import ControllerState, Event
from ctrlchan.controller.events.notifications import Notification, NotificationKind
from ctrlchan.controller.term import election
from ctrlchan.errors import IllegalStateError, MigrationError, NotControllerError
from ctrlchan.zookeeper import paths
from tests.kafka.waiting import wait_until
from tests.unit.controller.real_cluster import TIMEOUT, RealCluster

THREE = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}


def epoch_node(cluster: RealCluster) -> int:
    return int(cluster.znodes.get(paths.CONTROLLER_EPOCH)[0])


def controller_node(cluster: RealCluster) -> dict[str, object]:
    node: dict[str, object] = json.loads(cluster.znodes.get(paths.CONTROLLER)[0])
    return node


def test_an_empty_zookeeper_gets_a_first_controller(cluster: RealCluster) -> None:
    controller = cluster.active_controller()
    assert controller.is_active
    assert controller.epoch == 1
    assert epoch_node(cluster) == 1
    node = controller_node(cluster)
    assert (node["brokerid"], node["version"], node["kraftControllerEpoch"]) == (1000, 2, -1)
    assert cluster.znodes.exists(paths.CLUSTER_ID) is not None


def test_another_controller_waits_and_takes_over(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2, 3)
    cluster.create_topic("t", THREE)
    first = cluster.active_controller(1000)
    second = cluster.controller(1001)
    wait_until(lambda: second.active_controller_id == 1000, what="the second controller sees the first")
    with pytest.raises(TimeoutError):
        second.wait_until_active(0.01)
    with pytest.raises(NotControllerError):
        second.loop.call(ControllerState.IDLE, lambda core: core.epoch).result(TIMEOUT)
    first.close()
    second.wait_until_active(TIMEOUT)
    assert second.epoch == 2
    assert epoch_node(cluster) == 2
    cluster.wait_seen("t", {0: 1, 1: 2, 2: 3})
    for broker_id in (1, 2, 3):
        cluster.wait_on(broker_id, lambda broker_id: cluster.controller_seen(broker_id) == 1001)


def test_a_controller_takes_over_from_another(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2, 3)
    cluster.create_topic("t", THREE)
    first, second = cluster.active_controller(1000), cluster.controller(1001)
    for number, (former, now) in enumerate([(first, second), (second, first)]):
        assert now.take_over()
        assert (now.is_active, now.epoch, epoch_node(cluster)) == (True, 2 + number, 2 + number)
        wait_until(lambda former=former: not former.is_active, what="the former controller resigns")  # type: ignore[misc]
        wait_until(
            lambda former=former, now=now: former.active_controller_id == now.controller_id,  # type: ignore[misc]
            what="the former controller sees the new one",
        )
    # The controller itself changes nothing by it.
    assert first.take_over()
    assert epoch_node(cluster) == 3


def test_two_controllers_that_race_have_one_winner(cluster: RealCluster) -> None:
    controllers = [cluster.new_controller(1000 + number) for number in range(3)]
    threads = [threading.Thread(target=controller.start) for controller in controllers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    wait_until(lambda: any(one.is_active for one in controllers), what="one is elected")
    winner = controller_node(cluster)["brokerid"]
    wait_until(
        lambda: all(one.active_controller_id == winner for one in controllers), what="all agree on the winner"
    )
    assert [one.controller_id for one in controllers if one.is_active] == [winner]
    assert epoch_node(cluster) == 1


def test_a_controller_that_resigns_is_elected_again(cluster: RealCluster) -> None:
    controller = cluster.active_controller()
    controller.resign()
    wait_until(lambda: controller.epoch == 2, what="the controller is elected again")
    controller.wait_until_active(TIMEOUT)
    assert controller_node(cluster)["brokerid"] == 1000


def test_a_controller_that_resigns_leaves_the_office_to_others(
    cluster: RealCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that it cannot end before a slow machine has notified the others.
    monkeypatch.setattr(election, "_FIRST_PAUSE", 10 * TIMEOUT)
    controllers = [cluster.active_controller(1000), cluster.controller(1001), cluster.controller(1002)]
    wait_until(lambda: all(one.active_controller_id == 1000 for one in controllers), what="all see the first")
    for epoch in (2, 3):
        active = next(one for one in controllers if one.is_active)
        controllers.remove(active)
        active.resign()
        wait_until(lambda: any(one.is_active for one in controllers), what="another one is elected")
        assert not active.is_active
        assert epoch_node(cluster) == epoch


def test_a_deleted_controller_node_causes_an_election(cluster: RealCluster) -> None:
    controller = cluster.active_controller()
    cluster.znodes.delete(paths.CONTROLLER)
    wait_until(lambda: controller.epoch == 2, what="the controller is elected again")


def test_a_controller_node_of_another_ends_the_term(cluster: RealCluster) -> None:
    controller = cluster.active_controller()
    transaction = cluster.znodes.transaction()
    transaction.set_data(paths.CONTROLLER_EPOCH, b"2")
    transaction.delete(paths.CONTROLLER)
    transaction.create(
        paths.CONTROLLER,
        b'{"version":2,"brokerid":7,"timestamp":"1","kraftControllerEpoch":-1}',
        ephemeral=True,
    )
    transaction.commit()
    wait_until(lambda: not controller.is_active, what="the controller has resigned")
    wait_until(lambda: controller.active_controller_id == 7, what="the controller sees the other one")
    cluster.znodes.delete(paths.CONTROLLER)
    controller.wait_until_active(TIMEOUT)
    assert controller.epoch == 3


def _create(cluster: RealCluster) -> None:
    cluster.create_topic("u", {0: [1]})


def _delete(cluster: RealCluster) -> None:
    cluster.delete_topic("t")


def _elect(cluster: RealCluster) -> None:
    data = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    cluster.znodes.create(paths.PREFERRED_REPLICA_ELECTION, data)


def _reassign(cluster: RealCluster) -> None:
    data = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]}]}'
    cluster.znodes.create(paths.REASSIGN_PARTITIONS, data)


def _kill(cluster: RealCluster) -> None:
    cluster.kill_brokers(1)


@pytest.mark.parametrize("change", [_create, _delete, _elect, _reassign, _kill])
def test_a_moved_epoch_stops_writes_and_ends_the_term(
    cluster: RealCluster, change: Callable[[RealCluster], None]
) -> None:
    """A controller that has not heard of its successor must not write: ZooKeeper refuses."""
    cluster.start_brokers(1, 2)
    controller = cluster.active_controller()
    cluster.create_topic("t", {0: [1, 2]})
    cluster.wait_seen("t", {0: 1})
    cluster.znodes.set(paths.CONTROLLER_EPOCH, b"5")
    change(cluster)
    wait_until(lambda: controller.epoch == 6, what="the controller is elected again, with a higher epoch")
    controller.wait_until_active(TIMEOUT)
    for broker_id in cluster.brokers:
        cluster.wait_on(broker_id, lambda broker_id: cluster.controller_epoch_seen(broker_id) == 6)


def test_a_term_that_follows_another_within_one_event_is_noticed(cluster: RealCluster) -> None:
    controller = cluster.active_controller()
    ended, go_on = threading.Event(), threading.Event()

    def process() -> None:
        controller._elector.end_term("for the test")
        ended.set()
        assert go_on.wait(TIMEOUT)
        controller._elector.controller_changed()

    controller.loop.put(Event(ControllerState.CONTROLLER_CHANGE, "Test", process))
    assert ended.wait(TIMEOUT)
    assert not controller.is_active
    waiter = threading.Thread(target=controller.wait_until_active, args=(TIMEOUT,))
    waiter.start()
    wait_until(lambda: controller._term_changed._waiters, what="the other thread waits")  # type: ignore[attr-defined]
    go_on.set()
    waiter.join(TIMEOUT / 2)
    assert not waiter.is_alive()
    assert controller.epoch == 2


def test_the_epoch_goes_on_when_all_controllers_were_gone(cluster: RealCluster) -> None:
    for epoch in (1, 2, 3):
        controller = cluster.active_controller(1000 + epoch)
        assert controller.epoch == epoch
        controller.close()
        assert epoch_node(cluster) == epoch


def test_a_migration_to_kraft_is_refused(cluster: RealCluster, caplog: pytest.LogCaptureFixture) -> None:
    node = b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":4}'
    cluster.znodes.create(paths.CONTROLLER, node)
    cluster.znodes.create(paths.CONTROLLER_EPOCH, b"9")
    with caplog.at_level(logging.ERROR, "ctrlchan.controller"):
        controller = cluster.controller()
        with pytest.raises(MigrationError, match="kraftControllerEpoch"):
            controller.wait_until_active(TIMEOUT)
    assert "migrating to KRaft" in caplog.text
    assert cluster.znodes.get(paths.CONTROLLER)[0] == node
    assert not controller.is_active
    # The migration was reverted.
    cluster.znodes.delete(paths.CONTROLLER)
    wait_until(lambda: controller.is_active, what="the controller is elected")


def test_all_threads_and_processes_end_with_the_controller(cluster: RealCluster) -> None:
    cluster.start_brokers(1)
    before = {thread.name for thread in threading.enumerate()}
    controller = cluster.active_controller()
    controller.add_listener(lambda _: None)
    controller.close()
    controller.close()
    after = {thread.name for thread in threading.enumerate()}
    assert {name for name in after - before if "controller" in name or "channel" in name} == set()
    with pytest.raises(IllegalStateError):
        controller.start()
    with pytest.raises(IllegalStateError):
        controller.wait_until_active(1)
    wait_until(lambda: cluster.znodes.exists(paths.CONTROLLER) is None, what="/controller is deleted")


def _leaders(one: Notification) -> tuple[tuple[str, int, int, int], ...]:
    """Return (topic, partition, leader, leader epoch) of each change."""
    changes = one.leaders
    if changes is None:
        return ()
    return tuple(
        (changes.topics[row], partition, leader, epoch)
        for row, partition, leader, epoch in zip(
            changes.topic_row.tolist(),
            changes.partition.tolist(),
            changes.leader.tolist(),
            changes.leader_epoch.tolist(),
            strict=True,
        )
    )


def test_listeners_hear_of_terms_brokers_and_topics(cluster: RealCluster) -> None:
    heard: list[Notification] = []
    cluster.start_brokers(1)
    controller = cluster.active_controller(listener=heard.append)
    cluster.start_brokers(2)
    cluster.create_topic("t", {0: [1]})
    cluster.wait_state("t", 0, leader=1)
    cluster.set_assignment("t", {0: [1], 1: [2]})
    cluster.wait_state("t", 1, leader=2)
    cluster.kill_brokers(2)
    cluster.wait_state("t", 1, leader=-1)
    controller.close()
    found = [(one.kind, one.brokers or one.topics or _leaders(one)) for one in heard]
    assert found == [
        (NotificationKind.ELECTED, ()),
        (NotificationKind.BROKER_UP, (2,)),
        (NotificationKind.TOPIC_CREATED, ("t",)),
        (NotificationKind.LEADERS_CHANGED, (("t", 0, 1, 0),)),
        (NotificationKind.PARTITIONS_ADDED, ("t",)),
        (NotificationKind.LEADERS_CHANGED, (("t", 1, 2, 0),)),
        (NotificationKind.BROKER_DOWN, (2,)),
        (NotificationKind.LEADERS_CHANGED, (("t", 1, -1, 1),)),
        (NotificationKind.RESIGNED, ()),
    ]
    assert {one.controller_epoch for one in heard} == {1}
