"""IsrChanges: asks the controller for new ISRs, many partitions in one AlterPartition, one request at a time.

AlterPartition names topics since version 2 by their ids, and has epochs of the replicas since version 3.
Source: ``kafka.server.DefaultAlterPartitionManager`` of Kafka 3.9; KIP-497.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, Final, NamedTuple
from uuid import UUID

from ctrlchan.errors import DecodeError, ErrorCode, KafkaError
from ctrlchan.peers.messages import decode_answer, encode_request, part
from ctrlchan.peers.requests import Answer, OutgoingRequest
from ctrlchan.topic_names import ZERO_ID

__all__ = ["AlteredPartition", "IsrChange", "IsrChanges"]

_LOG: Final = logging.getLogger("ctrlchan.broker")

_API_KEY: Final = 56
_BY_ID_FROM: Final = 2
_EPOCHS_FROM: Final = 3
_VERSIONS: Final = range(4)
_TIMEOUT: Final = 30.0
_RETRY_SECONDS: Final = 0.05

#: Answers that end a change: the others say nothing of the partition, and Kafka asks again.
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


class IsrChange(NamedTuple):
    """The ISR that a leader wants for a partition, and what it knows of the partition."""

    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


class _Waiting(NamedTuple):
    change: IsrChange
    answer: Future[AlteredPartition]


class IsrChanges:
    """Collects changes of ISRs while a request is under way, and sends them with the next request.

    ``send``: as ``ControllerConnections.send``. ``identity``: returns id and epoch of this broker. All
    methods are thread-safe.
    """

    def __init__(
        self,
        send: Callable[[OutgoingRequest, float], Future[Answer]],
        identity: Callable[[], tuple[int, int]],
    ) -> None:
        self._send = send
        self._identity = identity
        self._lock = threading.Lock()
        self._waiting: dict[_Key, _Waiting] = {}
        self._under_way = False
        self._retry: threading.Timer | None = None
        self._stopped = False

    def submit(self, change: IsrChange) -> Future[AlteredPartition]:
        """Ask for an ISR. The future fails with KafkaError while another change of the partition waits."""
        asked = _Waiting(change, Future())
        key = change.topic, change.partition
        with self._lock:
            is_new = not self._stopped and self._waiting.setdefault(key, asked) is asked
        if is_new:
            self._send_waiting()
        else:
            asked.answer.set_exception(KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED))
        return asked.answer

    def stop(self) -> None:
        """Fail what waits."""
        with self._lock:
            self._stopped = True
            waiting, self._waiting = self._waiting, {}
            if self._retry is not None:
                self._retry.cancel()
        for one in waiting.values():
            one.answer.set_exception(KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, "The broker stops."))

    def _send_waiting(self) -> None:
        with self._lock:
            if self._under_way or self._stopped or not self._waiting:
                return
            self._under_way = True
            changes = [one.change for one in self._waiting.values()]
        have_ids = all(change.topic_id != ZERO_ID for change in changes)
        request = OutgoingRequest(
            _API_KEY,
            _VERSIONS if have_ids else _VERSIONS[:_BY_ID_FROM],
            0,
            lambda version: _encode(version, self._identity(), changes),
        )
        answered = self._send(request, _TIMEOUT)
        answered.add_done_callback(lambda done: self._answered(done, changes))

    def _answered(self, done: Future[Answer], changes: Sequence[IsrChange]) -> None:
        answers: dict[_Key, AlteredPartition] = {}
        try:
            answers = _decode(*done.result(), changes)
        except (KafkaError, DecodeError, CancelledError) as error:
            # No controller, a stale epoch, an unknown failure: Kafka tries again as long as the broker runs.
            _LOG.info("AlterPartition of %d partitions is sent again: %s", len(changes), error)
        ended: list[tuple[Future[AlteredPartition], AlteredPartition]] = []
        with self._lock:
            self._under_way = False
            for change in changes:
                key = change.topic, change.partition
                answer = answers.get(key)
                if answer is None or answer.error not in _FINAL:
                    continue
                waited = self._waiting.pop(key, None)
                if waited is not None:
                    ended.append((waited.answer, answer))
        for future, answer in ended:
            # The callback may submit again.
            future.set_result(answer)
        if ended:
            self._send_waiting()
            return
        with self._lock:
            if not self._stopped:
                self._retry = threading.Timer(_RETRY_SECONDS, self._send_waiting)
                self._retry.daemon = True
                self._retry.start()


def _encode(version: int, identity: tuple[int, int], changes: Sequence[IsrChange]) -> bytes:
    by_topic: dict[str, list[IsrChange]] = {}
    for change in changes:
        by_topic.setdefault(change.topic, []).append(change)
    topics = tuple(
        part(
            "alter_partition",
            version,
            "TopicData",
            partitions=tuple(_partition(version, change) for change in of_topic),
            **(
                {"topic_id": UUID(bytes=of_topic[0].topic_id)}
                if version >= _BY_ID_FROM
                else {"topic_name": name}
            ),
        )
        for name, of_topic in by_topic.items()
    )
    broker_id, broker_epoch = identity
    return encode_request(
        "alter_partition", version, broker_id=broker_id, broker_epoch=broker_epoch, topics=topics
    )


def _partition(version: int, change: IsrChange) -> Any:
    fields: dict[str, Any] = {"new_isr": change.isr}
    if version >= _EPOCHS_FROM:
        states = (part("alter_partition", version, "BrokerState", broker_id=one) for one in change.isr)
        fields = {"new_isr_with_epochs": tuple(states)}
    return part(
        "alter_partition",
        version,
        "PartitionData",
        partition_index=change.partition,
        leader_epoch=change.leader_epoch,
        partition_epoch=change.partition_epoch,
        **fields,
    )


def _decode(version: int, body: bytes, changes: Sequence[IsrChange]) -> dict[_Key, AlteredPartition]:
    """Return the answers by partition. Raises DecodeError, KafkaError for an error of the whole request."""
    answer = decode_answer("alter_partition", version, body)
    if answer.error_code.value:
        raise KafkaError(answer.error_code.value)
    names = {change.topic_id: change.topic for change in changes}
    found = {}
    for topic in answer.topics:
        if version >= _BY_ID_FROM:
            name = names.get(b"" if topic.topic_id is None else topic.topic_id.bytes, "")
        else:
            name = topic.topic_name
        for one in topic.partitions:
            found[name, one.partition_index] = AlteredPartition(
                one.error_code.value, one.leader_id, one.leader_epoch, tuple(one.isr), one.partition_epoch
            )
    return found
