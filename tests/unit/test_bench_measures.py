"""Tests of the numbers behind the benchmarks' page: medians, ratios, slopes, goals, causes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from bench.measures.answers import answers, shortfalls
from bench.measures.goals import cause_of, goal_checks
from bench.measures.measure import Line, Measure, lines_of, number, slug
from bench.measures.suites import measures_of

RESULTS: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "bench" / "results.json").read_text()
)


def measure(**changed: Any) -> Measure:
    sides = {"ours": [3.0, 1.0, 2.0], "kafka": [8.0, 10.0], "limit": [1.0, 0.5]}
    return Measure(**{"suite": "suite", "what": "what", "unit": "ms", "sides": sides} | changed)


def test_medians_and_best_samples() -> None:
    one = measure()
    assert (one.median(), one.best(), one.median("kafka"), one.best("kafka")) == (2.0, 1.0, 9.0, 8.0)
    assert measure(higher=True).best() == 3.0


def test_a_peer_is_so_many_times_ours_and_ours_so_much_of_a_limit() -> None:
    one = measure()
    assert one.compared_with("kafka") == ("kafka", "ours", 4.5, 8.0)
    assert one.compared_with("limit") == ("ours", "limit", 2.0 / 0.75, 2.0)
    assert one.compared_with("ours") is None
    assert one.compared_with("kio") is None


def test_of_rates_more_is_better() -> None:
    rates = measure(higher=True)
    assert rates.compared_with("kafka") == ("ours", "kafka", 2.0 / 9.0, 3.0 / 10.0)
    assert rates.compared_with("limit") == ("ours", "limit", 2.0 / 0.75, 3.0)


def test_there_is_no_ratio_to_nothing() -> None:
    assert measure(sides={"ours": [0.0], "kafka": [5.0]}).compared_with("kafka") is None


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_slope_of_a_power_is_the_power(power: float) -> None:
    line = Line("line", "ours", "connections", [(size, 7 * size**power) for size in (10, 1_000, 10_000)])
    assert line.slope == pytest.approx(power)


def test_the_slope_is_that_of_least_squares() -> None:
    # Logs to base 10: (0, 0), (1, 2), (2, 1): covariance 1, variance 2.
    assert Line("line", "ours", "groups", [(1, 1), (10, 100), (100, 10)]).slope == pytest.approx(0.5)


def test_there_is_no_slope_through_zero() -> None:
    assert Line("line", "ours", "groups", [(1, 0), (10, 1)]).slope is None


def test_lines_have_the_medians_of_sides_with_several_sizes() -> None:
    few = measure(line="line", size=("groups", 10.0))
    many = measure(line="line", size=("groups", 1.0), sides={"ours": [5.0], "limit": []})
    assert lines_of([few, many, measure()]) == [("line", "ours", "groups", [(1.0, 5.0), (10.0, 2.0)])]


def test_a_question_over_sizes() -> None:
    one = {
        "suite": "scale", "question": "memory", "unit": "KiB", "per": "connections", "sizes": [10, 1000],
        "sides": {"ours": {"10": [1.0, 3.0], "1000": [20.0]}, "kafka": {"10": [50.0]}},
        "gave_up": {"kafka": {"1000": "out of memory"}},
        "goals": {"memory, 10 connections": "kafka / ours ≥ 20"},
    }  # fmt: skip
    few, many = measures_of({"name": "scale", "benchmarks": [one]})
    assert (few.what, few.size, few.sides) == (
        "memory, 10 connections", ("connections", 10), {"ours": [1.0, 3.0], "kafka": [50.0]},
    )  # fmt: skip
    assert many.sides == {"ours": [20.0]}
    assert many.gave_up == {"kafka": "out of memory"}
    assert [check.met for check in goal_checks(few)] == [True]
    [line] = lines_of([few, many])
    assert line.slope == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("goal", "text", "value", "met"),
    [
        ("≥ 4", "Kafka / ours ≥ 4", 4.5, True),
        ("kafka / ours ≥ 5", "Kafka / ours ≥ 5", 4.5, False),
        ("ours / limit ≤ 3", "ours / limit ≤ 3", 2 / 0.75, True),
        ("ours ≤ 1.5", "ours ≤ 1.5 ms", 2.0, False),
        ("ours = 2", "ours = 2 ms", 2.0, True),
        ("ours ≤ 1,000", "ours ≤ 1,000 ms", 2.0, True),
    ],
)
def test_goals(goal: str, text: str, value: float, met: bool) -> None:
    [check] = goal_checks(measure(goals=[goal]))
    assert (check.goal, check.value, check.met) == (text, value, met)


def test_a_goal_that_only_the_best_samples_meet() -> None:
    [check] = goal_checks(measure(goals=["kafka / ours ≥ 5"]))
    assert (check.met, check.met_by_best, check.best) == (False, True, 8.0)


def test_a_goal_of_a_side_that_did_not_run_is_not_checked() -> None:
    assert goal_checks(measure(goals=["kio / ours ≥ 5", "kio ≤ 5"])) == []


def test_what_is_not_a_goal_raises() -> None:
    with pytest.raises(ValueError, match="not a goal: 'fast'"):
        goal_checks(measure(goals=["fast"]))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0666, "0.0666"), (1.069, "1.07"), (16.87, "16.9"), (67.96, "68.0"), (1147.6, "1,148")],
)
def test_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_anchors() -> None:
    assert slug("push full push, 100,000 → 30") == "push-full-push-100000-to-30"


def test_two_measures_with_the_same_name_raise() -> None:
    one = {"suite": "some", "figures": {"a": ["ms", {"ours": [1.0]}]}}
    with pytest.raises(ValueError, match="two measures of 'some' have the same name"):
        measures_of({"name": "some", "benchmarks": [one, one]})


def test_everything_that_was_measured_is_read() -> None:
    read = {result["name"]: measures_of(result) for result in RESULTS}
    assert [name for name, measures in read.items() if not measures] == []
    ids = [one.id for measures in read.values() for one in measures]
    assert len(set(ids)) == len(ids)


def test_each_goal_that_is_missed_has_a_cause() -> None:
    """Who measures a shortfall writes its cause into ``bench/measures/goals.py``."""
    missed = [
        one
        for result in RESULTS
        for one in measures_of(result)
        if any(not check.met for check in goal_checks(one))
    ]
    assert [f"{one.suite}: {one.what}" for one in missed if not cause_of(one)] == []
    found = [one for shortfall in shortfalls(RESULTS) for one in shortfall.measures]
    assert {one.id for one in found} == {one.id for one in missed}


def test_each_suite_with_goals_answers_a_question() -> None:
    with_goals = {one.suite for result in RESULTS for one in measures_of(result) if goal_checks(one)}
    found = answers(RESULTS)
    assert with_goals - {one.suite for one in found} == set()
    push = found[0]
    assert push.id == "push-full-push-100000-to-30"
    assert push.answer.startswith("16.9 ms; ")
    assert "Kafka / ours 68.0" in push.answer
