"""AlterPartition requests are read as kio reads them, and what is not one raises DecodeError."""

from __future__ import annotations

import io
import sys
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_writer

from ctrlchan.controller.server.apis._alter_partition import Decoded, decode_alter_partition
from ctrlchan.errors import DecodeError

ALTER_PARTITION = 56
RECOVERY_STATE_SINCE, IDS_SINCE, EPOCHS_SINCE = 1, 2, 3
HEADER = b"what is before it"
#: A compact array that is null.
NULL = b"\0"
INT32 = st.integers(-(2**31), 2**31 - 1)
#: Partition, leader epoch, ISR, recovery state, partition epoch.
ROW = st.tuples(
    INT32,
    INT32,
    st.lists(INT32, max_size=3) | st.lists(INT32, min_size=126, max_size=129),
    st.integers(-128, 127),
    INT32,
)
Row = tuple[int, int, list[int], int, int]


def key_of(version: int, topic: int) -> bytes:
    """The name of a topic, longer than one byte can say; or its id, of which the first one is none."""
    return bytes([topic] * 16) if version >= IDS_SINCE else f"{'größer' * 20}-{topic}".encode()


def encoded(version: int, topics: list[list[Row]]) -> bytes:
    schema: Any = load_request_schema(ALTER_PARTITION, version)
    module: Any = sys.modules[schema.__module__]

    def partition(row: Row) -> Any:
        index, leader_epoch, isr, recovery_state, partition_epoch = row
        fields: dict[str, Any] = {"new_isr": tuple(isr)}
        if version >= EPOCHS_SINCE:
            states = (module.BrokerState(broker_id=one, broker_epoch=one * 3) for one in isr)
            fields = {"new_isr_with_epochs": tuple(states)}
        if version >= RECOVERY_STATE_SINCE:
            fields["leader_recovery_state"] = recovery_state
        return module.PartitionData(
            partition_index=index, leader_epoch=leader_epoch, partition_epoch=partition_epoch, **fields
        )

    def topic(number: int, rows: list[Row]) -> Any:
        key = key_of(version, number)
        fields: dict[str, Any] = {"topic_name": key.decode()}
        if version >= IDS_SINCE:
            fields = {"topic_id": UUID(bytes=key) if any(key) else None}
        return module.TopicData(partitions=tuple(map(partition, rows)), **fields)

    request = schema(
        broker_id=7, broker_epoch=2**40, topics=tuple(topic(at, rows) for at, rows in enumerate(topics))
    )
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, request)
    return buffer.getvalue()


def decoded(version: int, body: bytes) -> Decoded:
    return decode_alter_partition(memoryview(HEADER + body), len(HEADER), version)


def rows_of(version: int, found: Decoded) -> list[list[Row]]:
    topics: list[list[Row]] = [[] for _ in found.topics]
    for i, topic in enumerate(found.topic.tolist()):
        start = found.isr_starts[i]
        topics[topic].append(
            (
                found.partition[i],
                found.leader_epoch[i],
                found.isr_values[start : start + found.isr_lengths[i]].tolist(),
                found.recovery_state[i],
                found.partition_epoch[i],
            )
        )
    return topics


@pytest.mark.parametrize("version", range(4))
@given(topics=st.lists(st.lists(ROW, max_size=3), max_size=3))
def test_requests_of_all_versions(version: int, topics: list[list[Row]]) -> None:
    found = decoded(version, encoded(version, topics) + b"bytes behind it")
    assert (found.broker_id, found.broker_epoch) == (7, 2**40)
    assert found.topics == [key_of(version, number) for number in range(len(topics))]
    if version < RECOVERY_STATE_SINCE:
        topics = [[(*row[:3], 0, row[4]) for row in rows] for rows in topics]
    assert rows_of(version, found) == topics
    assert {column.dtype for column in found[3:]} == {np.dtype(np.int32)}
    assert sum(found.isr_lengths.tolist()) == len(found.isr_values)


@pytest.mark.parametrize("version", range(4))
def test_a_request_that_ends_too_early(version: int) -> None:
    body = encoded(version, [[(1, 2, [3, 4], 1, 5), (6, 7, [8], 0, 9)], [(1, 1, [], 0, 1)]])
    for size in range(len(body)):
        with pytest.raises(DecodeError):
            decoded(version, body[:size])
    assert len(decoded(version, body).partition) == 3


@pytest.mark.parametrize("version", range(4))
def test_arrays_that_are_null_or_too_long(version: int) -> None:
    head = encoded(version, [])[:-2]
    topic = key_of(version, 1) if version >= IDS_SINCE else b"\2t"
    partition = bytes(8)
    for bad in (
        NULL,
        b"\xff\xff\xff\xff\x0f",
        b"\2" + topic + NULL,
        b"\2" + topic + b"\xff\xff\xff\xff\x0f",
        b"\2" + topic + b"\2" + partition + NULL,
        b"\2" + topic + b"\2" + partition + b"\xff\xff\xff\xff\x0f",
    ):
        with pytest.raises(DecodeError, match=r"null|array"):
            decoded(version, head + bad + bytes(100))


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("name", [b"\0", b"\3\xff\xff"])
def test_names_that_are_none(version: int, name: bytes) -> None:
    with pytest.raises(DecodeError):
        decoded(version, encoded(version, [])[:-2] + b"\2" + name + b"\1\0\0")


@pytest.mark.parametrize("version", range(4))
def test_tagged_fields_are_skipped(version: int) -> None:
    body = encoded(version, [[(1, 2, [3], 1, 5)]])
    # The last three: of the partition, of the topic, of the request.
    assert body.endswith(bytes(3))
    tag = b"\1\x05\3abc"
    found = decoded(version, body[:-3] + 3 * tag)
    assert found.partition.tolist() == [1]
    assert found.isr_values.tolist() == [3]
