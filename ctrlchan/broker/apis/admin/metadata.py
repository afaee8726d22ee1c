"""Metadata (3) of a broker that stores records: topics that clients ask for are created.

``KafkaApis.getTopicMetadata`` of Kafka 3.9 (``auto.create.topics.enable``). The answer is that the topic is
unknown: the client asks again. Internal topics are left to their coordinators.
"""

from __future__ import annotations

from typing import Any, Final

from ctrlchan.broker.apis import metadata
from ctrlchan.broker.apis.admin.auto_create import create_missing
from ctrlchan.broker.apis.api import Api, Request
from ctrlchan.broker.apis.client_messages import ClientMessages
from ctrlchan.broker.storing_core import StoringCore

__all__ = ["API"]

_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def _handle(core: StoringCore, request: Request) -> Any:
    if core.controller is not None and core.setting("auto.create.topics.enable").strip().lower() == "true":
        body = ClientMessages("metadata", request.version).decode(request)
        # Before version 4 a client could not say that it wants none.
        if body.topics and getattr(body, "allow_auto_topic_creation", True):
            names = {topic.name for topic in body.topics if getattr(topic, "topic_id", None) is None}
            create_missing(
                core,
                sorted(name for name in names - _INTERNAL - {None} if core.metadata.topic_row(name) is None),
            )
    return metadata.API.handle(core, request)


API: Api[StoringCore] = Api(key=3, name="Metadata", lowest=0, highest=12, flexible_from=9, handle=_handle)
