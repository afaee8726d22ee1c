"""ConsumerGroupHeartbeat (68) and ConsumerGroupDescribe (69): UNSUPPORTED_VERSION (KIP-848).

Kafka 3.9 announces both, and answers so unless the new group coordinator is switched on, which needs KRaft.
``KafkaApis.handleConsumerGroupHeartbeat`` and ``handleConsumerGroupDescribe``.
"""

from __future__ import annotations

from typing import Final

from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.server.access import NOTHING
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.error_responses import error_response
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["APIS"]

_ERROR: Final = KioError.unsupported_version


def _unsupported(key: int, name: str, message: str) -> Api[StoringCore]:
    def handle(_core: StoringCore, request: Request) -> Reply:
        messages = ClientMessages(message, request.version)
        body = messages.decode(request)
        return Reply(error_response(messages, body, _ERROR), error_code=_ERROR.value)

    return Api(
        key=key,
        name=name,
        lowest=0,
        highest=0,
        flexible_from=0,
        handle=handle,
        locks_core=False,
        needs=NOTHING,
    )


APIS: Final[tuple[Api[StoringCore], ...]] = (
    _unsupported(68, "ConsumerGroupHeartbeat", "consumer_group_heartbeat"),
    _unsupported(69, "ConsumerGroupDescribe", "consumer_group_describe"),
)
