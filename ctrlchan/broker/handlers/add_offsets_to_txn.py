"""AddOffsetsToTxn (25): the committed offsets of a group belong to a transaction from now on.

The transaction gets the group's partition of ``__consumer_offsets``.
``KafkaApis.handleAddOffsetsToTxnRequest`` of Kafka 3.9.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Final

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.handlers import group_access
from ctrlchan.broker.handlers._transaction_messages import decode_add_offsets, encode_error
from ctrlchan.broker.handlers.group_access import when_answered
from ctrlchan.broker.handlers.transaction_access import for_old_clients
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import OFFSETS_TOPIC
from ctrlchan.server.access import READ_GROUP, WRITE_TRANSACTIONAL_ID, asks
from ctrlchan.server.api import Api, Reply, Request

__all__ = ["API"]


def _handle(core: StoringCore, request: Request) -> Reply | Future[Reply]:
    transactional_id, producer, group_id = decode_add_offsets(request.frame, request.offset, request.version)
    partition = TopicPartition(OFFSETS_TOPIC, group_access.coordinator_of(core).partition_for(group_id))

    def reply(error: ErrorCode) -> Reply:
        error = for_old_clients(error, request.version)
        return Reply(encode_error(request.version, error), error_code=int(error))

    if not request.access.allows(*WRITE_TRANSACTIONAL_ID, transactional_id):
        return reply(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not request.access.allows(*READ_GROUP, group_id):
        return reply(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return when_answered(
        lambda answer: core.transactions.coordinator.add_partitions(
            transactional_id, producer, frozenset((partition,)), answer, request.context.connection_id
        ),
        reply,
    )


API: Final = Api(
    key=25,
    name="AddOffsetsToTxn",
    lowest=0,
    highest=4,
    flexible_from=3,
    handle=_handle,
    locks_core=False,
    needs=asks(WRITE_TRANSACTIONAL_ID, READ_GROUP),
)
