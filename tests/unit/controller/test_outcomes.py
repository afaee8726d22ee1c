"""Outcomes of requests that end otherwise than acknowledged, and faults inside the controller."""

from __future__ import annotations

import logging

import pytest

from ctrlchan import EmbeddedBroker
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.errors import IllegalStateError
from ctrlchan.zookeeper import paths
from tests.kafka.waiting import wait_until
from tests.unit.controller.real_cluster import TIMEOUT, RealCluster


def run(controller: KafkaController, function: object) -> None:
    """Run a function with the core on the loop's thread."""
    assert callable(function)
    controller.loop.call(ControllerState.IDLE, function).result(TIMEOUT)


@pytest.fixture
def active(cluster: RealCluster) -> KafkaController:
    """An active controller with two brokers and a topic."""
    cluster.start_brokers(1, 2)
    controller = cluster.active_controller()
    cluster.create_topic("t", {0: [1, 2], 1: [2, 1]})
    cluster.wait_seen("t", {0: 1, 1: 2})
    return controller


def test_a_controller_whose_epoch_is_behind_is_elected_with_a_higher_one(
    cluster: RealCluster, active: KafkaController, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that answers 11, while ZooKeeper names no other controller."""

    def remember(core: object) -> None:
        core.replicas.controller_epoch = 3  # type: ignore[attr-defined]

    cluster.brokers[1].inspect(remember)
    cluster.start_brokers(3)
    wait_until(lambda: (active.epoch or 0) >= 3, what="the controller has the epoch of the broker")
    active.wait_until_active(TIMEOUT)
    cluster.create_topic("u", {0: [1, 3]})
    cluster.wait_seen("u", {0: 1})
    error = f"[Controller id={active.config.controller_id}] Received error STALE_CONTROLLER_EPOCH in "
    assert any(line.startswith(error) and line.endswith(" from broker 1") for line in caplog.messages)


def test_a_broker_that_the_channel_has_given_up_is_added_again(
    cluster: RealCluster, active: KafkaController, caplog: pytest.LogCaptureFixture
) -> None:
    """Its registration lives, so that no event of ZooKeeper brings it back."""
    run(active, lambda core: core.channel.remove_broker(1))
    with caplog.at_level(logging.WARNING, "ctrlchan.controller"):
        cluster.create_topic("u", {0: [1, 2]})
        cluster.wait_seen("u", {0: 1})
        cluster.wait_hosted(1, "u", {0: 1})
    assert "given up broker 1" in caplog.text
    assert active.epoch == 1


def test_a_broker_without_the_listener_is_left_out(cluster: RealCluster, active: KafkaController) -> None:
    with EmbeddedBroker(5, listener="OTHER") as broker:
        cluster.brokers[5] = broker
        epoch = cluster.register(5)
        assert epoch > 0
        core = active.current()
        assert core is not None
        wait_until(lambda: 5 in core.channel.left_out, what="the broker is left out")
        cluster.brokers.pop(5)
    cluster.create_topic("u", {0: [1, 2]})
    cluster.wait_seen("u", {0: 1})
    assert active.epoch == 1


def test_an_illegal_state_in_a_batch_ends_the_term(cluster: RealCluster, active: KafkaController) -> None:
    def leave_rows(core: ControllerCore) -> None:
        core.batch.new_batch()
        core.batch.add_update_metadata([1, 2], "all")

    run(active, leave_rows)
    cluster.start_brokers(3)
    wait_until(lambda: active.epoch == 2, what="the controller is elected again")
    cluster.wait_seen("t", {0: 1, 1: 2})
    assert cluster.znodes.exists(paths.CONTROLLER) is not None


def test_a_failover_that_fails_is_tried_again(
    cluster: RealCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.start_brokers(1)
    send = ControllerBrokerRequestBatch.send_requests_to_brokers
    failures = iter((True, True, False))

    def fail_twice(self: ControllerBrokerRequestBatch, epoch: int) -> object:
        if next(failures, False):
            raise IllegalStateError("not today")
        return send(self, epoch)

    monkeypatch.setattr(ControllerBrokerRequestBatch, "send_requests_to_brokers", fail_twice)
    with caplog.at_level(logging.ERROR, "ctrlchan.controller"):
        controller = cluster.controller()
        wait_until(lambda: controller.epoch == 3 and controller.is_active, what="the third term")
    assert caplog.text.count("forcing the controller to resign") == 2


def test_an_error_in_one_event_does_not_end_the_term(
    cluster: RealCluster, active: KafkaController, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: ControllerCore) -> None:
        raise ValueError("broken handler")

    core = active.current()
    assert core is not None
    with caplog.at_level(logging.ERROR, "ctrlchan.controller"):
        core.enqueue(ControllerState.TOPIC_CHANGE, "Broken", fail)
        cluster.create_topic("u", {0: [1]})
        cluster.wait_state("u", 0, leader=1)
    assert "Error processing event Broken" in caplog.text
    assert active.epoch == 1
