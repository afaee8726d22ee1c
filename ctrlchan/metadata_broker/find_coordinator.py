"""FindCoordinator (10): this broker, for every group and transaction.

An embedded broker has no groups and no transactions: JoinGroup and InitProducerId are not announced, so each
client names the request that is missing as soon as it has a coordinator. Without FindCoordinator librdkafka
waits in silence, and an error here is shown by some clients without the name of the request.
"""

from __future__ import annotations

from typing import Any

from ctrlchan.broker.core import BrokerCore
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

_SEVERAL_KEYS_SINCE = 4


def _handle(core: BrokerCore, request: Request) -> Reply:
    messages = ClientMessages("find_coordinator", request.version)
    body = messages.decode(request)
    fields: dict[str, Any] = {
        "error_code": KioError.none,
        "error_message": "",
        "node_id": core.id,
        "host": core.endpoint.host,
        "port": core.endpoint.port,
    }
    if request.version >= _SEVERAL_KEYS_SINCE:
        fields = {
            "coordinators": tuple(
                messages.part("Coordinator", key=key, **fields) for key in body.coordinator_keys
            )
        }
    return Reply(messages.response(**fields))


API = Api(key=10, name="FindCoordinator", lowest=0, highest=6, flexible_from=3, handle=_handle)
