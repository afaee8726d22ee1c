"""Answers each question by the measure that says most, and collects what falls short of its goals.

Made for the head of the page and for ``bench/RESULTS.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.alternate import OURS
from bench.measures.goals import GoalCheck, cause_of, goal_checks
from bench.measures.measure import BOUNDS, Measure, number
from bench.measures.suites import Result, measures_of, suite_of

__all__ = ["Answer", "Shortfall", "answers", "shortfalls"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """``id``: the anchor of the row on the page; ``goal_checks``: of the measure's goals."""

    question: str
    suite: str
    id: str
    answer: str
    goal_checks: Sequence[GoalCheck]


@dataclass(frozen=True, kw_only=True)
class Shortfall:
    """Measures of one suite that miss goals for the same cause.

    ``reached``: of each goal, the lowest and the highest figure.
    """

    suite: str
    reached: Mapping[str, tuple[float, float]]
    measures: Sequence[Measure]
    cause: str


def answers(results: Iterable[Result]) -> list[Answer]:
    """Return the answers of all questions whose suites have run, and of each other suite that has goals."""
    by_suite = {result["name"]: measures_of(result) for result in results}
    found = []
    for question, suite, what in _QUESTIONS:
        found += [_answer(question, one) for one in by_suite.get(suite, ()) if one.what == what]
    asked = {suite for _, suite, _ in _QUESTIONS}
    for suite, measures in by_suite.items():
        if suite not in asked:
            all_checks = [check for one in measures for check in goal_checks(one)]
            if all_checks:
                of = suite_of(suite)
                found.append(
                    Answer(
                        question=of.question or of.title,
                        suite=suite,
                        id=f"suite-{suite}",
                        answer=f"{len(measures)} figures",
                        goal_checks=all_checks,
                    )
                )
    return found


def _answer(question: str, one: Measure) -> Answer:
    unit = one.unit.rpartition(", ")[2]
    others = [side for side in one.sides if not side.startswith(OURS) and side != "per-broker"]
    if "kafka" in others:
        others = ["kafka", *[side for side in others if side in BOUNDS][:1]]
    ratios = map(one.compared_with, others)
    texts = [f"{ratio.name} {number(ratio.of_medians)}" for ratio in ratios if ratio]
    figure = [f"{number(one.median())} {unit}"] if one.sides.get(OURS) else []
    return Answer(
        question=question,
        suite=one.suite,
        id=one.id,
        answer="; ".join([*figure, *texts]),
        goal_checks=goal_checks(one),
    )


def shortfalls(results: Iterable[Result]) -> list[Shortfall]:
    """Return all goals that are missed, those of one suite with the same cause together."""
    missed: dict[tuple[str, str], dict[str, list[tuple[Measure, float]]]] = {}
    for result in results:
        for one in measures_of(result):
            for check in goal_checks(one):
                if not check.met:
                    by_goal = missed.setdefault((one.suite, cause_of(one)), {})
                    by_goal.setdefault(check.goal, []).append((one, check.value))
    return [
        Shortfall(
            suite=suite,
            reached={
                goal: (min(value for _, value in those), max(value for _, value in those))
                for goal, those in by_goal.items()
            },
            measures=list({one.id: one for those in by_goal.values() for one, _ in those}.values()),
            cause=cause,
        )
        for (suite, cause), by_goal in missed.items()
    ]


#: Question, suite, name of the measure that answers it.
_QUESTIONS: Final[Sequence[tuple[str, str, str]]] = (
    ("Push of 100,000 partitions to 30 brokers", "push", "full push, 100,000 → 30"),
    ("The same to 100 brokers", "push", "full push, 100,000 → 100"),
    ("A million partitions to 100 brokers", "push", "full push, 1,000,000 → 100"),
    ("Memory of the push to 30 brokers", "push", "memory, 100,000 → 30"),
    ("Small requests to 30 brokers, awaited", "small", "awaited, 30 brokers"),
    ("The same, queued", "small", "queued, 30 brokers"),
    ("Small requests to 1,000 brokers, queued", "small", "queued, 1,000 brokers"),
    ("Start of a channel to 300 brokers", "start", "start, 10,000 → 300"),
    ("Failover of 100,000 partitions on 30 brokers", "controller", "failover, 100,000 → 30"),
    ("The same on 300 brokers", "controller", "failover, 100,000 → 300"),
    ("Death of a broker", "controller", "death of a broker, 100,000 → 30"),
    ("Memory of the controller", "controller", "memory, 100,000 → 30"),
    ("Failover of a million on 102 brokers", "scale", "Failover, 102 brokers, 1,000,000 partitions"),
    ("Push of a million to 1,000 brokers", "scale", "Push of 1,000,000 partitions, 1,000 brokers"),
    (
        "10,000 connections that produce",
        "scale",
        "Connections that send a Produce every 10 s, 10,000 connections",
    ),
    ("Their memory", "scale", "Connections: memory of the broker, 10,000 connections"),
    (
        "Encoding, a partition",
        "codec",
        "UpdateMetadata v8 encode, 100,000 partitions, same buffers",
    ),
    ("Decoding beside other codecs", "peers", "UpdateMetadata v8 decode, 100,000 partitions"),
    ("Produce of a record of 100 B", "broker", "Produce of one record of 100 B"),
    ("Produce of 16 KiB", "broker", "Produce of batches of 16 KiB"),
    ("Fetch of 1 MiB", "broker", "Fetch of 1 MiB"),
    ("Fetch of 1 KB", "broker", "Fetch of 1 KB"),
    ("Memory of a broker", "broker", "memory afterwards (PSS)"),
    ("Start to the first record", "broker", "start to the first record: the broker"),
    ("Recovery of 10 GB", "broker", "recovery of 10 GB"),
    ("A transaction of one record", "transactions", "1 record"),
    ("EndTxn to its answer, 99th percentile", "transactions", "EndTxn to its answer: 99th percentile"),
    ("Kafka Streams, exactly_once_v2", "transactions", "Kafka Streams, exactly_once_v2: 1,000 words counted"),
    ("Produce with 100,000 ACLs", "security", "Produce of one record of 100 B"),
    ("Loading 100,000 ACLs", "security", "loading 100,000 ACLs"),
    ("Produce over TLS", "tls", "Produce of batches of 16 KiB"),
    ("A TLS connection", "tls", "connection with one Produce"),
    ("Push with journal and metrics", "features", "journal and metrics: push"),
    ("Cluster for tests: processor time", "clusters", "start and life: processor time"),
    ("Cluster for tests: memory", "clusters", "memory"),
    ("The first test of a session", "clusters_first_test", "the first test begins"),
    (
        "Frames of a million partitions in Spark",
        "spark",
        "frames, 1,000,000 partitions for 100 brokers: time",
    ),
    ("A small Spark report, prepared", "spark_small", "report of 400 outcomes, prepared"),
)
