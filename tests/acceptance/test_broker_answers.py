"""What a real broker answers: every row of the error table, in every version."""

from __future__ import annotations

import pytest

from tests.acceptance.conversation import RealConversations
from tests.acceptance.scenarios import SCENARIOS, Scenario


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name.replace(" ", "-"))
def test_a_real_broker_answers_as_written(scenario: Scenario, conversations: RealConversations) -> None:
    for number, said in enumerate(conversations.about(scenario).said):
        try:
            said.exchange.check(said.response)
        except AssertionError as error:
            error.add_note(f"exchange {number}: {said.exchange.label}")
            raise
