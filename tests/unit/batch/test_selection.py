"""Selections: any calls give one ascending row array, and every flag that was set."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan.batch.selection import Selection, keys_of

TOTAL = 20
ROWS = st.integers(0, TOTAL - 1)
CALLS = st.lists(
    st.tuples(
        st.one_of(
            ROWS,
            st.lists(ROWS).map(lambda rows: np.array(rows, dtype=np.int64)),
            st.none(),
        ),
        st.booleans(),
    ),
    max_size=8,
)


@given(CALLS)
def test_merge_has_the_result_of_a_dict(calls: list[tuple[int | np.ndarray | None, bool]]) -> None:
    selection = Selection()
    expected: dict[int, bool] = {}
    for rows, flag in calls:
        selection.add(rows, flag)
        named = range(TOTAL) if rows is None else [rows] if isinstance(rows, int) else rows.tolist()
        for row in named:
            expected[row] = expected.get(row, False) or flag

    rows, flags = selection.merge(TOTAL)

    assert (list(range(TOTAL)) if rows is None else rows.tolist()) == sorted(expected)
    assert ([False] * len(expected) if flags is None else flags.astype(bool).tolist()) == [
        expected[row] for row in sorted(expected)
    ]
    assert (rows is None) == any(named is None for named, _ in calls)


@given(CALLS)
def test_equal_calls_have_equal_fingerprints(calls: list[tuple[int | np.ndarray | None, bool]]) -> None:
    one, two = Selection(), Selection()
    for rows, flag in calls:
        shared = keys_of(rows, flag) if isinstance(rows, np.ndarray) else None
        for selection in (one, two):
            if shared is None:
                selection.add(rows, flag)
            else:
                selection.add_keys(shared)
    assert one.fingerprint == two.fingerprint
    two.add(0, True)
    assert one.fingerprint != two.fingerprint


def test_a_merged_array_is_not_the_callers() -> None:
    rows = np.array([1, 2, 3], dtype=np.int64)
    selection = Selection()
    selection.add(rows)
    rows[:] = 7
    merged, flags = selection.merge(TOTAL)
    assert merged is not None
    assert merged.tolist() == [1, 2, 3]
    assert flags is None
