"""AllocateProducerIds (67): a broker asks for a block of producer ids.

``KafkaApis.handleAllocateProducerIdsRequest`` of Kafka 3.9; KIP-730.
"""

from __future__ import annotations

from concurrent.futures import Future

from ctrlchan.authorizer.acls import Operation
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.handlers.producer_ids import Allocation, allocate
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import KafkaError
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]


def _handle(core: ServerCore, request: Request) -> Future[Reply]:
    messages = ClientMessages("allocate_producer_ids", request.version)
    body = messages.decode(request)

    def allocation(controller: ControllerCore) -> Allocation:
        return allocate(controller, body.broker_id, body.broker_epoch)

    def reply(block: Allocation | KafkaError) -> Reply:
        if isinstance(block, KafkaError):
            block = Allocation(block.code)
        return Reply(
            messages.response(
                error_code=KioError(block.error), producer_id_start=block.first, producer_id_len=block.length
            ),
            error_code=block.error,
        )

    return core.call(ControllerState.IDLE, "AllocateProducerIds", allocation, reply)


API: Api[ServerCore] = Api(
    key=67,
    name="AllocateProducerIds",
    lowest=0,
    highest=0,
    flexible_from=0,
    handle=_handle,
    needs=needs_cluster(Operation.CLUSTER_ACTION),
)
