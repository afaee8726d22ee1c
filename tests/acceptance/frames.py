"""Control request frames, described once and written in any version; their responses read back.

``Target`` has the fields of a request that depend on its broker, so that the same description, with the
same controlled epochs, can be sent to a real broker and to an embedded one. Written through the package's
JSON form and codec.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from ctrlchan._codec import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    decode_response,
    decode_response_header,
    encode_request_header,
    request_header_version,
    response_header_version,
)
from ctrlchan.messages.json_form import encode_from_json

CORRELATION_ID: Final = 7
CLIENT_ID: Final = "1000"
NO_ID: Final = uuid.UUID(int=0)

_NAMES: Final = {
    LEADER_AND_ISR: "LeaderAndIsrRequest",
    STOP_REPLICA: "StopReplicaRequest",
    UPDATE_METADATA: "UpdateMetadataRequest",
}


@dataclass(frozen=True)
class LiveBroker:
    id: int
    host: str
    port: int
    listener: str = "PLAINTEXT"
    rack: str | None = None


@dataclass(frozen=True)
class Target:
    """A broker, its controller, and the brokers that are alive."""

    broker_id: int
    broker_epoch: int
    controller_id: int
    controller_epoch: int
    live_brokers: tuple[LiveBroker, ...]


@dataclass(frozen=True)
class Topic:
    name: str
    id: uuid.UUID = NO_ID


@dataclass(frozen=True)
class Row:
    """One partition of a request; by default a new single replica on broker 1, which leads it."""

    topic: Topic
    partition: int = 0
    leader: int = 1
    leader_epoch: int = 0
    partition_epoch: int = 0
    isr: tuple[int, ...] = (1,)
    replicas: tuple[int, ...] = (1,)
    offline: tuple[int, ...] = ()
    is_new: bool = True
    delete: bool = False


@dataclass(frozen=True)
class Head:
    """The epochs of a request's head, as differences from the true ones. ``broker`` None: -1, unknown."""

    controller: int = 0
    broker: int | None = 0
    kraft: bool = False


TRUE_HEAD: Final = Head()


def control_frame(
    target: Target, api_key: int, version: int, rows: Sequence[Row], head: Head, *, live_brokers: bool = True
) -> bytes:
    """A whole control request, without its size. A version above the highest has the highest one's body."""
    written = min(version, {LEADER_AND_ISR: 7, STOP_REPLICA: 4, UPDATE_METADATA: 8}[api_key])
    controller_epoch = target.controller_epoch + head.controller
    body: dict[str, Any] = {"controllerId": target.controller_id, "controllerEpoch": controller_epoch}
    if written >= {LEADER_AND_ISR: 2, STOP_REPLICA: 1, UPDATE_METADATA: 5}[api_key]:
        body["brokerEpoch"] = -1 if head.broker is None else target.broker_epoch + head.broker
    if written >= {LEADER_AND_ISR: 7, STOP_REPLICA: 4, UPDATE_METADATA: 8}[api_key]:
        body["isKRaftController"] = head.kraft
    brokers = target.live_brokers if live_brokers else ()
    if api_key == LEADER_AND_ISR:
        body |= _leader_and_isr_body(written, controller_epoch, rows, brokers)
    elif api_key == UPDATE_METADATA:
        body |= _update_metadata_body(written, controller_epoch, rows, brokers)
    else:
        body |= _stop_replica_body(written, rows)
    header = encode_request_header(
        request_header_version(api_key, written), api_key, version, CORRELATION_ID, CLIENT_ID.encode()
    )
    return header + encode_from_json(_NAMES[api_key], written, body)


def control_errors(
    api_key: int, version: int, response: bytes
) -> tuple[int, dict[tuple[str | uuid.UUID, int], int]]:
    """The error of a control response, and those of its partitions by (topic name or id, partition)."""
    correlation_id, size, unknown = decode_response_header(
        response, response_header_version(api_key, version)
    )
    assert (correlation_id, unknown) == (CORRELATION_ID, 0)
    body = decode_response(api_key, version, response, size)
    by_id = api_key == LEADER_AND_ISR and version >= 5
    names = body.topics.names.to_list()
    errors: dict[tuple[str | uuid.UUID, int], int] = {}
    for topic in range(len(body.topics)):
        key = uuid.UUID(bytes=body.topics.ids[topic].tobytes()) if by_id else names[topic]
        assert key is not None
        for row in range(body.topic_starts[topic], body.topic_starts[topic + 1]):
            errors[key, int(body.partition[row])] = int(body.partition_error[row])
    return body.error_code, errors


