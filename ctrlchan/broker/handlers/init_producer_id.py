"""InitProducerId (22): a producer id and an epoch, for transactional and for idempotent producers.

``KafkaApis.handleInitProducerIdRequest`` of Kafka 3.9.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Final

from ctrlchan.broker.coordinator.transaction.requests import InitResult, ProducerIdentity
from ctrlchan.broker.handlers.group_access import milliseconds, when_answered
from ctrlchan.broker.handlers.transaction_access import for_old_clients
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode, IllegalStateError
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis import init_producer_id
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

_LOG = logging.getLogger("ctrlchan.broker")

_NO_ID: Final = -1
_NO_EPOCH: Final = -1
#: The first version whose clients know PRODUCER_FENCED.
_FENCED_SINCE: Final = 4


def _handle(core: StoringCore, request: Request) -> Reply | Future[Reply]:
    messages = ClientMessages("init_producer_id", request.version)
    body = messages.decode(request)
    producer_id = getattr(body, "producer_id", _NO_ID)
    epoch = getattr(body, "producer_epoch", _NO_EPOCH)

    def reply(result: InitResult) -> Reply:
        error = for_old_clients(result.error, request.version, _FENCED_SINCE)
        return Reply(
            messages.response(
                error_code=KioError(error), producer_id=result.producer_id, producer_epoch=result.epoch
            ),
            error_code=int(error),
        )

    refusal = init_producer_id.refusal_of(request.access, body.transactional_id)
    if refusal is not None:
        return reply(InitResult(refusal))
    if (producer_id == _NO_ID) != (epoch == _NO_EPOCH):
        return reply(InitResult(ErrorCode.INVALID_REQUEST))
    expected = None if producer_id == _NO_ID else ProducerIdentity(producer_id, epoch)
    timeout = milliseconds(body.transaction_timeout)
    try:
        return when_answered(
            lambda answer: core.transactions.coordinator.init_producer_id(
                body.transactional_id, timeout, expected, answer
            ),
            reply,
        )
    except IllegalStateError:
        # Kafka throws it for an exhausted epoch with another expected one.
        _LOG.exception("broker %d: InitProducerId of %r", core.id, body.transactional_id)
        return reply(InitResult(ErrorCode.UNKNOWN_SERVER_ERROR))


API: Final = Api(
    key=22,
    name="InitProducerId",
    lowest=0,
    highest=5,
    flexible_from=2,
    handle=_handle,
    locks_core=False,
    needs=init_producer_id.NEEDS,
)
