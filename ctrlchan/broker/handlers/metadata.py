"""Metadata (3) of a broker that stores records: topics that clients ask for are created.

``KafkaApis.getTopicMetadata`` of Kafka 3.9 (``auto.create.topics.enable``). The answer for a topic that was
created is LEADER_NOT_AVAILABLE: the client asks again. Why a topic was not created is answered, too.

A broker that has just started waits for its first UpdateMetadata. Kafka answers without brokers and
controller then, and librdkafka does not ask again for minutes, unless it loses its connection. A controller
that has just been elected sends the brokers first and the partitions later: a broker that has logs waits for
these, too. Kafka denies the topics in between, and producers give their records up.
"""

from __future__ import annotations

from collections.abc import Container
from concurrent.futures import Future
from functools import partial
from time import monotonic
from typing import Final

from ctrlchan.broker.handlers.auto_create import create_missing
from ctrlchan.broker.handlers.effects import when_seen
from ctrlchan.broker.handlers.mutation_quota import charge_creations
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.apis import metadata
from ctrlchan.server.apis._metadata import MetadataRequest, decode_metadata
from ctrlchan.server.futures import then

__all__ = ["API"]

#: Seconds that a client waits for the first UpdateMetadata at most: clients wait 30 or 60 for an answer.
_FIRST_UPDATE_SECONDS: Final = 20.0


def _handle(core: StoringCore, request: Request) -> Reply | Future[Reply]:
    body = decode_metadata(request.frame, request.offset, request.version)
    with core.metadata.state.lock:
        is_informed = _is_informed(core, core.metadata)
    if core.controller is None or is_informed:
        return _answer(core, request, body)
    is_known = when_seen(core, partial(_is_informed, core), _FIRST_UPDATE_SECONDS)
    return then(is_known, lambda _: _answer(core, request, body))


def _answer(core: StoringCore, request: Request, body: MetadataRequest) -> Reply | Future[Reply]:
    """Return the reply, after the topics that the client may create were created."""
    described = metadata.described(core, request, body)
    missing = [name for name in _missing(core, request, body) if name in described]
    if core.controller is None or not missing:
        return _remember(core, request, body, described)
    permitted = metadata.creatable(request.access, missing)
    creatable = [name for name in missing if name in permitted]
    denied = {name: int(ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in missing if name not in permitted}
    charge_creations(core, request, creatable)
    created = create_missing(core, creatable)
    return then(created, lambda errors: metadata.answer(core, request, body, described, errors | denied))


def _remember(core: StoringCore, request: Request, body: MetadataRequest, described: Container[str]) -> Reply:
    """Return the reply, and let processors repeat it (``_known_metadata.pyx``).

    A reply without partitions is not repeated: this may be a broker that waits for its metadata.
    """
    current = core.metadata.snapshot
    reply = metadata.answer(core, request, body, described)
    if core.known_metadata is not None and reply.rows and not core.metadata.has_kraft_controller:
        asked = bytes(request.frame[request.offset :])
        core.known_metadata.add(current, request.version, request.context.listener, asked, reply.body)
    return reply


def _is_informed(core: StoringCore, known: MetadataCache) -> bool:
    """Return whether a controller has sent its metadata. Requires ``metadata.state.lock``."""
    if not len(known.live_ids):
        return False
    # After some time there are no partitions: the topics of the logs were deleted.
    return (
        len(known.state.partitions) > 0
        or not core.logs.has_logs
        or monotonic() - known.first_updated > _FIRST_UPDATE_SECONDS
    )


def _missing(core: StoringCore, request: Request, body: MetadataRequest) -> list[str]:
    """Return the names of topics to create."""
    if not core.settings.new_topics.auto_create:
        return []
    with core.metadata.state.lock:
        return metadata.missing_topics(core.metadata, request.version, body)


API: Api[StoringCore] = Api(
    key=3,
    name="Metadata",
    lowest=0,
    highest=12,
    flexible_from=9,
    handle=_handle,
    locks_core=False,
    needs=metadata.CREATING_NEEDS,
)
