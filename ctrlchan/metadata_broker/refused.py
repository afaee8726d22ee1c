"""Produce (0) and Fetch (1) of a broker that stores no records: each partition gets an error.

Both are announced, so that clients report the error of each partition: librdkafka tries for minutes when
Produce is not announced, and franz-go takes a broker without Produce for one that has no ApiVersions.

A follower gets NOT_LEADER_OR_FOLLOWER for each partition. ``AbstractFetcherThread`` writes no log line above
DEBUG for this error and waits ``replica.fetch.backoff.ms`` before it fetches the partition again. The
follower keeps its log: an answer with an empty log would make the follower truncate it. A consumer gets
UNSUPPORTED_VERSION, which no client retries in silence.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from ctrlchan.broker.core import BrokerCore
from ctrlchan.errors import ProtocolError
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError
from ctrlchan.text import quoted

__all__ = ["FETCH", "produce_api"]

_LOG: Final = logging.getLogger("ctrlchan.metadata_broker")

_REFUSAL = "Produce is not supported: an embedded broker stores no records"
_NO_ACKNOWLEDGEMENT = 0  # `acks`: the producer wants no response
_NO_OFFSET = -1
# Consumers that go on after the error, and followers of many partitions, send one request in this time.
_THROTTLE_TIME_MS = 1_000


def _produce(core: BrokerCore, request: Request) -> Reply:
    messages = ClientMessages("produce", request.version)
    body = messages.decode(request)
    if body.acks == _NO_ACKNOWLEDGEMENT:
        # Kafka's only way to show an error to such a producer.
        raise ProtocolError(_REFUSAL)
    responses = tuple(
        messages.part(
            "TopicProduceResponse",
            name=topic.name,
            partition_responses=tuple(
                messages.part(
                    "PartitionProduceResponse",
                    index=partition.index,
                    error_code=KioError.unsupported_version,
                    base_offset=_NO_OFFSET,
                    record_errors=(),
                    error_message=_REFUSAL,
                )
                for partition in topic.partition_data
            ),
        )
        for topic in body.topic_data
    )
    partitions = sum(len(topic.partition_responses) for topic in responses)
    return Reply(messages.response(responses=responses), partition_errors=partitions, rows=partitions)


def produce_api() -> Api[BrokerCore]:
    """Return Produce of one broker, whose first request is logged as a warning."""
    is_first = True

    def handle(core: BrokerCore, request: Request) -> Reply:
        nonlocal is_first
        if is_first:
            is_first = False
            _LOG.warning(
                "broker %d stores no records, and refuses those of client %s: start it with a log directory "
                "(ctrlchan broker --log-dir FOLDER; in Python log_dir=ctrlchan.TEMPORARY)",
                core.id,
                quoted(request.client_id.decode(errors="replace") if request.client_id else ""),
            )
        return _produce(core, request)

    return Api(key=0, name="Produce", lowest=0, highest=11, flexible_from=9, handle=handle)


def _fetch(core: BrokerCore, request: Request) -> Reply:
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
    partitions = sum(len(topic.partitions) for topic in responses)
    return Reply(
        messages.response(error_code=KioError.none, responses=responses),
        partition_errors=partitions,
        rows=partitions,
        throttle_time_ms=_THROTTLE_TIME_MS,
    )


FETCH = Api(key=1, name="Fetch", lowest=0, highest=17, flexible_from=12, handle=_fetch)


def _replica_id(body: Any) -> int:
    """Return the broker id of a follower, or a negative number for a consumer."""
    state = getattr(body, "replica_state", body)
    return int(state.replica_id)
