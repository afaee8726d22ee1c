"""TxnOffsetCommit (28): offsets of a group that count when the producer's transaction commits.

``KafkaApis.handleTxnOffsetCommitRequest`` of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.handlers._group_messages import decode_txn_offset_commit, encode_txn_offset_commit
from ctrlchan.broker.handlers.group_access import coordinator_of, readable_partitions, when_answered
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode
from ctrlchan.server.access import READ_GROUP, READ_TOPIC, WRITE_TRANSACTIONAL_ID, asks
from ctrlchan.server.api import Api, Reply, Request

__all__ = ["API"]

_LOADING_SINCE: Final = 2
_ABORTABLE_SINCE: Final = 4


def _commit(core: StoringCore, request: Request) -> Reply | Future[Reply]:
    commit = decode_txn_offset_commit(request.frame, request.offset, request.version)
    partitions = [each.partition for each in commit.offsets]
    unknown: list[tuple[TopicPartition, ErrorCode]] = []

    def committed(errors: Mapping[TopicPartition, ErrorCode]) -> Reply:
        rows = unknown + [(each, _error_for(request.version, error)) for each, error in errors.items()]
        return Reply(
            encode_txn_offset_commit(request.version, rows),
            partition_errors=sum(1 for _, error in rows if error),
            rows=len(rows),
        )

    if not request.access.allows(*WRITE_TRANSACTIONAL_ID, commit.transactional_id):
        return committed(dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not request.access.allows(*READ_GROUP, commit.group_id):
        return committed(dict.fromkeys(partitions, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    existing, unknown = readable_partitions(core, request.access, partitions)
    if not existing:
        return committed({})
    if unknown:
        commit = commit._replace(offsets=[each for each in commit.offsets if each.partition in existing])
    return when_answered(lambda answer: coordinator_of(core).commit_in_transaction(commit, answer), committed)


def _error_for(version: int, error: ErrorCode) -> ErrorCode:
    """Return the error that a client of this version knows."""
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # clients before 2.0 end at the other one (KAFKA-7296)
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return error


API: Final = Api(
    key=28,
    name="TxnOffsetCommit",
    lowest=0,
    highest=4,
    flexible_from=3,
    handle=_commit,
    locks_core=False,
    needs=asks(WRITE_TRANSACTIONAL_ID, READ_GROUP, READ_TOPIC),
)