def _leader_and_isr_body(
    version: int, controller_epoch: int, rows: Sequence[Row], brokers: Sequence[LiveBroker]
) -> dict[str, Any]:
    def state(row: Row) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "partitionIndex": row.partition,
            "controllerEpoch": controller_epoch,
            "leader": row.leader,
            "leaderEpoch": row.leader_epoch,
            "isr": list(row.isr),
            "partitionEpoch": row.partition_epoch,
            "replicas": list(row.replicas),
        }
        if version < 2:
            fields["topicName"] = row.topic.name
        if version >= 1:
            fields["isNew"] = row.is_new
        if version >= 3:
            fields |= {"addingReplicas": [], "removingReplicas": []}
        if version >= 6:
            fields["leaderRecoveryState"] = 0
        return fields

    leaders = {row.leader for row in rows}
    body: dict[str, Any] = {
        "liveLeaders": [
            {"brokerId": b.id, "hostName": b.host, "port": b.port} for b in brokers if b.id in leaders
        ]
    }
    if version >= 5:
        body["type"] = 0
    if version < 2:
        return body | {"ungroupedPartitionStates": [state(row) for row in rows]}
    return body | {
        "topicStates": [
            {"topicName": topic.name, "partitionStates": [state(row) for row in of_topic]}
            | ({"topicId": _base64(topic.id)} if version >= 5 else {})
            for topic, of_topic in _by_topic(rows)
        ]
    }


def _update_metadata_body(
    version: int, controller_epoch: int, rows: Sequence[Row], brokers: Sequence[LiveBroker]
) -> dict[str, Any]:
    def state(row: Row) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "partitionIndex": row.partition,
            "controllerEpoch": controller_epoch,
            "leader": row.leader,
            "leaderEpoch": row.leader_epoch,
            "isr": list(row.isr),
            "zkVersion": row.partition_epoch,
            "replicas": list(row.replicas),
        }
        if version < 5:
            fields["topicName"] = row.topic.name
        if version >= 4:
            fields["offlineReplicas"] = list(row.offline)
        return fields

    def broker(live: LiveBroker) -> dict[str, Any]:
        if version == 0:
            return {"id": live.id, "v0Host": live.host, "v0Port": live.port}
        endpoint: dict[str, Any] = {"host": live.host, "port": live.port, "securityProtocol": 0}
        if version >= 3:
            endpoint["listener"] = live.listener
        return {"id": live.id, "endpoints": [endpoint]} | ({"rack": live.rack} if version >= 2 else {})

    body: dict[str, Any] = {"liveBrokers": [broker(live) for live in brokers]}
    if version < 5:
        return body | {"ungroupedPartitionStates": [state(row) for row in rows]}
    return body | {
        "topicStates": [
            {"topicName": topic.name, "partitionStates": [state(row) for row in of_topic]}
            | ({"topicId": _base64(topic.id)} if version >= 7 else {})
            for topic, of_topic in _by_topic(rows)
        ]
    }


def _stop_replica_body(version: int, rows: Sequence[Row]) -> dict[str, Any]:
    if version < 3:
        (delete,) = {row.delete for row in rows} or {False}
        if version == 0:
            partitions = [{"topicName": row.topic.name, "partitionIndex": row.partition} for row in rows]
            return {"deletePartitions": delete, "ungroupedPartitions": partitions}
        return {
            "deletePartitions": delete,
            "topics": [
                {"name": topic.name, "partitionIndexes": [row.partition for row in of_topic]}
                for topic, of_topic in _by_topic(rows)
            ],
        }
    return {
        "topicStates": [
            {
                "topicName": topic.name,
                "partitionStates": [
                    {
                        "partitionIndex": row.partition,
                        "leaderEpoch": row.leader_epoch,
                        "deletePartition": row.delete,
                    }
                    for row in of_topic
                ],
            }
            for topic, of_topic in _by_topic(rows)
        ]
    }


def _by_topic(rows: Sequence[Row]) -> list[tuple[Topic, list[Row]]]:
    topics: dict[Topic, list[Row]] = {}
    for row in rows:
        topics.setdefault(row.topic, []).append(row)
    return list(topics.items())


def _base64(topic_id: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
