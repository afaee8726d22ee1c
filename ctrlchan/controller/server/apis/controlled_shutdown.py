"""ControlledShutdown (7): a broker that stops asks that its leaders are moved away.

``KafkaApis.handleControlledShutdownRequest`` of Kafka 3.9. The request header of version 0 has no client id.
"""

from __future__ import annotations

from concurrent.futures import Future

from ctrlchan.authorizer.acls import Operation
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.events.event import ControllerState
from ctrlchan.controller.handlers.controlled_shutdown import controlled_shutdown
from ctrlchan.controller.server.core import ServerCore
from ctrlchan.errors import KafkaError
from ctrlchan.server.access import needs_cluster
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]


def _handle(core: ServerCore, request: Request) -> Future[Reply]:
    messages = ClientMessages("controlled_shutdown", request.version)
    body = messages.decode(request)

    def shut_down(controller: ControllerCore) -> list[tuple[str, int]]:
        return controlled_shutdown(controller, body.broker_id, getattr(body, "broker_epoch", None))

    def reply(remaining: list[tuple[str, int]] | KafkaError) -> Reply:
        if isinstance(remaining, KafkaError):
            code = remaining.code
            return Reply(
                messages.response(error_code=KioError(code), remaining_partitions=()), error_code=code
            )
        parts = tuple(
            messages.part("RemainingPartition", topic_name=topic, partition_index=partition)
            for topic, partition in remaining
        )
        return Reply(messages.response(error_code=KioError.none, remaining_partitions=parts))

    return core.call(ControllerState.CONTROLLED_SHUTDOWN, "ControlledShutdown", shut_down, reply)


API: Api[ServerCore] = Api(
    key=7,
    name="ControlledShutdown",
    lowest=0,
    highest=3,
    flexible_from=3,
    handle=_handle,
    named_since=1,
    needs=needs_cluster(Operation.CLUSTER_ACTION),
)
