"""Arrow tables: no copies where the memory layout is the same, all column types, all bad rows named."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctrlchan.errors import InvalidStateError
from ctrlchan.state import Broker, ClusterState, Endpoint, SecurityProtocol
from ctrlchan.state.brokers import brokers_list
from ctrlchan.state.storage.schemas import BROKERS, PARTITIONS
from ctrlchan.topic_names import id_to_text
from tests.unit.state.helpers import rows_of, small_state

INT_COLUMNS = ("partition", "controller_epoch", "leader", "leader_epoch", "partition_epoch", "recovery_state")
LIST_COLUMNS = {
    "isr": "isr", "replicas": "replicas", "adding_replicas": "adding", "removing_replicas": "removing",
    "offline_replicas": "offline",
}  # fmt: skip


def row(topic: str = "t", partition: int = 0, **values: Any) -> dict[str, Any]:
    return {
        "topic": topic, "topic_id": bytes(16), "partition": partition, "controller_epoch": 1, "leader": 1,
        "leader_epoch": 2, "partition_epoch": 3, "recovery_state": 0, "isr": [1], "replicas": [1, 2],
        "adding_replicas": [], "removing_replicas": [], "offline_replicas": [2], **values,
    }  # fmt: skip


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return the same columns in the types of other programs."""
    lists = pa.list_(pa.int32())
    return pa.schema([(one.name, lists if one.name in LIST_COLUMNS else one.type) for one in schema])


def table(*rows: dict[str, Any], **types: pa.DataType) -> pa.Table:
    schema = nullable(PARTITIONS)
    for name, kind in types.items():
        schema = schema.set(schema.get_field_index(name), pa.field(name, kind))
    return pa.Table.from_pylist(list(rows), schema=schema)


def broker_table(*brokers: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(brokers), schema=BROKERS)


NO_BROKERS = broker_table()


def state_of(partitions: pa.Table | pa.RecordBatch, brokers: pa.Table = NO_BROKERS) -> ClusterState:
    return ClusterState.from_arrow(partitions, brokers)


def test_round_trip() -> None:
    state = small_state()
    state.update(2, adding=[9], removing=[3], recovery_state=1)
    partitions, brokers = state.to_arrow()
    again = ClusterState.from_arrow(
        partitions, brokers, cluster_id="test", controller_id=1, controller_epoch=5
    )
    assert rows_of(again) == rows_of(state)
    assert again.topics.ids.tolist() == state.topics.ids.tolist()
    assert again.describe() == state.describe()
    assert brokers_list(again.brokers) == brokers_list(state.brokers)


def test_an_empty_state_round_trips() -> None:
    state = ClusterState.from_arrow(*ClusterState.empty().to_arrow())
    assert len(state.topics) == len(state.partitions) == len(state.brokers) == 0
    assert len(state_of(table()).partitions) == 0
    assert len(state_of(pa.Table.from_batches([], nullable(PARTITIONS))).partitions) == 0


def arrow_memory(array: Any) -> Any:
    return array.to_numpy(zero_copy_only=True)


@pytest.mark.parametrize("skipped", [0, 2])
@pytest.mark.parametrize("batch", [False, True])
def test_columns_lie_over_arrows_memory(skipped: int, batch: bool) -> None:
    rows = table(*(row("t", number, isr=[number, 5]) for number in range(6)))
    given = rows.to_batches()[0].slice(skipped) if batch else rows.slice(skipped)
    columns = state_of(given).partitions
    for name in INT_COLUMNS:
        mine = getattr(columns, name)
        assert np.shares_memory(mine, arrow_memory(rows.column(name).chunk(0))), name
        assert not mine.flags.writeable
    for name, inner in LIST_COLUMNS.items():
        values: Any = rows.column(name).chunk(0)
        mine = getattr(columns, inner)
        assert np.shares_memory(mine.values, arrow_memory(values.values)) or not len(mine.values), name
        assert not mine.values.flags.writeable
    assert columns.isr.to_lists() == [[number, 5] for number in range(skipped, 6)]
    assert columns.partition.tolist() == list(range(skipped, 6))


