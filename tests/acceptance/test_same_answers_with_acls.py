"""The same requests to Kafka 3.9.1 and to a cluster of ours with the same ACLs: the same bytes.

As ``test_same_answers``, by clients that may do different things (``same_answers/authorizing.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.acceptance.same_answers import authorizing
from tests.acceptance.same_answers.both import ONE_BROKER, Both, Script, both_brokers
from tests.acceptance.test_same_answers import EXCEPTIONS as OF_ALL

EXCEPTIONS: Final = OF_ALL | {
    r"(Incremental)?AlterConfigs v\d .*'ResourceType': 4, 'ResourceName': '1'}\"}"
    r"\n    \.Responses\[0\]\.ErrorCode: Kafka (0|31), ours 42; [^;]*": (
        "configs of brokers that nothing reads are refused, whoever sets them"
    ),
    r"OffsetFetch v1 .*\n    \.Topics: Kafka \[\], ours [^;]*'ErrorCode': 30[^;]*": (
        "Kafka's answer to who may not describe the group is that of a group without offsets"
    ),
}


@pytest.fixture(scope="module")
def both(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    configs = ONE_BROKER | authorizing.CONFIGS
    with both_brokers(tmp_path_factory.mktemp("same-answers"), configs) as found:
        yield found


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(authorizing.clients, marks=pytest.mark.long),
        authorizing.newest_versions,
        pytest.param(authorizing.existing_topics, marks=pytest.mark.long),
    ],
    ids=lambda script: script.__name__,
)
def test_the_answers_are_the_same(both: Both, script: Script) -> None:
    found = [one for one in both.run(script) if not any(re.fullmatch(pattern, one) for pattern in EXCEPTIONS)]
    assert not found, f"{len(found)} of {len(both.kafka.answers)} answers differ:\n" + "\n".join(found[:50])
