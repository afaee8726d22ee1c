"""Controllers that die, and sessions that expire, before each single write of what a controller does."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from ctrlchan.zookeeper import paths
from tests.kafka.zookeeper import ZooKeeperServer
from tests.unit.controller.model.checks import check_healed, check_quiet
from tests.unit.controller.model.cluster import ModelCluster

#: More writes than any of these needs.
MOST_WRITES = 40

_chroots = itertools.count()


def create(cluster: ModelCluster) -> None:
    cluster.create_topic("new", {0: [1, 2], 1: [2, 3]})


def add_partition(cluster: ModelCluster) -> None:
    cluster.add_partition("t", [3, 1])


def delete(cluster: ModelCluster) -> None:
    cluster.delete_topic("t")


def delete_unknown(cluster: ModelCluster) -> None:
    cluster.delete_topic("unknown")


def reassign(cluster: ModelCluster) -> None:
    cluster.reassign_by_node({("t", 0): [2, 1], ("t", 1): [3], ("u", 0): [1, 4], ("unknown", 0): [1]})


def reassign_by_request(cluster: ModelCluster) -> None:
    assert cluster.active is not None
    cluster.reassign_by_node({("t", 0): [1, 4], ("t", 1): [3]})
    cluster.reassign(cluster.active, {("t", 0): [2], ("u", 0): None})


def elect(cluster: ModelCluster) -> None:
    cluster.kill_broker(1)
    cluster.settle()
    cluster.start_broker(1)
    cluster.settle()
    catch_up(cluster)
    cluster.elect_by_node([("t", 0), ("unknown", 0)])


def kill_broker(cluster: ModelCluster) -> None:
    cluster.kill_broker(1)


def shut_down(cluster: ModelCluster) -> None:
    assert cluster.active is not None
    cluster.shut_down(cluster.active, 1)


def fail_directory(cluster: ModelCluster) -> None:
    cluster.fail_directory(2)


def alter_isr(cluster: ModelCluster) -> None:
    assert cluster.active is not None
    cluster.alter_isr(cluster.active, 1, ("t", 0), [1])


def fail_over(cluster: ModelCluster) -> None:
    """Leave everything at once to the next controller."""
    reassign(cluster)
    create(cluster)
    add_partition(cluster)
    cluster.create_topic("v", {0: [3, 2]})
    cluster.delete_topic("v")
    cluster.kill_broker(4)
    cluster.remove_controller_node()


ACTIONS = (
    create, add_partition, delete, delete_unknown, reassign, reassign_by_request, elect, kill_broker,
    shut_down, fail_directory, alter_isr, fail_over,
)  # fmt: skip


def catch_up(cluster: ModelCluster) -> None:
    """Let every leader take its followers into the ISR."""
    assert cluster.active is not None
    for broker_id, broker in cluster.brokers.items():
        for key in cluster.led(broker_id):
            others = (one for one in broker.hosted[key].replicas if one != broker_id)
            in_sync = [one for one in others if key in cluster.brokers[one].hosted]
            cluster.alter_isr(cluster.active, broker_id, key, [broker_id, *in_sync])
    cluster.settle()


def interrupt(
    cluster: ModelCluster, action: Callable[[ModelCluster], None], number: int, *, dies: bool
) -> bool:
    """Interrupt an action before this many-th write; return whether there was one. All must end well."""
    for broker_id in cluster.brokers:
        cluster.start_broker(broker_id)
    cluster.start_controller()
    cluster.settle()
    cluster.create_topic("t", {0: [1, 2], 1: [2, 3]})
    cluster.create_topic("u", {0: [1, 2]})
    cluster.settle()
    (controller,) = cluster.controllers
    session = controller.session.session_id
    action(cluster)
    cluster.end_at_write(controller, number, dies=dies)
    cluster.settle()
    is_interrupted = controller.is_dead or controller.session.session_id != session
    controller.session.end_at_write(0, None)
    if not cluster.controllers:
        cluster.start_controller()
    cluster.settle()
    check_quiet(cluster)
    for broker_id in cluster.brokers:
        if cluster.is_registered(broker_id):
            cluster.kill_broker(broker_id)
        cluster.start_broker(broker_id)
    cluster.settle()
    for _ in range(3):
        catch_up(cluster)
    check_healed(cluster)
    assert cluster.znodes.exists(paths.topic("t")) is None or action is not delete
    return is_interrupted


def interrupt_each(
    server: ZooKeeperServer, action: Callable[[ModelCluster], None], ibp: str, *, dies: bool
) -> None:
    for number in range(1, MOST_WRITES):
        cluster = ModelCluster(server.address, f"/interrupted-{next(_chroots)}", ibp, (1, 2, 3, 4))
        try:
            is_interrupted = interrupt(cluster, action, number, dies=dies)
        except BaseException as error:
            error.add_note(f"interrupted before write {number}")
            raise
        finally:
            cluster.close()
        if not is_interrupted:
            break
    else:
        pytest.fail("there are more writes than were interrupted")
    assert number > 1


@pytest.mark.parametrize("action", [create, delete, reassign, kill_broker])
def test_a_controller_dies_before_each_write(
    zookeeper_server: ZooKeeperServer, action: Callable[[ModelCluster], None]
) -> None:
    interrupt_each(zookeeper_server, action, "3.9", dies=True)


@pytest.mark.long
@pytest.mark.parametrize("dies", [True, False], ids=["death", "expiry"])
@pytest.mark.parametrize("ibp", ["3.9", "2.4"])
@pytest.mark.parametrize("action", ACTIONS)
def test_all_interruptions(
    zookeeper_server: ZooKeeperServer, action: Callable[[ModelCluster], None], ibp: str, dies: bool
) -> None:
    interrupt_each(zookeeper_server, action, ibp, dies=dies)
