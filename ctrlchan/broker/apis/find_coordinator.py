"""FindCoordinator (10): refused, because an embedded broker has no groups and no transactions.

The API is announced, so that consumers report the error: librdkafka waits in silence for a broker that
announces FindCoordinator.
"""

from __future__ import annotations

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

_REFUSAL = "FindCoordinator is not supported: an embedded broker has no consumer groups and no transactions"
_SEVERAL_KEYS_SINCE = 4
_ERROR = KioError.unsupported_version


def _handle(core: BrokerCore, request: Request) -> Reply:
    message = read_body("find_coordinator", request)
    schema = response_schema("find_coordinator", request.version)
    # Kafka's Node.noNode().
    refusal = {"error_code": _ERROR, "error_message": _REFUSAL, "node_id": -1, "host": "", "port": -1}
    if request.version >= _SEVERAL_KEYS_SINCE:
        refusal = {
            "coordinators": tuple(
                build(schema.Coordinator, key=key, **refusal) for key in message.coordinator_keys
            )
        }
    body = build(schema.FindCoordinatorResponse, throttle_time=NOT_THROTTLED, **refusal)
    return Reply(write_body(body), error_code=_ERROR.value)


API = Api(key=10, name="FindCoordinator", lowest=0, highest=6, flexible_from=3, handle=_handle)
