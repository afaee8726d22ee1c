"""AlterConfigs (33) and IncrementalAlterConfigs (44): changes configs of topics and brokers.

The configs of brokers are the dynamic ones: those of the broker that answers, or those of all brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import CtrlchanError, ErrorCode, KafkaError
from ctrlchan.server.access import ALTER_CONFIGS_CLUSTER, ALTER_CONFIGS_TOPIC, Access, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis.config_requests import change_configs, reply_to
from ctrlchan.server.kio_messages import ClientMessages

__all__ = ["ALTER", "INCREMENTAL_ALTER"]

_LOG: Final = logging.getLogger("ctrlchan.broker")


def _handler(api: str) -> Callable[[StoringCore, Request], Reply]:
    def handle(core: StoringCore, request: Request) -> Reply:
        messages = ClientMessages(api, request.version)
        return _reply(core, request.access, messages, messages.decode(request))

    return handle


def _reply(core: StoringCore, access: Access, messages: ClientMessages, body: Any) -> Reply:
    store = core.config_store
    assert store is not None
    errors: Sequence[KafkaError | None]
    try:
        errors = change_configs(store, access, messages, body, core.policies)
    except CtrlchanError as error:
        _LOG.error("the configs cannot be changed: %s", error)
        errors = [KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)] * len(body.resources)
    return reply_to(messages, body, errors)


ALTER: Api[StoringCore] = Api(
    key=33,
    name="AlterConfigs",
    lowest=0,
    highest=2,
    flexible_from=2,
    handle=_handler("alter_configs"),
    locks_core=False,
    needs=asks(ALTER_CONFIGS_TOPIC, ALTER_CONFIGS_CLUSTER),
)
INCREMENTAL_ALTER: Api[StoringCore] = Api(
    key=44,
    name="IncrementalAlterConfigs",
    lowest=0,
    highest=1,
    flexible_from=1,
    handle=_handler("incremental_alter_configs"),
    locks_core=False,
    needs=asks(ALTER_CONFIGS_TOPIC, ALTER_CONFIGS_CLUSTER),
)
