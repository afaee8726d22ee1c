"""EndTxn (26): commits or aborts a transaction.

It is answered when the decision is in ``__transaction_state``. The markers follow.
``KafkaApis.handleEndTxnRequest`` of Kafka 3.9.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Final

from ctrlchan.broker.handlers._transaction_messages import decode_end, encode_error
from ctrlchan.broker.handlers.group_access import when_answered
from ctrlchan.broker.handlers.transaction_access import for_old_clients
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode
from ctrlchan.server.access import WRITE_TRANSACTIONAL_ID, asks
from ctrlchan.server.api import Api, Reply, Request

__all__ = ["API"]


def _handle(core: StoringCore, request: Request) -> Reply | Future[Reply]:
    transactional_id, producer, commits = decode_end(request.frame, request.offset, request.version)

    def reply(error: ErrorCode) -> Reply:
        error = for_old_clients(error, request.version)
        return Reply(encode_error(request.version, error), error_code=int(error))

    if not request.access.allows(*WRITE_TRANSACTIONAL_ID, transactional_id):
        return reply(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    connection = request.context.connection_id
    return when_answered(
        lambda answer: core.transactions.coordinator.end(
            transactional_id, producer, commits, answer, connection
        ),
        reply,
    )


API: Final = Api(
    key=26,
    name="EndTxn",
    lowest=0,
    highest=4,
    flexible_from=3,
    handle=_handle,
    locks_core=False,
    needs=asks(WRITE_TRANSACTIONAL_ID),
)
