"""Metadata in all versions: requests are read and responses written as by kio."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioError

from ctrlchan._codec import ListColumn, StringColumn
from ctrlchan.errors import DecodeError
from ctrlchan.server.apis._metadata import (
    MetadataRequest,
    PartitionRows,
    TopicRows,
    decode_metadata,
    encode_metadata,
)
from ctrlchan.server.apis.lookups import Node
from ctrlchan.server.kio_messages import ClientMessages, only_known_fields
from ctrlchan.topic_names import ZERO_ID
from tests.unit.broker.by_kio import check_changed_bytes, check_read_as_by_kio, encoded, part
from tests.unit.broker.local_broker import NO_TIME

METADATA = 3
HEADER = b"header"

_EACH_VERSION = pytest.mark.parametrize("version", range(13))
_FEW = settings(max_examples=15)
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
_IDS = st.sampled_from([ZERO_ID, bytes(range(16)), b"\xff" * 16])
_INT32 = st.integers(-(2**31), 2**31 - 1)
_LISTS = st.lists(_INT32, max_size=4)


def uuid(topic_id: bytes) -> UUID | None:
    return None if topic_id == ZERO_ID else UUID(bytes=topic_id)


def request_of(data: st.DataObject, version: int) -> bytes:
    """A request of kio with random fields."""
    schema: Any = load_request_schema(METADATA, version)
    names = st.none() | _TEXTS if version >= 10 else _TEXTS
    asked = data.draw(st.lists(st.tuples(_IDS, names), max_size=3))
    topics: Any = tuple(
        part(schema, "MetadataRequestTopic", topic_id=uuid(topic_id), name=name) for topic_id, name in asked
    )
    fields = {
        "topics": None if version >= 1 and data.draw(st.booleans()) else topics,
        "allow_auto_topic_creation": data.draw(st.booleans()),
        "include_cluster_authorized_operations": data.draw(st.booleans()),
        "include_topic_authorized_operations": data.draw(st.booleans()),
    }
    return encoded(schema(**only_known_fields(schema, fields)))


def read_by_kio(version: int, body: bytes) -> MetadataRequest:
    messages = ClientMessages("metadata", version)
    request: Any = messages.decode_body(memoryview(HEADER + body), len(HEADER))
    topics = None
    if request.topics or (version >= 1 and request.topics is not None):
        ids = [getattr(topic, "topic_id", None) for topic in request.topics]
        topics = [
            (ZERO_ID if topic_id is None else topic_id.bytes, topic.name)
            for topic_id, topic in zip(ids, request.topics, strict=True)
        ]
    return MetadataRequest(
        topics,
        getattr(request, "allow_auto_topic_creation", True),
        getattr(request, "include_cluster_authorized_operations", False),
        getattr(request, "include_topic_authorized_operations", False),
    )


def read(version: int, body: bytes) -> MetadataRequest:
    return decode_metadata(memoryview(HEADER + body), len(HEADER), version)


@_EACH_VERSION
@_FEW
@given(data=st.data())
def test_requests_are_read_as_by_kio(version: int, data: st.DataObject) -> None:
    body = request_of(data, version)
    check_read_as_by_kio(body, partial(read, version), partial(read_by_kio, version))


@_EACH_VERSION
@_FEW
@given(data=st.data())
def test_changed_bytes_are_read_as_by_kio(version: int, data: st.DataObject) -> None:
    body = request_of(data, version)
    check_changed_bytes(data, body, partial(read, version), partial(read_by_kio, version))


@pytest.mark.parametrize(
    ("version", "body", "reason"),
    [
        (0, b"\xff\xff\xff\xff", "the list of topics is null"),
        (0, b"\x7f\0\0\0", "an array of 2130706432 elements in 0 bytes"),
        (9, b"\xff\xff\xff\xff\x0f\0", "an array of 4294967294 elements in 1 bytes"),
        (1, b"\0\0\0\1\xff\xff", "the name of a topic is null"),
        (9, b"\2\0\0\0\0\0\0", "the name of a topic is null"),
        (4, b"\0\0\0\1\0\1\xff\1", "utf-8"),
    ],
)
def test_refused_requests_have_a_reason(version: int, body: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        read(version, body)


_NODES = st.lists(st.builds(Node, _INT32, _TEXTS, _INT32, st.none() | _TEXTS), max_size=3)
_PARTITIONS = st.lists(
    st.tuples(st.sampled_from([0, 5, 9, 72]), _INT32, _INT32, _INT32, _LISTS, _LISTS, _LISTS), max_size=4
)
_TOPICS = st.lists(
    st.tuples(st.sampled_from([0, 3, 17, -1, 100]), _TEXTS, _IDS, st.booleans(), _INT32, _PARTITIONS),
    max_size=3,
)


@_EACH_VERSION
@_FEW
@given(nodes=_NODES, cluster_id=st.none() | _TEXTS, numbers=st.tuples(_INT32, _INT32), topics=_TOPICS)
def test_responses_are_those_of_kio(
    version: int,
    nodes: list[Node],
    cluster_id: str | None,
    numbers: tuple[int, int],
    topics: list[tuple[int, str, bytes, bool, int, list[tuple[Any, ...]]]],
) -> None:
    controller_id, cluster_operations = numbers
    # Only version 12 has answers to unknown ids.
    names = [None if version >= 12 and error == 100 else text for error, text, *_ in topics]
    rows = [row for *_, partitions in topics for row in partitions]
    starts = np.cumsum([0, *(len(partitions) for *_, partitions in topics)])
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * 7
    errors, index, leader, epoch = (np.array(column, np.int32) for column in columns[:4])
    replicas, isr, offline = (ListColumn.from_lists(column) for column in columns[4:])
    written = encode_metadata(
        version,
        nodes,
        cluster_id,
        controller_id,
        cluster_operations,
        TopicRows(
            np.array([error for error, *_ in topics], np.int16),
            StringColumn.from_strings(names),
            np.frombuffer(b"".join(topic_id for _, _, topic_id, *_ in topics), np.uint8).reshape(-1, 16),
            np.array([is_internal for _, _, _, is_internal, _, _ in topics], np.uint8),
            np.array([operations for *_, operations, _ in topics], np.int32),
            starts.astype(np.int32),
        ),
        PartitionRows(errors.astype(np.int16), index, leader, epoch, replicas, isr, offline),
    )
    schema: Any = load_response_schema(METADATA, version)
    expected = {
        "throttle_time": NO_TIME,
        "brokers": tuple(
            part(
                schema, "MetadataResponseBroker", node_id=one.id, host=one.host, port=one.port, rack=one.rack
            )
            for one in nodes
        ),
        "cluster_id": cluster_id,
        "controller_id": controller_id,
        "cluster_authorized_operations": cluster_operations,
        "topics": tuple(
            part(
                schema,
                "MetadataResponseTopic",
                error_code=KioError(error),
                name=name,
                topic_id=uuid(topic_id),
                is_internal=is_internal,
                topic_authorized_operations=operations,
                partitions=tuple(kio_partition(schema, *row) for row in partitions),
            )
            for name, (error, _, topic_id, is_internal, operations, partitions) in zip(
                names, topics, strict=True
            )
        ),
    }
    assert written == encoded(schema(**only_known_fields(schema, expected)))


def kio_partition(
    schema: Any, error: int, index: int, leader: int, epoch: int, replicas: Any, isr: Any, offline: Any
) -> Any:
    return part(
        schema,
        "MetadataResponsePartition",
        error_code=KioError(error),
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=tuple(replicas),
        isr_nodes=tuple(isr),
        offline_replicas=tuple(offline),
    )


def numbers(*values: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    "lists",
    [
        ListColumn(numbers(0), numbers(2), numbers(1)),
        ListColumn(numbers(-1), numbers(1), numbers(1)),
        ListColumn(numbers(2**31 - 1), numbers(1), numbers(1)),
        ListColumn(numbers(0, 0), numbers(1, 1), numbers(1)),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(lists: ListColumn) -> None:
    one, good = numbers(0), ListColumn.from_lists([[1]])
    with pytest.raises(ValueError, match=r"column|list"):
        PartitionRows(np.zeros(1, np.int16), one, one, one, good, good, lists)


def one_topic(**changed: Any) -> TopicRows:
    """One topic with one row; ``changed``: other columns."""
    columns: dict[str, Any] = {
        "errors": np.zeros(1, np.int16),
        "names": StringColumn.from_strings(["t"]),
        "ids": np.zeros((1, 16), np.uint8),
        "is_internal": np.zeros(1, np.uint8),
        "operations": numbers(0),
        "starts": numbers(0, 1),
    }
    return TopicRows(**columns | changed)


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("starts", numbers(1, 0), "rows 1 to 0 of topic 0"),
        ("starts", numbers(-1, 0), "rows -1 to 0 of topic 0"),
        ("starts", numbers(0), "different lengths"),
        ("operations", numbers(0, 0), "different lengths"),
        ("ids", np.zeros((1, 5), np.uint8), "topic ids of 5 bytes"),
        ("names", StringColumn.from_strings(["t" * 40_000]), "a string of 40000 bytes"),
        ("names", StringColumn(numbers(2), numbers(3), np.zeros(4, np.uint8)), "not within its data"),
        ("names", StringColumn(numbers(-1), numbers(3), np.zeros(4, np.uint8)), "not within its data"),
    ],
)
def test_topics_that_cannot_be_written_are_refused(column: str, value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        one_topic(**{column: value})


def test_topics_of_rows_that_do_not_exist_are_refused() -> None:
    one, lists = numbers(0), ListColumn.from_lists([[1]])
    rows = PartitionRows(np.zeros(1, np.int16), one, one, one, lists, lists, lists)
    assert encode_metadata(12, [], None, -1, 0, one_topic(), rows)
    with pytest.raises(ValueError, match="2 rows of 1"):
        encode_metadata(12, [], None, -1, 0, one_topic(starts=numbers(0, 2)), rows)
