"""Rows of decoded requests; test_model.py compares random ones with a dict."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from ctrlchan._codec import (
    Partitions,
    StringColumn,
    Topics,
    decode_request,
    encode_head,
    update_metadata_body,
)
from ctrlchan.errors import InvalidStateError
from ctrlchan.state import ClusterState
from ctrlchan.state.importing.generate import GeneratorConfig, generate
from tests.unit.state.helpers import default_row, message, rows_of, small_state


def decoded(state: ClusterState, rows: Any = None) -> Any:
    shared_body = update_metadata_body(8, state.topics, state.partitions, state.brokers, rows)
    return decode_request(6, 8, encode_head(6, 8, 1, 2, 3) + shared_body.to_bytes())


def apply(state: ClusterState, request: Any) -> Any:
    return state.upsert(request.topics, request.topic_starts, request.partitions)


def without(rows: dict[Any, Any], *columns: str) -> dict[Any, Any]:
    return {key: {name: v for name, v in row.items() if name not in columns} for key, row in rows.items()}


def test_a_full_request_into_an_empty_state_and_again() -> None:
    source = generate(GeneratorConfig(topics=20, partitions_per_topic=7, offline_share=0.1))
    state = ClusterState.empty()
    received = decoded(source)
    for _ in range(3):
        assert apply(state, received).tolist() == list(range(140))
        # These three are not in UpdateMetadata.
        carried = without(rows_of(source), "adding", "removing", "recovery_state")
        assert without(rows_of(state), "adding", "removing", "recovery_state") == carried
        assert state.topics.ids.tolist() == source.topics.ids.tolist()


def test_what_a_state_took_is_its_own() -> None:
    source = small_state()
    received = decoded(source)
    state = ClusterState.empty()
    apply(state, received)
    apply(state, received)
    state.update("all", leader=9, isr=[9])
    assert received.partitions.leader.tolist() == source.partitions.leader.tolist()
    assert received.partitions.isr.to_lists() == source.partitions.isr.to_lists()
    columns = state.partitions
    for name in ("partition", "leader", "leader_epoch"):
        assert not np.shares_memory(getattr(columns, name), getattr(received.partitions, name))


def test_some_rows_of_some_topics_in_another_order() -> None:
    state = small_state()
    rows = state.upsert(
        *message(
            ("c", bytes(16), {1: default_row(leader=7)}),
            ("new", b"n" * 16, {2: default_row(leader=8), 0: default_row(leader=9)}),
            ("a", b"z" * 16, {0: default_row(leader=6), 5: default_row(leader=5)}),
        )
    )
    assert list(rows_of(state)) == [
        ("a", 0), ("a", 1), ("a", 2), ("a", 5), ("b", 0), ("c", 0), ("c", 1), ("new", 0), ("new", 2),
    ]  # fmt: skip
    assert rows.tolist() == [6, 8, 7, 0, 3]
    assert state.partitions.leader[rows].tolist() == [7, 8, 9, 6, 5]
    assert [bytes(one) for one in state.topics.ids] == [b"z" * 16, bytes(16), b"c" * 16, b"n" * 16]


def test_of_two_rows_the_later_counts() -> None:
    state = small_state()
    topic = ("b", bytes(16), {0: default_row(leader=1)})
    again = ("b", bytes(16), {0: default_row(leader=2), 1: default_row(leader=3)})
    assert state.upsert(*message(topic, again, again)).tolist() == [3, 3, 4, 3, 4]
    assert state.partitions.leader.tolist() == [1, 2, 3, 2, 3, 1, 2]


def test_only_the_columns_asked_for_change_in_rows_that_are_there() -> None:
    state = small_state()
    before = rows_of(state)
    received = message(
        ("b", bytes(16), {0: default_row(leader=1, isr=[1]), 1: default_row(leader=2, isr=[2])})
    )
    state.upsert(*received, columns=("leader",))
    assert rows_of(state)["b", 0] == {**before["b", 0], "leader": 1}
    assert rows_of(state)["b", 1] == default_row(leader=2, isr=[2])


def test_a_topic_without_rows_joins() -> None:
    state = ClusterState.empty()
    state.upsert(*message(("t", b"t" * 16, {})))
    assert state.topics.names.to_list() == ["t"]
    assert len(state.partitions) == 0
    assert bytes(state.topics.ids[0]) == b"t" * 16


def test_absent_list_columns_empty_ours() -> None:
    state = small_state()
    state.update("all", adding=[1], offline=[2])
    topics, starts, received = message(("b", bytes(16), {0: default_row(replicas=[1])}))
    fixed = (
        received.partition,
        received.controller_epoch,
        received.leader,
        received.leader_epoch,
        received.partition_epoch,
    )
    bare = Partitions(received.topic_row, *fixed, received.recovery_state, received.isr, received.replicas)
    state.upsert(topics, starts, bare)
    assert rows_of(state)["b", 0] == default_row(replicas=[1])
    assert rows_of(state)["a", 0]["adding"] == [1]


@pytest.mark.parametrize("starts", [[0], [0, 2], [1, 1], [0, 1, 1], [0, 0]])
def test_topic_starts_that_do_not_divide_the_rows(starts: list[int]) -> None:
    topics, _, received = message(("b", bytes(16), {0: default_row()}))
    state = small_state()
    with pytest.raises(InvalidStateError, match="topic_starts do not divide 1 rows among 1 topics"):
        state.upsert(topics, np.array(starts), received)


def test_columns_there_are_not() -> None:
    with pytest.raises(InvalidStateError, match=re.escape("no such column: is_new, topic_row")):
        small_state().upsert(*message(), columns=("leader", "topic_row", "is_new"))


def test_names_that_lie_elsewhere_are_the_same_names() -> None:
    state = small_state()
    received = decoded(state)
    apart = np.frombuffer(b"..b.ca", np.uint8)
    names = StringColumn(np.array([5, 2, 4], np.int32), np.ones(3, np.int32), apart)
    assert state.upsert(Topics(names), received.topic_starts, received.partitions).tolist() == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]
    assert len(state.topics) == 3
