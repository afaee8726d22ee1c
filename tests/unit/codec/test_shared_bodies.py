"""Compares shared bodies of every version with the slow codec."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrlchan._codec import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    Brokers,
    ListColumn,
    LiveLeaders,
    Partitions,
    SharedBody,
    StringColumn,
    Topics,
    encode_head,
    leader_and_isr_body,
    stop_replica_body,
    update_metadata_body,
)
from ctrlchan.errors import EncodeError, UnsupportedVersionError
from tests.conformance import reference

Json = Any
INT32 = st.integers(-(2**31), 2**31 - 1)


def int32(values: Sequence[int]) -> Any:
    return np.array(values, np.int32)


def uint8(values: Sequence[int]) -> Any:
    return np.array(values, np.uint8)


def int64(values: Sequence[int]) -> Any:
    return np.array(values, np.int64)


@st.composite
def list_columns(draw: st.DrawFn, n: int) -> ListColumn:
    """Draw n lists anywhere in one buffer: overlapping, in any order, with gaps, one of them long."""
    values = draw(st.lists(INT32, max_size=12)) + list(range(draw(st.sampled_from([0, 0, 140]))))
    starts, lengths = [], []
    for _ in range(n):
        start = draw(st.integers(0, len(values)))
        most = len(values) - start
        starts.append(start)
        lengths.append(draw(st.sampled_from([0, min(1, most), min(3, most), most])))
    return ListColumn(int32(starts), int32(lengths), int32(values))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Topics, Partitions, Any]:
    """Draw topics, partitions sorted by topic row, and a selection of rows (None: all)."""
    names = draw(st.lists(st.text(max_size=6), min_size=1, max_size=4))
    n = draw(st.integers(0, 8))
    topics = Topics(
        StringColumn.from_strings(names),
        uint8(list(draw(st.binary(min_size=16 * len(names), max_size=16 * len(names))))).reshape(-1, 16),
        draw(st.none() | st.lists(st.integers(0, 1), min_size=len(names), max_size=len(names)).map(uint8)),
    )
    numbers: Any = [int32(draw(st.lists(INT32, min_size=n, max_size=n))) for _ in range(5)] + [int32([0] * n)]
    lists: Any = [draw(list_columns(n)) for _ in range(2)]
    more: Any = [draw(st.none() | list_columns(n)) for _ in range(3)]
    topic_row = int32(sorted(draw(st.integers(0, len(names) - 1)) for _ in range(n)))
    partitions = Partitions(topic_row, *numbers, *lists, *more)
    some_rows = st.lists(st.integers(0, n - 1), unique=True).map(sorted) if n else st.just([])
    chosen = draw(st.none() | some_rows)
    return topics, partitions, None if chosen is None else int64(chosen)


def uuid(topics: Topics, row: int) -> str:
    return base64.urlsafe_b64encode(topics.ids[row].tobytes()).decode().rstrip("=")


def lists_at(column: ListColumn | None, row: int) -> list[int]:
    return [] if column is None else column[row].tolist()


def topic_states(
    topics: Topics, topic_row: Any, rows: Sequence[int], states: Sequence[Json], flat: bool
) -> Json:
    """Return states in the form of a message: each with its topic's name, or grouped by runs of one topic."""
    names = topics.names.to_list()
    topics_of_message = [(int(topic_row[row]), state) for row, state in zip(rows, states, strict=True)]
    if flat:
        return [{"topicName": names[topic], **state} for topic, state in topics_of_message]
    grouped = [
        (topic, [state for _, state in run])
        for topic, run in groupby(topics_of_message, lambda pair: pair[0])
    ]
    return [
        {"topicName": names[topic], "topicId": uuid(topics, topic), "partitionStates": run}
        for topic, run in grouped
    ]


def indexes(states: Sequence[Json]) -> list[int]:
    return [state["partitionIndex"] for state in states]


def selection(partitions: Partitions, rows: Any) -> list[int]:
    return list(range(len(partitions))) if rows is None else rows.tolist()


HEAD = {"controllerId": 5, "isKRaftController": False, "controllerEpoch": 6, "brokerEpoch": 7}