def test_the_first_write_to_a_column_copies_it_and_only_it() -> None:
    rows = table(*(row("t", number) for number in range(4)))
    state = state_of(rows)
    before = rows.to_pylist()
    state.update([1, 2], leader=2, isr=[2])
    columns = state.partitions
    assert rows.to_pylist() == before
    assert columns.leader.tolist() == [1, 2, 2, 1]
    assert columns.isr.to_lists() == [[1], [2], [2], [1]]
    assert columns.leader.flags.writeable
    assert np.shares_memory(columns.leader_epoch, arrow_memory(rows.column("leader_epoch").chunk(0)))
    replicas: Any = rows.column("replicas").chunk(0)
    assert np.shares_memory(columns.replicas.values, arrow_memory(replicas.values))


def test_our_columns_go_to_arrow_without_a_copy() -> None:
    state = state_of(table(*(row("t", number) for number in range(4))))
    partitions, _ = state.to_arrow()
    for name in INT_COLUMNS:
        assert np.shares_memory(
            getattr(state.partitions, name), arrow_memory(partitions.column(name).chunk(0))
        )


def test_topics_come_in_the_order_of_their_bytes() -> None:
    names = ["b", "a-1", "a", "B", "a.1", "a_1"]
    state = state_of(table(*(row(name, number) for number in (1, 0) for name in names)))
    assert state.topics.names.to_list() == sorted(names)
    assert list(rows_of(state)) == [(name, number) for name in sorted(names) for number in (0, 1)]


@settings(deadline=None)
@given(
    st.permutations([(name, number) for name in ("x", "yy", "z") for number in range(3)]), st.integers(1, 9)
)
def test_unsorted_rows_and_chunks_are_sorted(order: list[tuple[str, int]], chunk: int) -> None:
    """Values are sorted with their keys, lists too."""
    rows = [row(n, p, leader=p, isr=[p] * p, topic_id=n[0].encode() * 16) for n, p in order]
    whole = table(*rows)
    pieces = pa.concat_tables([whole.slice(start, chunk) for start in range(0, len(rows), chunk)])
    state = state_of(pieces)
    assert list(rows_of(state)) == sorted(order)
    for (_, number), values in rows_of(state).items():
        assert (values["leader"], values["isr"]) == (number, [number] * number)
    assert [bytes(one) for one in state.topics.ids] == [b"x" * 16, b"y" * 16, b"z" * 16]


LARGE = {name: pa.large_list(pa.int64()) for name in LIST_COLUMNS}
WIDE = {name: pa.int64() for name in INT_COLUMNS}


@pytest.mark.parametrize(
    "types",
    [
        {"topic": pa.large_string()},
        {"topic": pa.binary()},
        {"topic": pa.dictionary(pa.int8(), pa.string())},
        {"topic": pa.dictionary(pa.int64(), pa.large_string())},
        {"topic_id": pa.binary()},
        {"topic_id": pa.large_binary()},
        WIDE,
        dict.fromkeys(INT_COLUMNS, pa.uint16()),
        LARGE,
        dict.fromkeys(LIST_COLUMNS, pa.list_(pa.int8())),
        {"replicas": pa.list_(pa.int32(), 2)},
        {"replicas": pa.list_(pa.int16(), 2)},
    ],
)
def test_other_types_that_hold_the_same(types: dict[str, Any]) -> None:
    rows = [row("t", 0, topic_id=b"1" * 16), row("t", 1, topic_id=b"1" * 16), row("s", 3)]
    given = table(*rows, **types)
    assert rows_of(state_of(given)) == rows_of(state_of(table(*rows)))
    assert rows_of(state_of(given.slice(1))) == rows_of(state_of(table(*rows[1:])))


def test_a_dictionary_with_an_entry_twice_or_unused() -> None:
    entries = pa.array(["x", "unused/illegal", "x", "a"])
    topic = pa.DictionaryArray.from_arrays(pa.array([0, 2, 3]), entries)
    given = table(row("t", 0), row("t", 1), row("t", 2))
    given = given.set_column(0, "topic", topic)
    assert list(rows_of(state_of(given))) == [("a", 2), ("x", 0), ("x", 1)]


def test_other_columns_are_passed_over() -> None:
    given = table(row()).append_column("note", pa.array(["x"]))
    assert list(rows_of(state_of(given))) == [("t", 0)]


