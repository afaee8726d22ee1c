"""DescribeClientQuotas (48) and AlterClientQuotas (49) of a broker.

Any broker answers, as in Kafka's ZooKeeper mode. A change is written to ZooKeeper; this broker applies it
when it reads it there, as all others do.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import CtrlchanError, ErrorCode, KafkaError, ProtocolError
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis.client_quotas import Alterations, alter_api, describe, describe_api

__all__ = ["APIS"]

_LOG: Final = logging.getLogger("ctrlchan.broker")


def _describe(core: StoringCore, request: Request) -> Reply:
    store = core.config_store
    assert store is not None
    try:
        return describe(request, store.read_quotas)
    except (KafkaError, ProtocolError):
        raise
    except CtrlchanError as error:
        _LOG.error("broker %d: the quotas cannot be read: %s", core.id, error)
        return describe(request, _unreadable)


def _unreadable(_types: object) -> dict[Any, Any]:
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _alter(core: StoringCore, request: Request) -> Reply:
    store = core.config_store
    assert store is not None
    changes = Alterations(request)
    try:
        return changes.reply(changes.apply(store))
    except CtrlchanError as error:
        _LOG.error("broker %d: the quotas cannot be changed: %s", core.id, error)
        return changes.reply(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))


APIS: Final[tuple[Api[StoringCore], ...]] = (describe_api(_describe), alter_api(_alter))
