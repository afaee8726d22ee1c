"""OffsetCommit (8) and OffsetFetch (9) of version 0: offsets in ZooKeeper.

Source: ``KafkaApis.commitOffsetsToZookeeper``, ``handleOffsetFetchRequestFromZookeeper``.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.group.offsets import java_length
from ctrlchan.broker.coordinator.group.requests import CommitRequest, FetchedOffset
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import CtrlchanError, ErrorCode, MalformedError, ZooKeeperError

__all__ = ["commit_to_zookeeper", "fetch_from_zookeeper"]

_LOG: Final = logging.getLogger("ctrlchan.broker")


def commit_to_zookeeper(core: StoringCore, commit: CommitRequest) -> dict[TopicPartition, ErrorCode]:
    """Commit offsets of partitions that exist; return the error of each."""
    return {
        each.partition: _commit(core, commit.group_id, *each[:2], each.metadata) for each in commit.offsets
    }


def _commit(
    core: StoringCore, group_id: str, partition: TopicPartition, offset: int, metadata: str | None
) -> ErrorCode:
    store = core.consumer_offsets
    if store is None:
        return ErrorCode.UNSUPPORTED_VERSION
    if java_length(metadata or "") > core.settings.groups.offset_metadata_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    try:
        store.set(group_id, partition.topic, partition.partition, offset)
    except (MalformedError, ZooKeeperError) as error:
        _log(core, group_id, partition, "is not committed", error)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


def fetch_from_zookeeper(
    core: StoringCore, group_id: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, FetchedOffset]:
    """Return the committed offset of each partition, or its error."""
    return {each: _fetch(core, group_id, each) for each in partitions}


def _fetch(core: StoringCore, group_id: str, partition: TopicPartition) -> FetchedOffset:
    store = core.consumer_offsets
    if store is None:
        return FetchedOffset(error=ErrorCode.UNSUPPORTED_VERSION)
    offset = None
    try:
        if core.metadata.snapshot.has_partition(*partition):
            offset = store.get(group_id, *partition)
    except (MalformedError, ZooKeeperError) as error:
        _log(core, group_id, partition, "cannot be read", error)
        return FetchedOffset(error=ErrorCode.UNKNOWN_SERVER_ERROR)
    if offset is None:
        # So it is also without a commit.
        return FetchedOffset(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return FetchedOffset(offset)


def _log(
    core: StoringCore, group_id: str, partition: TopicPartition, what: str, error: CtrlchanError
) -> None:
    # A client may choose any name for its group: that is worth no line of the broker's log.
    level = logging.DEBUG if isinstance(error, MalformedError) else logging.WARNING
    _LOG.log(
        level, "broker %d: group %r: the offset of %s-%d %s: %s", core.id, group_id, *partition, what, error
    )
