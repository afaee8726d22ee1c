"""Reads and writes the records of a topic, for tests: no client library is needed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from ctrlchan.broker.log._batches import BatchHeader, read_header
from ctrlchan.broker.log.records import Record, read_records
from ctrlchan.embedded.batches import Header, Producer, encode_records, partition_of
from ctrlchan.embedded.requests import ask, check, topic_metadata
from ctrlchan.errors import ErrorCode
from ctrlchan.peers.connection import Address
from ctrlchan.peers.messages import duration, part

__all__ = ["PendingWrite", "TopicRecord", "read_topic"]

_NO_REPLICA: Final = -1
_ALL_IN_SYNC: Final = -1
_MAX_BYTES: Final = 2**26
_EARLIEST: Final = -2
_READ_COMMITTED: Final = "read_committed"
_ISOLATION_LEVELS: Final = "read_uncommitted", _READ_COMMITTED
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
#: Of a batch: where its length stands, and where that ends.
_LENGTH_AT, _LENGTH_END = 8, 12
#: The type in the key of a control record.
_KIND: Final = slice(2, 4)
_ABORT: Final = b"\0\0"

_PRODUCE: Final = 0, 8
_FETCH: Final = 1, 11
_LIST_OFFSETS: Final = 2, 5
_INIT_PRODUCER_ID: Final = 22, 1
#: The field is of transactional producers, and Kafka looks at no other's.
_NO_TRANSACTION_SECONDS: Final = 60.0


class TopicRecord(NamedTuple):
    """One record. ``timestamp``: milliseconds since 1970."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def read_topic(bootstrap: Address, topic: str, isolation: str = "read_uncommitted") -> list[TopicRecord]:
    """Return all records of a topic up to the high watermark, by partition and offset.

    ``bootstrap``: a broker. ``isolation``: with "read_committed" up to the last stable offset, without the
    records of aborted transactions. Raises KafkaError for a topic that does not exist or has no leader,
    REQUEST_TIMED_OUT when a leader does not answer, and ValueError for another isolation.
    """
    if isolation not in _ISOLATION_LEVELS:
        raise ValueError(f"isolation {isolation!r}, where {' or '.join(_ISOLATION_LEVELS)} should be")
    addresses, found = topic_metadata(bootstrap, topic)
    records: list[TopicRecord] = []
    for partition in sorted(found.partitions, key=lambda one: int(one.partition_index)):
        records += _read_partition(
            addresses[partition.leader_id],
            topic,
            partition.partition_index,
            committed=isolation == _READ_COMMITTED,
        )
    return records


class _Batch(NamedTuple):
    """The records of one partition. ``places``: of the values."""

    places: list[int]
    timestamp: int
    data: bytes


class PendingWrite:
    """Records for one topic, of which each batch is appended once: ``go_on`` may be called again.

    A broker may say that it is no leader after it has appended a batch, so they are those of an idempotent
    producer.

    All records have the key and the headers. A record is for ``partition``, or for the partition of the key;
    without both the records are for all partitions in turn, from partition 0 on.
    """

    def __init__(
        self,
        topic: str,
        values: Sequence[bytes | None],
        key: bytes | None,
        partition: int | None,
        headers: Sequence[Header],
    ) -> None:
        self._topic, self._key, self._partition, self._headers = topic, key, partition, tuple(headers)
        self._values = list(values)
        #: By partition; made once, so that a broker knows a batch that it has.
        self._batches: dict[int, _Batch] = {}
        #: By place in ``values``.
        self._written: dict[int, TopicRecord] = {}

    def go_on(self, bootstrap: Address, timeout: float) -> list[TopicRecord]:
        """Append what is not appended yet; return all records in their order.

        Raises KafkaError, and the batches of other partitions may be appended then.
        """
        addresses, found = topic_metadata(bootstrap, self._topic, create=True)
        leaders = {int(one.partition_index): addresses.get(one.leader_id) for one in found.partitions}
        if not self._batches:
            self._make_batches(_new_producer(bootstrap), len(leaders))
        for partition, batch in self._batches.items():
            if batch.places[0] in self._written:
                continue
            leader = leaders.get(partition)
            if leader is None:
                check(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self._topic}-{partition}")
                raise AssertionError
            self._append(leader, partition, batch, timeout)
        return [self._written[place] for place in range(len(self._values))]

    def _make_batches(self, producer: Producer, partitions: int) -> None:
        places: dict[int, list[int]] = {}
        for place in range(len(self._values)):
            places.setdefault(self._partition_at(place, partitions), []).append(place)
        timestamp = time.time_ns() // 1_000_000
        for partition, own in places.items():
            values = [self._values[place] for place in own]
            data = encode_records(values, self._key, self._headers, timestamp, producer)
            self._batches[partition] = _Batch(own, timestamp, data)

    def _partition_at(self, place: int, partitions: int) -> int:
        if self._partition is not None:
            return self._partition
        return place % partitions if self._key is None else partition_of(self._key, partitions)

    def _append(self, leader: Address, partition: int, batch: _Batch, timeout: float) -> None:
        api, version = "produce", _PRODUCE[1]
        data = part(api, version, "PartitionProduceData", index=partition, records=batch.data)
        answer = ask(
            leader,
            api,
            _PRODUCE,
            acks=_ALL_IN_SYNC,
            timeout=duration(timeout),
            topic_data=(part(api, version, "TopicProduceData", name=self._topic, partition_data=(data,)),),
        )
        found = answer.responses[0].partition_responses[0]
        check(found.error_code.value, f"{self._topic}-{partition}", found.error_message)
        for index, place in enumerate(batch.places):
            offset = int(found.base_offset) + index
            self._written[place] = TopicRecord(
                partition, offset, batch.timestamp, self._key, self._values[place], self._headers
            )