@pytest.mark.parametrize("name", [field.name for field in PARTITIONS])
def test_a_missing_column(name: str) -> None:
    given = table(row()).drop_columns([name])
    with pytest.raises(InvalidStateError, match=rf"^partitions: no column {name} \(columns: "):
        state_of(given)


def test_a_column_twice() -> None:
    given = table(row()).append_column("isr", pa.array([[1]]))
    with pytest.raises(InvalidStateError, match="partitions: more than one column isr"):
        state_of(given)


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("topic", [1], "column topic has type int64, expected string"),
        ("topic", pa.array([1]).dictionary_encode(), "column topic has type dictionary<"),
        ("topic", pa.array([b"\xff"]), "column topic has a name that is not UTF-8"),
        ("topic_id", ["x" * 16], "column topic_id has type string, expected fixed_size_binary[16]"),
        ("topic_id", pa.array([b"x" * 15], pa.binary(15)), "column topic_id has type fixed_size_binary[15]"),
        ("leader", [1.0], "column leader has type double, expected int32"),
        ("partition", ["1"], "column partition has type string, expected int32"),
        ("isr", [1], "column isr has type int64, expected list<int32>"),
        ("offline_replicas", [[0.5]], "column offline_replicas has type list<"),
    ],
)
def test_a_column_of_another_type(name: str, values: Any, reason: str) -> None:
    given = table(row())
    given = given.set_column(given.schema.get_field_index(name), name, pa.array(values))
    with pytest.raises(InvalidStateError, match=re.escape(f"partitions: {reason}")):
        state_of(given)


ONE, TWO = b"1" * 16, b"2" * 16
TYPES: dict[str, Any] = {**WIDE, **LARGE, "topic_id": pa.binary()}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        *(({field.name: None}, f"{field.name} is null") for field in PARTITIONS if field.name != "partition"),
        ({"isr": [1, None]}, "isr has a null in it"),
        ({"adding_replicas": [None]}, "adding_replicas has a null in it"),
        ({"partition": -1}, "partition -1 is not in 0 .. 2147483647"),
        ({"partition": 2**31}, "partition 2147483648 is not in"),
        ({"leader": -3}, "leader -3 is not in -2 .. 2147483647"),
        ({"leader_epoch": 2**40}, "leader_epoch 1099511627776 is not in"),
        ({"partition_epoch": -2}, "partition_epoch -2 is not in"),
        ({"controller_epoch": -(2**63)}, "controller_epoch -9223372036854775808 is not in"),
        ({"recovery_state": 2}, "recovery_state 2 is not in 0 .. 1"),
        ({"isr": [1, -5]}, "isr [1, -5] names no broker id"),
        ({"replicas": [2**31]}, "replicas [2147483648] names no broker id"),
        ({"topic": ""}, "the topic name is empty"),
        ({"topic": ".."}, "the topic name is '.' or '..'"),
        ({"topic": "a/b"}, "a character other than ASCII letters"),
        ({"topic": "x" * 250}, "the topic name has 250 bytes, more than 249"),
        ({"topic_id": b"short"}, "topic_id has 5 bytes, not 16"),
        ({"topic": "t", "partition": 1, "topic_id": ONE}, "the same partition as row 1"),
        (
            {"topic": "t", "partition": 7, "topic_id": TWO},
            f"topic_id is {id_to_text(TWO)}, but {id_to_text(ONE)} in row 0 of the same topic",
        ),
    ],
)
def test_a_bad_row_is_named(bad: dict[str, Any], reason: str) -> None:
    good = [row("t", number, topic_id=ONE) for number in range(3)]
    wrong = row(**{"topic": "u", **bad})
    name = f"{wrong['topic']}-{wrong['partition']}"
    with pytest.raises(InvalidStateError) as caught:
        state_of(table(*good, wrong, **TYPES))
    assert str(caught.value).startswith(f"partitions: 1 bad row: row 3 ({name}): ")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_null_partition_is_named() -> None:
    with pytest.raises(InvalidStateError, match=r"1 bad row: row 0 \(t-None\): partition is null$"):
        state_of(table(row(partition=None)))  # type: ignore[arg-type]


