"""What brokers ask the controller, asked of a broker that is not: Kafka 3.9.1 and ours answer the same bytes.

As ``test_same_answers``, with two brokers of Kafka. One is the controller; the other one is compared.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.same_answers import authorizing, malformed, of_controllers
from tests.acceptance.same_answers.both import OF_CONTROLLERS, ONE_BROKER, Both, Script, both_brokers

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def both(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    configs = ONE_BROKER | authorizing.CONFIGS
    with both_brokers(tmp_path_factory.mktemp("same-answers"), configs, is_controller=False) as found:
        yield found


@pytest.mark.parametrize(
    "script",
    [
        of_controllers.requests_of_brokers,
        malformed.samples,
        malformed.cut_requests,
        authorizing.clients,
    ],
    ids=lambda script: script.__name__,
)
def test_the_answers_are_the_same(both: Both, script: Script) -> None:
    found = both.run(script)
    assert not found, f"{len(found)} of {len(both.kafka.answers)} answers differ:\n" + "\n".join(found[:50])
    assert both.kafka.answers


def test_every_version_was_asked(both: Both) -> None:
    """Runs after the others."""
    assert both.ours.versions.keys() == OF_CONTROLLERS
    missing = {(api, version) for api, versions in both.ours.versions.items() for version in versions}
    assert missing - both.ours.asked == set()
