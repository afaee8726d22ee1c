"""Embedded brokers get the same requests in the same order from ctrlchan's controller and from a broker's.

One real broker stands beside two embedded ones behind relays that keep every frame. The same events happen
under the real broker as the controller and under ctrlchan's.

Kafka's controller makes its requests on one thread, in an order that does not depend on time, but for the
automatic election of preferred leaders, which begins five seconds after a failover; so that is switched off.
ctrlchan's channel merges UpdateMetadata requests that wait for a broker, so that the number of its requests
depends on how fast brokers answer; the merge is switched off too. What is left is equal, request by request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ctrlchan import ChannelConfig
from ctrlchan._codec import (
    HIGHEST_VERSION,
    ControlRequestBody,
    UpdateMetadataRequest,
    decode_request,
    decode_request_header,
)
from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.launch.embedded import EmbeddedBroker
from ctrlchan.messages.json_form import name_of, to_json
from tests.acceptance.client_frames import METADATA, client_response, metadata_frame
from tests.acceptance.controller import nodes
from tests.acceptance.relay import RecordingRelay
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange

TOPIC = "watched"
FIRST, SECOND = 8, 9

View = dict[tuple[str, int], tuple[int, int, tuple[int, ...], tuple[int, ...]]]


@dataclass
class Embedded:
    """An embedded broker, the relay before it, and its registration."""

    rig: KafkaRig
    broker: EmbeddedBroker
    relay: RecordingRelay
    client: KazooClient | None = None
    #: Number of the first connection of the current recording.
    first: int = 0

    def register(self) -> None:
        self.client = KazooClient(hosts=self.rig.zookeeper_connect, timeout=30.0)
        self.client.start(timeout=30)
        endpoints = [f"PLAINTEXT://127.0.0.1:{self.relay.port}"]
        data = json.dumps({"version": 5, "jmx_port": -1, "endpoints": endpoints}).encode()
        self.client.create(f"/brokers/ids/{self.broker.broker.id}", data, ephemeral=True)

    def unregister(self) -> None:
        if self.client is not None:
            self.client.stop()
            self.client.close()
            self.client = None

    def bodies(self) -> list[ControlRequestBody]:
        """Return the answered requests of this recording, in order."""
        found = []
        for connection in self.relay.connections[self.first :]:
            for request in list(connection.requests)[: len(connection.responses)]:
                header = decode_request_header(request)
                if header.api_key in HIGHEST_VERSION:
                    found.append(decode_request(header.api_key, header.api_version, request, header.size))
        return found

    def view(self) -> View:
        """Return what the UpdateMetadata requests of this recording say of the partitions."""
        view: View = {}
        for body in self.bodies():
            if isinstance(body, UpdateMetadataRequest):
                for topic in to_json(body)["topicStates"]:
                    for one in topic["partitionStates"]:
                        view[topic["topicName"], one["partitionIndex"]] = (
                            one["leader"],
                            one["leaderEpoch"],
                            tuple(one["isr"]),
                            tuple(one["replicas"]),
                        )
        return {key: value for key, value in view.items() if value[0] != -2}

    def metadata(self) -> str:
        """Return the broker's answer to a client, without topic ids."""
        frame = exchange("127.0.0.1", self.broker.port, metadata_frame(12, [TOPIC]))
        topics = client_response(METADATA, 12, frame).topics
        return "\n".join(str((t.name, t.error_code, sorted(map(str, t.partitions)))) for t in topics)


@dataclass
class Recording:
    """The requests to each embedded broker in one form for both controllers, and what clients saw."""

    requests: dict[int, list[Any]] = field(default_factory=dict)
    metadata: dict[int, str] = field(default_factory=dict)


def test_requests_are_those_of_a_real_controller(kafka_jars_ready: None, tmp_path: Path) -> None:
    with ExitStack() as stack:
        properties = {"auto.leader.rebalance.enable": "false"}
        rig = stack.enter_context(KafkaRig(tmp_path / "rig", brokers=1, properties=properties))
        wait_until(rig.jvm_controller, what="the broker is elected")
        brokers = {}
        for broker_id in (FIRST, SECOND):
            broker = stack.enter_context(EmbeddedBroker(broker_id))
            relay = stack.enter_context(RecordingRelay(("127.0.0.1", broker.port)))
            brokers[broker_id] = Embedded(rig, broker, relay)
            brokers[broker_id].register()
            stack.callback(brokers[broker_id].unregister)
        wait_until(lambda: all(one.bodies() for one in brokers.values()), what="the controller sees them")
        theirs = _record(rig, brokers, lambda: rig.zookeeper.delete("/controller"))
        with _controller(rig) as controller:
            ours = _record(rig, brokers, lambda: wait_until(controller.take_over, what="we are elected"))
    for broker_id in (FIRST, SECOND):
        _compare(theirs.requests[broker_id], ours.requests[broker_id])
        assert ours.metadata[broker_id] == theirs.metadata[broker_id]


@contextmanager
def _controller(rig: KafkaRig) -> Iterator[KafkaController]:
    # Without listeners it is not announced: the live brokers are the same in both recordings.
    config = ControllerConfig(
        controller_id=1000,
        zookeeper=rig.zookeeper_connect,
        channel=ChannelConfig(merge_update_metadata=False),
        auto_leader_rebalance=False,
    )
    with KafkaController(config) as controller:
        yield controller


