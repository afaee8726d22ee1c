"""Fetch (1) on a handler thread: what the processors leave to Python (``_fetch.pyx``).

That is a body that cannot be decoded, and an isolation level that does not exist, at which the whole request
fails.
"""

from __future__ import annotations

from typing import Any, Final

from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ProtocolError
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

#: From this version on an error of the whole response needs no partitions.
_NO_PARTITIONS_FROM: Final = 13
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1


def _handle(_core: StoringCore, request: Request) -> Reply:
    messages = ClientMessages("fetch", request.version)
    body = messages.decode(request)
    if body.isolation_level in (_READ_UNCOMMITTED, _READ_COMMITTED):
        raise ProtocolError("a Fetch request with a field that is not valid")
    error = KioError.unknown_server_error
    topics = () if request.version >= _NO_PARTITIONS_FROM else _topics(messages, body, error)
    response = messages.response(
        error_code=error, session_id=getattr(body, "session_id", 0), responses=topics
    )
    return Reply(response, error.value)


API = Api(key=1, name="Fetch", lowest=4, highest=17, flexible_from=12, handle=_handle, locks_core=False)


def _topics(messages: ClientMessages, body: Any, error: KioError) -> tuple[Any, ...]:
    return tuple(
        messages.part(
            "FetchableTopicResponse",
            topic=topic.topic,
            partitions=tuple(
                messages.part(
                    "PartitionData",
                    partition_index=one.partition,
                    error_code=error,
                    high_watermark=-1,
                    aborted_transactions=(),
                    records=None,
                )
                for one in topic.partitions
            ),
        )
        for topic in body.topics
    )
