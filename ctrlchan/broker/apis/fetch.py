"""Fetch (1): refused, because an embedded broker stores no records.

A follower gets NOT_LEADER_OR_FOLLOWER for each partition. ``AbstractFetcherThread`` writes no log line above
DEBUG for this error and waits ``replica.fetch.backoff.ms`` before it fetches the partition again. The
follower keeps its log: an answer with an empty log would make the follower truncate it. A consumer gets
UNSUPPORTED_VERSION, which no client retries in silence.
"""

from __future__ import annotations

from typing import Any

from ctrlchan.broker.apis.api import Api, Reply, Request
from ctrlchan.broker.apis.client_messages import ClientMessages, KioError, throttled
from ctrlchan.broker.core import BrokerCore

__all__ = ["API"]

_NO_OFFSET = -1
# Consumers that go on after the error, and followers of many partitions, send one request in this time.
_THROTTLE_SECONDS = 1.0


def _handle(core: BrokerCore, request: Request) -> Reply:
    messages = ClientMessages("fetch", request.version)
    body = messages.decode(request)
    follows = _replica_id(body) >= 0
    error = KioError.not_leader_or_follower if follows else KioError.unsupported_version
    responses = tuple(
        messages.part(
            "FetchableTopicResponse",
            topic=getattr(topic, "topic", None),
            topic_id=getattr(topic, "topic_id", None),
            partitions=tuple(
                messages.part(
                    "PartitionData",
                    partition_index=partition.partition,
                    error_code=error,
                    high_watermark=_NO_OFFSET,
                    aborted_transactions=None,
                    records=b"",
                )
                for partition in topic.partitions
            ),
        )
        for topic in body.topics
    )
    response = messages.response(
        throttle_time=throttled(_THROTTLE_SECONDS),
        error_code=KioError.none,
        responses=responses,
    )
    partitions = sum(len(topic.partitions) for topic in responses)
    return Reply(response, partition_errors=partitions, rows=partitions)


API = Api(key=1, name="Fetch", lowest=0, highest=17, flexible_from=12, handle=_handle)


def _replica_id(body: Any) -> int:
    """Return the broker id of a follower, or a negative number for a consumer."""
    state = getattr(body, "replica_state", body)
    return int(state.replica_id)