@pytest.mark.parametrize("version", range(9))
@given(cluster=clusters(), request_type=st.integers(-128, 127))
@settings(max_examples=60, deadline=None)
def test_update_metadata(version: int, cluster: tuple[Topics, Partitions, Any], request_type: int) -> None:
    topics, columns, rows = cluster
    request_type = request_type if version == 8 else 0
    listener = "INTERNAL" if version >= 3 else "PLAINTEXT"
    brokers = Brokers(
        int32([1, 2]),
        None,
        StringColumn.from_strings(["rack", None]),
        int32([1, 0]),
        int32([1, 1]),
        int32([9092, 9093]),
        StringColumn.from_strings(["h0", "h1"]),
        StringColumn.from_strings([listener, listener]),
        int32([0, 0]),
    )
    states = []
    for row in selection(columns, rows):
        deleting = topics.deleting is not None and topics.deleting[columns.topic_row[row]]
        states.append(
            {
                "partitionIndex": int(columns.partition[row]),
                "controllerEpoch": int(columns.controller_epoch[row]),
                "leader": -2 if deleting else int(columns.leader[row]),
                "leaderEpoch": 0 if deleting else int(columns.leader_epoch[row]),
                "isr": lists_at(columns.isr, row),
                "zkVersion": 0 if deleting else int(columns.partition_epoch[row]),
                "replicas": lists_at(columns.replicas, row),
                "offlineReplicas": lists_at(columns.offline, row),
            }
        )
    topics_of_message = topic_states(topics, columns.topic_row, selection(columns, rows), states, version < 5)
    live = [
        {
            "id": broker, "v0Host": host, "v0Port": port, "rack": rack,
            "endpoints": [{"port": port, "host": host, "listener": listener, "securityProtocol": 0}],
        }
        for broker, host, port, rack in [(1, "h1", 9093, "rack"), (2, "h0", 9092, None)]
    ]  # fmt: skip
    value = HEAD | {"type": request_type, "liveBrokers": live}
    value |= {"ungroupedPartitionStates": topics_of_message, "topicStates": topics_of_message}
    shared_body = update_metadata_body(version, topics, columns, brokers, rows, request_type=request_type)
    assert shared_body.rows == len(states)
    check_shared_body(
        shared_body, encode_head(UPDATE_METADATA, version, 5, 6, 7), "UpdateMetadataRequest", value
    )


