"""Metadata (3): the cluster for clients.

``KafkaApis.handleTopicMetadataRequest`` and ``ZkMetadataCache.getTopicMetadata`` of Kafka 3.9, with nothing
to authorize and without the creation of topics. Brokers and partitions are in ascending order, topics in
the order of the request or of the metadata cache. Kafka's order is that of hash maps which it has copied with
each UpdateMetadata since its start: its Metadata and DescribeCluster can be compared with these only as sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from ctrlchan._codec import ListColumn
from ctrlchan.broker.apis.api import Api, Reply, Request
from ctrlchan.broker.apis.client_messages import NOT_ASKED, ClientMessages, KioError, only_known_fields
from ctrlchan.broker.apis.describe_cluster import CLUSTER_OPERATIONS, ClusterCore
from ctrlchan.broker.metadata.lookups import MetadataLookups, MetadataView
from ctrlchan.protocol import NO_LEADER
from ctrlchan.state.lists import packed_values, select
from ctrlchan.topic_names import ZERO_ID, why_invalid

if TYPE_CHECKING:
    from ctrlchan._codec import Int32

__all__ = ["API"]

#: ``AclEntry.supportedOperations(TOPIC)`` as a bit field: READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7,
#: DESCRIBE 8, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11.
_TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_TOPIC_ID_REQUESTS_SINCE = 12
_LISTENER_NOT_FOUND_SINCE = 6  # before: LEADER_NOT_AVAILABLE

#: What the response to a request that fails says of the cluster.
_NOTHING = {
    "brokers": (),
    "cluster_id": None,
    "controller_id": -1,
    "cluster_authorized_operations": NOT_ASKED,
}

# One topic of the response: error, name, id, row in the view (None: without partitions).
_Topic = tuple[KioError, str | None, bytes, int | None]


def _handle(core: ClusterCore, request: Request) -> Callable[[], Reply]:
    messages = ClientMessages("metadata", request.version)
    body = messages.decode(request)
    listener = request.listener or core.endpoint.listener
    fields = {
        "brokers": tuple(
            messages.part(
                "MetadataResponseBroker",
                node_id=node.id,
                host=node.host,
                port=node.port,
                rack=node.rack,
            )
            for node in core.metadata.nodes(listener)
        ),
        "cluster_id": core.cluster_id,
        "controller_id": core.metadata.controller(),
        "cluster_authorized_operations": (
            CLUSTER_OPERATIONS if _asks(body, "include_cluster_authorized_operations") else NOT_ASKED
        ),
    }
    operations = _TOPIC_OPERATIONS if _asks(body, "include_topic_authorized_operations") else NOT_ASKED
    asked = body.topics
    if asked is None or (request.version == 0 and not asked):
        rows = core.metadata.topic_rows()
        view = core.metadata.view(rows, listener)
        topics: list[_Topic] = [
            (KioError.none, name, topic_id, i)
            for i, (name, topic_id) in enumerate(zip(view.names, view.topic_ids, strict=True))
        ]
    elif (error := _error_of_request(request.version, asked)) is not None:
        view = core.metadata.view([], listener)
        topics = [(error, topic.name or "", _id_bytes(topic), None) for topic in asked]
        fields |= _NOTHING
        operations = NOT_ASKED
    else:
        topics, rows = _asked_topics(core.metadata, asked)
        view = core.metadata.view(rows, listener)
    return partial(_reply, messages, fields, topics, operations, view)


API = Api(key=3, name="Metadata", lowest=0, highest=12, flexible_from=9, handle=_handle)


def _error_of_request(version: int, asked: Iterable[Any]) -> KioError | None:
    """Return why no topic of the request is looked up."""
    has_id = any(_id_bytes(topic) != ZERO_ID for topic in asked)
    has_null = any(topic.name is None for topic in asked)
    if version < _TOPIC_ID_REQUESTS_SINCE:
        # v10 and v11 have the field, but a broker does not find topics by it.
        return KioError.invalid_request if has_id or has_null else None
    # Neither a name nor an id: Kafka fails.
    return KioError.unknown_server_error if has_null and not has_id else None


def _asked_topics(metadata: MetadataLookups, asked: Iterable[Any]) -> tuple[list[_Topic], list[int]]:
    """Return the response's topics and their rows in the cache. With one id in the request only ids count."""
    ids = list(dict.fromkeys(topic_id for topic in asked if (topic_id := _id_bytes(topic)) != ZERO_ID))
    names: list[str | None] = [metadata.topic_name(topic_id) for topic_id in ids]
    topics: list[_Topic] = [
        (KioError.unknown_topic_id, None, topic_id, None)
        for topic_id, name in zip(ids, names, strict=True)
        if name is None
    ]
    absent: list[_Topic] = []
    rows: list[int] = []
    for name in dict.fromkeys(names if ids else (topic.name for topic in asked)):
        if name is None:
            continue
        row = metadata.topic_row(name)
        if row is None:
            error = KioError.unknown_topic_or_partition
            if why_invalid(name):
                error = KioError.invalid_topic_exception
            absent.append((error, name, metadata.topic_id(name), None))
        else:
            topics.append((KioError.none, name, metadata.topic_id(name), len(rows)))
            rows.append(row)
    return topics + absent, rows


