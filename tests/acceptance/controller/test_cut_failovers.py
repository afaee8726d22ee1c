"""The connection to ZooKeeper is cut at every step of a failover, on a cluster of real brokers."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.kafka_controller import KafkaController
from tests.acceptance.controller import nodes
from tests.acceptance.controller.agreement import wait_until_agreed, wait_until_in_sync
from tests.acceptance.controller.cluster import CONTROLLER_ID, ControlledCluster, controller_config
from tests.kafka.waiting import wait_until
from tests.kafka.zookeeper_proxy import MULTI, Loss, ZooKeeperProxy

PING = 11


@pytest.mark.parametrize(
    ("loss", "every_request"),
    [
        pytest.param(loss, every, id=f"{loss.value}-lost-{'all' if every else 'writes'}", marks=marks)
        for loss in Loss
        for every in (False, True)
        for marks in [() if loss is Loss.ANSWER and not every else pytest.mark.long]
    ],
)
def test_the_connection_is_cut_at_each_step(
    cluster: ControlledCluster, loss: Loss, every_request: bool
) -> None:
    """Whichever request or answer is lost with its connection: the next controller finds no harm."""
    rig = cluster.rig
    main, numbers = cluster.active, itertools.count()
    name = f"cut-{loss.value}-{'all' if every_request else 'writes'}"

    def counts(opcode: int) -> bool:
        return opcode != PING if every_request else opcode == MULTI

    with ZooKeeperProxy(rig.zookeeper_port) as proxy:
        other = cluster.start_controller(controller_config(proxy.address, controller_id=CONTROLLER_ID + 3))
        with _busy(main):
            _leave_work(cluster, name, next(numbers))
            proxy.requests.clear()
            cluster.take_over(other)
        wait_until_agreed(rig)
        steps = sum(map(counts, proxy.requests))
        assert steps >= 5
        for step in range(steps):
            cluster.take_over(main)
            wait_until(lambda: not other.is_active, what="the former controller resigns")
            wait_until_agreed(rig)
            epoch, losses = nodes.controller_epoch(rig.zookeeper), proxy.losses
            with _busy(main):
                made = _leave_work(cluster, name, next(numbers))
                proxy.plan = _losing(loss, step, counts)
                other.take_over()
                proxy.plan = lambda _opcode: None
            if proxy.losses == losses:
                # This failover had fewer requests.
                break
            assert nodes.controller_epoch(rig.zookeeper) >= epoch
            # The term may have ended; a broker may have been elected. It can lead again at once.
            cluster.take_over(other)
            wait_until_in_sync(rig, [made])
            wait_until_agreed(rig)
        cluster.take_over(main)
        cluster.close_controller(other)
    wait_until_in_sync(rig)
    for topic in sorted(nodes.topic_names(rig.zookeeper)):
        if topic.startswith(name):
            cluster.delete_topic(topic)


@contextmanager
def _busy(controller: KafkaController) -> Iterator[None]:
    """Keep the controller's thread busy: it processes no event while the block runs."""
    begun, done = threading.Event(), threading.Event()

    def wait(_core: object) -> None:
        begun.set()
        done.wait(120)

    controller.loop.call(ControllerState.IDLE, wait)
    assert begun.wait(60)
    try:
        yield
    finally:
        done.set()


def _leave_work(cluster: ControlledCluster, name: str, number: int) -> str:
    """Leave a topic to create, whose name is returned, and one to delete."""
    zookeeper, topic = cluster.rig.zookeeper, f"{name}-{number}"
    former = f"{name}-{number - 1}"
    data = json.dumps({"version": 2, "partitions": {"0": [1, 2, 3], "1": [2, 3, 1]}}).encode()
    transaction = zookeeper.transaction()
    transaction.create(f"/config/topics/{topic}", json.dumps({"version": 1, "config": {}}).encode())
    transaction.create(f"/brokers/topics/{topic}", data)
    if number:
        transaction.create(f"/admin/delete_topics/{former}", b"")
    transaction.commit()
    return topic


def _losing(loss: Loss, step: int, counts: Callable[[int], bool]) -> Callable[[int], Loss | None]:
    """Return the plan that loses one request or answer: the one behind ``step`` others that count."""
    left = step + 1

    def plan(opcode: int) -> Loss | None:
        nonlocal left
        left -= counts(opcode)
        return loss if counts(opcode) and left == 0 else None

    return plan
