"""Produce (0) on a handler thread: what the processors leave to Python (``replication/_produce.pyx``).

That is compressed records, partitions that this broker does not lead, batches that are refused, and all else
that is unusual. Errors, their order and the fields beside them are Kafka's:
``KafkaApis.handleProduceRequest``, ``ReplicaManager.appendRecords``. Of two entries for one partition the
last counts, as in Kafka's map.

Transactions are refused: no producer has been given an id for one. Records of format 0 and 1, which only
versions 0 to 2 may carry, are refused too. These versions are announced because librdkafka compresses nothing
for a broker without them.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final

from ctrlchan.broker.apis.api import Api, Reply, Request
from ctrlchan.broker.apis.client_messages import ClientMessages
from ctrlchan.broker.apis.current_leaders import UNKNOWN, CurrentLeader, CurrentLeaders
from ctrlchan.broker.replication._partitions import ProduceResult
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.errors import DecodeError, ErrorCode, ProtocolError
from ctrlchan.topic_names import ZERO_ID
from ctrlchan.varints import encode_uvarint

__all__ = ["API"]

_FLEXIBLE_FROM: Final = 9
_THROTTLE_FROM: Final = 1
_APPEND_TIME_FROM: Final = 2
_FORMAT_2_FROM: Final = 3
_ZSTD_FROM: Final = 7
_START_OFFSET_FROM: Final = 5
_RECORD_ERRORS_FROM: Final = 8
_CURRENT_LEADER_FROM: Final = 10
_ADMIN_CLIENT: Final = b"__admin_client"
_INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
_TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = 53
_NO_TRANSACTIONS: Final = "transactions are not supported"

#: Base offset, length, leader epoch, magic, CRC, attributes of a batch.
_HEAD: Final = struct.Struct(">qiibIh")
_LEAST_LENGTH: Final = 14  # of a batch of any format
_OFFSET_AND_LENGTH: Final = 12
_HEADER_LENGTH: Final = 49  # of a batch of format 2
_COMPRESSION, _TRANSACTIONAL, _ZSTD = 0x07, 0x10, 4
_FORMAT: Final = 2

#: Topic and partition.
Key = tuple[str, int]


def _handle(core: StoringCore, request: Request) -> Future[Reply]:
    body = ClientMessages("produce", request.version).decode(request)
    entries = {
        (str(topic.name), int(partition.index)): partition.records
        for topic in body.topic_data
        for partition in topic.partition_data
    }
    if None in entries.values():
        # Kafka has no answer to this either.
        raise DecodeError("null for records", api="ProduceRequest", version=request.version)
    timeout_ms = int(body.timeout.total_seconds() * 1000)
    results: dict[Key, ProduceResult | Future[ProduceResult]]
    if not all(map(_begins_as_batch, entries.values())):
        # Kafka looks for transactions first, and fails there.
        refusal = ProduceResult(ErrorCode.CORRUPT_MESSAGE, error_message="records that are no batch")
        results = dict.fromkeys(entries, refusal)
    elif getattr(body, "transactional_id", None) is not None or any(map(_is_transactional, entries.values())):
        refusal = ProduceResult(_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, error_message=_NO_TRANSACTIONS)
        results = dict.fromkeys(entries, refusal)
    elif request.version < _ZSTD_FROM and any(
        _has_unknown_codec(records) and _is_known(core, key) for key, records in entries.items()
    ):
        # Kafka looks whether it is zstd, and fails.
        results = dict.fromkeys(entries, ProduceResult(ErrorCode.UNKNOWN_SERVER_ERROR))
    else:
        results = {
            key: _append(core, request, key, records, body.acks, timeout_ms)
            for key, records in entries.items()
        }
    return _when_done(core, request, body.acks, results)


API = Api(
    key=0,
    name="Produce",
    lowest=0,
    highest=11,
    flexible_from=_FLEXIBLE_FROM,
    handle=_handle,
    locks_core=False,
)


def _append(
    core: StoringCore, request: Request, key: Key, records: bytes, acks: int, timeout_ms: int
) -> ProduceResult | Future[ProduceResult]:
    """Append the records of one partition, or say why not."""
    partition = core.partitions.get(*key)
    if partition is None and not _is_known(core, key):
        return ProduceResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    has_valid_acks = -1 <= acks <= 1
    # Before version 3 Kafka looks at the records last.
    if has_valid_acks or request.version >= _FORMAT_2_FROM:
        error = _error_of_records(records, request.version)
        if error:
            return ProduceResult(error)
    if not has_valid_acks:
        return ProduceResult(ErrorCode.INVALID_REQUIRED_ACKS)
    if key[0] in _INTERNAL_TOPICS and request.client_id != _ADMIN_CLIENT:
        return ProduceResult(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if partition is None:
        return ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    appended: Future[ProduceResult] = partition.append_records(
        records, required_acks=acks, timeout_ms=timeout_ms, refuses_zstd=request.version < _ZSTD_FROM
    )
    return appended


def _begins_as_batch(records: bytes) -> bool:
    """Whether length and format of the first batch, if there is one, are possible."""
    if len(records) < _OFFSET_AND_LENGTH:
        return True
    length = int.from_bytes(records[8:12], "big", signed=True)
    return length >= _LEAST_LENGTH and (len(records) <= 16 or records[16] <= 2)


def _is_transactional(records: bytes) -> bool:
    return len(records) >= _HEAD.size and bool(_HEAD.unpack_from(records)[5] & _TRANSACTIONAL)


def _has_unknown_codec(records: bytes) -> bool:
    """Whether the first batch is of format 2 and compressed by a codec that does not exist."""
    if len(records) < _HEAD.size:
        return False
    _, _, _, magic, _, attributes = _HEAD.unpack_from(records)
    return bool(magic == _FORMAT and attributes & _COMPRESSION > _ZSTD)


def _is_known(core: StoringCore, key: Key) -> bool:
    """Whether the metadata have the partition."""
    with core.lock:
        return core.metadata.has_partition(*key)


def _error_of_records(records: bytes, version: int) -> int:
    """Return what is wrong with the number and the kind of batches (``ProduceRequest.validateRecords``)."""
    try:
        size = _batch_size(records)
        if not size:
            return ErrorCode.INVALID_RECORD
        _, _, _, magic, _, attributes = _HEAD.unpack_from(records)
        if magic != 2:
            # Kafka converts them where the version allows them.
            return (
                ErrorCode.INVALID_RECORD
                if version >= _FORMAT_2_FROM
                else ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
            )
        if version < _ZSTD_FROM and attributes & _COMPRESSION == _ZSTD:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        return ErrorCode.INVALID_RECORD if _batch_size(records[size:]) else ErrorCode.NONE
    except ValueError:
        return ErrorCode.CORRUPT_MESSAGE


def _batch_size(data: bytes) -> int:
    """Return the size of the batch at the begin, 0: no whole batch. Raises ValueError for what is none.

    Source: ``ByteBufferLogInputStream``.
    """
    if len(data) < _OFFSET_AND_LENGTH:
        return 0
    length = int.from_bytes(data[8:12], "big", signed=True)
    if length < _LEAST_LENGTH:
        raise ValueError(f"a batch of {length} bytes")
    if len(data) <= _OFFSET_AND_LENGTH + 4:
        return 0
    magic = data[_OFFSET_AND_LENGTH + 4]
    if magic > 2:
        raise ValueError(f"a batch of format {magic}")
    if len(data) - _OFFSET_AND_LENGTH < length:
        return 0
    if magic == 2 and length < _HEADER_LENGTH:
        raise ValueError(f"a batch of {length} bytes")
    return _OFFSET_AND_LENGTH + length


def _when_done(
    core: StoringCore,
    request: Request,
    acks: int,
    results: Mapping[Key, ProduceResult | Future[ProduceResult]],
) -> Future[Reply]:
    """Return the reply that is made when all appends are acknowledged."""
    answer: Future[Reply] = Future()
    waiting = [result for result in results.values() if isinstance(result, Future)]
    # One more, so that the last one comes after all callbacks are set.
    left, lock = len(waiting) + 1, threading.Lock()

    def finish(_: object) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left:
                return
        try:
            known = {
                key: result.result() if isinstance(result, Future) else result
                for key, result in results.items()
            }
            answer.set_result(_reply(core, request, acks, known))
        except Exception as error:  # noqa: BLE001  (who sends the answer gets it)
            answer.set_exception(error)

    for future in waiting:
        future.add_done_callback(finish)
    finish(None)
    return answer


def _reply(core: StoringCore, request: Request, acks: int, results: Mapping[Key, ProduceResult]) -> Reply:
    """Return the response. Raises ProtocolError for an error that the producer does not want to hear of."""
    errors = [result.error_code for result in results.values() if result.error_code]
    if not acks:
        if errors:
            # Kafka's only way to show an error to such a producer.
            raise ProtocolError(f"Produce with acks=0: {ErrorCode.name_of(errors[0])}")
        return Reply(b"", rows=len(results), is_sent=False)
    leaders: dict[Key, CurrentLeader] = {}
    endpoints = b""
    if request.version >= _CURRENT_LEADER_FROM and ErrorCode.NOT_LEADER_OR_FOLLOWER in errors:
        current = CurrentLeaders(core)
        for key, result in results.items():
            if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leaders[key] = current.of(key[0], ZERO_ID, key[1])
        endpoints = current.endpoints(request.listener, {leader.id for leader in leaders.values()})
    body = _Response(request.version).encode(results, leaders, endpoints)
    return Reply(body, partition_errors=len(errors), rows=len(results))


class _Response:
    """Writes a response of one version. Layout: see ``replication/_produce.pyx``."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._flexible = version >= _FLEXIBLE_FROM

    def encode(
        self, results: Mapping[Key, ProduceResult], leaders: Mapping[Key, CurrentLeader], endpoints: bytes
    ) -> bytes:
        topics: dict[str, list[tuple[int, ProduceResult, CurrentLeader]]] = {}
        for key, result in results.items():
            topics.setdefault(key[0], []).append((key[1], result, leaders.get(key, UNKNOWN)))
        parts = [self._count(len(topics))]
        for name, partitions in topics.items():
            parts += [self._text(name), self._count(len(partitions))]
            parts += [self._partition(*partition) for partition in partitions]
            parts.append(self._tags())
        if self._version >= _THROTTLE_FROM:
            # Nobody is throttled.
            parts.append(bytes(4))
        parts.append(self._tags(endpoints))
        return b"".join(parts)

    def _partition(self, index: int, result: ProduceResult, leader: CurrentLeader) -> bytes:
        data = struct.pack(">ihq", index, result.error_code, result.base_offset)
        if self._version >= _APPEND_TIME_FROM:
            data += struct.pack(">q", result.append_time)
        if self._version >= _START_OFFSET_FROM:
            data += struct.pack(">q", result.log_start_offset)
        if self._version >= _RECORD_ERRORS_FROM:
            data += self._count(len(result.record_errors))
            for number, message in result.record_errors:
                data += struct.pack(">i", number) + self._text(message) + self._tags()
            data += self._text(result.error_message)
        return data + self._tags(b"" if leader == UNKNOWN else struct.pack(">iix", *leader))

    def _count(self, count: int) -> bytes:
        return encode_uvarint(count + 1) if self._flexible else struct.pack(">i", count)

    def _text(self, text: str | None) -> bytes:
        data = b"" if text is None else text.encode()
        size = -1 if text is None else len(data)
        return (encode_uvarint(size + 1) if self._flexible else struct.pack(">h", size)) + data

    def _tags(self, field: bytes = b"") -> bytes:
        """Return the tagged fields where the version has them: none, or field 0."""
        if not self._flexible:
            return b""
        return b"\x01\x00" + encode_uvarint(len(field)) + field if field else b"\x00"
