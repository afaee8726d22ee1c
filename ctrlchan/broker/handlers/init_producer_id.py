"""InitProducerId (22): a producer id for an idempotent producer. Transactional ids are refused.

The response has no message, so the reason is in the broker's log; FindCoordinator, which a transactional
producer sends first, has one. ``KafkaApis.handleInitProducerIdRequest`` of Kafka 3.9, without an authorizer.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from typing import Final

from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

_LOG = logging.getLogger("ctrlchan.broker")
_LINES = LogRateLimit()

_NO_ID: Final = -1
_NO_EPOCH: Final = -1
_FIRST_EPOCH: Final = 0


def _handle(core: StoringCore, request: Request) -> Reply | Future[Reply]:
    messages = ClientMessages("init_producer_id", request.version)
    body = messages.decode(request)

    def reply(error: int, producer_id: int = _NO_ID, epoch: int = _NO_EPOCH) -> Reply:
        return Reply(
            messages.response(error_code=KioError(error), producer_id=producer_id, producer_epoch=epoch),
            error_code=int(error),
        )

    has_id = getattr(body, "producer_id", _NO_ID) != _NO_ID
    has_epoch = getattr(body, "producer_epoch", _NO_EPOCH) != _NO_EPOCH
    if has_id != has_epoch or body.transactional_id == "":
        return reply(ErrorCode.INVALID_REQUEST)
    if body.transactional_id is not None:
        suffix = _LINES.admit(core.id, time.monotonic_ns())
        if suffix is not None:
            _LOG.warning(
                "broker %d: transactional id %r is refused: transactions are not supported%s",
                core.id,
                body.transactional_id[:100],
                suffix,
            )
        # librdkafka repeats its request after most other errors.
        return reply(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    replied: Future[Reply] = Future()

    def answer(taken: Future[int]) -> None:
        failure = taken.exception()
        if failure is None:
            replied.set_result(reply(ErrorCode.NONE, taken.result(), _FIRST_EPOCH))
        elif isinstance(failure, KafkaError):
            replied.set_result(reply(failure.code))
        else:
            replied.set_exception(failure)

    ids = core.producer_ids
    ids.take().add_done_callback(answer)
    return replied


API: Final = Api(
    key=22,
    name="InitProducerId",
    lowest=0,
    highest=5,
    flexible_from=2,
    handle=_handle,
    locks_core=False,
)
