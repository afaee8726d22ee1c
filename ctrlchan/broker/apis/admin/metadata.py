"""Metadata (3) of a broker that stores records: topics that clients ask for are created.

``KafkaApis.getTopicMetadata`` of Kafka 3.9 (``auto.create.topics.enable``). The answer is that the topic is
unknown: the client asks again. Internal topics are left to their coordinators.

A broker that has just started waits for its first UpdateMetadata. Kafka answers without brokers and
controller then, and librdkafka does not ask again for minutes, unless it loses its connection.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from ctrlchan.broker.apis import metadata
from ctrlchan.broker.apis._metadata import MetadataRequest, decode_metadata
from ctrlchan.broker.apis.admin.auto_create import create_missing
from ctrlchan.broker.apis.api import Api, Reply, Request
from ctrlchan.broker.controller.effects import when_seen
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.topic_names import ZERO_ID

__all__ = ["API"]

#: Seconds that a client waits for the first UpdateMetadata at most: clients wait 30 or 60 for an answer.
_FIRST_UPDATE_SECONDS: Final = 20.0


def _handle(core: StoringCore, request: Request) -> Callable[[], Reply] | Future[Reply]:
    body = decode_metadata(request.frame, request.offset, request.version)
    if core.controller is None or len(core.metadata.live_ids):
        return _answer(core, request, body)
    reply: Future[Reply] = Future()

    def answered(_: Future[bool]) -> None:
        try:
            with core.lock:
                make = _answer(core, request, body)
            reply.set_result(make())
        except BaseException as error:  # noqa: BLE001  (who sends the answer gets it)
            reply.set_exception(error)

    seen = when_seen(core, lambda known: len(known.live_ids) > 0, _FIRST_UPDATE_SECONDS)
    seen.add_done_callback(answered)
    return reply


def _answer(core: StoringCore, request: Request, body: MetadataRequest) -> Callable[[], Reply]:
    # Before version 4 a client could not say that it wants none.
    if body.topics and body.allows_creation and _creates(core):
        names = {name for topic_id, name in body.topics if name is not None and topic_id == ZERO_ID}
        create_missing(
            core,
            sorted(
                name for name in names - metadata.INTERNAL_TOPICS if core.metadata.topic_row(name) is None
            ),
        )
    return metadata.answer(core, request, body)


def _creates(core: StoringCore) -> bool:
    return core.controller is not None and core.setting("auto.create.topics.enable").strip().lower() == "true"


API: Api[StoringCore] = Api(key=3, name="Metadata", lowest=0, highest=12, flexible_from=9, handle=_handle)
