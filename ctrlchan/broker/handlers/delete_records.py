"""DeleteRecords (21): raise the start offset of logs, and answer when all live replicas have done so.

``ReplicaManager.deleteRecords``, ``Partition.deleteRecordsOnLeader``, ``DelayedDeleteRecords``.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Final

from ctrlchan.broker.handlers.hosted import find_led
from ctrlchan.broker.replica._partitions import Partition
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.internal_topics import INTERNAL_TOPICS
from ctrlchan.server.access import DELETE_TOPIC, asks
from ctrlchan.server.api import Api, Reply, Request
from ctrlchan.server.kio_messages import ClientMessages, KioError

__all__ = ["API"]

_HIGH_WATERMARK: Final = -1  # an offset of requests
_NO_OFFSET: Final = -1

#: Topic and index.
_Key = tuple[str, int]


def _handle(core: StoringCore, request: Request) -> Reply | Future[Reply]:
    messages = ClientMessages("delete_records", request.version)
    body = messages.decode(request)
    deletion = _Deletion(core, messages)
    deletable = request.access.allowed(*DELETE_TOPIC, [topic.name for topic in body.topics])
    for topic in body.topics:
        for one in topic.partitions:
            key = topic.name, one.partition_index
            if topic.name in deletable:
                deletion.delete(key, one.offset)
            else:
                deletion.refuse(key, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return deletion.reply(body.timeout.total_seconds())


API = Api(
    key=21,
    name="DeleteRecords",
    lowest=0,
    highest=2,
    flexible_from=2,
    handle=_handle,
    locks_core=False,
    needs=asks(DELETE_TOPIC),
)


class _Deletion:
    """The state of one request: results by partition, and the partitions that the request waits for."""

    def __init__(self, core: StoringCore, messages: ClientMessages) -> None:
        self._core = core
        self._messages = messages
        self._results: dict[_Key, tuple[int, int]] = {}
        #: Partition and offset.
        self._waiting: dict[_Key, tuple[Partition, int]] = {}
        self._lock = threading.Lock()
        self._answer: Future[Reply] = Future()
        self._timer: threading.Timer | None = None
        self._ended = False

    def refuse(self, key: _Key, error: ErrorCode) -> None:
        """Answer a partition with an error."""
        self._results[key] = _NO_OFFSET, error

    def delete(self, key: _Key, offset: int) -> None:
        """Raise the start offset of a log that this broker leads."""
        try:
            if key[0] in INTERNAL_TOPICS:
                is_known = self._core.metadata.snapshot.has_partition(*key)
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
            partition = find_led(self._core, *key)
            log = partition.log
            if log is None:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if not log.config.cleanup_delete:
                raise KafkaError(ErrorCode.POLICY_VIOLATION)
            if offset == _HIGH_WATERMARK:
                offset = log.high_watermark
            if offset < 0:
                raise KafkaError(KioError.offset_out_of_range)
            try:
                log.increment_start_offset(offset)
            except KafkaError:
                if partition.log in (log, None):
                    raise
                # The replica has moved to another log directory meanwhile.
                partition.log.increment_start_offset(offset)
            self._results[key] = partition.low_watermark, ErrorCode.NONE
            if partition.low_watermark < offset:
                self._waiting[key] = partition, offset
        except KafkaError as error:
            self._results[key] = _NO_OFFSET, error.code

    def reply(self, timeout: float) -> Reply | Future[Reply]:
        """Return the reply, or a Future of the reply if some partitions are not finished."""
        if not self._waiting:
            return self._reply()
        self._timer = threading.Timer(timeout, self._expire)
        self._timer.daemon = True
        for partition, _ in list(self._waiting.values()):
            partition.add_low_watermark_listener(self._look)
        self._timer.start()
        self._look()
        return self._answer

    def _look(self) -> None:
        """Stop waiting for finished partitions; answer the request after the last one."""
        with self._lock:
            for key, (partition, offset) in list(self._waiting.items()):
                try:
                    is_led = find_led(self._core, *key) is partition
                    low_watermark, error = partition.low_watermark, ErrorCode.NONE
                    if not is_led:
                        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                except KafkaError as refused:
                    low_watermark, error = _NO_OFFSET, ErrorCode(refused.code)
                if error or low_watermark >= offset:
                    self._results[key] = low_watermark, error
                    del self._waiting[key]
                    partition.remove_low_watermark_listener(self._look)
            if self._waiting or self._ended:
                return
            self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._answer.set_result(self._reply())

    def _expire(self) -> None:
        """Answer with an error for each partition that is not finished."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            for key, (partition, _) in self._waiting.items():
                self._results[key] = self._results[key][0], ErrorCode.REQUEST_TIMED_OUT
                partition.remove_low_watermark_listener(self._look)
            self._waiting.clear()
        self._answer.set_result(self._reply())

    def _reply(self) -> Reply:
        topics: dict[str, list[object]] = {}
        for (topic, index), (low_watermark, error) in self._results.items():
            part = self._messages.part(
                "DeleteRecordsPartitionResult",
                partition_index=index,
                low_watermark=low_watermark,
                error_code=KioError(error),
            )
            topics.setdefault(topic, []).append(part)
        results = tuple(
            self._messages.part("DeleteRecordsTopicResult", name=topic, partitions=tuple(partitions))
            for topic, partitions in topics.items()
        )
        errors = sum(1 for _, error in self._results.values() if error)
        return Reply(
            self._messages.response(topics=results), partition_errors=errors, rows=len(self._results)
        )
