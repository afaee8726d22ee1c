"""The example of the documents, as a test: a controller inside another program."""

from __future__ import annotations

from ctrlchan.controller.events.notifications import Notification
from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.controller.settings.config import ControllerConfig
from tests.unit.controller.real_cluster import RealCluster


def test_a_controller_inside_a_program(cluster: RealCluster) -> None:
    cluster.start_brokers(1, 2)
    zookeeper = cluster.zookeeper

    # begin of the example
    heard: list[str] = []

    def listener(event: Notification) -> None:
        heard.append(event.kind.value)

    config = ControllerConfig(controller_id=1000, zookeeper=zookeeper)
    with KafkaController(config, listener=listener) as controller:
        controller.wait_until_active(30)
        assert controller.epoch == 1
        described = controller.describe()
        assert described["active"]
    # end of the example

    assert heard == ["elected", "resigned"]
