"""FindCoordinator (10) of a broker that stores records: the leader of a group's or a transaction's partition.

``__consumer_offsets`` and ``__transaction_state`` are created when the first client asks. That client waits
until they have leaders: Kafka answers COORDINATOR_NOT_AVAILABLE at once, and librdkafka asks again after a
second. ``KafkaApis.handleFindCoordinatorRequest`` and ``AutoTopicCreationManager`` of Kafka 3.9.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, NamedTuple

from ctrlchan.broker.handlers.auto_create import create_topic
from ctrlchan.broker.handlers.effects import when_seen
from ctrlchan.broker.handlers.group_access import coordinator_of
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ctrlchan.rate_limit import LogRateLimit
from ctrlchan.server.access import Access
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis.find_coordinator import NEEDS, SHARES_SINCE, CoordinatorType, refusal_of
from ctrlchan.server.futures import then
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

_LOG = logging.getLogger("ctrlchan.broker")
_LINES = LogRateLimit()

_SEVERAL_KEYS_SINCE: Final = 4
_NOT_AVAILABLE_TEXT: Final = "The coordinator is not available."

#: Seconds that a client waits for leaders of a topic that it lets be created.
_ELECTION_SECONDS: Final = 1.0


_TYPES: Final = frozenset(CoordinatorType)
#: The topics whose leaders are the coordinators.
_TOPICS: Final = {CoordinatorType.GROUP: OFFSETS_TOPIC, CoordinatorType.TRANSACTION: TRANSACTIONS_TOPIC}


class _Found(NamedTuple):
    error: ErrorCode
    message: str
    id: int = -1
    host: str = ""
    port: int = -1


_NOT_AVAILABLE: Final = _Found(ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOT_AVAILABLE_TEXT)


def _handle(core: StoringCore, request: Request) -> Reply | Future[Reply]:
    messages = ClientMessages("find_coordinator", request.version)
    body = messages.decode(request)
    key_type = getattr(body, "key_type", CoordinatorType.GROUP)
    topic = _TOPICS.get(key_type)
    keys = body.coordinator_keys if request.version >= _SEVERAL_KEYS_SINCE else (body.key,)
    refusals = [_refusal(request.access, request.version, key_type, key) for key in keys]
    answer = partial(_answer, core, request, messages, key_type, keys, refusals)
    # Who is denied all of it creates nothing.
    if topic is None or core.metadata.snapshot.has_topic(topic) or None not in refusals:
        return answer(None)
    return then(_created(core, topic), answer)


def _answer(
    core: StoringCore,
    request: Request,
    messages: ClientMessages,
    key_type: int,
    keys: Sequence[str],
    refusals: Sequence[_Found | None],
    _created: object,
) -> Reply:
    # Share groups have no coordinator yet.
    is_share = key_type == CoordinatorType.SHARE and request.version >= SHARES_SINCE
    found = [
        refusal or (_NOT_AVAILABLE if is_share else _find(core, request.context.listener, key_type, key))
        for key, refusal in zip(keys, refusals, strict=True)
    ]
    if request.version < _SEVERAL_KEYS_SINCE:
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
    needs=NEEDS,
)


def _fields(found: _Found, message: str) -> dict[str, Any]:
    return {
        "error_code": KioError(found.error),
        "error_message": message,
        "node_id": found.id,
        "host": found.host,
        "port": found.port,
    }


def _refusal(access: Access, version: int, key_type: int, key: str) -> _Found | None:
    """Return the answer to who may not ask for a coordinator."""
    error = refusal_of(access, version, key_type, key)
    return None if error is None else _Found(ErrorCode.known(error.code), error.message)


def _find(core: StoringCore, listener: str, key_type: int, key: str) -> _Found:
    if key_type == CoordinatorType.GROUP:
        return _leader_of(core, listener, OFFSETS_TOPIC, coordinator_of(core).partition_for(key))
    if key_type == CoordinatorType.TRANSACTION:
        partition = core.transactions.coordinator.partition_for(key)
        return _leader_of(core, listener, TRANSACTIONS_TOPIC, partition)
    return _Found(ErrorCode.INVALID_REQUEST, f"There are no coordinators of type {key_type}")


def _leader_of(core: StoringCore, listener: str, topic: str, partition: int) -> _Found:
    with core.metadata.state.lock:
        leader = core.metadata.snapshot.leader(topic, partition)
        nodes = core.metadata.nodes(listener)
    for node in nodes:
        if leader is not None and node.id == leader[0]:
            return _Found(ErrorCode.NONE, "", node.id, node.host, node.port)
    return _NOT_AVAILABLE


def _created(core: StoringCore, topic: str) -> Future[bool]:
    """Let the controller create a coordinator's topic; return whether its partitions have leaders in time."""
    if core.controller is None:
        suffix = _LINES.admit(core.id, time.monotonic_ns())
        if suffix is not None:
            _LOG.warning("broker %d: no controller can create %s%s", core.id, topic, suffix)
        no: Future[bool] = Future()
        no.set_result(False)
        return no

    def has_leaders(known: MetadataCache) -> bool:
        if known.topic_row(topic) is None:
            return False
        return bool((known.state.partitions.leader[known.state.rows_of_topic(topic)] >= 0).all())

    create_topic(core, topic)
    return when_seen(core, has_leaders, _ELECTION_SECONDS)
