"""The goals of measures, whether they are met, and why those that are not met are missed.

A goal is ``ours <= 400`` (in the measure's unit) or ``kafka / ours >= 15`` (of two sides), written with ≤, ≥
or =. ``≥ 4`` alone is short for ``kafka / ours ≥ 4``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from bench.alternate import OURS
from bench.measures.measure import Measure, short

__all__ = ["GoalCheck", "cause_of", "goal_checks", "goals_for"]

_GOAL: Final = re.compile(
    r"(?:(?P<left>[^/≤≥=]+?)(?: / (?P<right>[^≤≥=]+?))? )?(?P<sign>[≤≥=]) (?P<bound>[\d,.]+)"
)
_SIGNS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "≤": operator.le,
    "≥": operator.ge,
    "=": operator.eq,
}


@dataclass(frozen=True, kw_only=True)
class GoalCheck:
    """A goal beside what was measured. ``met``: by the medians; ``met_by_best``: by the best samples."""

    goal: str
    value: float
    best: float
    met: bool
    met_by_best: bool


def goal_checks(measure: Measure) -> list[GoalCheck]:
    """Return each goal beside what was measured; none whose sides did not run.

    Raises ValueError if a goal is not written as one.
    """
    found = []
    for goal in measure.goals:
        match = _GOAL.fullmatch(goal)
        if not match:
            raise ValueError(f"not a goal: {goal!r} of {measure.what!r}")
        left, right = match["left"], match["right"]
        if left is None:
            left, right = "kafka", OURS
        if right is None:
            values = (measure.median(left), measure.best(left)) if measure.sides.get(left) else None
        else:
            ratio = measure.ratio(left, right)
            values = (ratio.of_medians, ratio.of_best) if ratio else None
        if values:
            meets, bound = _SIGNS[match["sign"]], float(match["bound"].replace(",", ""))
            sides = short(left) if right is None else f"{short(left)} / {short(right)}"
            unit = f" {measure.unit.rpartition(', ')[2]}" if right is None and measure.unit != "×" else ""
            found.append(
                GoalCheck(
                    goal=f"{sides} {match['sign']} {match['bound']}{unit}",
                    value=values[0],
                    best=values[1],
                    met=meets(values[0], bound),
                    met_by_best=meets(values[1], bound),
                )
            )
    return found


def goals_for(suite: str, what: str) -> tuple[str, ...]:
    """Return the goals of a measure whose suite does not say them in its results."""
    return next((goals for of, like, goals in _GOALS if of == suite and fnmatchcase(what, like)), ())


def cause_of(measure: Measure) -> str:
    """Return why the goals of this measure are missed, or the empty string if nobody has said so yet."""
    found = (
        why for suite, like, why in _CAUSES if suite == measure.suite and fnmatchcase(measure.what, like)
    )
    return next(found, "")


#: Suite, name of the measure (as in a shell: * and ?), goals. The first that fits counts.
_GOALS: Final[Sequence[tuple[str, str, tuple[str, ...]]]] = (
    ("push", "full push, *", ("ours / limit ≤ 1.25", "kafka / ours ≥ 30")),
    ("push", "memory, *", ("kafka / ours ≥ 15",)),
    ("small", "awaited, 30 *", ("ours / limit ≥ 0.8", "ours / kafka ≥ 4")),
    ("small", "queued, 30 *", ("ours / limit ≥ 0.8", "ours / kafka ≥ 4")),
    ("small", "awaited, 1,000 *", ("ours / kafka ≥ 15",)),
    ("small", "queued, 1,000 *", ("ours / kafka ≥ 15",)),
    ("start", "start, * → 300", ("ours ≤ 3,000",)),
    ("start", "first push / warm push, *", ("ours ≤ 3",)),
    ("controller", "failover, 100,000 → 30", ("ours ≤ 400", "kafka / ours ≥ 15")),
    ("controller", "failover, 100,000 → 300", ("ours ≤ 1,500",)),
    ("controller", "memory, 100,000 → 30", ("kafka / ours ≥ 15",)),
    ("scale", "Failover, 30 brokers, 100,000 partitions", ("ours ≤ 0.4",)),
    ("scale", "Failover, 102 brokers, 1,000,000 partitions", ("ours ≤ 6",)),
    ("scale", "Failover, 300 brokers, 100,000 partitions", ("ours ≤ 1.5",)),
    ("scale", "Idle connections, 10,000 connections", ("kafka / ours ≥ 10",)),
    ("scale", "Connections that send * s, 10,000 connections", ("kafka / ours ≥ 10",)),
    ("scale", "Connections with a Fetch that waits 5 s, 10,000 connections", ("kafka / ours ≥ 10",)),
    ("scale", "Connections: memory of the broker, 10,000 connections", ("kafka / ours ≥ 20",)),
    ("codec", "* encode, *", ("ours / memcpy ≤ 1.6",)),
    ("codec", "* decode, *", ("ours / memcpy ≤ 3",)),
    ("peers", "*", ("kafka-clients / ours ≥ 4", "kio / ours ≥ 4", "kafka-python / ours ≥ 4")),
    ("features", "journal*", ("ours / without ≤ 1.1",)),
    ("features", "metrics*", ("ours / without ≤ 1.1",)),
    ("broker", "Produce of one record of 100 B", ("kafka / ours ≥ 10", "ours / limit ≤ 1.6")),
    ("broker", "Produce of one record, five in flight: *", ("kafka / ours ≥ 5", "ours / limit ≤ 1.6")),
    ("broker", "Produce of batches of 16 KiB", ("kafka / ours ≥ 4", "ours / limit ≤ 1.6")),
    ("broker", "Produce of batches of 256 KiB", ("kafka / ours ≥ 3", "ours / limit ≤ 1.6")),
    ("broker", "Produce at 200/s: median", ("kafka / ours ≥ 2",)),
    ("broker", "Produce at 200/s: 99th percentile", ("kafka / ours ≥ 3",)),
    ("broker", "Fetch of 1 MiB", ("kafka / ours ≥ 2", "ours / limit ≤ 1.6")),
    ("broker", "Fetch of 1 KB", ("kafka / ours ≥ 8", "ours / limit ≤ 1.6")),
    ("broker", "memory afterwards (PSS)", ("kafka / ours ≥ 12",)),
    ("broker", "start to the first record: the broker", ("kafka / ours ≥ 10",)),
    ("broker", "recovery of 10 GB", ("kafka / ours ≥ 2",)),
    ("broker", "start with 10,000 partitions", ("kafka / ours ≥ 2",)),
    ("security", "Produce of *", ("without / ours ≥ 0.98", "kafka / ours ≥ 2")),
    ("security", "Fetch of *", ("without / ours ≥ 0.98", "kafka / ours ≥ 2")),
    ("security", "Metadata of *", ("without / ours ≥ 0.8", "kafka / ours ≥ 10")),
    ("security", "loading *", ("reading / ours ≥ 0.8", "kafka / ours ≥ 5")),
    ("tls", "connection *", ("limit / ours ≥ 0.8", "kafka / ours ≥ 2")),
    ("tls", "memory *", ()),
    ("tls", "*", ("limit / ours ≥ 0.8", "kafka / ours ≥ 1.5")),
    ("clusters_first_test", "the first test begins", ("ours ≤ 1,000",)),
    ("spark", "frames, *: time", ("ours / Spark alone ≤ 1.5",)),
    ("spark_small", "ingest*", ("ours / session ≤ 2",)),
    ("spark_small", "report*", ("ours / session ≤ 2",)),
)

#: Suite, name of the measure, the cause of what is missed. The notes below ``bench/notes`` have the profiles.
_CAUSES: Final[Sequence[tuple[str, str, str]]] = (
    ("push", "full push, *", "the limit itself is at most 25 × Kafka there: frames are small"),
    ("small", "*, 30 brokers", "TCP over loopback takes 10 of 13 µs; the limit itself is 3.5 × Kafka"),
    ("small", "*, 1,000 brokers", "the kernel's part doubles with 1,000 sockets; the limit is 14 × Kafka"),
    ("scale", "Failover, 30 *", "the first three of a process; 0.37 of 14 in the suite controller"),
    ("scale", "Connections with a Fetch *", "nine tenths are the kernel's, for a request and an answer"),
    ("scale", "Connections: memory *", "41 MiB are there without a connection; one more takes 0.8 KB"),
    ("codec", "StopReplica*", "ten bytes a partition: the fields cost more than the copy"),
    ("codec", "*encode*", "memory traffic: 130 bytes a row and six list bounds, where a copy moves 96 bytes"),
    ("codec", "*decode*", "faults of fresh pages; 2.2 × where the allocator gives freed memory"),
    ("features", "journal*", "single rows move by 15 % either way, the noise of this measure"),
    ("broker", "Produce at 200/s: 99th percentile", "between 2.2 and 3.2 × in four runs"),
    ("broker", "Fetch of 1 KB", "between 6.5 and 9.0 × in eight runs, mostly less than the limit takes"),
    ("transactions", "1 record, 8 producers*", "1 % short, on a machine with other work"),
    ("transactions", "EndTxn to its answer: 99th*", "one in 100 waits for a processor that others use"),
    ("security", "Metadata of *", "2 ms for names of topics as texts, and sets of them"),
    ("security", "loading *", "JSON of each node, and the index by entry"),
    ("tls", "Produce of one record*", "same calls of OpenSSL; the broker does more than the limit does"),
    ("spark_small", "*", "a third of the JVM's samples load classes, an eighth analyses plans"),
)
