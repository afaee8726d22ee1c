"""Produce (0): refused, because an embedded broker stores no records.

The API is announced, so that clients report the error of each partition: librdkafka tries for minutes when
Produce is not announced, and franz-go takes a broker without Produce for one that has no ApiVersions.
"""

from __future__ import annotations

from ctrlchan.broker.apis.api import Api, Reply, Request
from ctrlchan.broker.apis.client_messages import ClientMessages, KioError
from ctrlchan.broker.core import BrokerCore
from ctrlchan.errors import ProtocolError

__all__ = ["API"]

_REFUSAL = "Produce is not supported: an embedded broker stores no records"
_NO_ACKNOWLEDGEMENT = 0  # `acks`: the producer wants no response
_NO_OFFSET = -1


def _handle(core: BrokerCore, request: Request) -> Reply:
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


API = Api(key=0, name="Produce", lowest=0, highest=11, flexible_from=9, handle=_handle)
