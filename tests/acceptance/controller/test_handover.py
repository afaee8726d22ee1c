"""Handover between ctrlchan's controllers and those of real brokers, while a producer writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from tests.acceptance.controller import nodes
from tests.acceptance.controller.agreement import wait_until_agreed, wait_until_in_sync
from tests.acceptance.controller.cluster import CONTROLLER_ID, ControlledCluster, controller_config
from tests.acceptance.controller.load import Load, write_large
from tests.acceptance.controller.tools import KafkaTools, wait_until_complete
from tests.kafka.waiting import wait_until
from tests.unit.controller.expiry import expire

#: How often the office changes there and back.
ROUNDS = [1, pytest.param(15, marks=pytest.mark.long)]


@pytest.mark.parametrize("rounds", ROUNDS)
def test_to_a_broker_and_back(cluster: ControlledCluster, rounds: int) -> None:
    rig, topic = cluster.rig, f"there-and-back-{rounds}"
    cluster.create_topic(topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    epoch = nodes.controller_epoch(rig.zookeeper)
    with Load(rig.bootstrap, topic) as load:
        for number in range(rounds):
            for hand in (cluster.hand_to_jvm, cluster.hand_to_us):
                hand()
                epoch += 1
                assert nodes.controller_epoch(rig.zookeeper) == epoch
                # Whoever is the controller can lead.
                name = f"{topic}-{number}-{hand.__name__.replace('_', '-')}"
                cluster.create_topic(name, [[2, 1], [3, 2]])
                wait_until_in_sync(rig, [topic, name])
                load.wait_for_more(partitions=3)
                cluster.delete_topic(name)
    wait_until_in_sync(rig)
    load.check_nothing_is_lost()
    cluster.delete_topic(topic)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_between_two_controllers(cluster: ControlledCluster, rounds: int) -> None:
    rig, topic = cluster.rig, f"two-controllers-{rounds}"
    cluster.create_topic(topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    first = cluster.active
    second = cluster.start_controller(
        controller_config(rig.zookeeper_connect, controller_id=CONTROLLER_ID + 1)
    )
    epoch = nodes.controller_epoch(rig.zookeeper)
    assert not second.is_active
    with Load(rig.bootstrap, topic) as load:
        for now, former in [(second, first), (first, second)] * rounds:
            assert now.take_over()
            epoch += 1
            wait_until(lambda former=former: not former.is_active, what="the former controller resigns")  # type: ignore[misc]
            assert (now.epoch, nodes.controller_epoch(rig.zookeeper)) == (epoch, epoch)
            cluster.create_topic(f"{topic}-{epoch}", [[1, 2]])
            wait_until_agreed(rig)
            load.wait_for_more(partitions=3)
            cluster.delete_topic(f"{topic}-{epoch}")
    wait_until_in_sync(rig)
    load.check_nothing_is_lost()
    cluster.close_controller(second)
    cluster.delete_topic(topic)


@pytest.mark.parametrize("hands", [1, pytest.param(3, marks=pytest.mark.long)])  # once is each direction
@pytest.mark.parametrize("ends_with_us", [True, False])
def test_in_the_middle_of_a_reassignment(
    cluster: ControlledCluster, tools: KafkaTools, ends_with_us: bool, hands: int
) -> None:
    rig, topic = cluster.rig, f"reassigned-by-{'us' if ends_with_us else 'jvm'}-{hands}"
    to_jvm, to_us = cluster.hand_to_jvm, cluster.hand_to_us
    if ends_with_us:
        to_jvm()
    turns: list[Callable[[], object]] = [to_us, to_jvm, to_us] if ends_with_us else [to_jvm, to_us, to_jvm]
    cluster.create_topic(topic, [[1, 2], [2, 1]])
    for partition in (0, 1):
        write_large(rig.bootstrap, topic, partition)
    with Load(rig.bootstrap, topic) as load:
        plan = {(topic, 0): [3, 2], (topic, 1): [1, 3]}
        run = tools.execute(plan, "--throttle", "1")
        assert run.status == 0, run
        for hand in turns[:hands]:
            hand()
            found = nodes.partition_nodes(rig.zookeeper, {topic})
            assert [found[topic, p].adding for p in (0, 1)] == [(3,), (3,)]
            wait_until_agreed(rig)
            assert "is still in progress" in tools.verify(plan, "--preserve-throttles").output
            load.wait_for_more(partitions=2)
        run = tools.execute(plan, "--additional", "--throttle", "100000000")
        assert run.status == 0, run
        wait_until_complete(tools, plan)
        load.wait_for_more(partitions=2)
    wait_until_in_sync(rig)
    found = nodes.partition_nodes(rig.zookeeper, {topic})
    assert {key: list(found[key].replicas) for key in plan} == plan
    load.check_nothing_is_lost()
    if not ends_with_us:
        cluster.hand_to_us()
    cluster.delete_topic(topic)


@pytest.mark.parametrize("ends_with_us", [True, False])
def test_in_the_middle_of_a_deletion(cluster: ControlledCluster, ends_with_us: bool) -> None:
    """A dead replica halts the deletion; the controller that sees it return completes the deletion."""
    rig, topic = cluster.rig, f"deleted-by-{'us' if ends_with_us else 'jvm'}"
    if ends_with_us:
        cluster.hand_to_jvm()
    cluster.create_topic(topic, [[1, 2, 3], [2, 3, 1]])
    rig.kill_broker(3)
    # Kafka's controller deletes no replica of a topic that it finds in the middle of its failover.
    wait_until(
        lambda: all(3 not in node.isr for node in nodes.partition_nodes(rig.zookeeper, {topic}).values()),
        what="the controller has taken broker 3 out of the ISRs",
    )
    rig.zookeeper.create(f"/admin/delete_topics/{topic}")
    wait_until(
        lambda: (
            f"/brokers/topics/{topic}" in cluster.traces(topic)
            and not [trace for trace in cluster.traces(topic) if trace.startswith("broker")]
        ),
        what="the live brokers have deleted their replicas",
    )
    (cluster.hand_to_us if ends_with_us else cluster.hand_to_jvm)()
    assert f"/admin/delete_topics/{topic}" in cluster.traces(topic)
    rig.restart_broker(3)
    cluster.wait_until_gone(topic)
    if not ends_with_us:
        cluster.hand_to_us()
    wait_until_agreed(rig)


@pytest.mark.parametrize("rounds", [1, pytest.param(10, marks=pytest.mark.long)])
def test_an_expired_session(cluster: ControlledCluster, rounds: int) -> None:
    """Another is elected at once; the controller whose session has expired takes part again."""
    rig, topic = cluster.rig, f"expired-{rounds}"
    cluster.create_topic(topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    controller = cluster.active
    with Load(rig.bootstrap, topic) as load:
        for _ in range(rounds):
            epoch = nodes.controller_epoch(rig.zookeeper)
            session_id = controller.session.session_id
            expire(controller.session)
            wait_until(
                lambda epoch=epoch: nodes.controller_epoch(rig.zookeeper) > epoch,  # type: ignore[misc]
                what="a controller is elected",
            )
            wait_until(
                lambda former=session_id: controller.session.session_id not in (0, former),  # type: ignore[misc]
                what="the controller has a new session",
            )
            wait_until_agreed(rig)
            load.wait_for_more(partitions=3)
            cluster.take_over(controller)
            wait_until_agreed(rig)
            load.wait_for_more(partitions=3)
    wait_until_in_sync(rig)
    load.check_nothing_is_lost()
    cluster.delete_topic(topic)


@pytest.mark.parametrize("rounds", [1, pytest.param(6, marks=pytest.mark.long)])
def test_zookeeper_restarts(cluster: ControlledCluster, rounds: int) -> None:
    rig, topic = cluster.rig, f"zookeeper-{rounds}"
    cluster.create_topic(topic, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    controller = cluster.active
    with Load(rig.bootstrap, topic) as load:
        for number in range(rounds):
            rig.restart_zookeeper()
            wait_until(lambda: _has_controller(rig.zookeeper), what="there is a controller")
            # Sessions may have expired meanwhile, and a broker may have been elected.
            cluster.take_over(controller)
            cluster.create_topic(f"{topic}-{number}", [[1, 2], [3, 1]])
            wait_until_in_sync(rig)
            load.wait_for_more(partitions=3)
            cluster.delete_topic(f"{topic}-{number}")
    load.check_nothing_is_lost()
    cluster.delete_topic(topic)


def _has_controller(client: KazooClient) -> bool:
    try:
        return nodes.controller(client) is not None
    except KazooException:
        # This client has lost its connection too.
        return False
