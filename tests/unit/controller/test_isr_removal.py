"""Replicas leave the ISR all at once as Kafka takes them out one after another."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan._codec import ListColumn
from ctrlchan.controller.machines.isr_removal import without_replicas

BROKERS = st.integers(0, 6)
DISTINCT = st.lists(BROKERS, max_size=5, unique=True)
ROWS = st.lists(
    st.tuples(st.integers(-1, 6), DISTINCT, st.lists(BROKERS, unique=True).map(sorted)), max_size=6
)


def twin(leader: int, isr: list[int], leaving: list[int]) -> tuple[int, list[int], int]:
    """Take the replicas out one by one, ascending."""
    count = 0
    for broker in leaving:
        if broker not in isr:
            continue
        count += 1
        leader = -1 if broker == leader else leader
        if len(isr) > 1:
            isr = [one for one in isr if one != broker]
    return leader, isr, count


@given(ROWS)
def test_columns_equal_one_by_one(rows: list[tuple[int, list[int], list[int]]]) -> None:
    leader, isr, count = without_replicas(
        np.array([leader for leader, _, _ in rows], dtype=np.int32),
        ListColumn.from_lists([isr for _, isr, _ in rows]),
        ListColumn.from_lists([leaving for _, _, leaving in rows]),
    )
    found = list(zip(leader.tolist(), isr.to_lists(), count.tolist(), strict=True))
    assert found == [twin(*row) for row in rows]