def test_the_first_bad_rows_are_listed_with_their_number() -> None:
    rows = [row("t", number, leader=-9 if number % 2 else 1) for number in range(2_000)]
    rows[3]["recovery_state"] = 5
    with pytest.raises(InvalidStateError) as caught:
        state_of(table(*rows))
    text = str(caught.value)
    assert text.startswith(
        "partitions: 1,000 bad rows: row 1 (t-1): leader -9 is not in -2 .. 2147483647; row 3 (t-3)"
    )
    assert (
        "row 3 (t-3): leader -9 is not in -2 .. 2147483647, recovery_state 5 is not in 0 .. 1; row 5" in text
    )
    assert text.endswith("; and 995 more")
    assert text.count("row ") == 5


def test_bad_rows_are_named_as_they_came_not_as_sorted() -> None:
    with pytest.raises(InvalidStateError, match=r"row 2 \(b-0\): the same partition as row 0$"):
        state_of(table(row("b"), row("a"), row("b")))


# -- brokers

ENDPOINT = {"listener": "L", "security_protocol": "ssl", "host": "h", "port": 9}


def test_brokers() -> None:
    given = broker_table(
        {"id": 2, "epoch": 7, "rack": "r", "endpoints": [ENDPOINT, {**ENDPOINT, "listener": "M"}]},
        {"id": 1, "epoch": -1, "rack": None, "endpoints": []},
    )
    endpoint = Endpoint("L", SecurityProtocol.SSL, "h", 9)
    second = Endpoint("M", SecurityProtocol.SSL, "h", 9)
    expected = [Broker(2, 7, (endpoint, second), "r"), Broker(1)]
    assert brokers_list(state_of(table(), given).brokers) == expected
    without_racks = given.set_column(2, "rack", pa.nulls(2))
    assert [broker.rack for broker in brokers_list(state_of(table(), without_racks).brokers)] == [None, None]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"id": None}, "id is null"),
        ({"epoch": None}, "epoch is null"),
        ({"endpoints": None}, "endpoints is null"),
        ({"endpoints": [None]}, "broker 5: an endpoint has a null in it"),
        ({"endpoints": [{**ENDPOINT, "host": None}]}, "broker 5: an endpoint has a null in it"),
        ({"endpoints": [{**ENDPOINT, "security_protocol": "TLS"}]}, "'TLS' is no security protocol"),
        ({"endpoints": [{**ENDPOINT, "port": 70_000}]}, "broker 5: port 70000 is not in"),
        ({"id": -1}, "broker id -1 is not in"),
        ({"id": 1}, "broker 1 is listed twice"),
    ],
)
def test_a_bad_broker_is_named(bad: dict[str, Any], reason: str) -> None:
    good: dict[str, Any] = {"id": 1, "epoch": 1, "rack": None, "endpoints": []}
    schema = pa.schema([(field.name, field.type) for field in BROKERS])
    endpoint = pa.struct(
        [
            ("listener", pa.string()),
            ("security_protocol", pa.string()),
            ("host", pa.string()),
            ("port", pa.int32()),
        ]
    )
    schema = schema.set(3, pa.field("endpoints", pa.list_(endpoint)))
    given = pa.Table.from_pylist([good, {**good, "id": 5, **bad}], schema=schema)
    with pytest.raises(InvalidStateError, match=re.escape(f"brokers: 1 bad row: row 1: {reason}")):
        state_of(table(), given)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("id", ["x"]),
        ("epoch", [0.5]),
        ("rack", [1]),
        ("endpoints", ["h:1"]),
        ("endpoints", [["h:1"]]),
        ("endpoints", [[{"listener": "L", "host": "h", "port": 1}]]),
        ("endpoints", [[{**ENDPOINT, "port": "1"}]]),
    ],
)
def test_a_broker_column_of_another_type(name: str, values: Any) -> None:
    given = broker_table({"id": 1, "epoch": 1, "rack": None, "endpoints": []})
    given = given.set_column(given.schema.get_field_index(name), name, pa.array(values))
    with pytest.raises(InvalidStateError, match=f"brokers: column {name} has type "):
        state_of(table(), given)
