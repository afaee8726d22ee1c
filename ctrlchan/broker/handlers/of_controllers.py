"""Requests that brokers send to the controller: one in this process answers them, if it is active.

ControlledShutdown (7), AlterPartition (56), AllocateProducerIds (67), and Envelope (58). A broker that is not
the controller says so, and forwards none of them: whoever sent them looks for the controller again. Envelopes
are for controllers that are no brokers; as in Kafka, a broker closes the connection of who sends one.
``KafkaApis.handleControlledShutdownRequest``, ``handleAlterPartitionRequest``,
``handleAllocateProducerIdsRequest`` and ``handleEnvelope`` of Kafka 3.9.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Final, NoReturn

from ctrlchan.authorizer.acls import Operation
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ProtocolError
from ctrlchan.server.access import NOTHING, needs_cluster
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.error_responses import error_response
from ctrlchan.server.futures import then
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["APIS"]

_NEEDS: Final = needs_cluster(Operation.CLUSTER_ACTION)


def _of_controllers(
    key: int, name: str, message: str, highest: int, flexible_from: int, error: KioError
) -> Api[StoringCore]:
    """Return an API of controllers. Other brokers answer with the error."""

    def refused(request: Request) -> Reply:
        messages = ClientMessages(message, request.version)
        return Reply(error_response(messages, messages.decode(request), error), error_code=error.value)

    def handle(core: StoringCore, request: Request) -> Reply | Future[Reply]:
        assert core.controller is not None
        flexible = request.version >= flexible_from
        local = core.controller.ask_local(request.frame, request.context, request.version, flexible=flexible)
        if local is None:
            return refused(request)
        return then(local, lambda answer: refused(request) if answer is None else Reply(answer.body))

    return Api(
        key=key,
        name=name,
        lowest=0,
        highest=highest,
        flexible_from=flexible_from,
        handle=handle,
        # The header of ControlledShutdown 0 has no client id.
        named_since=1 if key == _CONTROLLED_SHUTDOWN else 0,
        locks_core=False,
        needs=_NEEDS,
    )


def _close(_core: StoringCore, request: Request) -> NoReturn:
    raise ProtocolError(f"an Envelope of {request.context}: brokers take none")


_CONTROLLED_SHUTDOWN: Final = 7
#: Kafka's own controller says so where it has moved (ControllerMovedException).
_MOVED: Final = KioError.stale_controller_epoch
_NO_CONTROLLER: Final = KioError.not_controller

APIS: Final[tuple[Api[StoringCore], ...]] = (
    _of_controllers(_CONTROLLED_SHUTDOWN, "ControlledShutdown", "controlled_shutdown", 3, 3, _MOVED),
    _of_controllers(56, "AlterPartition", "alter_partition", 3, 0, _NO_CONTROLLER),
    _of_controllers(67, "AllocateProducerIds", "allocate_producer_ids", 0, 0, _NO_CONTROLLER),
    Api(
        key=58,
        name="Envelope",
        lowest=0,
        highest=0,
        flexible_from=0,
        handle=_close,
        locks_core=False,
        needs=NOTHING,
    ),
)
