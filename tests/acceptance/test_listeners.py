"""Brokers with a listener of their own for controller and replication, hidden from clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from tests.acceptance.client_frames import METADATA, client_response, metadata_frame
from tests.acceptance.clients import consume, produce
from tests.acceptance.zk_controller import ZkController, refused
from tests.acceptance.znodes import ControllerZnodes
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange

INTERNAL = "INTERNAL"


@pytest.fixture(scope="module")
def two_listeners(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZkController]:
    """The controller of two brokers that are apart from the session's rig."""
    with KafkaRig(tmp_path_factory.mktemp("listeners"), brokers=2, inter_broker_listener=INTERNAL) as rig:
        client = KazooClient(hosts=rig.zookeeper_connect, timeout=30.0)
        client.start(timeout=30)
        try:
            wait_until(lambda: rig.jvm_controller() is not None, what="a JVM controller is elected")
            znodes = ControllerZnodes(client, 1000)
            znodes.take_over()
            with ZkController(rig, znodes) as controller:
                assert refused(controller.fail_over()) == []
                yield controller
        finally:
            client.stop()
            client.close()


def test_the_channel_takes_the_inter_broker_listener(two_listeners: ZkController) -> None:
    rig = two_listeners.kafka
    described = two_listeners.channel.describe()["brokers"]
    connected = {broker_id: broker["endpoint"] for broker_id, broker in described.items()}
    internal = {i: rig.broker(i).endpoint(INTERNAL) for i in rig.broker_ids}
    assert connected == {i: f"{e.host}:{e.port}" for i, e in internal.items()}


def test_clients_of_a_listener_get_its_endpoints(two_listeners: ZkController) -> None:
    rig = two_listeners.kafka
    for listener in ("PLAINTEXT", INTERNAL):
        for asked in rig.broker_ids:
            address = rig.broker(asked).endpoint(listener)
            response = exchange(address.host, address.port, metadata_frame(12, []))
            shown = {int(b.node_id): int(b.port) for b in client_response(METADATA, 12, response).brokers}
            assert shown == {i: rig.broker(i).endpoint(listener).port for i in rig.broker_ids}


def test_replicas_follow_over_the_inter_broker_listener(two_listeners: ZkController) -> None:
    """Acknowledged by both replicas, then read from the one that followed."""
    rig, topic = two_listeners.kafka, "followed"
    assert refused(two_listeners.create_topic(topic, {0: [1, 2]})) == []
    values = [b"%d" % n for n in range(10)]
    produce(rig.bootstrap, topic, values, partition=0)
    assert refused(two_listeners.move_leader(topic, 0, 2)) == []
    assert consume(rig.bootstrap, topic, 0, len(values)) == values
