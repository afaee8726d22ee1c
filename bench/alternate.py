"""Measuring two sides in one run: the peer, then ours, round by round."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from time import perf_counter_ns
from typing import Final

import numpy as np
import numpy.typing as npt
from pytest_benchmark.fixture import BenchmarkFixture

__all__ = ["empty_caches", "milliseconds", "side_by_side"]

#: Bytes; more than the last-level caches of today's machines.
_MORE_THAN_CACHES: Final = 128 * 2**20


def side_by_side(
    benchmark: BenchmarkFixture,
    ours: Callable[[], object],
    peer: Callable[[], float],
    rounds: int,
    *,
    peer_name: str,
    before_each: Callable[[], object] | None = None,
    **extra: object,
) -> None:
    """Times ``ours`` with pytest-benchmark; before each of its rounds ``peer`` runs and says how many
    milliseconds it took. ``before_each`` runs untimed before either side. ``extra`` and the peer's times
    go to the JSON as extra_info.
    """
    peer_ms: list[float] = []

    def run_peer() -> None:
        if before_each is not None:
            before_each()
        peer_ms.append(peer())
        if before_each is not None:
            before_each()

    benchmark.extra_info.update(extra, peer=peer_name, peer_ms=peer_ms)
    benchmark.pedantic(ours, setup=run_peer, rounds=rounds, warmup_rounds=2)  # type: ignore[no-untyped-call]


def milliseconds(call: Callable[[], object]) -> float:
    """What one call takes."""
    begin = perf_counter_ns()
    call()
    return (perf_counter_ns() - begin) / 1e6


def empty_caches() -> None:
    """Reads more than the caches hold, so that what comes next has to be fetched from memory."""
    _filler().sum()


@cache
def _filler() -> npt.NDArray[np.uint8]:
    # Made when first used: those who measure memory must not carry it.
    return np.ones(_MORE_THAN_CACHES, dtype=np.uint8)
