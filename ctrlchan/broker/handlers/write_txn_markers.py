"""WriteTxnMarkers (27): the markers at the end of transactions, from a coordinator or an administrator.

``KafkaApis.handleWriteTxnMarkersRequest`` of Kafka 3.9. An answer has the partitions
in the order of Kafka's hash maps. A partition that is named twice gets one marker, and a marker without
partitions delays no answer; Kafka answers neither request.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

import numpy as np

from ctrlchan.authorizer.acls import Operation
from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.marker_appends import Marker
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.broker.metadata.jvm_order import (
    concurrent_map_order,
    java_map_order,
    long_hashes,
    string_hashes,
    topic_partition_hashes,
)
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode
from ctrlchan.server.access import ALTER_CLUSTER, CLUSTER_ACTION_CLUSTER, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.error_responses import error_response
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]


def _handle(core: StoringCore, request: Request) -> Reply | Future[Reply]:
    messages = ClientMessages("write_txn_markers", request.version)
    body = messages.decode(request)
    access = request.access
    if not access.allows_cluster(Operation.ALTER, logs=False) and not access.allows_cluster(
        Operation.CLUSTER_ACTION
    ):
        error = KioError.cluster_authorization_failed
        return Reply(error_response(messages, body, error), error_code=error.value)
    asked = [
        (
            Marker(
                ProducerIdentity(one.producer_id, one.producer_epoch),
                one.transaction_result,
                one.coordinator_epoch,
            ),
            [TopicPartition(topic.name, index) for topic in one.topics for index in topic.partition_indexes],
        )
        for one in body.markers
    ]
    answers = _Answers(messages, len(asked))
    appends = core.transactions.marker_appends
    if any(min(marker.producer) < 0 and any(map(appends.has, partitions)) for marker, partitions in asked):
        # Kafka cannot build such a marker for the partitions that the broker has.
        for marker, partitions in asked:
            answers.take(marker, dict.fromkeys(partitions, ErrorCode.UNKNOWN_SERVER_ERROR))
    else:
        for marker, partitions in asked:
            appends.append(marker, partitions, partial(answers.take, marker))
    return answers.reply


API: Final = Api(
    key=27,
    name="WriteTxnMarkers",
    lowest=0,
    highest=1,
    flexible_from=1,
    handle=_handle,
    locks_core=False,
    needs=asks(ALTER_CLUSTER, CLUSTER_ACTION_CLUSTER),
)


class _Answers:
    """Collects the errors of a request's markers; ``reply`` ends with the last of them."""

    def __init__(self, messages: ClientMessages, count: int) -> None:
        self.reply: Future[Reply] = Future()
        self._messages = messages
        self._lock = threading.Lock()
        self._left = count
        self._errors: dict[int, dict[TopicPartition, int]] = {}
        if not count:
            self._answer()

    def take(self, marker: Marker, errors: Mapping[TopicPartition, int]) -> None:
        """Take the errors of one marker. Any thread may call it."""
        with self._lock:
            if errors:
                self._errors.setdefault(marker.producer.producer_id, {}).update(errors)
            self._left -= 1
            is_last = not self._left
        if is_last:
            self._answer()

    def _answer(self) -> None:
        part = self._messages.part
        producers = list(self._errors)
        order = concurrent_map_order(np.arange(len(producers)), long_hashes(producers))
        markers = tuple(
            part(
                "WritableTxnMarkerResult",
                producer_id=producers[place],
                topics=_topics(part, self._errors[producers[place]]),
            )
            for place in order
        )
        codes = [error for own in self._errors.values() for error in own.values()]
        self.reply.set_result(
            Reply(
                self._messages.response(markers=markers),
                partition_errors=sum(map(bool, codes)),
                rows=len(codes),
            )
        )


def _topics(part: Any, errors: Mapping[TopicPartition, int]) -> tuple[Any, ...]:
    """Return the topics of a response in the order of Kafka's maps."""
    found: dict[str, list[Any]] = {}
    for one in _in_map_order(list(errors)):
        result = part(
            "WritableTxnMarkerPartitionResult",
            partition_index=one.partition,
            error_code=KioError(errors[one]),
        )
        found.setdefault(one.topic, []).append(result)
    names = list(found)
    if len(names) > 1:
        names = [names[place] for place in java_map_order(np.arange(len(names)), string_hashes(names))]
    return tuple(
        part("WritableTxnMarkerTopicResult", name=name, partitions=tuple(found[name])) for name in names
    )


def _in_map_order(partitions: list[TopicPartition]) -> list[TopicPartition]:
    """Return partitions in the order of a ``ConcurrentHashMap``."""
    if len(partitions) < 2:
        return partitions
    hashes = topic_partition_hashes(
        string_hashes([one.topic for one in partitions]),
        np.array([one.partition for one in partitions], np.int32),
    )
    return [partitions[place] for place in concurrent_map_order(np.arange(len(partitions)), hashes)]
