"""Histories that Hypothesis makes, on one cluster of real processes; a few of them in ``make test``.

A history that fails prints its steps with all answers, and the seed of the run. No timing is the same twice,
so nothing is shrunk: ``SEED=N`` repeats the histories of a run, as they were asked for.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.transactions.cluster import SharedCluster
from tests.transactions.history import History
from tests.transactions.steps import HISTORIES, Plan

FEW: Final = 10
MANY: Final = 1_000
#: Histories after which a line says how far the run is.
_LINE: Final = 50


@pytest.mark.timeout(600)
@pytest.mark.parametrize("state_replicas", [1, 3])
def test_histories_keep_to_the_model(state_replicas: int) -> None:
    _run(FEW, state_replicas)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("state_replicas", [1, 3])
def test_many_histories_keep_to_the_model(state_replicas: int) -> None:
    _run(MANY, state_replicas)


def _run(count: int, state_replicas: int) -> None:
    number = int(os.environ.get("SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {number}")
    done, outcomes, begin = 0, Counter[str](), time.monotonic()
    with SharedCluster(state_replicas) as cluster:

        @seed(number)
        @settings(
            max_examples=count, phases=[Phase.generate], database=None, suppress_health_check=[*HealthCheck]
        )
        @given(HISTORIES)
        def histories(plan: Plan) -> None:
            nonlocal done
            history = History(cluster)
            try:
                history.run(plan)
            except BaseException as error:
                error.add_note("\n".join(history.events))
                error.add_note(f"history {done + 1} of seed {number}")
                raise
            done += 1
            outcomes.update(history.outcomes)
            if done % _LINE == 0:
                seconds = time.monotonic() - begin
                print(f"{done:,} of {count:,} histories in {seconds:.0f} s: {dict(outcomes)}", flush=True)

        histories()
    # Else the model says little.
    assert outcomes["committed"] > count / 2
    assert outcomes["aborted"] > count / 4
