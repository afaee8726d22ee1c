"""Frames of a real JVM controller, in every version it can send.

A broker of this package registers in ZooKeeper under a JVM controller, which drives it through a relay that
keeps every frame: a topic is created, gets a replica more, the controller fails over, the topic is deleted.
The codec must read each frame and write it again byte for byte, our table of request versions must be the
controller's own, and the controller must be content with the embedded broker's answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from ctrlchan._codec import (
    HIGHEST_VERSION,
    UPDATE_METADATA,
    ControlRequestBody,
    LeaderAndIsrRequest,
    RequestHeader,
    StopReplicaRequest,
    UpdateMetadataRequest,
    decode_request,
    decode_request_header,
    decode_response,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from ctrlchan.launch.embedded import EmbeddedBroker
from ctrlchan.protocol import request_versions
from tests.acceptance.protocols import INTER_BROKER_PROTOCOLS
from tests.acceptance.relay import RecordingRelay
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

OURS = 9  # the embedded broker's id; the real one is 1
TOPIC = "watched"


@dataclass(frozen=True)
class Frame:
    header: RequestHeader
    body: ControlRequestBody
    request: bytes
    response: bytes


# Each starts ZooKeeper and a broker.
@pytest.fixture(
    scope="module",
    params=[
        ibp if ibp in ("3.9", "2.4-IV0", "0.10.1") else pytest.param(ibp, marks=pytest.mark.long)
        for ibp in INTER_BROKER_PROTOCOLS
    ],
)
def ibp(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def frames(ibp: str, kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> list[Frame]:
    """Everything the controller sent to the embedded broker, decoded, in the order it was sent."""
    with _recording(ibp, tmp_path_factory.mktemp(f"jvm-{ibp}")) as relay:
        pass
    return _frames(relay)


def test_the_codec_decodes_and_encodes_them_byte_for_byte(frames: list[Frame]) -> None:
    for frame in frames:
        header = frame.header
        key, version = header.api_key, header.api_version
        encoded = encode_request_header(
            request_header_version(key, version), key, version, header.correlation_id, header.client_id
        )
        assert encoded + frame.body.encode() == frame.request
        assert frame.body.unknown_tagged_fields == 0
        correlation_id, size, unknown = decode_response_header(
            frame.response, response_header_version(key, version)
        )
        assert (correlation_id, unknown) == (header.correlation_id, 0)
        response = decode_response(key, version, frame.response, size)
        encoded = encode_response_header(response_header_version(key, version), correlation_id)
        assert encoded + response.encode() == frame.response
        assert response.error_code == 0


def test_it_sends_the_versions_of_our_table(ibp: str, frames: list[Frame]) -> None:
    versions = request_versions(ibp)
    assert {(f.header.api_key, f.header.api_version) for f in frames} == {
        (key, versions.for_api(key)) for key in HIGHEST_VERSION
    }


def test_its_client_id_is_its_broker_id(frames: list[Frame]) -> None:
    assert {f.header.client_id for f in frames} == {b"1"}
    assert {f.body.controller_id for f in frames} == {1}
    assert {f.body.controller_epoch for f in frames} == {1, 2}
    first = frames[0].header
    assert (first.api_key, first.correlation_id) == (UPDATE_METADATA, 0)


def test_it_sends_requests_in_our_order(frames: list[Frame]) -> None:
    """Create: LeaderAndIsr, UpdateMetadata. Failover: brokers, leaders, metadata. Delete: -2, stop twice."""
    kinds = [_gist(frame.body) for frame in frames]
    created = kinds.index("leaders, new")
    assert kinds[:created] == ["brokers only"] * created
    assert kinds[created + 1] == "metadata"
    takeover = next(n for n, frame in enumerate(frames) if frame.body.controller_epoch == 2)
    assert kinds[takeover : takeover + 3] == ["brokers only", "leaders", "metadata"]
    deletion = kinds.index("metadata during delete")
    assert kinds[deletion:] == ["metadata during delete", "stop", "stop and delete"]


def test_a_new_replica_is_sent_as_adding(ibp: str, frames: list[Frame]) -> None:
    adding = [
        lists
        for frame in frames
        if isinstance(frame.body, LeaderAndIsrRequest) and frame.body.partitions.adding is not None
        for lists in frame.body.partitions.adding.to_lists()
    ]
    # Older versions have no such field.
    assert ([OURS] in adding) == (request_versions(ibp).leader_and_isr >= 3)


@contextmanager
def _recording(ibp: str, folder: Path) -> Iterator[RecordingRelay]:
    """Make the controller send every kind of request to the embedded broker; the broker stops at the end."""
    properties = {"inter.broker.protocol.version": ibp}
    if ibp.startswith(("0.8", "0.9", "0.10")):
        properties["log.message.format.version"] = ibp
    with (
        KafkaRig(folder, brokers=1, properties=properties) as rig,
        EmbeddedBroker(OURS) as embedded,
        RecordingRelay(("127.0.0.1", embedded.port)) as relay,
        _registered(rig, relay.port),
    ):

        def sent(what: str) -> Callable[[], bool]:
            return lambda: what in [_gist(frame.body) for frame in _frames(relay)]

        wait_until(sent("brokers only"), what="the controller greets the embedded broker")
        # As kafka-topics did before brokers served it: the controller watches these znodes.
        assignment = {"0": [1, OURS], "1": [OURS, 1], "2": [1]}
        rig.zookeeper.create(f"/config/topics/{TOPIC}", _json({"version": 1, "config": {}}))
        rig.zookeeper.create(f"/brokers/topics/{TOPIC}", _json({"version": 2, "partitions": assignment}))
        wait_until(sent("metadata"), what="the controller sends the topic")

        # The third partition gets the embedded broker as a second replica.
        rig.zookeeper.create(
            "/admin/reassign_partitions",
            _json({"version": 1, "partitions": [{"topic": TOPIC, "partition": 2, "replicas": [1, OURS]}]}),
        )
        wait_until(lambda: _hosts(relay, 2), what="the embedded broker gets the third partition")
        _end_reassignment(rig)

        rig.zookeeper.delete("/controller")
        wait_until(
            lambda: any(f.body.controller_epoch == 2 and _gist(f.body) == "metadata" for f in _frames(relay)),
            what="the new controller has sent everything",
        )

        rig.zookeeper.create(f"/admin/delete_topics/{TOPIC}")
        wait_until(lambda: _topic_is_gone(rig), what="the topic's znodes go")
        yield relay


def _end_reassignment(rig: KafkaRig) -> None:
    """The embedded broker copies no records; the leader's part is played here, as brokers did before 2.7:
    the ISR goes to the state znode, and a notification to the controller."""
    path = f"/brokers/topics/{TOPIC}/partitions/2/state"
    state = json.loads(rig.zookeeper.get(path)[0])
    rig.zookeeper.set(path, _json(state | {"isr": [1, OURS]}))
    notification = {"version": 1, "partitions": [{"topic": TOPIC, "partition": 2}]}
    rig.zookeeper.create("/isr_change_notification/isr_change_", _json(notification), sequence=True)
    wait_until(
        lambda: not json.loads(rig.zookeeper.get(f"/brokers/topics/{TOPIC}")[0])["adding_replicas"],
        what="the reassignment ends",
    )


def _topic_is_gone(rig: KafkaRig) -> bool:
    try:
        rig.zookeeper.get(f"/brokers/topics/{TOPIC}")
    except NoNodeError:
        return True
    return False


@contextmanager
def _registered(rig: KafkaRig, port: int) -> Iterator[None]:
    """The embedded broker in /brokers/ids for as long as the block lasts."""
    client = KazooClient(hosts=rig.zookeeper_connect, timeout=30.0)
    client.start(timeout=30)
    try:
        registration = {"version": 5, "jmx_port": -1, "endpoints": [f"PLAINTEXT://127.0.0.1:{port}"]}
        client.create(f"/brokers/ids/{OURS}", _json(registration), ephemeral=True)
        yield
    finally:
        client.stop()
        client.close()


def _frames(relay: RecordingRelay) -> list[Frame]:
    """The control requests so far that were answered, decoded; other APIs' requests are none of ours."""
    frames = []
    for connection in relay.connections:
        for request, response in zip(list(connection.requests), list(connection.responses), strict=False):
            header = decode_request_header(request)
            if header.api_key in HIGHEST_VERSION:
                body = decode_request(header.api_key, header.api_version, request, header.size)
                frames.append(Frame(header, body, request, response))
    return frames


def _gist(body: ControlRequestBody) -> str:
    if isinstance(body, LeaderAndIsrRequest):
        # v0 has no field for new replicas, so every replica counts as old.
        new = body.is_new.any() or (body.version == 0 and bool((body.partitions.leader_epoch == 0).all()))
        return "leaders, new" if new else "leaders"
    if isinstance(body, StopReplicaRequest):
        return "stop and delete" if body.delete.any() else "stop"
    assert isinstance(body, UpdateMetadataRequest)
    if not len(body.partitions):
        return "brokers only"
    return "metadata during delete" if (body.partitions.leader == -2).all() else "metadata"


def _hosts(relay: RecordingRelay, partition: int) -> bool:
    return any(
        isinstance(frame.body, LeaderAndIsrRequest) and partition in frame.body.partitions.partition
        for frame in _frames(relay)
    )


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
