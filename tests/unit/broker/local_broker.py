"""A broker without a socket, called from Python: control requests in, (error, partition errors) out."""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

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
from ctrlchan.broker.core import BrokerCore
from ctrlchan.messages.trees import Tree, message_of
from ctrlchan.metadata_broker.table import served_apis
from ctrlchan.server.request_handler import RequestHandler
from tests.unit.broker.cores import broker_core
from tests.unit.server.contexts import LOCAL_CLIENT

OURS = 1  # id of the local broker
EPOCH = 50  # its broker epoch
CONTROLLER_EPOCH = 5  # of a request by default
CORRELATION_ID = 77

NAMES = {
    LEADER_AND_ISR: "LeaderAndIsrRequest",
    STOP_REPLICA: "StopReplicaRequest",
    UPDATE_METADATA: "UpdateMetadataRequest",
}
NO_ID = bytes(16)
NO_TIME = i32Timedelta.parse(timedelta())

#: (topic, partition, error) of each partition, in the order of the response.
Errors = list[tuple[str, int, int]]


def topic_id(name: str) -> bytes:
    """The id that requests give a topic by default."""
    return hashlib.md5(name.encode()).digest()


@dataclass(frozen=True)
class Part:
    """One partition of a request; by default a new one that the local broker leads alone."""

    topic: str = "alpha"
    partition: int = 0
    leader: int = OURS
    leader_epoch: int = 0
    partition_epoch: int = 0
    isr: tuple[int, ...] = (OURS,)
    replicas: tuple[int, ...] = (OURS,)
    offline: tuple[int, ...] = ()
    recovery_state: int = 0
    delete: bool = False


@dataclass(frozen=True)
class LiveBroker:
    id: int
    listeners: tuple[tuple[str, int], ...] = (("PLAINTEXT", 0),)  # name, security protocol
    rack: str | None = None
    host: str | None = None  # by default a made-up one
    port: int | None = None


LIVE = (LiveBroker(1), LiveBroker(2), LiveBroker(3))


def control_frame(
    api_key: int,
    version: int,
    parts: Sequence[Part],
    *,
    controller_id: int = 1000,
    controller_epoch: int = CONTROLLER_EPOCH,
    broker_epoch: int = EPOCH,
    kraft: bool = False,
    live: Sequence[LiveBroker] = LIVE,
    ids: Mapping[str, bytes] | None = None,
    topics: Sequence[str] = (),
    request_type: int = 0,
) -> bytes:
    """A request frame. ``topics``: named without a partition. ``ids``: instead of ``topic_id``."""
    given = ids or {}
    states: list[tuple[str, list[Part]]] = []
    for part in parts:
        if not states or states[-1][0] != part.topic:
            states.append((part.topic, []))
        states[-1][1].append(part)
    states += [(name, []) for name in topics]
    rows = {
        LEADER_AND_ISR: _leader_and_isr_row,
        STOP_REPLICA: _stop_replica_row,
        UPDATE_METADATA: _update_metadata_row,
    }[api_key]
    tree: Tree = {
        "controllerId": controller_id,
        "controllerEpoch": controller_epoch,
        "brokerEpoch": broker_epoch,
        "isKRaftController": kraft,
        "type": request_type,
        "deletePartitions": api_key == STOP_REPLICA and version < 3 and any(part.delete for part in parts),
        "topicStates": [
            {
                "topicName": name,
                "topicId": given.get(name, topic_id(name)),
                "partitionStates": [rows(part) for part in own],
            }
            for name, own in states
        ],
        "topics": [
            {"name": name, "partitionIndexes": [part.partition for part in own]} for name, own in states
        ],
        "liveLeaders": [],
        "liveBrokers": [_live_broker(broker) for broker in live],
    }
    tree["ungroupedPartitionStates"] = tree["ungroupedPartitions"] = [
        {"topicName": part.topic} | rows(part) for part in parts
    ]
    header = encode_request_header(
        request_header_version(api_key, version), api_key, version, CORRELATION_ID, b"1000"
    )
    return header + message_of(NAMES[api_key], version, tree).encode()


class LocalBroker:
    """Sends requests to ``core``; their heads are valid by default (see ``control_frame``)."""

    def __init__(self, core: BrokerCore | None = None) -> None:
        self.core = core or broker_core(OURS, epoch=EPOCH, cluster_id="the-cluster")
        self.handler = RequestHandler(self.core, served_apis())

    def leader_and_isr(self, *parts: Part, version: int = 7, **head: Any) -> tuple[int, Errors]:
        return self._control(LEADER_AND_ISR, version, parts, head)

    def stop_replica(self, *parts: Part, version: int = 4, **head: Any) -> tuple[int, Errors]:
        return self._control(STOP_REPLICA, version, parts, head)

    def update_metadata(self, *parts: Part, version: int = 8, **head: Any) -> int:
        return self._control(UPDATE_METADATA, version, parts, head)[0]

    def ask(self, frame: bytes) -> bytes:
        """The response frame, without its size."""
        answer = self.handler.serve(frame, LOCAL_CLIENT)
        assert not isinstance(answer, Future)
        return b"".join(answer)

    def client(self, api_key: int, version: int, **fields: Any) -> Any:
        """A client's request and response as kio's entities."""
        response = self.ask(client_frame(api_key, version, **fields))
        return read_client_response(api_key, version, response)

    def metadata(self, *topics: Any, version: int = 12, all_topics: bool = False, **fields: Any) -> Any:
        """Topics by name (str) or id (UUID), or all of them."""
        return self.client(3, version, topics=None if all_topics else topics, **fields)

    def _control(
        self, api_key: int, version: int, parts: Sequence[Part], head: dict[str, Any]
    ) -> tuple[int, Errors]:
        response = self.ask(control_frame(api_key, version, parts, **head))
        given = {
            **{topic_id(part.topic): part.topic for part in parts},
            **{raw: name for name, raw in (head.get("ids") or {}).items()},
        }
        return read_control_response(api_key, version, response, given)


