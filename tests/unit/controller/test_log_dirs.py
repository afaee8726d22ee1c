"""Failed log directories: notifications in ZooKeeper, and the answers of brokers to LeaderAndIsr."""

from __future__ import annotations

import json
import logging

import pytest

from ctrlchan.zookeeper import paths
from tests.kafka.waiting import wait_until
from tests.unit.controller.real_cluster import RealCluster


@pytest.fixture
def led_by_1(cluster: RealCluster) -> RealCluster:
    """Two brokers, and a topic of two partitions that broker 1 leads."""
    cluster.start_brokers(1, 2)
    cluster.active_controller()
    cluster.create_topic("t", {0: [1, 2], 1: [1, 2]})
    cluster.wait_seen("t", {0: 1, 1: 1})
    cluster.wait_hosted(1, "t", {0: 1, 1: 1})
    return cluster


def report(cluster: RealCluster, broker_id: int) -> None:
    data = json.dumps({"version": 1, "broker": broker_id, "event": 1}).encode()
    cluster.znodes.create(paths.log_dir_event_notification(), data, sequence=True, makepath=True)


def failed_rows(cluster: RealCluster) -> int:
    core = cluster.controllers[0].current()
    assert core is not None
    offline = core.state.partitions.offline
    assert offline is not None
    return int(offline.lengths.sum())


def test_a_failed_directory_moves_its_leaders(
    led_by_1: RealCluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "state.change.logger")
    led_by_1.brokers[1].set_offline("t", 0)
    report(led_by_1, 1)
    node = led_by_1.wait_state("t", 0, leader=2)
    assert node.isr == [2]
    led_by_1.wait_seen("t", {0: 2, 1: 1})
    for broker_id in (1, 2):
        assert led_by_1.seen(broker_id, "t")[0].offline == [1]
    id = led_by_1.controllers[0].config.controller_id
    assert f"[Controller id={id}] Mark replicas t-0 on broker 1 as offline" in caplog.messages
    wait_until(
        lambda: led_by_1.znodes.get_children(paths.LOG_DIR_EVENT_NOTIFICATIONS) == [],
        what="the notification is deleted",
    )


def test_a_directory_that_works_again_is_no_longer_failed(led_by_1: RealCluster) -> None:
    led_by_1.brokers[1].set_offline("t", 0)
    report(led_by_1, 1)
    led_by_1.wait_state("t", 0, leader=2)
    wait_until(lambda: failed_rows(led_by_1) == 1, what="one replica is in a failed directory")
    led_by_1.brokers[1].set_offline("t", 0, offline=False)
    # The next LeaderAndIsr to the broker is answered with 0.
    led_by_1.kill_brokers(2)
    led_by_1.wait_state("t", 0, leader=-1)
    report(led_by_1, 1)
    wait_until(lambda: failed_rows(led_by_1) == 2, what="only the replicas of broker 2 are offline")


def test_a_restarted_broker_has_no_failed_directories(led_by_1: RealCluster) -> None:
    led_by_1.brokers[1].set_offline("t", 0)
    report(led_by_1, 1)
    led_by_1.wait_state("t", 0, leader=2)
    led_by_1.kill_brokers(1)
    led_by_1.wait_seen("t", {0: 2, 1: 2})
    led_by_1.start_brokers(1)
    wait_until(lambda: failed_rows(led_by_1) == 0, what="no replica is offline")
