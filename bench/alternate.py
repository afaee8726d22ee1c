"""Measures several sides in one run, in turns, so that all sides run under the same conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Final

from pytest_benchmark.fixture import BenchmarkFixture

__all__ = ["OURS", "Side", "milliseconds", "side_by_side"]

#: The side that the others are compared with.
OURS: Final = "ours"


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of a comparison: ``call`` does the work once and returns how many milliseconds it took.

    ``warmups``: calls before the first timed round. ``every``: a slow side runs in each ``every``-th
    round only, beginning with the first. ``after``: called untimed after each call (never for our
    side, where pytest-benchmark would count it).
    """

    call: Callable[[], float]
    warmups: int = 2
    every: int = 1
    after: Callable[[], object] | None = None

    def run(self) -> float:
        took = self.call()
        if self.after is not None:
            self.after()
        return took


def side_by_side(
    benchmark: BenchmarkFixture, sides: Mapping[str, Side], rounds: int, **extra: Any
) -> dict[str, list[float]]:
    """Warm every side up, then run ``rounds`` rounds of all sides, ours last in each round.

    ``extra_info`` gets ``extra``, and as ``ms`` the times that each side returns. pytest-benchmark's own
    figures are of our side and include the time of the command and its answer.
    """
    times: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        for _ in range(side.warmups):
            side.run()
    before = 0

    def run_others() -> None:
        nonlocal before
        for name, side in sides.items():
            if name != OURS and before % side.every == 0:
                times[name].append(side.run())
        before += 1

    benchmark.extra_info.update(extra, ms=times)
    benchmark.pedantic(  # type: ignore[no-untyped-call]
        lambda: times[OURS].append(sides[OURS].call()), setup=run_others, rounds=rounds
    )
    return times


def milliseconds(call: Callable[[], object]) -> float:
    """Return how many milliseconds one call takes."""
    begin = perf_counter_ns()
    call()
    return (perf_counter_ns() - begin) / 1e6