def _record(rig: KafkaRig, brokers: dict[int, Embedded], elect: Callable[[], object]) -> Recording:
    """Elect a controller, and let everything happen that embedded brokers can take part in."""
    zookeeper, recording = rig.zookeeper, Recording()
    for one in brokers.values():
        one.first = len(one.relay.connections)
    elect()
    wait_until(
        lambda: all(one.bodies() for one in brokers.values()), what="the controller greets all brokers"
    )

    _write(zookeeper, f"/config/topics/{TOPIC}", {"version": 1, "config": {}})
    partitions = {"0": [FIRST, SECOND], "1": [SECOND, FIRST]}
    _write(zookeeper, f"/brokers/topics/{TOPIC}", {"version": 2, "partitions": partitions})
    _settle(rig, brokers, {0: FIRST, 1: SECOND})

    node = json.loads(zookeeper.get(f"/brokers/topics/{TOPIC}")[0])
    node["partitions"]["2"] = [FIRST, SECOND]
    _write(zookeeper, f"/brokers/topics/{TOPIC}", node)
    _settle(rig, brokers, {0: FIRST, 1: SECOND, 2: FIRST})

    entry = {"topic": TOPIC, "partition": 0}
    reassignment = {"version": 1, "partitions": [{**entry, "replicas": [SECOND, FIRST]}]}
    _write(zookeeper, "/admin/reassign_partitions", reassignment)
    _wait_for_no_node(zookeeper, "/admin/reassign_partitions")
    _settle(rig, brokers, {0: FIRST, 1: SECOND, 2: FIRST})
    _write(zookeeper, "/admin/preferred_replica_election", {"version": 1, "partitions": [entry]})
    _wait_for_no_node(zookeeper, "/admin/preferred_replica_election")
    _settle(rig, brokers, {0: SECOND, 1: SECOND, 2: FIRST})

    brokers[SECOND].unregister()
    _settle(rig, {FIRST: brokers[FIRST]}, {0: FIRST, 1: FIRST, 2: FIRST})
    brokers[SECOND].register()
    _settle(rig, brokers, {0: FIRST, 1: FIRST, 2: FIRST})
    # Leaders and ISRs are those from before its return.
    offline = f"offline_replicas=({SECOND}"
    wait_until(
        lambda: all(offline not in one.metadata() for one in brokers.values()),
        what="all see the broker again",
    )
    recording.metadata = {broker_id: one.metadata() for broker_id, one in brokers.items()}

    zookeeper.create(f"/admin/delete_topics/{TOPIC}")
    _wait_for_no_node(zookeeper, f"/brokers/topics/{TOPIC}")
    _wait_for_no_node(zookeeper, f"/admin/delete_topics/{TOPIC}")
    recording.requests = {
        broker_id: [_normal(body) for body in one.bodies()] for broker_id, one in brokers.items()
    }
    return recording


def _settle(rig: KafkaRig, brokers: dict[int, Embedded], leaders: dict[int, int]) -> None:
    """Wait until ZooKeeper has these leaders and the brokers have got what ZooKeeper has."""

    def settled() -> bool:
        found = nodes.partition_nodes(rig.zookeeper, {TOPIC})
        expected = {key: (n.leader, n.leader_epoch, n.isr, n.replicas) for key, n in found.items()}
        return {p: node.leader for (_, p), node in found.items()} == leaders and all(
            {key: value for key, value in one.view().items() if key[0] == TOPIC} == expected
            for one in brokers.values()
        )

    wait_until(settled, what=f"the leaders {leaders} are everywhere")


def _normal(body: ControlRequestBody) -> Any:
    """Return a request without ids and epochs of its term, and without the order of a JVM's maps."""
    value = to_json(body)
    epoch = value["controllerEpoch"]
    for key in ("controllerId", "controllerEpoch", "brokerEpoch"):
        del value[key]
    return name_of(body), _ordered(value, epoch)


def _ordered(value: Any, epoch: int) -> Any:
    if isinstance(value, dict):
        made = {key: _ordered(one, epoch) for key, one in value.items() if key != "topicId"}
        if "controllerEpoch" in made:
            made["controllerEpoch"] = made["controllerEpoch"] - epoch
        return made
    if isinstance(value, list):
        items = [_ordered(one, epoch) for one in value]
        return sorted(items, key=str) if items and isinstance(items[0], dict) else items
    return value


def _compare(theirs: list[Any], ours: list[Any]) -> None:
    for number, (their, our) in enumerate(zip(theirs, ours, strict=False)):
        assert our == their, f"request {number} differs:\nJVM      {their}\nctrlchan {our}\n\n" + _listing(
            theirs, ours
        )
    assert len(theirs) == len(ours), _listing(theirs, ours)


def _listing(theirs: list[Any], ours: list[Any]) -> str:
    lines = [f"JVM {number}: {name} {value}" for number, (name, value) in enumerate(theirs)]
    return "\n".join(
        lines + [f"ctrlchan {number}: {name} {value}" for number, (name, value) in enumerate(ours)]
    )


def _write(client: KazooClient, path: str, value: Any) -> None:
    data = json.dumps(value).encode()
    if client.exists(path):
        client.set(path, data)
    else:
        client.create(path, data)


def _wait_for_no_node(client: KazooClient, path: str) -> None:
    def gone() -> bool:
        try:
            client.get(path)
        except NoNodeError:
            return True
        return False

    wait_until(gone, what=f"{path} is deleted")
