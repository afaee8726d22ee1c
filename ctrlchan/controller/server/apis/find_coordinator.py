"""FindCoordinator (10): the broker that leads the partition of a group or a transaction.

Clients ask any node, and may take the controller for one. A topic that does not exist yet is created by a
broker that is asked, with its own settings for it. The controller asks one: a client that tries again, may
ask the controller again and again. ``KafkaApis.handleFindCoordinatorRequest`` of Kafka 3.9.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from ctrlchan.controller.server.asking import ask_aside, ask_one, nodes_to_ask
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.controller.server.metadata import ControllerMetadata
from ctrlchan.errors import KafkaError
from ctrlchan.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, coordinator_partition
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis.find_coordinator import NEEDS, SHARES_SINCE, CoordinatorType, refusal_of
from ctrlchan.server.apis.lookups import Node
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

#: ``CoordinatorType`` -> the topic whose partitions are led by the coordinators.
_TOPICS: Final[Mapping[int, str]] = {
    CoordinatorType.GROUP: OFFSETS_TOPIC,
    CoordinatorType.TRANSACTION: TRANSACTIONS_TOPIC,
}
_SEVERAL_KEYS_SINCE: Final = 4

#: The request to a broker: version 1 has the key, with its length, and the type.
_KEY: Final = 10
_TO_BROKER: Final = 1
_LENGTH: Final = struct.Struct(">h")
_TYPE: Final = struct.Struct(">b")
_LONGEST_KEY: Final = 2**15 - 1


def _handle(core: ServerCore, request: Request) -> Reply:
    messages = ClientMessages("find_coordinator", request.version)
    body = messages.decode(request)
    key_type = getattr(body, "key_type", 0)
    topic = _TOPICS.get(key_type)
    several = messages.version >= _SEVERAL_KEYS_SINCE
    keys = body.coordinator_keys if several else (body.key,)
    refusals = [refusal_of(request.access, messages.version, key_type, key) for key in keys]
    cluster = core.cluster()
    with cluster.metadata.state.lock:
        nodes = {node.id: node for node in cluster.metadata.nodes(request.context.listener)}
        if topic is not None:
            found = [_fields(cluster.metadata, nodes, topic, key) for key in keys]
        elif key_type == CoordinatorType.SHARE and messages.version >= SHARES_SINCE:
            # Share groups have no coordinator yet.
            found = [_none(KioError.coordinator_not_available)] * len(keys)
        else:
            found = [_none(KioError.invalid_request)] * len(keys)
        is_missing = topic is not None and cluster.metadata.topic_row(topic) is None
        asked = nodes_to_ask(core, cluster.metadata, request.context.listener) if is_missing else ()
    allowed = [key for key, refusal in zip(keys, refusals, strict=True) if refusal is None]
    if is_missing and topic is not None and allowed:
        brokers = [node for node in asked if node.id != core.id]
        ask_aside(core, topic, partial(_ask, core, brokers, key_type, allowed[0]))
    found = [
        fields if refusal is None else _refused(refusal)
        for fields, refusal in zip(found, refusals, strict=True)
    ]
    if not several:
        return Reply(messages.response(**found[0]))
    coordinators = (
        messages.part("Coordinator", key=key, **fields) for key, fields in zip(keys, found, strict=True)
    )
    return Reply(messages.response(coordinators=tuple(coordinators)))


# The event loop may hold the lock of the state for some time.
API: Api[ServerCore] = Api(
    key=10,
    name="FindCoordinator",
    lowest=0,
    highest=6,
    flexible_from=3,
    handle=_handle,
    needs=NEEDS,
)


def _fields(metadata: ControllerMetadata, nodes: Mapping[int, Node], topic: str, key: str) -> dict[str, Any]:
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


def _refused(error: KafkaError) -> dict[str, Any]:
    return _none(KioError(error.code)) | {"error_message": error.message}


def _ask(core: ServerCore, brokers: Iterable[Node], key_type: int, key: str) -> None:
    """Ask a broker for the coordinator of `key`: it lets the topic be created."""
    encoded = key.encode()
    if len(encoded) <= _LONGEST_KEY:
        body = _LENGTH.pack(len(encoded)) + encoded + _TYPE.pack(key_type)
        ask_one(core, brokers, _KEY, _TO_BROKER, body)
