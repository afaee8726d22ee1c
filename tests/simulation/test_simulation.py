"""Histories of simulated brokers: the same seed is the same history, and no history breaks a guarantee."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import psutil
import pytest

from tests.simulation.history import History
from tests.simulation.seeds import FAILED_ONCE

FEW, MANY = 40, 10_000
#: What a process may grow by within all histories but the first ones.
MOST_GROWTH = 48 * 2**20


@pytest.mark.parametrize("block", range(0, FEW, 10))
def test_histories(block: int) -> None:
    for seed in range(1_000_000 + block, 1_000_000 + block + 10):
        _run(seed)


@pytest.mark.parametrize("seed", FAILED_ONCE)
def test_seed_that_has_failed_once(seed: int) -> None:
    _run(seed)


@pytest.mark.parametrize("seed", [4, 5, 12])
def test_same_seed_is_the_same_history(seed: int) -> None:
    first = _run(seed)
    assert _run(seed).digest == first.digest
    # In another process too: no address and no hash of a text decides anything.
    program = f"from tests.simulation.history import History; h = History({seed}); h.run(); print(h.digest)"
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip() == first.digest


def test_other_seeds_are_other_histories() -> None:
    assert len({_run(seed).digest for seed in range(20, 25)}) == 5


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_many_histories_leave_nothing_behind() -> None:
    process = psutil.Process()
    descriptors = process.num_fds()
    before = 0
    for seed in range(1, MANY + 1):
        _run(seed)
        if seed == MANY // 10:
            gc.collect()
            before = process.memory_info().rss
    gc.collect()
    assert process.num_fds() <= descriptors
    assert process.memory_info().rss - before < MOST_GROWTH


def _run(seed: int) -> History:
    history = History(seed)
    try:
        history.run()
    except Exception as error:
        error.add_note("\n".join(history.events))
        error.add_note(f"seed {seed}, step {history.step}; the same again: make simulate SEED={seed}")
        raise
    return history
