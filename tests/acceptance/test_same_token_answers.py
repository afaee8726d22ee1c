"""The same requests about delegation tokens to Kafka 3.9.1 and to a cluster of ours: the same bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.same_answers import tokens
from tests.acceptance.same_answers.both import ONE_BROKER, Both, Script, both_brokers

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def both(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("same-token-answers")
    with both_brokers(folder, {**ONE_BROKER, **tokens.CONFIGS}, tokens.ADMIN) as found:
        yield found


@pytest.mark.parametrize("script", [tokens.tokens, tokens.token_sessions], ids=lambda one: one.__name__)
def test_the_answers_are_the_same(both: Both, script: Script) -> None:
    found = both.run(script)
    assert not found, f"{len(found)} of {len(both.kafka.answers)} answers differ:\n" + "\n".join(found[:50])