@pytest.mark.parametrize("version", range(8))
@given(cluster=clusters(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_leader_and_isr(version: int, cluster: tuple[Topics, Partitions, Any], data: st.DataObject) -> None:
    topics, columns, rows = cluster
    chosen = selection(columns, rows)
    is_new = data.draw(st.none() | st.lists(st.integers(0, 1), min_size=len(chosen), max_size=len(chosen)))
    recovering = data.draw(st.integers(-128, 127)) if version >= 6 else 0
    columns.recovery_state[:] = recovering
    leaders = LiveLeaders(int32([3]), StringColumn.from_strings(["h"]), int32([9]))
    states = [
        {
            "partitionIndex": int(columns.partition[row]),
            "controllerEpoch": int(columns.controller_epoch[row]),
            "leader": int(columns.leader[row]),
            "leaderEpoch": int(columns.leader_epoch[row]),
            "isr": lists_at(columns.isr, row),
            "partitionEpoch": int(columns.partition_epoch[row]),
            "replicas": lists_at(columns.replicas, row),
            "addingReplicas": lists_at(columns.adding, row),
            "removingReplicas": lists_at(columns.removing, row),
            "isNew": bool(is_new and is_new[position]),
            "leaderRecoveryState": recovering,
        }
        for position, row in enumerate(chosen)
    ]
    topics_of_message = topic_states(topics, columns.topic_row, chosen, states, version < 2)
    value = HEAD | {"type": 0, "liveLeaders": [{"brokerId": 3, "hostName": "h", "port": 9}]}
    value |= {"ungroupedPartitionStates": topics_of_message, "topicStates": topics_of_message}
    flags = None if is_new is None else uint8(is_new)
    shared_body = leader_and_isr_body(version, topics, columns, leaders, rows, is_new=flags)
    check_shared_body(
        shared_body, encode_head(LEADER_AND_ISR, version, 5, 6, 7), "LeaderAndIsrRequest", value
    )


@pytest.mark.parametrize("version", range(5))
@given(cluster=clusters(), with_epochs=st.booleans(), with_flags=st.booleans())
@settings(max_examples=40, deadline=None)
def test_stop_replica(
    version: int, cluster: tuple[Topics, Partitions, Any], with_epochs: bool, with_flags: bool
) -> None:
    topics, columns, _ = cluster
    n = len(columns)
    flags = uint8([row % 2 for row in range(n)])
    states = [
        {
            "partitionIndex": int(columns.partition[row]),
            "leaderEpoch": int(columns.leader_epoch[row]) if with_epochs else -1,
            "deletePartition": bool(with_flags and flags[row]),
        }
        for row in range(n)
    ]
    grouped = topic_states(topics, columns.topic_row, range(n), states, False)
    value = HEAD | {
        "deletePartitions": True,
        "ungroupedPartitions": topic_states(topics, columns.topic_row, range(n), states, True),
        "topics": [
            {"name": one["topicName"], "partitionIndexes": indexes(one["partitionStates"])} for one in grouped
        ],
        "topicStates": grouped,
    }
    shared_body = stop_replica_body(
        version,
        topics,
        columns.topic_row,
        columns.partition,
        columns.leader_epoch if with_epochs else None,
        flags if with_flags else None,
    )
    head = encode_head(STOP_REPLICA, version, 5, 6, 7, delete_partitions=version <= 2)
    check_shared_body(shared_body, head, "StopReplicaRequest", value)


def check_shared_body(shared_body: SharedBody, head: bytes, name: str, value: Json) -> None:
    body = reference.encode(name, shared_body.version, value)
    assert (head + shared_body.to_bytes()).hex() == body.hex()
    assert shared_body.size == len(body) - len(head)
    # The same into the caller's memory; bytes before and after the message must not change.
    out = bytearray(b"\xaa" * (shared_body.size + 20))
    assert shared_body.write_into(out, 10) == shared_body.size
    assert out == b"\xaa" * 10 + body[len(head) :] + b"\xaa" * 10
    assert shared_body.write_into(memoryview(out)[10:]) == shared_body.size


# --------------------------------------------------------------------------------------- refused columns

TOPICS = Topics(StringColumn.from_strings(["a", "b"]))
NO_BROKERS = Brokers(
    int32([]), None, StringColumn.from_strings([]), int32([]), int32([]), int32([]),
    StringColumn.from_strings([]), StringColumn.from_strings([]), int32([]),
)  # fmt: skip
NO_LEADERS = LiveLeaders(int32([]), StringColumn.from_strings([]), int32([]))


def two_rows(**changes: Any) -> Partitions:
    same = ("topic_row", "partition", "controller_epoch", "leader", "leader_epoch", "partition_epoch")
    columns: dict[str, Any] = {name: int32([0, 1]) for name in same}
    columns |= {"recovery_state": int32([0, 0]), "isr": ListColumn.from_lists([[1], [2]])}
    return Partitions(**(columns | {"replicas": columns["isr"]} | changes))


def one_broker(**changes: Any) -> Brokers:
    columns: dict[str, Any] = {
        "ids": int32([1]),
        "epochs": None,
        "racks": StringColumn.from_strings([None]),
        "endpoint_starts": int32([0]),
        "endpoint_lengths": int32([1]),
        "ports": int32([9]),
        "hosts": StringColumn.from_strings(["h"]),
        "listeners": StringColumn.from_strings([""]),
        "security_protocols": int32([0]),
    }
    return Brokers(**(columns | changes))


UPDATE_METADATA_VERSIONS = [0, 1, 2, 3, 4, 5, 8]


@pytest.mark.parametrize("version", UPDATE_METADATA_VERSIONS)
@pytest.mark.parametrize("rows", [[-1], [2], [0, 2], [2**62], [-(2**62)]], ids=str)
@pytest.mark.parametrize("topic_starts", [False, True])
def test_rows_outside_the_columns(version: int, rows: list[int], topic_starts: bool) -> None:
    starts = int64([0, 0, len(rows)]) if topic_starts else None
    with pytest.raises(EncodeError, match="outside the partition columns"):
        update_metadata_body(version, TOPICS, two_rows(), NO_BROKERS, int64(rows), topic_starts=starts)
    with pytest.raises(EncodeError, match="outside the partition columns"):
        leader_and_isr_body(min(version, 7), TOPICS, two_rows(), NO_LEADERS, int64(rows), topic_starts=starts)


@pytest.mark.parametrize("topic_row", [[-1, 0], [0, 2], [0, 2**31 - 1]], ids=str)
def test_topic_rows_outside_the_topics(topic_row: list[int]) -> None:
    columns = two_rows(topic_row=int32(topic_row))
    with pytest.raises(EncodeError, match="outside the topic columns"):
        update_metadata_body(8, TOPICS, columns, NO_BROKERS)
    with pytest.raises(EncodeError, match="outside the topic columns"):
        leader_and_isr_body(7, TOPICS, columns, NO_LEADERS)
    with pytest.raises(EncodeError, match="outside the topic columns"):
        stop_replica_body(4, TOPICS, columns.topic_row, columns.partition)


def in_update_metadata(version: int, columns: Partitions) -> SharedBody:
    return update_metadata_body(version, TOPICS, columns, NO_BROKERS)


def in_leader_and_isr(version: int, columns: Partitions) -> SharedBody:
    return leader_and_isr_body(version, TOPICS, columns, NO_LEADERS)


@pytest.mark.parametrize(
    ("column", "field", "make", "version"),
    [
        (column, field, make, version)
        for make, versions, lists in [
            (in_update_metadata, (0, 4, 8), {"isr": "isr", "replicas": "replicas"}),
            (in_update_metadata, (4, 8), {"offline": "offlineReplicas"}),
            (in_leader_and_isr, (0, 3, 7), {"isr": "isr", "replicas": "replicas"}),
            (in_leader_and_isr, (3, 7), {"adding": "addingReplicas", "removing": "removingReplicas"}),
        ]
        for version in versions
        for column, field in lists.items()
    ],
)
@pytest.mark.parametrize(("start", "length"), [(0, -1), (-1, 1), (0, 3), (2, 1), (2**31 - 1, 500)])
def test_lists_outside_their_values(
    column: str,
    field: str,
    make: Callable[[int, Partitions], SharedBody],
    version: int,
    start: int,
    length: int,
) -> None:
    columns = two_rows(**{column: ListColumn(int32([0, start]), int32([1, length]), int32([1, 2]))})
    with pytest.raises(EncodeError, match=r"outside its values|negative length") as caught:
        make(version, columns).to_bytes()
    assert caught.value.field == field


def test_topic_starts_that_do_not_fit() -> None:
    for starts in ([0, 1], [0, 1, 1], [1, 1, 2], [0, 3, 2], [0, -1, 2]):
        with pytest.raises(ValueError, match="topic_starts"):
            update_metadata_body(8, TOPICS, two_rows(), NO_BROKERS, topic_starts=int64(starts))


@pytest.mark.parametrize(("name", "why"), [(None, "null"), ("n" * 32_768, "32767")])
def test_names_that_cannot_be_sent(name: str | None, why: str) -> None:
    names = StringColumn.from_strings(["a", name])
    topics = Topics(names)
    columns = two_rows()
    for version in (0, 8):
        with pytest.raises(EncodeError, match=why):
            update_metadata_body(version, topics, columns, NO_BROKERS)
    for version in (0, 7):
        with pytest.raises(EncodeError, match=why):
            leader_and_isr_body(version, topics, columns, NO_LEADERS)
        with pytest.raises(EncodeError, match=why):
            leader_and_isr_body(version, TOPICS, columns, LiveLeaders(int32([1, 2]), names, int32([1, 2])))
    for version in (0, 2, 4):
        with pytest.raises(EncodeError, match=why):
            stop_replica_body(version, topics, columns.topic_row, columns.partition)


@pytest.mark.parametrize("version", UPDATE_METADATA_VERSIONS)
def test_texts_of_brokers_that_cannot_be_sent(version: int) -> None:
    long = StringColumn.from_strings(["n" * 32_768])
    with pytest.raises(EncodeError, match="32767") as caught:
        update_metadata_body(version, TOPICS, two_rows(), one_broker(hosts=long))
    assert caught.value.field == ("v0Host" if version == 0 else "host")
    with pytest.raises(EncodeError, match="null"):
        update_metadata_body(version, TOPICS, two_rows(), one_broker(hosts=StringColumn.from_strings([None])))
    if version >= 2:
        with pytest.raises(EncodeError, match="32767"):
            update_metadata_body(version, TOPICS, two_rows(), one_broker(racks=long))
    if version >= 3:
        with pytest.raises(EncodeError, match="32767"):
            update_metadata_body(version, TOPICS, two_rows(), one_broker(listeners=long))


@pytest.mark.parametrize("version", UPDATE_METADATA_VERSIONS)
@pytest.mark.parametrize(("start", "length"), [(0, 2), (1, 1), (-1, 1), (0, -1), (2**31 - 1, 2**31 - 1)])
def test_endpoints_outside_their_columns(version: int, start: int, length: int) -> None:
    brokers = one_broker(endpoint_starts=int32([start]), endpoint_lengths=int32([length]))
    with pytest.raises(EncodeError) as caught:
        update_metadata_body(version, TOPICS, two_rows(), brokers)
    assert caught.value.field == "endpoints"


def test_numbers_that_do_not_fit_the_wire() -> None:
    for value in (128, -129, 2**31 - 1):
        with pytest.raises(EncodeError, match="int8"):
            leader_and_isr_body(7, TOPICS, two_rows(recovery_state=int32([0, value])), NO_LEADERS).to_bytes()
    for value in (2**15, -(2**15) - 1, 2**31 - 1):
        with pytest.raises(EncodeError, match="int16"):
            update_metadata_body(
                8, TOPICS, two_rows(), one_broker(security_protocols=int32([value]))
            ).to_bytes()
    for value in (128, -129):
        with pytest.raises(EncodeError, match="int8"):
            update_metadata_body(8, TOPICS, two_rows(), NO_BROKERS, request_type=value)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: update_metadata_body(7, TOPICS, two_rows(), NO_BROKERS, request_type=2), "type"),
        (
            lambda: leader_and_isr_body(5, TOPICS, two_rows(recovery_state=int32([0, 1])), NO_LEADERS),
            "leaderRecoveryState",
        ),
        (
            lambda: update_metadata_body(0, TOPICS, two_rows(), one_broker(endpoint_lengths=int32([0]))),
            "endpoints",
        ),
        (
            lambda: update_metadata_body(0, TOPICS, two_rows(), one_broker(security_protocols=int32([1]))),
            "endpoints",
        ),
        (
            lambda: update_metadata_body(
                2, TOPICS, two_rows(), one_broker(listeners=StringColumn.from_strings(["CUSTOM"]))
            ),
            "listener",
        ),
    ],
)
def test_values_that_the_version_cannot_carry(make: Callable[[], SharedBody], field: str) -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        make()
    assert caught.value.field == field


