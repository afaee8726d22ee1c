"""Answers of a real broker: every row of the error table, in every version."""

from __future__ import annotations

import pytest

from tests.acceptance.recordings import RealRecordings
from tests.acceptance.scenarios import SCENARIOS, Scenario


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name.replace(" ", "-"))
def test_a_real_broker_answers_as_expected(scenario: Scenario, recordings: RealRecordings) -> None:
    for number, recorded in enumerate(recordings.of(scenario).exchanges):
        try:
            recorded.exchange.check(recorded.response)
        except AssertionError as error:
            error.add_note(f"exchange {number}: {recorded.exchange.label}")
            raise