def read_control_response(
    api_key: int, version: int, response: bytes, names: Mapping[bytes, str]
) -> tuple[int, Errors]:
    correlation_id, size, unknown = decode_response_header(
        response, response_header_version(api_key, version)
    )
    assert (correlation_id, unknown) == (CORRELATION_ID, 0)
    body = decode_response(api_key, version, response, size)
    by_id = api_key == LEADER_AND_ISR and version >= 5
    errors: Errors = []
    for topic in range(len(body.topics)):
        raw = body.topics.ids[topic].tobytes()
        name = names[raw] if by_id else str(body.topics.names.to_list()[topic])
        rows = slice(int(body.topic_starts[topic]), int(body.topic_starts[topic + 1]))
        own = zip(body.partition[rows].tolist(), body.partition_error[rows].tolist(), strict=True)
        errors += [(name, partition, error) for partition, error in own]
    return body.error_code, errors


def client_frame(api_key: int, version: int, *, client_id: str = "a-client", **fields: Any) -> bytes:
    """A frame of kio's request; Metadata's topics are given as names and ids."""
    schema: Any = load_request_schema(api_key, version)
    if api_key == 3 and fields["topics"] is not None:
        fields["topics"] = tuple(_metadata_topic(schema, topic) for topic in fields["topics"])
    known = schema.__dataclass_fields__
    if "allow_auto_topic_creation" in known:
        fields.setdefault("allow_auto_topic_creation", False)
    for flag in ("include_topic_authorized_operations", "include_cluster_authorized_operations"):
        if flag in known:
            fields.setdefault(flag, False)
    request = schema(**fields)
    header: Any = schema.__header_schema__
    buffer = io.BytesIO()
    head = {
        "request_api_key": api_key,
        "request_api_version": version,
        "correlation_id": CORRELATION_ID,
        "client_id": client_id,
    }
    head = {name: value for name, value in head.items() if name in header.__dataclass_fields__}
    entity_writer(header)(buffer, header(**head))
    entity_writer(schema)(buffer, request)
    return buffer.getvalue()


def read_client_response(api_key: int, version: int, response: bytes) -> Any:
    schema: Any = load_response_schema(api_key, version)
    header, size = entity_reader(schema.__header_schema__)(response, 0)
    assert header.correlation_id == CORRELATION_ID
    body, length = entity_reader(schema)(response, size)
    assert size + length == len(response)
    return body


def _metadata_topic(schema: Any, topic: Any) -> Any:
    kind = sys.modules[schema.__module__].MetadataRequestTopic
    known = kind.__dataclass_fields__
    fields = {"name": topic} if isinstance(topic, str) or topic is None else {"name": None, "topic_id": topic}
    if "topic_id" in known:
        fields.setdefault("topic_id", None)
    return kind(**fields)


def _leader_and_isr_row(part: Part) -> Tree:
    return {
        "partitionIndex": part.partition,
        "controllerEpoch": CONTROLLER_EPOCH,
        "leader": part.leader,
        "leaderEpoch": part.leader_epoch,
        "isr": list(part.isr),
        "partitionEpoch": part.partition_epoch,
        "replicas": list(part.replicas),
        "addingReplicas": [],
        "removingReplicas": [],
        "leaderRecoveryState": part.recovery_state,
        "isNew": True,
    }


def _update_metadata_row(part: Part) -> Tree:
    return {
        "partitionIndex": part.partition,
        "controllerEpoch": CONTROLLER_EPOCH,
        "leader": part.leader,
        "leaderEpoch": part.leader_epoch,
        "isr": list(part.isr),
        "zkVersion": part.partition_epoch,
        "replicas": list(part.replicas),
        "offlineReplicas": list(part.offline),
    }


def _stop_replica_row(part: Part) -> Tree:
    return {
        "partitionIndex": part.partition,
        "leaderEpoch": part.leader_epoch,
        "deletePartition": part.delete,
    }


def _live_broker(broker: LiveBroker) -> Tree:
    host, port = broker.host or f"host-{broker.id}", broker.port or 9000 + broker.id
    return {
        "id": broker.id,
        "rack": broker.rack,
        "v0Host": host,
        "v0Port": port,
        "endpoints": [
            {"host": host, "port": port, "listener": name, "securityProtocol": protocol}
            for name, protocol in broker.listeners
        ],
    }
