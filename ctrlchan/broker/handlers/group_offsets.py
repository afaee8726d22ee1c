"""OffsetCommit (8), OffsetFetch (9), OffsetDelete (47).

Versions 0 of OffsetCommit and OffsetFetch keep offsets in ZooKeeper (``zookeeper_offsets.py``): a broker
without ZooKeeper refuses them. ``KafkaApis`` and ``GroupCoordinatorAdapter`` of Kafka 3.9.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Final

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.group.requests import FetchedOffset
from ctrlchan.broker.handlers._group_messages import decode_offset_commit, encode_offset_commit
from ctrlchan.broker.handlers.group_access import (
    by_topic,
    coordinator_of,
    readable_partitions,
    when_answered,
)
from ctrlchan.broker.handlers.zookeeper_offsets import commit_to_zookeeper, fetch_from_zookeeper
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode
from ctrlchan.server.access import DELETE_GROUP, DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_GROUP, READ_TOPIC, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["APIS"]

_IN_ZOOKEEPER: Final = 0
_GROUP_ERROR_SINCE: Final = 2
_SEVERAL_GROUPS_SINCE: Final = 8

#: Partitions with their errors, in the order of the response.
_Errors = list[tuple[TopicPartition, ErrorCode]]


def _commit(core: StoringCore, request: Request) -> Reply | Future[Reply]:
    commit = decode_offset_commit(request.frame, request.offset, request.version)
    partitions = [each.partition for each in commit.offsets]

    def reply(errors: _Errors) -> Reply:
        return Reply(
            encode_offset_commit(request.version, errors),
            partition_errors=sum(1 for _, error in errors if error),
            rows=len(errors),
        )

    if not request.access.allows(*READ_GROUP, commit.group_id):
        return reply([(each, ErrorCode.GROUP_AUTHORIZATION_FAILED) for each in partitions])
    existing, unknown = readable_partitions(core, request.access, partitions)
    if not existing:
        return reply(unknown)
    if unknown:
        commit = commit._replace(offsets=[each for each in commit.offsets if each.partition in existing])
    if request.version == _IN_ZOOKEEPER:
        return reply([*unknown, *commit_to_zookeeper(core, commit).items()])

    def committed(errors: dict[TopicPartition, ErrorCode]) -> Reply:
        return reply([*unknown, *errors.items()])

    return when_answered(lambda answer: coordinator_of(core).commit(commit, answer), committed)


def _fetch(core: StoringCore, request: Request) -> Reply:
    messages = ClientMessages("offset_fetch", request.version)
    body = messages.decode(request)
    several = request.version >= _SEVERAL_GROUPS_SINCE
    stable = getattr(body, "require_stable", False)
    groups = [
        _fetch_group(core, request, group, stable=stable) for group in (body.groups if several else [body])
    ]
    replies = [
        (group_id, error, _fetched_topics(messages, offsets, "s" if several else ""))
        for group_id, error, offsets in groups
    ]
    rows = sum(len(offsets) for _, _, offsets in groups)
    if several:
        parts = tuple(
            messages.part(
                "OffsetFetchResponseGroup", group_id=group_id, topics=topics, error_code=KioError(error)
            )
            for group_id, error, topics in replies
        )
        return Reply(messages.response(groups=parts), rows=rows)
    [(_, error, topics)] = replies
    return Reply(
        messages.response(topics=topics, error_code=KioError(error)), error_code=int(error), rows=rows
    )


def _fetch_group(
    core: StoringCore, request: Request, group: Any, *, stable: bool
) -> tuple[str, ErrorCode, dict[TopicPartition, FetchedOffset]]:
    """Return the group, its error and its offsets."""
    access, version = request.access, request.version
    partitions: list[TopicPartition] | None = None
    if group.topics is not None:
        partitions = [
            TopicPartition(topic.name, index) for topic in group.topics for index in topic.partition_indexes
        ]
    error, offsets = ErrorCode.NONE, dict[TopicPartition, FetchedOffset]()
    if not access.allows(*DESCRIBE_GROUP, group.group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        asked = partitions
        described = access.allowed(*DESCRIBE_TOPIC, [topic.name for topic in group.topics or ()])
        if partitions is not None:
            asked = [each for each in partitions if each.topic in described]
        if version == _IN_ZOOKEEPER:
            offsets = fetch_from_zookeeper(core, group.group_id, asked or ())
        else:
            error, offsets = coordinator_of(core).fetch(group.group_id, asked, require_stable=stable)
        if not error and partitions is None:
            described = access.allowed(*DESCRIBE_TOPIC, {each.topic for each in offsets})
            offsets = {each: offset for each, offset in offsets.items() if each.topic in described}
        elif not error:
            denied = FetchedOffset(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            offsets = dict(offsets) | {
                each: denied for each in partitions or () if each.topic not in described
            }
    if error and version < _GROUP_ERROR_SINCE:
        # The response has no other place for it. Kafka leaves the partitions out since version 1, which
        # to a client means that there are no offsets.
        offsets = dict.fromkeys(partitions or (), FetchedOffset(error=error))
    return group.group_id, error, offsets


def _fetched_topics(
    messages: ClientMessages, offsets: dict[TopicPartition, FetchedOffset], plural: str
) -> tuple[Any, ...]:
    topics = by_topic(
        (
            topic,
            messages.part(
                f"OffsetFetchResponsePartition{plural}",
                partition_index=partition,
                committed_offset=fetched.offset,
                committed_leader_epoch=fetched.leader_epoch,
                metadata=fetched.metadata,
                error_code=KioError(fetched.error),
            ),
        )
        for (topic, partition), fetched in offsets.items()
    )
    return tuple(
        messages.part(f"OffsetFetchResponseTopic{plural}", name=topic, partitions=tuple(partitions))
        for topic, partitions in topics.items()
    )


def _delete(core: StoringCore, request: Request) -> Reply:
    messages = ClientMessages("offset_delete", request.version)
    body = messages.decode(request)
    partitions = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in body.topics
        for partition in topic.partitions
    ]
    if not request.access.allows(*DELETE_GROUP, body.group_id):
        refused = KioError.group_authorization_failed
        return Reply(messages.response(topics=(), error_code=refused), error_code=refused.value)
    existing, unknown = readable_partitions(core, request.access, partitions)
    known = [each for each in partitions if each in existing]
    error, results = coordinator_of(core).delete_offsets(body.group_id, known)
    errors = [] if error else [*unknown, *results.items()]
    topics = by_topic(
        (
            each.topic,
            messages.part(
                "OffsetDeleteResponsePartition",
                partition_index=each.partition,
                error_code=KioError(of_partition),
            ),
        )
        for each, of_partition in errors
    )
    parts = tuple(
        messages.part("OffsetDeleteResponseTopic", name=topic, partitions=tuple(partitions))
        for topic, partitions in topics.items()
    )
    return Reply(
        messages.response(topics=parts, error_code=KioError(error)),
        error_code=int(error),
        partition_errors=sum(1 for _, of_partition in errors if of_partition),
        rows=len(errors),
    )


APIS: Final = (
    Api(
        key=8,
        name="OffsetCommit",
        lowest=0,
        highest=9,
        flexible_from=8,
        handle=_commit,
        locks_core=False,
        needs=asks(READ_GROUP, READ_TOPIC),
    ),
    Api(
        key=9,
        name="OffsetFetch",
        lowest=0,
        highest=9,
        flexible_from=6,
        handle=_fetch,
        locks_core=False,
        needs=asks(DESCRIBE_GROUP, DESCRIBE_TOPIC),
    ),
    # No version of it is flexible.
    Api(
        key=47,
        name="OffsetDelete",
        lowest=0,
        highest=0,
        flexible_from=1,
        handle=_delete,
        locks_core=False,
        needs=asks(DELETE_GROUP, READ_TOPIC),
    ),
)
