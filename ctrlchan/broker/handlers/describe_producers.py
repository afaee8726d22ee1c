"""DescribeProducers (61): the producers whose sequences a partition's log knows.

``KafkaApis.handleDescribeProducersRequest`` and ``Partition.activeProducerState`` of Kafka 3.9; KIP-664.
"""

from __future__ import annotations

from typing import Any, Final

from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.server.access import READ_TOPIC, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError
from ctrlchan.topic_names import why_invalid

__all__ = ["API"]

_NONE: Final = -1


def _handle(core: StoringCore, request: Request) -> Reply:
    messages = ClientMessages("describe_producers", request.version)
    body = messages.decode(request)
    return Reply(
        messages.response(
            topics=tuple(
                messages.part(
                    "TopicResponse",
                    name=topic.name,
                    partitions=tuple(
                        _partition(core, messages, topic.name, partition, is_readable=is_readable)
                        for partition in topic.partition_indexes
                    ),
                )
                for topic in body.topics
                # Kafka looks at the name first.
                for is_readable in [
                    why_invalid(topic.name) is not None or request.access.allows(*READ_TOPIC, topic.name)
                ]
            )
        )
    )


API: Api[StoringCore] = Api(
    key=61,
    name="DescribeProducers",
    lowest=0,
    highest=0,
    flexible_from=0,
    handle=_handle,
    needs=asks(READ_TOPIC),
)


def _partition(
    core: StoringCore, messages: ClientMessages, topic: str, partition: int, *, is_readable: bool
) -> Any:
    error, text, producers = KioError.none, None, []
    reason = why_invalid(topic)
    hosted = core.partitions.get(topic, partition)
    if reason is not None:
        error, text = KioError.invalid_topic_exception, f"Topic name is invalid: {reason}"
    elif not is_readable:
        error, text = KioError.topic_authorization_failed, "Topic authorization failed."
    elif not core.metadata.snapshot.has_topic(topic):
        error, text = KioError.unknown_topic_or_partition, "This broker knows no such topic"
    elif hosted is not None and hosted.is_offline:
        error = KioError.kafka_storage_error
    elif hosted is not None and hosted.log is not None:
        producers = [_producer(messages, one) for one in hosted.log.producer_states()]
    elif core.metadata.snapshot.has_partition(topic, partition):
        error = KioError.not_leader_or_follower
    else:
        error = KioError.unknown_topic_or_partition
    return messages.part(
        "PartitionResponse",
        partition_index=partition,
        error_code=error,
        error_message=text,
        active_producers=tuple(producers),
    )


def _producer(messages: ClientMessages, state: Any) -> Any:
    return messages.part(
        "ProducerState",
        producer_id=state.producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.batches[-1].last_sequence if state.batches else _NONE,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=state.txn_first_offset,
    )
