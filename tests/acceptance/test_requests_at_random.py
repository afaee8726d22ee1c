"""A thousand random requests of all APIs: a real broker and one of ours give the same answers.

``make random-requests`` sends more. ``random_requests/exceptions.py`` has what is answered in another way.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from tests.acceptance.random_requests.run import CHUNK, CONFIGS, run
from tests.acceptance.random_requests.values import Requests
from tests.acceptance.same_answers.both import Both, both_brokers
from tests.acceptance.same_answers.messages import Messages
from tests.kafka.jars import kafka_jars

pytestmark = pytest.mark.long

SEED = 1
CHUNKS = (0, 1)


@pytest.fixture(scope="module")
def both(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with both_brokers(tmp_path_factory.mktemp("random-requests"), CONFIGS) as found:
        yield found


def test_the_answers_are_the_same(both: Both) -> None:
    outcome = run(both, SEED, CHUNKS, CHUNK)
    assert not outcome.found, "\n".join(outcome.found)
    assert sum(outcome.asked.values()) == len(CHUNKS) * CHUNK
    # All APIs, and more versions than one of each.
    assert {api for api, _ in outcome.asked} == both.ours.versions.keys()
    assert len(outcome.asked) > 3 * len(both.ours.versions)


def test_a_seed_repeats_its_requests(kafka_jars_ready: None) -> None:
    messages = Messages(next(kafka_jars().glob("kafka-clients-*.jar")))
    versions = {"Fetch": range(18), "CreateTopics": range(8)}

    def requests(seed: int, chunk: int) -> list[Any]:
        made = Requests(seed, chunk, messages, versions)
        return [repr(one) for one in islice(iter(made.next, None), 50)]

    assert requests(1, 2) == requests(1, 2)
    assert requests(1, 2) != requests(1, 3)
    assert requests(1, 2) != requests(2, 2)
