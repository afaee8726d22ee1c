"""InitProducerId (22): a producer id for a producer without transactions.

Idempotent producers ask any node, and may take the controller for one. The ids are of blocks that the
controller allocates for itself. Transactions have their coordinators elsewhere.
``KafkaApis.handleInitProducerIdRequest`` and ``ZkProducerIdManager`` of Kafka 3.9.
"""

from __future__ import annotations

from typing import Final

from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import KafkaError
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

_NO_ID: Final = -1
_FIRST_EPOCH: Final = 0


async def _handle(core: ServerCore, request: Request) -> Reply:
    messages = ClientMessages("init_producer_id", request.version)
    body = messages.decode(request)
    error, producer_id, epoch = KioError.none, _NO_ID, -1
    if body.transactional_id is not None:
        error = KioError.not_coordinator
    else:
        taken = await core.producer_ids.take(core)
        if isinstance(taken, KafkaError):
            # The answer of a Kafka broker that waits for the controller: every client asks again.
            error = KioError.coordinator_load_in_progress
        else:
            producer_id, epoch = taken, _FIRST_EPOCH
    return Reply(
        messages.response(error_code=error, producer_id=producer_id, producer_epoch=epoch),
        error_code=error.value,
    )


API: Api[ServerCore] = Api(
    key=22, name="InitProducerId", lowest=0, highest=5, flexible_from=2, handle=_handle
)
