"""DescribeProducers (61): the producers whose sequences a partition's log knows.

``KafkaApis.handleDescribeProducersRequest`` and ``Partition.activeProducerState`` of Kafka 3.9; KIP-664.
"""

from __future__ import annotations

from typing import Any, Final

from ctrlchan.broker.apis.api import Api, Reply, Request
from ctrlchan.broker.apis.client_messages import ClientMessages, KioError
from ctrlchan.broker.storing_core import StoringCore

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
                        _partition(core, messages, topic.name, partition)
                        for partition in topic.partition_indexes
                    ),
                )
                for topic in body.topics
            )
        )
    )


API: Api[StoringCore] = Api(
    key=61, name="DescribeProducers", lowest=0, highest=0, flexible_from=0, handle=_handle
)


def _partition(core: StoringCore, messages: ClientMessages, topic: str, partition: int) -> Any:
    error, producers = KioError.none, []
    hosted = core.partitions.get(topic, partition)
    log = None if hosted is None else hosted.log
    if hosted is not None and hosted.is_offline:
        error = KioError.kafka_storage_error
    elif log is not None:
        producers = [_producer(messages, one) for one in log.producers.producers()]
    else:
        row = core.metadata.topic_row(topic)
        known = (
            row is not None
            and partition
            in core.metadata.state.partitions.partition[core.metadata.state.rows_of_topic(topic)]
        )
        error = KioError.not_leader_or_follower if known else KioError.unknown_topic_or_partition
    return messages.part(
        "PartitionResponse", partition_index=partition, error_code=error, active_producers=tuple(producers)
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
