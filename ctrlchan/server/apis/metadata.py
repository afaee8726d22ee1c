"""Metadata (3): the cluster for clients.

``KafkaApis.handleTopicMetadataRequest`` and ``ZkMetadataCache.getTopicMetadata`` of Kafka 3.9.
``broker/handlers/metadata.py`` creates topics. Brokers and partitions are in ascending order,
topics in the order of the request or of the metadata cache. Kafka's order is that of hash maps which it has
copied with each UpdateMetadata since its start: its Metadata and DescribeCluster can be compared with these
only as sets.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ctrlchan._codec import ListColumn, StringColumn
from ctrlchan.authorizer.acls import Operation, ResourceType
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import INTERNAL_TOPICS
from ctrlchan.protocol import NO_LEADER
from ctrlchan.server.access import (
    ALL_NAMES,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC,
    Access,
    asks,
)
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis._metadata import (
    MetadataRequest,
    PartitionRows,
    TopicRows,
    decode_metadata,
    encode_metadata,
)
from ctrlchan.server.apis.describe_cluster import ClusterCore
from ctrlchan.server.apis.lookups import NO_CONTROLLER, MetadataLookups, MetadataView, Node
from ctrlchan.server.kio_messages import NOT_ASKED
from ctrlchan.state.lists import packed_values, select
from ctrlchan.topic_names import ZERO_ID, why_invalid

if TYPE_CHECKING:
    import numpy.typing as npt

    from ctrlchan._codec import Int32, UInt8

    Int16 = npt.NDArray[np.int16]

__all__ = ["API", "CREATING_NEEDS", "answer", "creatable", "described", "missing_topics"]

#: Of a server that lets topics be created.
CREATING_NEEDS: Final = asks(DESCRIBE_TOPIC, CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CLUSTER)

_TOPIC_ID_REQUESTS_SINCE = 12
_LISTENER_NOT_FOUND_SINCE = 6  # before: LEADER_NOT_AVAILABLE

#: Errors of topics that were not looked up.
_NOT_LOOKED_UP = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

_NO_ROWS = np.empty(0, np.int32)

#: Topics of a request: ids and names.
_Asked = Sequence[tuple[bytes, str | None]]
#: One topic of the response: error, name, id.
_Topic = tuple[int, str | None, bytes]


class _Topics(NamedTuple):
    """Columns of the topics of a response, without their operations.

    ``texts``: the names as texts, for the authorizer; None where no operations are asked for. Partitions of
    topic i are the rows from ``starts[i]`` to before ``starts[i + 1]``.
    """

    errors: Int16
    names: StringColumn
    ids: UInt8
    is_internal: UInt8
    starts: Int32
    texts: Sequence[str | None] | None


def _handle(core: ClusterCore, request: Request) -> Reply:
    body = decode_metadata(request.frame, request.offset, request.version)
    return answer(core, request, body, described(core, request, body))


API = Api(
    key=3,
    name="Metadata",
    lowest=0,
    highest=12,
    flexible_from=9,
    handle=_handle,
    locks_core=False,
    needs=asks(DESCRIBE_TOPIC, DESCRIBE_CLUSTER),
)


def missing_topics(metadata: MetadataLookups, version: int, body: MetadataRequest) -> list[str]:
    """Return the names that are no topics, of a request that may create topics."""
    # With one id in the request only ids count.
    if not body.topics or not body.allows_creation or any(topic_id != ZERO_ID for topic_id, _ in body.topics):
        return []
    if _error_of_request(version, body.topics):
        return []
    names = dict.fromkeys(name for _, name in body.topics if name is not None)
    return [name for name in names if metadata.topic_row(name) is None]


def described(core: ClusterCore, request: Request, body: MetadataRequest) -> Container[str]:
    """Return the names that the client may see, of those that the request asks for.

    The lock of the metadata is not held while the authorizer is asked.
    """
    if not request.access.is_restricted:
        return request.access.allowed(*DESCRIBE_TOPIC, ())
    with core.metadata.state.lock:
        if body.topics is None:
            names = core.metadata.names_of(core.metadata.topic_rows())
        else:
            ids = [topic_id for topic_id, _ in body.topics if topic_id != ZERO_ID]
            known = (core.metadata.topic_name(topic_id) for topic_id in ids)
            asked = known if ids else (name for _, name in body.topics)
            names = [name for name in asked if name is not None]
    return request.access.allowed(*DESCRIBE_TOPIC, dict.fromkeys(names, 1), logs=body.topics is not None)


def creatable(access: Access, missing: Sequence[str]) -> Container[str]:
    """Return those of the missing topics that the client may create."""
    if access.allows_cluster(Operation.CREATE, logs=False):
        return ALL_NAMES
    return access.allowed(*CREATE_TOPIC, missing)


def answer(
    core: ClusterCore,
    request: Request,
    body: MetadataRequest,
    described: Container[str],
    created: Mapping[str, int] | None = None,
) -> Reply:
    """Return the reply. The lock of the metadata is held while rows are copied, not while they are encoded.

    ``described``: the names that the client may see. ``created``: what is answered for the topics that the
    request was to create.
    """
    with core.metadata.state.lock:
        encode = _look_up(core, request, body, described, created or {})
    return encode()


def _look_up(
    core: ClusterCore,
    request: Request,
    body: MetadataRequest,
    described: Container[str],
    created: Mapping[str, int],
) -> Callable[[], Reply]:
    """Return the function that encodes the reply, from copies of what the metadata have."""
    listener = request.context.listener
    asked = body.topics
    error = ErrorCode.NONE if asked is None else _error_of_request(request.version, asked)
    # Asked when the reply is encoded: the authorizer is not asked under the lock.
    cluster_operations: Callable[[], int] = _not_asked
    if body.asks_cluster_operations:
        cluster_operations = request.access.cluster_operations
    operations: Callable[[str], int] = _not_asked
    if body.asks_topic_operations:
        operations = partial(request.access.operations, ResourceType.TOPIC)
    if asked is None:
        rows = core.metadata.topic_rows()
        if request.access.is_restricted:
            names = core.metadata.names_of(rows)
            rows = rows[np.fromiter(map(described.__contains__, names), np.bool_, len(names))]
        view = core.metadata.view(rows, listener)
        texts = core.metadata.names_of(rows) if body.asks_topic_operations else None
        topics = _all_topics(core.metadata, rows, view, texts)
    elif error:
        view = core.metadata.view(_NO_ROWS, listener)
        topics = _topics([(error, name or "", topic_id) for topic_id, name in asked], [], [], view)
        # Of the cluster such a response says nothing.
        return partial(_reply, request.version, [], None, NO_CONTROLLER, _not_asked, topics, _not_asked, view)
    else:
        unknown, found, absent, rows = _asked_topics(core.metadata, asked, described, created)
        view = core.metadata.view(rows, listener)
        topics = _topics(unknown, found, absent, view)
    return partial(
        _reply,
        request.version,
        core.metadata.nodes(listener),
        core.cluster_id,
        core.metadata.controller(listener),
        cluster_operations,
        topics,
        operations,
        view,
    )


def _all_topics(
    metadata: MetadataLookups, rows: Int32, view: MetadataView, texts: Sequence[str] | None
) -> _Topics:
    """Return the columns of all topics that the client sees: nothing is done for each of them."""
    internal = [row for name in INTERNAL_TOPICS if (row := metadata.row_of(name)) is not None]
    return _Topics(
        np.zeros(len(rows), np.int16),
        metadata.encoded_names_of(rows),
        metadata.state.topics.ids[rows],
        np.isin(rows, internal).astype(np.uint8),
        view.starts,
        texts,
    )


def _topics(
    unknown: Sequence[_Topic], found: Sequence[_Topic], absent: Sequence[_Topic], view: MetadataView
) -> _Topics:
    """Return the columns of topics that were looked up one by one. Those of the view are ``found``."""
    topics = [*unknown, *found, *absent]
    errors, texts, ids = zip(*topics, strict=True) if topics else ((), (), ())
    starts = np.full(len(topics) + 1, view.starts[-1], np.int32)
    starts[: len(unknown)] = 0
    starts[len(unknown) : len(unknown) + len(view.starts)] = view.starts
    return _Topics(
        np.array(errors, np.int16),
        StringColumn.from_strings(texts),
        np.frombuffer(b"".join(ids), np.uint8).reshape(-1, len(ZERO_ID)),
        np.array(
            [
                name in INTERNAL_TOPICS and error != ErrorCode.TOPIC_AUTHORIZATION_FAILED
                for error, name, _ in topics
            ],
            np.uint8,
        ),
        starts,
        texts,
    )


def _not_asked(*_name: str) -> int:
    return NOT_ASKED


def _error_of_request(version: int, asked: _Asked) -> ErrorCode:
    """Return why no topic of the request is looked up."""
    has_id = any(topic_id != ZERO_ID for topic_id, _ in asked)
    has_null = any(name is None for _, name in asked)
    if version < _TOPIC_ID_REQUESTS_SINCE:
        # v10 and v11 have the field, but a broker does not find topics by it.
        return ErrorCode.INVALID_REQUEST if has_id or has_null else ErrorCode.NONE
    # Neither a name nor an id: Kafka fails.
    return ErrorCode.UNKNOWN_SERVER_ERROR if has_null and not has_id else ErrorCode.NONE


def _asked_topics(
    metadata: MetadataLookups, asked: _Asked, described: Container[str], created: Mapping[str, int]
) -> tuple[list[_Topic], list[_Topic], list[_Topic], Int32]:
    """Return the topics of the response, and the rows in the cache of the second list.

    The lists: topics whose id is unknown, topics that are found, and others. With one id in the request only
    ids count.
    """
    ids = list(dict.fromkeys(topic_id for topic_id, _ in asked if topic_id != ZERO_ID))
    names: list[str | None] = [metadata.topic_name(topic_id) for topic_id in ids]
    unknown: list[_Topic] = [
        (ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
        for topic_id, name in zip(ids, names, strict=True)
        if name is None
    ]
    found: list[_Topic] = []
    absent: list[_Topic] = []
    rows: list[int] = []
    for name in dict.fromkeys(names if ids else (name for _, name in asked)):
        if name is None or name in created:
            continue
        if name not in described:
            # No name for who has the id of a topic, and no id for who has its name.
            shown = (None, metadata.topic_id(name)) if ids else (name, ZERO_ID)
            absent.append((ErrorCode.TOPIC_AUTHORIZATION_FAILED, *shown))
            continue
        row = metadata.topic_row(name)
        if row is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if why_invalid(name):
                error = ErrorCode.INVALID_TOPIC_EXCEPTION
            absent.append((error, name, metadata.topic_id(name)))
        else:
            found.append((ErrorCode.NONE, name, metadata.topic_id(name)))
            rows.append(row)
    # Also of topics that are there by now: Kafka lets the client ask again.
    absent += [(error, name, ZERO_ID) for name, error in created.items()]
    return unknown, found, absent, np.array(rows, np.int32)


def _reply(
    version: int,
    nodes: Sequence[Node],
    cluster_id: str | None,
    controller_id: int,
    cluster_operations: Callable[[], int],
    topics: _Topics,
    operations: Callable[[str], int],
    view: MetadataView,
) -> Reply:
    rows = _rows(version, view)
    answers = TopicRows(
        topics.errors,
        topics.names,
        topics.ids,
        topics.is_internal,
        _operations(topics, operations),
        topics.starts,
    )
    body = encode_metadata(version, nodes, cluster_id, controller_id, cluster_operations(), answers, rows)
    return Reply(body, rows=len(rows))


def _operations(topics: _Topics, operations: Callable[[str], int]) -> Int32:
    """Return the bit fields of the operations that the client may do on the topics."""
    if topics.texts is None:
        return np.full(len(topics.errors), NOT_ASKED, np.int32)
    return np.array(
        [
            # Kafka sets the operations of a topic that it looked up; it did not find unknown ids.
            NOT_ASKED if name is None or error in _NOT_LOOKED_UP else operations(name)
            for error, name in zip(topics.errors.tolist(), topics.texts, strict=True)
        ],
        np.int32,
    )


def _rows(version: int, view: MetadataView) -> PartitionRows:
    """Return the columns of the response: with errors, and without leaders that the client cannot reach."""
    reachable = np.isin(view.leader, view.reachable_ids)
    errors = np.full(len(view.leader), ErrorCode.LEADER_NOT_AVAILABLE, dtype=np.int16)
    if version >= _LISTENER_NOT_FOUND_SINCE:
        errors[np.isin(view.leader, view.live_ids)] = ErrorCode.LISTENER_NOT_FOUND
    errors[reachable] = ErrorCode.NONE
    replicas, isr = view.replicas, view.isr
    if version == 0:
        # v0 has no offline replicas: such a replica is left out, and the partition has an error.
        replicas, isr = (_only(lists, view.reachable_ids) for lists in (replicas, isr))
        fewer = (replicas.lengths < view.replicas.lengths) | (isr.lengths < view.isr.lengths)
        errors[reachable & fewer] = ErrorCode.REPLICA_NOT_AVAILABLE
    leader = np.where(reachable, view.leader, np.int32(NO_LEADER))
    return PartitionRows(errors, view.partition, leader, view.leader_epoch, replicas, isr, view.offline)


def _only(lists: ListColumn, ids: Int32) -> ListColumn:
    return select(lists, np.isin(packed_values(lists), ids))
