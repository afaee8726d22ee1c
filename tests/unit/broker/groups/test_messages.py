"""Heartbeat, OffsetCommit, TxnOffsetCommit in all versions: read and written as by kio."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioError
from kio.static.primitive import i64Timedelta

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.group.requests import (
    CommitRequest,
    HeartbeatRequest,
    OffsetToCommit,
    TransactionalCommitRequest,
)
from ctrlchan.broker.handlers._group_messages import (
    decode_heartbeat,
    decode_offset_commit,
    decode_txn_offset_commit,
    encode_heartbeat,
    encode_offset_commit,
    encode_txn_offset_commit,
)
from ctrlchan.broker.handlers.group_access import by_topic, milliseconds
from ctrlchan.errors import DecodeError, ErrorCode
from ctrlchan.server.kio_messages import ClientMessages, only_known_fields
from tests.unit.broker.by_kio import check_changed_bytes, check_read_as_by_kio, encoded, part
from tests.unit.broker.local_broker import NO_TIME

HEARTBEAT, OFFSET_COMMIT, TXN_OFFSET_COMMIT = 12, 8, 28
VERSIONS = [
    *((HEARTBEAT, version) for version in range(5)),
    *((OFFSET_COMMIT, version) for version in range(10)),
    *((TXN_OFFSET_COMMIT, version) for version in range(5)),
]
NAMES = {HEARTBEAT: "heartbeat", OFFSET_COMMIT: "offset_commit", TXN_OFFSET_COMMIT: "txn_offset_commit"}
PREFIXES = {OFFSET_COMMIT: "OffsetCommit", TXN_OFFSET_COMMIT: "TxnOffsetCommit"}
ENCODERS = {OFFSET_COMMIT: encode_offset_commit, TXN_OFFSET_COMMIT: encode_txn_offset_commit}
Decoded = HeartbeatRequest | CommitRequest | TransactionalCommitRequest
HEADER = b"header"

_EACH_VERSION = pytest.mark.parametrize(("key", "version"), VERSIONS)
_FEW = settings(max_examples=12)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
_INT16 = st.integers(-(2**15), 2**15 - 1)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_ERRORS = st.sampled_from([ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_SERVER_ERROR])


def request_of(data: st.DataObject, key: int, version: int) -> bytes:
    """A request of kio with random fields."""
    schema: Any = load_request_schema(key, version)
    fields: dict[str, Any] = {
        "group_id": data.draw(_TEXTS),
        "member_id": data.draw(_TEXTS),
        "group_instance_id": data.draw(st.none() | _TEXTS),
        "generation_id": data.draw(_INT32),
        "generation_id_or_member_epoch": data.draw(_INT32),
        "transactional_id": data.draw(_TEXTS),
        "producer_id": data.draw(_INT64),
        "producer_epoch": data.draw(_INT16),
        "retention_time": i64Timedelta.parse(timedelta(milliseconds=data.draw(st.integers(-1, 2**40)))),
    }
    if key in PREFIXES:
        fields["topics"] = tuple(
            part(
                schema,
                f"{PREFIXES[key]}RequestTopic",
                name=data.draw(_TEXTS),
                partitions=tuple(
                    part(
                        schema,
                        f"{PREFIXES[key]}RequestPartition",
                        partition_index=data.draw(_INT32),
                        committed_offset=data.draw(_INT64),
                        committed_leader_epoch=data.draw(_INT32),
                        commit_timestamp=data.draw(_INT64),
                        committed_metadata=data.draw(st.none() | _TEXTS),
                    )
                    for _ in range(data.draw(st.integers(0, 2)))
                ),
            )
            for _ in range(data.draw(st.integers(0, 2)))
        )
    return encoded(schema(**only_known_fields(schema, fields)))


def read_by_kio(key: int, version: int, body: bytes) -> Decoded:
    messages = ClientMessages(NAMES[key], version)
    request: Any = messages.decode_body(memoryview(HEADER + body), len(HEADER))
    if key == HEARTBEAT:
        return HeartbeatRequest(
            request.group_id,
            request.generation_id,
            request.member_id,
            getattr(request, "group_instance_id", None),
        )
    offsets = [
        OffsetToCommit(
            TopicPartition(topic.name, one.partition_index),
            one.committed_offset,
            getattr(one, "committed_leader_epoch", -1),
            one.committed_metadata,
            getattr(one, "commit_timestamp", -1),
        )
        for topic in request.topics
        for one in topic.partitions
    ]
    if key == TXN_OFFSET_COMMIT:
        return TransactionalCommitRequest(
            request.transactional_id,
            request.group_id,
            request.producer_id,
            request.producer_epoch,
            offsets,
            getattr(request, "generation_id", -1),
            getattr(request, "member_id", ""),
            getattr(request, "group_instance_id", None),
        )
    retention = getattr(request, "retention_time", None)
    return CommitRequest(
        request.group_id,
        offsets,
        getattr(request, "generation_id_or_member_epoch", -1),
        getattr(request, "member_id", ""),
        getattr(request, "group_instance_id", None),
        -1 if retention is None else milliseconds(retention),
    )


def read(key: int, version: int, body: bytes) -> Decoded:
    decoders: dict[int, Callable[[memoryview, int, int], Decoded]] = {
        HEARTBEAT: decode_heartbeat,
        OFFSET_COMMIT: decode_offset_commit,
        TXN_OFFSET_COMMIT: decode_txn_offset_commit,
    }
    return decoders[key](memoryview(HEADER + body), len(HEADER), version)


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
    # Any number is a retention here.
    check_changed_bytes(
        data,
        body,
        partial(read, key, version),
        partial(read_by_kio, key, version),
        (DecodeError, OverflowError),
    )


@_EACH_VERSION
@_FEW
@given(
    errors=st.lists(st.tuples(st.builds(TopicPartition, st.sampled_from("abé"), _INT32), _ERRORS), max_size=5)
)
def test_responses_are_those_of_kio(
    key: int, version: int, errors: list[tuple[TopicPartition, ErrorCode]]
) -> None:
    schema: Any = load_response_schema(key, version)
    fields: dict[str, Any] = {"throttle_time": NO_TIME}
    if key == HEARTBEAT:
        error = errors[0][1] if errors else ErrorCode.NONE
        response = schema(**only_known_fields(schema, fields | {"error_code": KioError(error)}))
        assert encode_heartbeat(version, error) == encoded(response)
        return
    topics = by_topic((each.topic, (each.partition, error)) for each, error in errors)
    fields["topics"] = tuple(
        part(
            schema,
            f"{PREFIXES[key]}ResponseTopic",
            name=name,
            partitions=tuple(
                part(
                    schema,
                    f"{PREFIXES[key]}ResponsePartition",
                    partition_index=partition,
                    error_code=KioError(error),
                )
                for partition, error in partitions
            ),
        )
        for name, partitions in topics.items()
    )
    response = schema(**only_known_fields(schema, fields))
    assert ENCODERS[key](version, errors) == encoded(response)


@pytest.mark.parametrize("name_bytes", [63, 64, 127, 128, 20_000])
def test_long_names_and_many_partitions(name_bytes: int) -> None:
    """Compact lengths of one to three bytes."""
    errors = [(TopicPartition("t" * name_bytes, number), 0) for number in range(300)]
    body = encode_offset_commit(9, errors)
    schema: Any = load_response_schema(OFFSET_COMMIT, 9)
    partition = [
        part(schema, "OffsetCommitResponsePartition", partition_index=number, error_code=KioError(0))
        for number in range(300)
    ]
    topic = part(schema, "OffsetCommitResponseTopic", name="t" * name_bytes, partitions=tuple(partition))
    assert body == encoded(schema(topics=(topic,), throttle_time=NO_TIME))


@pytest.mark.parametrize(
    ("key", "version", "body", "reason"),
    [
        (HEARTBEAT, 0, b"\xff\xff\0\0\0\0\0\0", "the group id is null"),
        (HEARTBEAT, 4, b"\2g\0\0\0\0\0\0\0", "the member id is null"),
        (HEARTBEAT, 0, b"\0\1\xff\0\0\0\0\0\0", "utf-8"),
        (OFFSET_COMMIT, 0, b"\0\1g\xff\xff\xff\xff", "the list of topics is null"),
        (OFFSET_COMMIT, 0, b"\0\1g\0\0\0\1\0\1t\xff\xff\xff\xff", "the list of partitions is null"),
        (OFFSET_COMMIT, 0, b"\0\1g\x7f\0\0\0", "an array of 2130706432 elements in 0 bytes"),
        (TXN_OFFSET_COMMIT, 0, b"\xff\xff", "the transactional id is null"),
        (TXN_OFFSET_COMMIT, 3, b"\2t\2g" + b"\0" * 15, "the member id is null"),
    ],
)
def test_refused_requests_have_a_reason(key: int, version: int, body: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        read(key, version, body)
