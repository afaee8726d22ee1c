"""IsrChanges: asks the controller for new ISRs, many partitions in one AlterPartition, one request at a time.

Source: ``kafka.server.DefaultAlterPartitionManager`` of Kafka 3.9; KIP-497.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, Final, NamedTuple
from uuid import UUID

from ctrlchan.broker.controller.connection import OutgoingRequest
from ctrlchan.broker.controller.messages import decode_answer, encode_request, part
from ctrlchan.errors import DecodeError, ErrorCode, KafkaError
from ctrlchan.topic_names import ZERO_ID

__all__ = ["AlteredPartition", "IsrChanges"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

_API_KEY: Final = 56
_BY_NAME: Final = 1
_BY_ID: Final = 3
_TIMEOUT: Final = 30.0
_RETRY_SECONDS: Final = 0.05

#: Answers that end a wish: the others say nothing of the partition, and Kafka asks again.
_FINAL: Final = frozenset(
    {
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INELIGIBLE_REPLICA,
    }
)

_Key = tuple[str, int]


class AlteredPartition(NamedTuple):
    """The controller's answer for a partition. The other fields count where ``error`` is 0."""

    error: int
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1


class _Wish(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    answer: Future[AlteredPartition]


class IsrChanges:
    """Collects wishes for new ISRs; those that come while a request is under way go with the next one.

    ``send``: as ``ControllerConnections.send``. ``identity``: returns id and epoch of this broker. All
    methods are thread-safe.
    """

    def __init__(
        self,
        send: Callable[[OutgoingRequest, float], Future[bytes]],
        identity: Callable[[], tuple[int, int]],
    ) -> None:
        self._send = send
        self._identity = identity
        self._lock = threading.Lock()
        self._waiting: dict[_Key, _Wish] = {}
        self._under_way = False
        self._retry: threading.Timer | None = None
        self._stopped = False

    def submit(
        self,
        topic: str,
        topic_id: bytes,
        partition: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: Sequence[int],
    ) -> Future[AlteredPartition]:
        """Ask for an ISR. The future fails with KafkaError while another wish of the partition waits."""
        wish = _Wish(topic, topic_id, partition, leader_epoch, partition_epoch, tuple(isr), Future())
        with self._lock:
            is_new = not self._stopped and self._waiting.setdefault((topic, partition), wish) is wish
        if is_new:
            self._send_waiting()
        else:
            wish.answer.set_exception(KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED))
        return wish.answer

    def stop(self) -> None:
        """Fail what waits."""
        with self._lock:
            self._stopped = True
            waiting, self._waiting = self._waiting, {}
            if self._retry is not None:
                self._retry.cancel()
        for wish in waiting.values():
            wish.answer.set_exception(KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, "The broker stops."))

    def _send_waiting(self) -> None:
        with self._lock:
            if self._under_way or self._stopped or not self._waiting:
                return
            self._under_way = True
            wishes = list(self._waiting.values())
        by_id = all(wish.topic_id != ZERO_ID for wish in wishes)
        version = _BY_ID if by_id else _BY_NAME
        body = _encode(version, self._identity(), wishes)
        request = OutgoingRequest(_API_KEY, version, True, body)
        answered = self._send(request, _TIMEOUT)
        answered.add_done_callback(lambda done: self._answered(done, version, wishes))

    def _answered(self, done: Future[bytes], version: int, wishes: Sequence[_Wish]) -> None:
        answers: dict[_Key, AlteredPartition] = {}
        try:
            answers = _decode(version, done.result(), wishes)
        except (KafkaError, DecodeError, CancelledError) as error:
            # No controller, a stale epoch, an unknown failure: Kafka tries again as long as the broker runs.
            _LOG.info("AlterPartition of %d partitions is sent again: %s", len(wishes), error)
        ended: list[tuple[_Wish, AlteredPartition]] = []
        with self._lock:
            self._under_way = False
            for wish in wishes:
                key = wish.topic, wish.partition
                answer = answers.get(key)
                if answer is None or answer.error not in _FINAL:
                    continue
                if self._waiting.pop(key, None) is not None:
                    ended.append((wish, answer))
        for wish, answer in ended:
            # The callback may submit again.
            wish.answer.set_result(answer)
        if ended:
            self._send_waiting()
            return
        with self._lock:
            if not self._stopped:
                self._retry = threading.Timer(_RETRY_SECONDS, self._send_waiting)
                self._retry.daemon = True
                self._retry.start()


def _encode(version: int, identity: tuple[int, int], wishes: Sequence[_Wish]) -> bytes:
    by_topic: dict[str, list[_Wish]] = {}
    for wish in wishes:
        by_topic.setdefault(wish.topic, []).append(wish)
    topics = tuple(
        part(
            "alter_partition",
            version,
            "TopicData",
            partitions=tuple(_partition(version, wish) for wish in of_topic),
            **({"topic_id": UUID(bytes=of_topic[0].topic_id)} if version == _BY_ID else {"topic_name": name}),
        )
        for name, of_topic in by_topic.items()
    )
    broker_id, broker_epoch = identity
    return encode_request(
        "alter_partition", version, broker_id=broker_id, broker_epoch=broker_epoch, topics=topics
    )


def _partition(version: int, wish: _Wish) -> Any:
    fields: dict[str, Any] = {"new_isr": wish.isr}
    if version == _BY_ID:
        states = (part("alter_partition", version, "BrokerState", broker_id=one) for one in wish.isr)
        fields = {"new_isr_with_epochs": tuple(states)}
    return part(
        "alter_partition",
        version,
        "PartitionData",
        partition_index=wish.partition,
        leader_epoch=wish.leader_epoch,
        partition_epoch=wish.partition_epoch,
        **fields,
    )


def _decode(version: int, body: bytes, wishes: Sequence[_Wish]) -> dict[_Key, AlteredPartition]:
    """Return the answers by partition. Raises DecodeError, KafkaError for an error of the whole request."""
    answer = decode_answer("alter_partition", version, body)
    if answer.error_code.value:
        raise KafkaError(answer.error_code.value)
    names = {wish.topic_id: wish.topic for wish in wishes}
    found = {}
    for topic in answer.topics:
        if version == _BY_ID:
            name = names.get(b"" if topic.topic_id is None else topic.topic_id.bytes, "")
        else:
            name = topic.topic_name
        for one in topic.partitions:
            found[name, one.partition_index] = AlteredPartition(
                one.error_code.value, one.leader_id, one.leader_epoch, tuple(one.isr), one.partition_epoch
            )
    return found