def _new_producer(broker: Address) -> Producer:
    """Return an idempotent producer that nobody else is. Raises KafkaError."""
    answer = ask(
        broker,
        "init_producer_id",
        _INIT_PRODUCER_ID,
        transactional_id=None,
        transaction_timeout=duration(_NO_TRANSACTION_SECONDS),
    )
    check(answer.error_code.value, "a producer id")
    return Producer(int(answer.producer_id), int(answer.producer_epoch))


def _read_partition(leader: Address, topic: str, partition: int, *, committed: bool) -> Iterator[TopicRecord]:
    offset = _earliest(leader, topic, partition)
    while True:
        answer = _fetch(leader, topic, partition, offset, committed=committed)
        data = bytes(answer.records or b"")
        aborted = _Aborted(answer.aborted_transactions or ())
        for batch in _batches(data):
            header = read_header(batch, 0)
            read = list(read_records(batch))
            if not aborted.has(header, read):
                for record in read:
                    if record.offset >= offset:
                        headers = tuple(
                            (name.decode(errors="replace"), value) for name, value in record.headers
                        )
                        yield TopicRecord(
                            partition, record.offset, record.timestamp, record.key, record.value, headers
                        )
            offset = max(offset, header.base_offset + header.last_offset_delta + 1)
        if not data or offset >= (answer.last_stable_offset if committed else answer.high_watermark):
            return


class _Aborted:
    """Which batches of an answer no consumer sees: markers, and batches of the transactions in its list.

    Source: ``CompletedFetch.consumeAbortedTransactionsUpTo`` of Kafka's consumer.
    """

    def __init__(self, transactions: Iterable[Any]) -> None:
        self._transactions = sorted(
            ((int(one.first_offset), int(one.producer_id)) for one in transactions), reverse=True
        )
        self._producers: set[int] = set()

    def has(self, header: BatchHeader, records: Sequence[Record]) -> bool:
        """Return whether the batch is not seen. Batches come in the order of their offsets."""
        last_offset = header.base_offset + header.last_offset_delta
        while self._transactions and self._transactions[-1][0] <= last_offset:
            self._producers.add(self._transactions.pop()[1])
        if header.attributes & _CONTROL:
            if any(record.key is not None and record.key[_KIND] == _ABORT for record in records):
                self._producers.discard(header.producer_id)
            return True
        return bool(header.attributes & _TRANSACTIONAL) and header.producer_id in self._producers


def _earliest(leader: Address, topic: str, partition: int) -> int:
    api, version = "list_offsets", _LIST_OFFSETS[1]
    asked = part(api, version, "ListOffsetsPartition", partition_index=partition, timestamp=_EARLIEST)
    answer = ask(
        leader,
        api,
        _LIST_OFFSETS,
        replica_id=_NO_REPLICA,
        isolation_level=0,
        topics=(part(api, version, "ListOffsetsTopic", name=topic, partitions=(asked,)),),
    )
    found = answer.topics[0].partitions[0]
    check(found.error_code.value, f"{topic}-{partition}")
    return int(found.offset)


def _fetch(leader: Address, topic: str, partition: int, offset: int, *, committed: bool) -> Any:
    api, version = "fetch", _FETCH[1]
    asked = part(
        api,
        version,
        "FetchPartition",
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=_MAX_BYTES,
    )
    answer = ask(
        leader,
        api,
        _FETCH,
        replica_id=_NO_REPLICA,
        max_wait=duration(0),
        min_bytes=0,
        isolation_level=int(committed),
        topics=(part(api, version, "FetchTopic", topic=topic, partitions=(asked,)),),
        forgotten_topics_data=(),
    )
    check(answer.error_code.value, topic)
    found = answer.responses[0].partitions[0]
    check(found.error_code.value, f"{topic}-{partition}")
    return found


def _batches(data: bytes) -> Iterator[bytes]:
    """Yield the whole batches."""
    at = 0
    while at + _LENGTH_END <= len(data):
        end = at + _LENGTH_END + int.from_bytes(data[at + _LENGTH_AT : at + _LENGTH_END])
        if end > len(data):
            return
        yield data[at:end]
        at = end