@pytest.mark.parametrize("version", [-1, 9, 2**30])
def test_versions_that_do_not_exist(version: int) -> None:
    with pytest.raises(UnsupportedVersionError):
        update_metadata_body(version, TOPICS, two_rows(), NO_BROKERS)
    with pytest.raises(UnsupportedVersionError):
        leader_and_isr_body(version, TOPICS, two_rows(), NO_LEADERS)
    with pytest.raises(UnsupportedVersionError):
        stop_replica_body(version, TOPICS, int32([]), int32([]))


def test_flags_and_columns_of_other_lengths() -> None:
    with pytest.raises(ValueError, match="is_new"):
        leader_and_isr_body(7, TOPICS, two_rows(), NO_LEADERS, is_new=uint8([1]))
    for columns in ([int32([0])], [int32([0]), int32([1])], [int32([0, 0]), int32([1]), uint8([1, 1])]):
        with pytest.raises(ValueError, match="differ in length"):
            stop_replica_body(4, TOPICS, int32([0, 0]), *columns)


def test_memory_that_is_too_small_or_read_only() -> None:
    shared_body = update_metadata_body(8, TOPICS, two_rows(), NO_BROKERS)
    for size, offset in [
        (shared_body.size - 1, 0),
        (shared_body.size, 1),
        (0, 0),
        (shared_body.size, -1),
        (shared_body.size, 2**62),
    ]:
        with pytest.raises(ValueError, match="need"):
            shared_body.write_into(bytearray(size), offset)
    with pytest.raises(BufferError):
        shared_body.write_into(memoryview(bytes(shared_body.size)))


@pytest.mark.parametrize("change", ["isr", "topic_row", "rows"])
def test_columns_that_change_after_they_were_sized(change: str) -> None:
    columns, rows = two_rows(), int64([0, 1])
    shared_body = update_metadata_body(8, TOPICS, columns, NO_BROKERS, rows)
    out = bytearray(b"\xaa" * (shared_body.size + 64))
    if change == "isr":
        columns.isr.lengths[1] = 2
    elif change == "topic_row":
        columns.topic_row[1] = 0
    else:
        rows[1] = 7
    if change == "topic_row":
        # The groups were planned when the message was sized, so the message is still whole.
        shared_body.write_into(out)
    else:
        with pytest.raises(EncodeError):
            shared_body.write_into(out)
    assert out[shared_body.size :] == b"\xaa" * 64


def test_an_empty_selection_is_not_every_row() -> None:
    shared_body = update_metadata_body(8, TOPICS, two_rows(), NO_BROKERS, int64([]))
    assert (shared_body.rows, shared_body.to_bytes()) == (0, b"\x01\x01\x00")
