"""The extension decodes state nodes as ``nodes.parse_partition_state`` does, or hands them back."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from ctrlchan.errors import MalformedError
from ctrlchan.topic_names import ZERO_ID, id_to_text
from ctrlchan.zookeeper import _states, nodes
from ctrlchan.zookeeper.nodes import PartitionState
from ctrlchan.zookeeper.operations import encode_reads
from tests.unit.zookeeper.sessions import int32, states

INT32 = st.integers(0, 2**31 - 1)
STATES = st.builds(
    PartitionState,
    leader=st.integers(-2, 2**31 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    controller_epoch=st.integers(-1, 2**31 - 1),
    isr=st.lists(INT32, max_size=8),
    recovery_state=st.integers(0, 1),
)
HEADER = struct.Struct(">iBi")


def answer(*found: bytes | int) -> bytes:
    """Return the answer to a multiRead: data of nodes, or result codes."""
    parts = []
    for number, one in enumerate(found):
        if isinstance(one, int):
            parts += [HEADER.pack(-1, False, one), struct.pack(">i", one)]
        else:
            stat = struct.pack(">qqqqiiiqiiq", 1, 2, 3, 4, number, 0, 0, 0, len(one), 0, 5)
            parts += [HEADER.pack(4, False, 0), struct.pack(">i", len(one)), one, stat]
    return b"".join([*parts, HEADER.pack(-1, True, -1)])


def decoded(data: bytes) -> PartitionState | bytes:
    """Return the state that the extension reads, or the bytes that it hands back."""
    columns = _states.StateColumns(1)
    unusual = columns.decode(answer(data), 0, 0, 1)
    assert columns.version.tolist() == [0]
    if unusual:
        ((row, found),) = unusual
        assert row == 0
        assert isinstance(found, bytes)
        assert (columns.leader[0], columns.lengths[0], len(columns.values())) == (-1, 0, 0)
        return found
    return PartitionState(
        int(columns.leader[0]),
        int(columns.leader_epoch[0]),
        int(columns.controller_epoch[0]),
        columns.values().tolist(),
        int(columns.recovery_state[0]),
    )


def check(data: bytes) -> None:
    """The extension agrees with the parser, or hands the data back."""
    found = decoded(data)
    if isinstance(found, bytes):
        assert found == data
    else:
        assert nodes.parse_partition_state(data) == found


@given(STATES, st.permutations(["version", "leader", "leader_epoch", "controller_epoch", "isr"]))
def test_states_as_kafka_writes_them_are_decoded(state: PartitionState, order: list[str]) -> None:
    assert decoded(nodes.encode_partition_state(state)) == state
    fields = {"version": 1, **state._asdict()}
    recovery = {"leader_recovery_state": state.recovery_state} if state.recovery_state else {}
    data = json.dumps({**{name: fields[name] for name in order}, **recovery}, separators=(",", ":"))
    assert decoded(data.encode()) == state


@given(st.binary(max_size=200))
def test_arbitrary_bytes(data: bytes) -> None:
    check(data)


@given(STATES, st.data())
def test_mutated_states(state: PartitionState, draw: st.DataObject) -> None:
    data = bytearray(nodes.encode_partition_state(state))
    for _ in range(draw.draw(st.integers(1, 3))):
        place = draw.draw(st.integers(0, len(data) - 1)) if data else 0
        with_what = draw.draw(
            st.sampled_from(
                [
                    b"",
                    b"0",
                    b"9",
                    b"-",
                    b".",
                    b"e",
                    b'"',
                    b"{",
                    b"}",
                    b"[",
                    b"]",
                    b",",
                    b":",
                    b" ",
                    b"\\",
                    b"\x00",
                    b"\xff",
                ]
            )
        )
        data[place : place + draw.draw(st.integers(0, 4))] = with_what
    check(bytes(data))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["version", "leader", "leader_epoch", "controller_epoch", "isr", "leader_recovery_state", "x"]
        ),
        JSON
        | st.integers(-3, 3)
        | st.integers(-(2**33), 2**33)
        | st.lists(st.integers(-1, 2**32), max_size=4),
    ),
    st.booleans(),
)
def test_hostile_json(fields: dict[str, Any], blanks: bool) -> None:
    check(json.dumps(fields, separators=None if blanks else (",", ":")).encode())


@given(STATES)
def test_states_are_encoded_as_nodes_does(state: PartitionState) -> None:
    values = _states.StateValues(
        int32(state.leader),
        int32(state.leader_epoch),
        int32(state.controller_epoch),
        int32(state.recovery_state),
        int32(0),
        int32(len(state.isr)),
        np.array(state.isr, np.int32),
    )
    assert values.encoded(0) == nodes.encode_partition_state(state)


@given(
    st.lists(
        st.one_of(STATES.map(nodes.encode_partition_state), st.sampled_from([-101, -102, b"", b"{}"])),
        max_size=20,
    ),
    st.data(),
)
def test_a_truncated_answer_is_refused(found: list[bytes | int], draw: st.DataObject) -> None:
    data = answer(*found)
    columns = _states.StateColumns(len(found))
    unusual = columns.decode(data, 0, 0, len(found))
    assert [one for _, one in unusual] == [one for one in found if one in (-102, b"", b"{}")]
    cut = draw.draw(st.integers(0, max(0, len(data) - HEADER.size - 1)))
    if found:
        with pytest.raises(ValueError, match="too short"):
            _states.StateColumns(len(found)).decode(data[:cut], 0, 0, len(found))


ASSIGNMENT = st.dictionaries(INT32, st.lists(INT32, max_size=5), max_size=6)


@given(ASSIGNMENT, st.none() | st.binary(min_size=16, max_size=16))
def test_topics_as_kafka_writes_them_are_decoded(
    assignment: dict[int, list[int]], topic_id: bytes | None
) -> None:
    data = nodes.encode_topic(topic_id, assignment)
    columns = _states.AssignmentColumns()
    columns.put(3, 7, [1])
    text = columns.decode(data, 4)
    assert text == (b"" if topic_id is None else id_to_text(topic_id).encode())
    topic_row, partition, starts, lengths, values = columns.columns()
    assert topic_row.tolist() == [3] + [4] * len(assignment)
    assert partition.tolist() == [7, *assignment]
    lists = [values[start : start + length].tolist() for start, length in zip(starts, lengths, strict=True)]
    assert lists == [[1], *assignment.values()]


@given(ASSIGNMENT, ASSIGNMENT, st.data())
def test_mutated_topics(
    assignment: dict[int, list[int]], adding: dict[int, list[int]], draw: st.DataObject
) -> None:
    data = bytearray(nodes.encode_topic(ZERO_ID, assignment, adding))
    place = draw.draw(st.integers(0, len(data)))
    data[place : place + draw.draw(st.integers(0, 3))] = draw.draw(
        st.sampled_from([b"", b"0", b"-", b'"', b"{", b"}", b"[", b"]", b",", b" ", b"\xff"])
    )
    columns = _states.AssignmentColumns()
    if columns.decode(bytes(data), 0) is None:
        assert len(columns) == 0
    else:
        try:
            topic = nodes.parse_topic(bytes(data))
        except MalformedError:
            # The columns have the id's text, which their reader checks.
            event("a text that is no topic id")
            return
        _, partition, starts, lengths, values = columns.columns()
        lists = [
            values[start : start + length].tolist() for start, length in zip(starts, lengths, strict=True)
        ]
        assert [(one.partition, one.replicas) for one in topic.assignments] == list(
            zip(partition.tolist(), lists, strict=True)
        )
        assert not any(one.adding or one.removing or one.reasons for one in topic.assignments)


@given(
    st.dictionaries(INT32, st.tuples(*[st.lists(INT32, max_size=3)] * 3), max_size=5),
    st.binary(min_size=16, max_size=16),
)
def test_topics_are_encoded_as_nodes_does(
    assignment: dict[int, tuple[list[int], list[int], list[int]]], topic_id: bytes
) -> None:
    lists = []
    for side in range(3):
        lengths = [len(one[side]) for one in assignment.values()]
        starts = [sum(lengths[:place]) for place in range(len(lengths))]
        values = [broker for one in assignment.values() for broker in one[side]]
        lists.append((np.array(starts, np.int32), np.array(lengths, np.int32), np.array(values, np.int32)))
    partition = np.array(list(assignment), np.int32)
    text = nodes.topic_id_text(topic_id)
    replicas, adding, removing = lists
    data = _states.encode_topic(text, partition, replicas, adding, removing, 0, len(assignment))
    filled = [{number: one[side] for number, one in assignment.items() if one[side]} for side in (1, 2)]
    all_replicas = {number: one[0] for number, one in assignment.items()}
    assert data == nodes.encode_topic(topic_id if text else None, all_replicas, *filled)


def test_paths_and_reads_are_those_of_the_plain_encoder() -> None:
    paths = _states.PartitionPaths(
        b"/c/head/", b"/mid/", b"/end", [b"t", b"uu"], int32(1, 0, 1), int32(0, 12, 2147483647)
    )
    expected = [b"/c/head/uu/mid/0/end", b"/c/head/t/mid/12/end", b"/c/head/uu/mid/2147483647/end"]
    assert [paths[row] for row in range(len(paths))] == expected
    assert _states.encode_reads(paths, 0, 10, 10_000) == (encode_reads(expected), 3)
    assert _states.encode_reads(paths, 1, 1, 10_000) == (encode_reads(expected[1:2]), 2)
    assert _states.encode_reads(paths, 1, 10, 10)[1] == 2


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(IndexError, match="topic row 2 of 2"):
        _states.PartitionPaths(b"", b"", b"", [b"t", b"u"], int32(2), int32(0))
    with pytest.raises(ValueError, match="2 topic rows but 1 partitions"):
        _states.PartitionPaths(b"", b"", b"", [b"t", b"u"], int32(0, 0), int32(0))
    one = states(1)
    with pytest.raises(IndexError, match="outside its values"):
        _states.StateValues(
            one.leader,
            one.leader_epoch,
            one.controller_epoch,
            one.recovery_state,
            int32(0),
            int32(9),
            int32(1),
        )
    with pytest.raises(MalformedError):
        nodes.parse_partition_state(b"")