def _reply(
    messages: ClientMessages,
    fields: dict[str, Any],
    topics: list[_Topic],
    operations: int,
    view: MetadataView,
) -> Reply:
    partitions = _partitions(messages, view)
    # Kafka sets the operations of a topic that it looked up; it did not find unknown ids.
    fields["topics"] = tuple(
        messages.part(
            "MetadataResponseTopic",
            error_code=error,
            name=name,
            topic_id=None if topic_id == ZERO_ID else UUID(bytes=topic_id),
            is_internal=name in _INTERNAL_TOPICS,
            partitions=() if at is None else partitions[view.starts[at] : view.starts[at + 1]],
            topic_authorized_operations=NOT_ASKED if error is KioError.unknown_topic_id else operations,
        )
        for error, name, topic_id, at in topics
    )
    return Reply(messages.response(**fields), rows=len(partitions))


def _partitions(messages: ClientMessages, view: MetadataView) -> tuple[Any, ...]:
    """Return every partition of the view as kio's object, built column by column."""
    reachable = np.isin(view.leader, view.reachable_ids)
    errors = np.full(len(view.leader), KioError.leader_not_available.value, dtype=np.int32)
    if messages.version >= _LISTENER_NOT_FOUND_SINCE:
        errors[np.isin(view.leader, view.live_ids)] = KioError.listener_not_found.value
    errors[reachable] = KioError.none.value
    replicas, isr = view.replicas, view.isr
    if messages.version == 0:
        # v0 has no offline replicas: such a replica is left out, and the partition has an error.
        replicas, isr = (_only(lists, view.reachable_ids) for lists in (replicas, isr))
        fewer = (replicas.lengths < view.replicas.lengths) | (isr.lengths < view.isr.lengths)
        errors[reachable & fewer] = KioError.replica_not_available.value
    kio_errors = {code: KioError(code) for code in np.unique(errors).tolist()}
    entity = messages.part_type("MetadataResponsePartition")
    columns = only_known_fields(
        entity,
        {
            "error_code": [kio_errors[code] for code in errors.tolist()],
            "partition_index": view.partition.tolist(),
            "leader_id": np.where(reachable, view.leader, NO_LEADER).tolist(),
            "leader_epoch": view.leader_epoch.tolist(),
            "replica_nodes": _tuples(replicas),
            "isr_nodes": _tuples(isr),
            "offline_replicas": _tuples(view.offline),
        },
    )
    names = tuple(columns)
    return tuple(
        entity(**dict(zip(names, values, strict=True))) for values in zip(*columns.values(), strict=True)
    )


def _only(lists: ListColumn, ids: Int32) -> ListColumn:
    return select(lists, np.isin(packed_values(lists), ids))


def _tuples(lists: ListColumn) -> list[tuple[int, ...]]:
    values = packed_values(lists).tolist()
    ends = [0, *np.cumsum(lists.lengths).tolist()]
    return [tuple(values[start:end]) for start, end in pairwise(ends)]


def _asks(body: Any, flag: str) -> bool:
    """Return whether the flag is set, in a version that has it."""
    return bool(getattr(body, flag, False))


def _id_bytes(topic: Any) -> bytes:
    topic_id = getattr(topic, "topic_id", None)
    return ZERO_ID if topic_id is None else bytes(topic_id.bytes)
