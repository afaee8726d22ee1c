"""FindCoordinator (10) of a broker that stores records: the leader of a group's partition.

``__consumer_offsets`` is created when the first client asks. Coordinators of transactions are refused with a
message, which clients show. ``KafkaApis.handleFindCoordinatorRequest`` and ``AutoTopicCreationManager`` of
Kafka 3.9, without an authorizer.
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
from ctrlchan.internal_topics import OFFSETS_TOPIC
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

_LOG = logging.getLogger("ctrlchan.broker")
_LINES = LogRateLimit()

_SEVERAL_KEYS_SINCE: Final = 4
_NOT_AVAILABLE_TEXT: Final = "The coordinator is not available."
_NO_TRANSACTIONS: Final = "Transactions are not supported by this broker"


class _Type(IntEnum):
    """``FindCoordinatorRequest.CoordinatorType``."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


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
    # Kafka has messages here only where the whole request fails. Clients show the one for transactions.
    coordinators = tuple(
        messages.part(
            "Coordinator",
            key=key,
            **_fields(one, "" if key_type in (_Type.GROUP, _Type.SHARE) else one.message),
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
    if key_type == _Type.TRANSACTION:
        # Of the errors that end a producer in every client, the one whose message Java's and librdkafka show.
        return _Found(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, _NO_TRANSACTIONS)
    if key_type != _Type.GROUP:
        return _Found(ErrorCode.INVALID_REQUEST, f"There are no coordinators of type {key_type}")
    partition = coordinator_of(core).partition_for(key)
    if core.metadata.snapshot.has_topic(OFFSETS_TOPIC):
        return _leader_of(core, listener, partition)
    _create_offsets_topic(core)
    return _NOT_AVAILABLE


def _leader_of(core: StoringCore, listener: str, partition: int) -> _Found:
    with core.metadata.state.lock:
        leader = core.metadata.snapshot.leader(OFFSETS_TOPIC, partition)
        nodes = core.metadata.nodes(listener)
    for node in nodes:
        if leader is not None and node.id == leader[0]:
            return _Found(ErrorCode.NONE, "", node.id, node.host, node.port)
    return _NOT_AVAILABLE


def _create_offsets_topic(core: StoringCore) -> None:
    """Let the controller create ``__consumer_offsets``. The client asks again until it is there."""
    if core.controller is None:
        suffix = _LINES.admit(core.id, time.monotonic_ns())
        if suffix is not None:
            _LOG.warning("broker %d: no controller can create %s%s", core.id, OFFSETS_TOPIC, suffix)
        return
    create_topic(core, OFFSETS_TOPIC)
