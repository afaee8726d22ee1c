"""Figures of brokers that take turns, and the processor time of a broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import psutil
from pytest_benchmark.fixture import BenchmarkFixture

__all__ = ["Figures", "processor_seconds", "processor_seconds_of", "rotated", "take_turns"]

T = TypeVar("T")


class Figures:
    """What all rounds measured: name -> (unit, side -> figures)."""

    def __init__(self) -> None:
        self.all: dict[str, tuple[str, dict[str, list[float]]]] = {}

    def add(self, side: str, what: str, unit: str, figure: float) -> None:
        self.all.setdefault(what, (unit, {}))[1].setdefault(side, []).append(figure)

    def turns(self, side: str) -> int:
        """Return how many turns a side has begun."""
        first = next(iter(self.all.values()), None)
        return len(first[1][side]) if first else 0


def processor_seconds(process: psutil.Process) -> float:
    """Return the processor time of a process and all its threads, in nanoseconds' resolution."""
    # clock_getcpuclockid of Linux: the process's clock of the scheduler. cpu_times() has ticks of 10 ms.
    return time.clock_gettime(~process.pid << 3 | 2)


def processor_seconds_of(process: psutil.Process, work: Callable[[], T]) -> tuple[float, T]:
    """Return the processor time of a process during `work`, and the result of that."""
    before = processor_seconds(process)
    result = work()
    return processor_seconds(process) - before, result


def rotated(sides: Sequence[T], round_number: int) -> list[T]:
    """Return the sides in the order of a round: none of them is the first in all rounds."""
    first = round_number % len(sides)
    return [*sides[first:], *sides[:first]]


def take_turns(
    benchmark: BenchmarkFixture, sides: Sequence[str], rounds: int, turn: Callable[[str], object]
) -> None:
    """Run rounds of the turns of all sides, as one benchmark."""
    number = 0

    def run() -> None:
        nonlocal number
        for side in rotated(sides, number):
            turn(side)
        number += 1

    benchmark.pedantic(run, rounds=rounds)  # type: ignore[no-untyped-call]
