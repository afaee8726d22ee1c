"""The plan of a run: the same seed gives the same one, and no fault is impossible."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.chaos.plan import BROKERS, MOST_DOWN, STORM, Fault, Kind, Plan, make_plan

DOWN = {Kind.KILL, Kind.TEAR, Kind.FREEZE, Kind.RESTART, Kind.FULL_DISK}


def test_the_same_seed_gives_the_same_plan() -> None:
    assert make_plan(7, 600) == make_plan(7, 600)
    assert make_plan(7, 600) != make_plan(8, 600)


def test_a_plan_is_read_back() -> None:
    plan = make_plan(3, 240)
    assert Plan.from_json(plan.to_json()) == plan
    with pytest.raises(ValueError, match="not a valid Kind"):
        Plan.from_json(plan.to_json().replace(plan.rounds[0][0].kind, "unknown"))


def test_faults_of_many_plans_are_possible() -> None:
    kinds = set()
    for seed in range(50):
        plan = make_plan(seed, 120)
        assert len(plan.rounds) == 2
        for faults in plan.rounds:
            kinds |= {fault.kind for fault in faults}
            assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
            assert all(0 <= fault.at <= STORM for fault in faults)
            check_overlap(faults)
    assert kinds == set(Kind)


def check_overlap(faults: tuple[Fault, ...]) -> None:
    """No node has two faults of its process at a time, no link is cut twice, and some broker is up."""
    ends: dict[str, float] = {}
    cuts: dict[frozenset[str], float] = {}
    down: defaultdict[str, float] = defaultdict(float)
    for fault in faults:
        if fault.kind is Kind.CUT_LINK:
            one, other = fault.targets
            assert one != other
            assert cuts.get(frozenset(fault.targets), 0) < fault.at
            cuts[frozenset(fault.targets)] = fault.at + fault.duration
            continue
        for name in fault.targets:
            assert ends.get(name, 0) <= fault.at
            ends[name] = fault.at + fault.duration
        if fault.kind in DOWN:
            down[fault.targets[0]] = fault.at + fault.duration
            assert sum(end > fault.at for end in down.values()) <= MOST_DOWN
        if fault.kind in (Kind.POWER_CUT, Kind.ROLLING_RESTART):
            assert fault.targets == BROKERS


def test_what_is_not_possible_here_is_left_out() -> None:
    faults = [fault for faults in make_plan(1, 3600, [Kind.FULL_DISK]).rounds for fault in faults]
    assert len(faults) > 100
    assert Kind.FULL_DISK not in {fault.kind for fault in faults}


def test_a_short_run_has_a_short_round() -> None:
    (faults,) = make_plan(1, 15).rounds
    assert all(fault.at <= 10 for fault in faults)
