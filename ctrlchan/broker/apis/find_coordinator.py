"""FindCoordinator (10): this broker, for every group and transaction.

An embedded broker has no groups and no transactions: JoinGroup and InitProducerId are not announced, so each
client names the request that is missing as soon as it has a coordinator. Without FindCoordinator librdkafka
waits in silence, and an error here is shown by some clients without the name of the request.
"""

from __future__ import annotations

from typing import Any

from ctrlchan.broker.apis.api import Api, Reply, Request
from ctrlchan.broker.apis.client_messages import (
    NOT_THROTTLED,
    KioError,
    build,
    read_body,
    response_schema,
    write_body,
)
from ctrlchan.broker.core import BrokerCore

__all__ = ["API"]

_SEVERAL_KEYS_SINCE = 4


def _handle(core: BrokerCore, request: Request) -> Reply:
    message = read_body("find_coordinator", request)
    schema = response_schema("find_coordinator", request.version)
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
                build(schema.Coordinator, key=key, **fields) for key in message.coordinator_keys
            )
        }
    return Reply(write_body(build(schema.FindCoordinatorResponse, throttle_time=NOT_THROTTLED, **fields)))


API = Api(key=10, name="FindCoordinator", lowest=0, highest=6, flexible_from=3, handle=_handle)
