"""FindCoordinator (10): the broker that leads the partition of a group or a transaction.

Clients ask any node, and may take the controller for one. A topic that does not exist yet is created by a
broker that is asked, with its own settings for it. The controller asks one: a client that tries again, may
ask the controller again and again. ``KafkaApis.handleFindCoordinatorRequest`` of Kafka 3.9.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Any, Final

from ctrlchan.controller.server.core import ServerCore
from ctrlchan.controller.server.metadata import ControllerMetadata
from ctrlchan.errors import DecodeError
from ctrlchan.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, coordinator_partition
from ctrlchan.peers.connection import PeerConnection
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis.lookups import Node
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

#: ``CoordinatorType`` -> the topic whose partitions are led by the coordinators.
_TOPICS: Final[Mapping[int, str]] = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC}
_SEVERAL_KEYS_SINCE: Final = 4

_LOG: Final = logging.getLogger("ctrlchan.controller")

#: The request to a broker: version 1 has the key, with its length, and the type.
_KEY: Final = 10
_TO_BROKER: Final = 1
_LENGTH: Final = struct.Struct(">h")
_TYPE: Final = struct.Struct(">b")
_SECONDS: Final = 5.0
_LONGEST_KEY: Final = 2**15 - 1


def _handle(core: ServerCore, request: Request) -> Reply:
    messages = ClientMessages("find_coordinator", request.version)
    body = messages.decode(request)
    key_type = getattr(body, "key_type", 0)
    topic = _TOPICS.get(key_type)
    several = messages.version >= _SEVERAL_KEYS_SINCE
    keys = body.coordinator_keys if several else (body.key,)
    cluster = core.cluster()
    with cluster.metadata.state.lock:
        nodes = {node.id: node for node in cluster.metadata.nodes(request.context.listener)}
        found = [_fields(cluster.metadata, nodes, topic, key) for key in keys]
        is_missing = topic is not None and cluster.metadata.topic_row(topic) is None
    if is_missing and keys:
        _let_create((node for node in nodes.values() if node.id != core.id), key_type, keys[0])
    if not several:
        return Reply(messages.response(**found[0]))
    coordinators = (
        messages.part("Coordinator", key=key, **fields) for key, fields in zip(keys, found, strict=True)
    )
    return Reply(messages.response(coordinators=tuple(coordinators)))


# The event loop may hold the lock of the state for some time.
API: Api[ServerCore] = Api(
    key=10, name="FindCoordinator", lowest=0, highest=6, flexible_from=3, handle=_handle, blocks=True
)


def _fields(
    metadata: ControllerMetadata, nodes: Mapping[int, Node], topic: str | None, key: str
) -> dict[str, Any]:
    if topic is None:
        return _none(KioError.invalid_request)
    if metadata.topic_row(topic) is None:
        return _none(KioError.coordinator_not_available)
    rows = metadata.state.rows_of_topic(topic)
    row = rows.start + coordinator_partition(key, rows.stop - rows.start)
    node = nodes.get(int(metadata.state.partitions.leader[row]))
    if node is None:
        return _none(KioError.coordinator_not_available)
    return {
        "error_code": KioError.none,
        "error_message": "",
        "node_id": node.id,
        "host": node.host,
        "port": node.port,
    }


def _none(error: KioError) -> dict[str, Any]:
    return {"error_code": error, "error_message": None, "node_id": -1, "host": "", "port": -1}


def _let_create(brokers: Iterable[Node], key_type: int, key: str) -> None:
    """Ask brokers for the coordinator of `key`, until one answers: it lets the topic be created."""
    encoded = key.encode()
    if len(encoded) > _LONGEST_KEY:
        return
    body = _LENGTH.pack(len(encoded)) + encoded + _TYPE.pack(key_type)
    for broker in brokers:
        try:
            connection = PeerConnection((broker.host, broker.port), b"controller")
            try:
                connection.exchange(_KEY, _TO_BROKER, False, body, monotonic() + _SECONDS)
            finally:
                connection.close()
        except (OSError, DecodeError) as error:
            _LOG.info("FindCoordinator to broker %d: %s", broker.id, error)
            continue
        return
