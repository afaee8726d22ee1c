"""FindCoordinator (10) of a broker that stores records: the leader of a group's or a transaction's partition.

``__consumer_offsets`` and ``__transaction_state`` are created when the first client asks.
``KafkaApis.handleFindCoordinatorRequest`` and ``AutoTopicCreationManager`` of Kafka 3.9, without an
authorizer.
"""

from __future__ import annotations

import logging
import time
from enum import IntEnum
from typing import Any, Final, NamedTuple

from ctrlchan.broker.handlers.auto_create import create_topic
from ctrlchan.broker.handlers.group_access import coordinator_of
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

_LOG = logging.getLogger("ctrlchan.broker")
_LINES = LogRateLimit()

_SEVERAL_KEYS_SINCE: Final = 4
_NOT_AVAILABLE_TEXT: Final = "The coordinator is not available."


class _Type(IntEnum):
    """``FindCoordinatorRequest.CoordinatorType``."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


_TYPES: Final = frozenset(_Type)


class _Found(NamedTuple):
    error: ErrorCode
    message: str
    id: int = -1
    host: str = ""
    port: int = -1


_NOT_AVAILABLE: Final = _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOT_AVAILABLE_TEXT)


def _handle(core: StoringCore, request: Request) -> Reply:
    messages = ClientMessages("find_coordinator", request.version)
    body = messages.decode(request)
    key_type = getattr(body, "key_type", _Type.GROUP)
    several = request.version >= _SEVERAL_KEYS_SINCE
    keys = body.coordinator_keys if several else (body.key,)
    found = [_find(core, request.context.listener, key_type, key) for key in keys]
    if not several:
        [one] = found
        # Kafka's message of a success.
        fields = _fields(one, one.message or "NONE")
        return Reply(messages.response(**fields), error_code=int(one.error))
    # Kafka has messages here only where the whole request fails.
    coordinators = tuple(
        messages.part(
            "Coordinator",
            key=key,
            **_fields(one, "" if key_type in _TYPES else one.message),
        )
        for key, one in zip(keys, found, strict=True)
    )
    return Reply(
        messages.response(coordinators=coordinators),
        partition_errors=sum(1 for one in found if one.error),
        rows=len(found),
    )


API: Final = Api(
    key=10,
    name="FindCoordinator",
    lowest=0,
    highest=6,
    flexible_from=3,
    handle=_handle,
    locks_core=False,
)


def _fields(found: _Found, message: str) -> dict[str, Any]:
    return {
        "error_code": KioError(found.error),
        "error_message": message,
        "node_id": found.id,
        "host": found.host,
        "port": found.port,
    }


def _find(core: StoringCore, listener: str, key_type: int, key: str) -> _Found:
    if key_type == _Type.GROUP:
        topic, partition = OFFSETS_TOPIC, coordinator_of(core).partition_for(key)
    elif key_type == _Type.TRANSACTION:
        topic, partition = TRANSACTIONS_TOPIC, core.transactions.coordinator.partition_for(key)
    else:
        return _Found(ErrorCode.INVALID_REQUEST, f"There are no coordinators of type {key_type}")
    if core.metadata.snapshot.has_topic(topic):
        return _leader_of(core, listener, topic, partition)
    _create(core, topic)
    return _NOT_AVAILABLE


def _leader_of(core: StoringCore, listener: str, topic: str, partition: int) -> _Found:
    with core.metadata.state.lock:
        leader = core.metadata.snapshot.leader(topic, partition)
        nodes = core.metadata.nodes(listener)
    for node in nodes:
        if leader is not None and node.id == leader[0]:
            return _Found(ErrorCode.NONE, "", node.id, node.host, node.port)
    return _NOT_AVAILABLE


def _create(core: StoringCore, topic: str) -> None:
    """Let the controller create a coordinator's topic. The client asks again until it is there."""
    if core.controller is None:
        suffix = _LINES.admit(core.id, time.monotonic_ns())
        if suffix is not None:
            _LOG.warning("broker %d: no controller can create %s%s", core.id, topic, suffix)
        return
    create_topic(core, topic)
