"""Functions over list columns return what plain Python returns."""

from __future__ import annotations

from itertools import islice

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan._codec import ListColumn
from ctrlchan.state.lists import (
    contains,
    empty_lists,
    entries_within,
    entry_rows,
    first_flagged,
    has_duplicates,
    joined,
    not_within,
    packed_values,
    select,
    take,
    total_length,
)
from ctrlchan.state.rows import distinct

VALUES = st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 4), max_size=6)


@st.composite
def scattered(draw: st.DrawFn, rows: int | None = None) -> ListColumn:
    """Return lists in any order, with gaps between them, some with shared values."""
    size = st.integers(0, 6) if rows is None else st.just(rows)
    lists = draw(st.lists(VALUES, min_size=(n := draw(size)), max_size=n))
    order = draw(st.permutations(range(n)))
    values: list[int] = []
    starts = [0] * n
    for row in order:
        values += draw(st.lists(st.integers(0, 9), max_size=2))
        starts[row] = len(values)
        values += lists[row]
    if n > 1 and draw(st.booleans()):
        starts[0], lists[0] = starts[1], lists[1]
    return ListColumn(
        np.array(starts, np.int32),
        np.array([len(one) for one in lists], np.int32),
        np.array(values, np.int32),
    )


@given(scattered())
def test_packed_values_are_the_lists_one_after_another(lists: ListColumn) -> None:
    expected = [value for one in lists.to_lists() for value in one]
    assert packed_values(lists).tolist() == expected
    assert total_length(lists) == len(expected)
    assert entry_rows(lists).tolist() == [row for row, one in enumerate(lists.to_lists()) for _ in one]


def test_packed_values_is_a_view_where_lists_lie_in_a_row() -> None:
    values = np.arange(10, dtype=np.int32)
    lists = ListColumn(np.array([2, 9, 4], np.int32), np.array([2, 0, 3], np.int32), values)
    packed = packed_values(lists)
    assert packed.tolist() == [2, 3, 4, 5, 6]
    assert np.shares_memory(packed, values)


@given(st.lists(scattered(), min_size=1, max_size=4))
def test_joined(columns: list[ListColumn]) -> None:
    assert joined(columns).to_lists() == [one for column in columns for one in column.to_lists()]


@given(scattered(), st.data())
def test_select_and_take(lists: ListColumn, data: st.DataObject) -> None:
    size = total_length(lists)
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=bool)
    flags = iter(keep.tolist())
    assert select(lists, keep).to_lists() == [[v for v in one if next(flags)] for one in lists.to_lists()]
    rows = data.draw(st.lists(st.integers(0, max(0, len(lists) - 1)), max_size=len(lists)))
    assert take(lists, np.array(rows, np.int64)).to_lists() == [lists.to_lists()[row] for row in rows]


@given(scattered(), st.data())
def test_contains_and_has_duplicates(lists: ListColumn, data: st.DataObject) -> None:
    wanted = data.draw(st.lists(st.integers(-2, 4), min_size=len(lists), max_size=len(lists)))
    plain = lists.to_lists()
    found = contains(lists, np.array(wanted, np.int32))
    assert found.tolist() == [w in one for w, one in zip(wanted, plain, strict=True)]
    assert has_duplicates(lists).tolist() == [len(set(one)) < len(one) for one in plain]


@given(st.integers(0, 6).flatmap(lambda n: st.tuples(scattered(n), scattered(n))))
def test_not_within(pair: tuple[ListColumn, ListColumn]) -> None:
    lists, others = pair
    expected = [not set(a) <= set(b) for a, b in zip(lists.to_lists(), others.to_lists(), strict=True)]
    assert not_within(lists, others).tolist() == expected


def test_empty_columns() -> None:
    none = empty_lists(3)
    assert none.to_lists() == [[], [], []]
    assert packed_values(none).tolist() == []
    assert not has_duplicates(none).any()
    assert not not_within(none, none).any()


@given(st.data())
def test_entries_within(data: st.DataObject) -> None:
    lists = data.draw(scattered())
    others = data.draw(scattered(len(lists)))
    expected = [
        value in other
        for one, other in zip(lists.to_lists(), others.to_lists(), strict=True)
        for value in one
    ]
    assert entries_within(lists, others).tolist() == expected


@given(st.data())
def test_first_flagged(data: st.DataObject) -> None:
    lists = data.draw(scattered())
    total = total_length(lists)
    flags = np.array(data.draw(st.lists(st.booleans(), min_size=total, max_size=total)), dtype=bool)
    left = iter(flags.tolist())
    expected = []
    for one in lists.to_lists():
        chosen = [value for value, flag in zip(one, islice(left, len(one)), strict=True) if flag]
        expected.append(chosen[0] if chosen else -1)
    assert first_flagged(lists, flags, -1).tolist() == expected


@given(st.lists(st.integers(0, 9)))
def test_distinct(values: list[int]) -> None:
    assert distinct(np.array(values, dtype=np.int64)).tolist() == sorted(set(values))
