"""AddPartitionsToTxn, AddOffsetsToTxn and EndTxn: requests are read and responses written as by kio."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioError

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.broker.handlers._transaction_messages import (
    decode_add_offsets,
    decode_add_partitions,
    decode_end,
    encode_add_partitions,
    encode_error,
)
from ctrlchan.broker.handlers.group_access import by_topic
from ctrlchan.errors import DecodeError, ErrorCode
from ctrlchan.server.kio_messages import ClientMessages, only_known_fields
from tests.unit.broker.by_kio import check_changed_bytes, check_read_as_by_kio, encoded
from tests.unit.broker.local_broker import NO_TIME

ADD_PARTITIONS, ADD_OFFSETS, END = 24, 25, 26
VERSIONS = [
    *((ADD_PARTITIONS, version) for version in range(4)),
    *((key, version) for key in (ADD_OFFSETS, END) for version in range(5)),
]
NAMES = {ADD_PARTITIONS: "add_partitions_to_txn", ADD_OFFSETS: "add_offsets_to_txn", END: "end_txn"}
DECODERS = {ADD_PARTITIONS: decode_add_partitions, ADD_OFFSETS: decode_add_offsets, END: decode_end}
HEADER = b"header"

_EACH_VERSION = pytest.mark.parametrize(("key", "version"), VERSIONS)
_FEW = settings(max_examples=12)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
_INT16 = st.integers(-(2**15), 2**15 - 1)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_ERRORS = st.sampled_from([ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.UNKNOWN_SERVER_ERROR])


def part(schema: Any, kind: str, /, **fields: Any) -> Any:
    return getattr(sys.modules[schema.__module__], kind)(**fields)


def request_of(data: st.DataObject, key: int, version: int) -> bytes:
    """A request of kio with random fields."""
    schema: Any = load_request_schema(key, version)
    producer = {
        "transactional_id": data.draw(_TEXTS),
        "producer_id": data.draw(_INT64),
        "producer_epoch": data.draw(_INT16),
    }
    if key != ADD_PARTITIONS:
        fields = producer | {"group_id": data.draw(_TEXTS), "committed": data.draw(st.booleans())}
        return encoded(schema(**only_known_fields(schema, fields)))
    fields = {f"v3_and_below_{name}": value for name, value in producer.items()}
    topics = tuple(
        part(
            schema,
            "AddPartitionsToTxnTopic",
            name=data.draw(_TEXTS),
            partitions=tuple(data.draw(st.lists(_INT32, max_size=3))),
        )
        for _ in range(data.draw(st.integers(0, 2)))
    )
    return encoded(schema(**fields, v3_and_below_topics=topics))


def read_by_kio(key: int, version: int, body: bytes) -> tuple[object, ...]:
    messages = ClientMessages(NAMES[key], version)
    request: Any = messages.decode_body(memoryview(HEADER + body), len(HEADER))
    if key != ADD_PARTITIONS:
        producer = ProducerIdentity(request.producer_id, request.producer_epoch)
        return request.transactional_id, producer, request.committed if key == END else request.group_id
    producer = ProducerIdentity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    partitions = [
        TopicPartition(topic.name, index)
        for topic in request.v3_and_below_topics
        for index in topic.partitions
    ]
    return request.v3_and_below_transactional_id, producer, partitions


def read(key: int, version: int, body: bytes) -> tuple[object, ...]:
    return DECODERS[key](memoryview(HEADER + body), len(HEADER), version)


@_EACH_VERSION
@_FEW
@given(data=st.data())
def test_requests_are_read_as_by_kio(key: int, version: int, data: st.DataObject) -> None:
    body = request_of(data, key, version)
    check_read_as_by_kio(body, partial(read, key, version), partial(read_by_kio, key, version))


@_EACH_VERSION
@_FEW
@given(data=st.data())
def test_changed_bytes_are_read_as_by_kio(key: int, version: int, data: st.DataObject) -> None:
    body = request_of(data, key, version)
    # Every byte but 0 is true here.
    check_changed_bytes(data, body, partial(read, key, version), partial(read_by_kio, key, version))


@pytest.mark.parametrize("version", range(4))
@_FEW
@given(
    errors=st.lists(st.tuples(st.builds(TopicPartition, st.sampled_from("abé"), _INT32), _ERRORS), max_size=5)
)
def test_errors_of_partitions_are_written_as_by_kio(
    version: int, errors: list[tuple[TopicPartition, ErrorCode]]
) -> None:
    schema: Any = load_response_schema(ADD_PARTITIONS, version)
    topics = tuple(
        part(
            schema,
            "AddPartitionsToTxnTopicResult",
            name=name,
            results_by_partition=tuple(
                part(
                    schema,
                    "AddPartitionsToTxnPartitionResult",
                    partition_index=partition,
                    partition_error_code=KioError(error),
                )
                for partition, error in partitions
            ),
        )
        for name, partitions in by_topic(
            (each.topic, (each.partition, error)) for each, error in errors
        ).items()
    )
    response = schema(throttle_time=NO_TIME, results_by_topic_v3_and_below=topics)
    assert encode_add_partitions(version, errors) == encoded(response)


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.UNKNOWN_SERVER_ERROR])
@pytest.mark.parametrize("key", [ADD_OFFSETS, END])
@pytest.mark.parametrize("version", range(5))
def test_errors_are_written_as_by_kio(key: int, version: int, error: ErrorCode) -> None:
    schema: Any = load_response_schema(key, version)
    response = schema(throttle_time=NO_TIME, error_code=KioError(error))
    assert encode_error(version, error) == encoded(response)


@pytest.mark.parametrize(
    ("key", "version", "body", "reason"),
    [
        (ADD_PARTITIONS, 0, b"\xff\xff" + bytes(10), "the transactional id is null"),
        (ADD_PARTITIONS, 0, b"\0\1i" + bytes(10) + b"\xff\xff\xff\xff", "the list of topics is null"),
        (ADD_PARTITIONS, 0, b"\0\1i" + bytes(10) + b"\x7f\0\0\0", "an array of 2130706432 elements in 0"),
        (ADD_OFFSETS, 3, b"\2i" + bytes(10) + b"\0", "the group id is null"),
        (END, 0, b"\0\1\xff" + bytes(11), "utf-8"),
        (END, 4, b"\2i" + bytes(10), "ends too early"),
    ],
)
def test_refused_requests_have_a_reason(key: int, version: int, body: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        read(key, version, body)
