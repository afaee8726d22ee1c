"""Leader election: twins of PartitionLeaderElectionAlgorithmsTest, and columns against plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctrlchan._codec import ListColumn
from ctrlchan.controller.machines.leader_election import (
    RECOVERING,
    Candidates,
    ElectedLeaders,
    Strategy,
    elect_for_controlled_shutdown,
    elect_for_reassignment,
    elect_offline,
    elect_preferred,
)

Flags = npt.NDArray[np.bool_]

NO_LEADER = -1


@dataclass
class Row:
    """One partition. ``live``: brokers that are not shutting down; ``failed``: with a failed directory."""

    replicas: list[int]
    isr: list[int]
    live: set[int]
    removing: list[int] = field(default_factory=list)
    shutting_down: set[int] = field(default_factory=set)
    allow_unclean: bool = False
    recovery_state: int = 0


def columns(rows: Sequence[Row], *, or_shutting_down: bool) -> Candidates:
    """Return the rows as columns."""

    def online(row: Row, broker: int) -> bool:
        return broker in row.live or (or_shutting_down and broker in row.shutting_down)

    return Candidates(
        replicas=ListColumn.from_lists([row.replicas for row in rows]),
        removing=ListColumn.from_lists([row.removing for row in rows]),
        isr=ListColumn.from_lists([row.isr for row in rows]),
        recovery_state=np.array([row.recovery_state for row in rows], dtype=np.int32),
        online=np.array([online(row, broker) for row in rows for broker in row.replicas], dtype=bool),
        isr_online=np.array([online(row, broker) for row in rows for broker in row.isr], dtype=bool),
    )


def run(strategy: Strategy, rows: Sequence[Row], *, recovery_supported: bool = True) -> ElectedLeaders:
    """Elect by columns. All rows have the same brokers shutting down."""
    candidates = columns(rows, or_shutting_down=strategy is Strategy.CONTROLLED_SHUTDOWN)
    match strategy:
        case Strategy.REASSIGN:
            return elect_for_reassignment(candidates)
        case Strategy.PREFERRED:
            return elect_preferred(candidates)
        case Strategy.CONTROLLED_SHUTDOWN:
            return elect_for_controlled_shutdown(
                candidates, np.array(sorted(rows[0].shutting_down), dtype=np.int32)
            )
        case _:
            allow = np.array([row.allow_unclean for row in rows], dtype=bool)
            return elect_offline(candidates, allow, recovery_supported=recovery_supported)


def leader(strategy: Strategy, row: Row) -> int:
    return int(run(strategy, [row]).leader[0])


# -- twins of PartitionLeaderElectionAlgorithmsTest


@pytest.mark.parametrize(
    ("strategy", "row", "expected"),
    [
        pytest.param(Strategy.OFFLINE, Row([2, 4], [2, 4], {4}), 4, id="offline"),
        pytest.param(Strategy.OFFLINE, Row([2, 4], [2], {4}), NO_LEADER, id="offline, unclean not allowed"),
        pytest.param(Strategy.OFFLINE, Row([2, 4], [2], {4}, allow_unclean=True), 4, id="offline, unclean"),
        pytest.param(Strategy.REASSIGN, Row([2, 4], [2, 4], {4}), 4, id="reassignment"),
        pytest.param(Strategy.REASSIGN, Row([2, 4], [2], set()), NO_LEADER, id="reassignment, ISR not live"),
        pytest.param(Strategy.REASSIGN, Row([2, 4], [], {2}), NO_LEADER, id="reassignment, ISR empty"),
        pytest.param(Strategy.PREFERRED, Row([2, 4], [2, 4], {2, 4}), 2, id="preferred"),
        pytest.param(
            Strategy.PREFERRED, Row([2, 4], [2], set()), NO_LEADER, id="preferred, in sync, not live"
        ),
        pytest.param(
            Strategy.PREFERRED, Row([2, 4], [4], {2, 4}), NO_LEADER, id="preferred, live, not in sync"
        ),
        pytest.param(Strategy.PREFERRED, Row([2, 4], [], set()), NO_LEADER, id="preferred, neither"),
        pytest.param(
            Strategy.CONTROLLED_SHUTDOWN, Row([2, 4], [2, 4], {4}, shutting_down={2}), 4, id="shutdown"
        ),
        pytest.param(
            Strategy.CONTROLLED_SHUTDOWN,
            Row([2, 4], [2], {4}, shutting_down={2}),
            NO_LEADER,
            id="shutdown of the last ISR member",
        ),
        pytest.param(
            Strategy.CONTROLLED_SHUTDOWN,
            Row([2, 4], [2, 4], set(), shutting_down={2, 4}),
            NO_LEADER,
            id="shutdown of the whole ISR",
        ),
    ],
)
def test_algorithm(strategy: Strategy, row: Row, expected: int) -> None:
    assert leader(strategy, row) == expected


# -- ISR, recovery state, recipients


def test_an_unclean_leader_is_alone_in_the_isr_and_recovering() -> None:
    row = Row([2, 4, 5], [2], {4, 5}, allow_unclean=True)
    elected = run(Strategy.OFFLINE, [row])
    assert elected.unclean.tolist() == [True]
    assert elected.isr.to_lists() == [[4]]
    assert elected.recovery_state.tolist() == [RECOVERING]
    assert elected.recipients.to_lists() == [[4, 5]]
    assert run(Strategy.OFFLINE, [row], recovery_supported=False).recovery_state.tolist() == [0]


def test_a_clean_election_keeps_the_recovery_state() -> None:
    elected = run(Strategy.OFFLINE, [Row([2, 4], [2, 4], {4}, allow_unclean=True, recovery_state=RECOVERING)])
    assert elected.unclean.tolist() == [False]
    assert elected.recovery_state.tolist() == [RECOVERING]


def test_online_isr_members_outside_the_assignment_stay_in_the_isr() -> None:
    assert run(Strategy.OFFLINE, [Row([2, 4], [4, 9], {4, 9})]).isr.to_lists() == [[4, 9]]


def test_reassignment_elects_among_target_replicas_and_sends_to_all_of_them() -> None:
    elected = run(Strategy.REASSIGN, [Row([1, 2, 3], [1, 2], {1, 2}, removing=[1])])
    assert elected.leader.tolist() == [2]
    assert elected.isr.to_lists() == [[1, 2]]
    assert elected.recipients.to_lists() == [[2, 3]]


def test_controlled_shutdown_sends_to_the_broker_that_shuts_down() -> None:
    elected = run(Strategy.CONTROLLED_SHUTDOWN, [Row([2, 4, 5], [2, 4], {4}, shutting_down={2})])
    assert elected.isr.to_lists() == [[4]]
    assert elected.recipients.to_lists() == [[2, 4]]


# -- columns against a readable twin


@dataclass
class Expected:
    leader: int
    isr: list[int]
    recovery_state: int
    recipients: list[int]


def twin(strategy: Strategy, row: Row, recovery_supported: bool) -> Expected:
    """Elect the leader of one partition, step by step."""
    online = set(row.live)
    if strategy is Strategy.CONTROLLED_SHUTDOWN:
        online |= row.shutting_down
    candidates = list(row.replicas)
    if strategy is Strategy.REASSIGN:
        candidates = [broker for broker in candidates if broker not in row.removing]
    elif strategy is Strategy.PREFERRED:
        candidates = candidates[:1]
    elif strategy is Strategy.CONTROLLED_SHUTDOWN:
        candidates = [broker for broker in candidates if broker not in row.shutting_down]
    clean = [broker for broker in candidates if broker in online and broker in row.isr]
    unclean = [broker for broker in candidates if broker in online] if row.allow_unclean else []
    isr, recovery_state, recipients = list(row.isr), row.recovery_state, list(row.replicas)
    elected = clean[0] if clean else NO_LEADER
    if strategy is Strategy.OFFLINE:
        recipients = [broker for broker in row.replicas if broker in online]
        isr = [broker for broker in isr if broker in online]
        if not clean and unclean:
            elected, isr = unclean[0], [unclean[0]]
            recovery_state = RECOVERING if recovery_supported else recovery_state
    elif strategy is Strategy.REASSIGN:
        recipients = candidates
    elif strategy is Strategy.CONTROLLED_SHUTDOWN:
        recipients = [broker for broker in row.replicas if broker in online]
        isr = [broker for broker in isr if broker not in row.shutting_down]
    return Expected(elected, isr, recovery_state, recipients)


BROKERS = st.integers(0, 6)
DISTINCT = st.lists(BROKERS, max_size=5, unique=True)


@st.composite
def partitions(draw: st.DrawFn) -> list[Row]:
    shutting_down = draw(st.sets(BROKERS, max_size=3))
    rows = draw(
        st.lists(
            st.builds(
                Row,
                DISTINCT,
                DISTINCT,
                st.sets(BROKERS).map(lambda live: live - shutting_down),
                DISTINCT,
                st.just(shutting_down),
                st.booleans(),
                st.integers(0, 1),
            ),
            min_size=1,
            max_size=6,
        )
    )
    return list(rows)


@given(
    partitions(),
    st.sampled_from([Strategy.OFFLINE, Strategy.REASSIGN, Strategy.PREFERRED, Strategy.CONTROLLED_SHUTDOWN]),
    st.booleans(),
)
def test_columns_elect_what_the_twin_elects(
    rows: list[Row], strategy: Strategy, recovery_supported: bool
) -> None:
    elected = run(strategy, rows, recovery_supported=recovery_supported)
    isr, recipients = elected.isr.to_lists(), elected.recipients.to_lists()
    for at, row in enumerate(rows):
        expected = twin(strategy, row, recovery_supported)
        assert elected.leader[at] == expected.leader
        if expected.leader == NO_LEADER:
            continue
        found = Expected(int(elected.leader[at]), isr[at], int(elected.recovery_state[at]), recipients[at])
        assert found == expected
        assert bool(elected.unclean[at]) == (expected.leader not in row.isr)
