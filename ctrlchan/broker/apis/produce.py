"""Produce (0): refused, because an embedded broker stores no records.

The API is announced, so that clients report the error of each partition: librdkafka tries for minutes when
Produce is not announced, and franz-go takes a broker without Produce for one that has no ApiVersions.
"""

from __future__ import annotations

from ctrlchan.broker.apis.api import Api, Reply, Request
from ctrlchan.broker.apis.client_messages import (
    NOT_THROTTLED,
    KioError,
    build,
    read_body,
    response_schema,
    write_body,
)
from ctrlchan.broker.core import BrokerCore
from ctrlchan.errors import ProtocolError

__all__ = ["API"]

_REFUSAL = "Produce is not supported: an embedded broker stores no records"
_NO_ACKNOWLEDGEMENT = 0  # `acks`: the producer wants no response
_NO_OFFSET = -1


def _handle(core: BrokerCore, request: Request) -> Reply:
    message = read_body("produce", request)
    if message.acks == _NO_ACKNOWLEDGEMENT:
        # Kafka's only way to show an error to such a producer.
        raise ProtocolError(_REFUSAL)
    schema = response_schema("produce", request.version)
    responses = tuple(
        build(
            schema.TopicProduceResponse,
            name=topic.name,
            partition_responses=tuple(
                build(
                    schema.PartitionProduceResponse,
                    index=partition.index,
                    error_code=KioError.unsupported_version,
                    base_offset=_NO_OFFSET,
                    record_errors=(),
                    error_message=_REFUSAL,
                )
                for partition in topic.partition_data
            ),
        )
        for topic in message.topic_data
    )
    body = build(schema.ProduceResponse, responses=responses, throttle_time=NOT_THROTTLED)
    partitions = sum(len(topic.partition_responses) for topic in responses)
    return Reply(write_body(body), partition_errors=partitions, rows=partitions)


API = Api(key=0, name="Produce", lowest=0, highest=11, flexible_from=9, handle=_handle)
