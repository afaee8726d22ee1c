"""Hours of simulated sessions: the same guarantees as of the whole day, which ``make acceptance`` runs."""

from __future__ import annotations

import gc

import psutil
import pytest

from tests.simulation.day import Day

#: So long that sensors of clients that are gone must have gone, too.
SHORT, WHOLE = 2.2, 24.0
#: Bytes by which a process may grow within a day, behind its first hours.
MOST_GROWTH = 32 * 2**20


def test_hours_of_sessions() -> None:
    day = Day(7, clients=12)
    day.run(SHORT)
    day.close()
    happened = (
        "logged in",
        "refused",
        "renewed",
        "session over",
        "served",
        "throttled",
        "idle",
        "tokens renewed",
    )
    assert all(day.counted[one] for one in happened), day.counted


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3))
def test_a_day_of_sessions_leaves_nothing_behind(seed: int) -> None:
    day = Day(seed)
    process = psutil.Process()
    day.run(WHOLE / 8)
    gc.collect()
    before = process.memory_info().rss
    day.run(WHOLE - WHOLE / 8)
    gc.collect()
    assert process.memory_info().rss - before < MOST_GROWTH
    day.close()
