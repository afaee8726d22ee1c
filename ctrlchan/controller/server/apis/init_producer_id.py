"""InitProducerId (22): a producer id for a producer without transactions.

Idempotent producers ask any node, and may take the controller for one. The ids are of blocks that the
controller allocates for itself. Transactions have their coordinators elsewhere.
``KafkaApis.handleInitProducerIdRequest`` and ``ZkProducerIdManager`` of Kafka 3.9.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Final

from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import KafkaError
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis import init_producer_id
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

_NO_ID: Final = -1
_NO_EPOCH: Final = -1
_FIRST_EPOCH: Final = 0


def _handle(core: ServerCore, request: Request) -> Reply | Future[Reply]:
    messages = ClientMessages("init_producer_id", request.version)
    body = messages.decode(request)

    def reply(error: KioError, producer_id: int = _NO_ID, epoch: int = _NO_EPOCH) -> Reply:
        response = messages.response(error_code=error, producer_id=producer_id, producer_epoch=epoch)
        return Reply(response, error_code=error.value)

    def reply_with(taken: int | KafkaError) -> Reply:
        if isinstance(taken, KafkaError):
            # The answer of a Kafka broker that waits for the controller: every client asks again.
            return reply(KioError.coordinator_load_in_progress)
        return reply(KioError.none, taken, _FIRST_EPOCH)

    refusal = init_producer_id.refusal_of(request.access, body.transactional_id)
    if refusal is not None:
        return reply(KioError(refusal))
    if body.transactional_id is not None:
        return reply(KioError.not_coordinator)
    taken = core.producer_ids.take()
    if taken is not None:
        return reply_with(taken)
    return core.call(ControllerState.IDLE, "AllocateProducerIds", core.producer_ids.allocate, reply_with)


API: Api[ServerCore] = Api(
    key=22,
    name="InitProducerId",
    lowest=0,
    highest=5,
    flexible_from=2,
    handle=_handle,
    needs=init_producer_id.NEEDS,
)
