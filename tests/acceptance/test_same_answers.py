"""The same requests to Kafka 3.9.1 and to a cluster of ours: the answers are the same bytes.

Both are one broker that stores records. What differs by nature (clocks, ids, ports, paths, words of messages)
is in ``same_answers/recorder.py``; what differs in other ways is here, with its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.acceptance.same_answers import (
    administration,
    grouping,
    malformed,
    old_formats,
    producing,
    reading,
    tokens,
    transacting,
)
from tests.acceptance.same_answers.both import ONE_BROKER, Both, Script, both_brokers

pytestmark = pytest.mark.long

#: What is answered in another way: a pattern of the request's label and of all that differs, and the reason.
EXCEPTIONS: Final = {
    r"IncrementalAlterConfigs v\d .*'ConfigOperation': [239].*"
    r"\n    \.Responses\[0\]\.ErrorCode: Kafka -1, ours (40|42); [^;]*": (
        "a wrong operation is no unknown error"
    ),
    r"CreatePartitions v\d .*'Name': ''.*\n    \.Results\[0\]\.ErrorMessage: Kafka None, ours 'a text'": (
        "there is a message"
    ),
    r"DeleteTopics v6 .*\n    \.Responses\[0\]\.ErrorMessage: Kafka None, ours 'a text'": (
        "there is a message"
    ),
    r"DeleteTopics v6 .*'Name': None.*UUID\('0{8}-0.*\n    \.Responses\[0\]\.ErrorCode: Kafka 29, ours 100": (
        "neither a name nor an id is an unknown id"
    ),
    r"CreatePartitions v3 .*a large number.*\n    \.Results\[0\]\.ErrorCode: Kafka -1, ours 3; [^;]*": (
        "no topic has a name with control characters"
    ),
    r"(DescribeGroups v5|Create(Topics v7|Partitions v3)|AddPartitionsToTxn v5|WriteTxnMarkers v1|"
    r"AlterClientQuotas v1|ConsumerGroupDescribe v0) "
    r".*a large number.*\n    : Kafka .*, ours None": (
        "a bool that is neither 0 nor 1 closes the connection"
    ),
    r"DescribeClientQuotas v1 .*a large number.*\n    \.ErrorCode: Kafka -1, ours 35; [^;]*": (
        "the type of an entity is looked at before the kind of match"
    ),
    r"ApiVersions v0 .*client id.*\n    : Kafka .*, ours None": "a text that is none closes the connection",
    r"Fetch v17 .*a large number at (9|1[0-2])'.*\n    \.ErrorCode: Kafka 0, ours -1; .*": (
        "isolation levels are looked at before partitions"
    ),
}


@pytest.fixture(scope="module")
def both(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with both_brokers(tmp_path_factory.mktemp("same-answers"), ONE_BROKER) as found:
        yield found


@pytest.mark.parametrize(
    "script",
    [
        producing.stored_records,
        producing.refused_records,
        producing.odd_requests,
        producing.producer_ids,
        producing.idempotent_producers,
        old_formats.old_records_produced,
        old_formats.old_records_fetched,
        old_formats.listed_segments,
        old_formats.offsets_in_zookeeper,
        reading.fetched_records,
        reading.fetch_sessions,
        reading.listed_offsets,
        reading.leader_epochs,
        reading.deleted_records,
        grouping.coordinators,
        grouping.members,
        grouping.static_members,
        grouping.committed_offsets,
        grouping.group_administration,
        transacting.transaction_coordinators,
        transacting.producers_of_transactions,
        transacting.added_partitions,
        transacting.ended_transactions,
        transacting.fenced_producers,
        transacting.transactional_records,
        transacting.transactional_offsets,
        transacting.looked_at_transactions,
        transacting.written_markers,
        administration.topics,
        administration.acls,
        administration.altered_configs,
        administration.described_configs,
        administration.broker_configs,
        administration.log_directories,
        administration.metadata,
        administration.cluster,
        administration.features,
        administration.log_levels,
        grouping.new_protocol,
        tokens.without_tokens,
        malformed.samples,
        malformed.cut_requests,
        malformed.odd_headers,
    ],
    ids=lambda script: script.__name__,
)
def test_the_answers_are_the_same(both: Both, script: Script) -> None:
    found = []
    for one in both.run(script):
        reasons = {pattern for pattern in EXCEPTIONS if re.fullmatch(pattern, one)}
        both.excepted |= reasons
        if not reasons:
            found.append(one)
    assert not found, f"{len(found)} of {len(both.kafka.answers)} answers differ:\n" + "\n".join(found[:50])


def test_served_versions_are_kafkas(both: Both) -> None:
    assert both.ours.announced() == both.kafka.announced()


def test_every_version_was_asked(both: Both) -> None:
    """Runs after the others: all versions that both serve were compared."""
    missing = {(api, version) for api, versions in both.ours.versions.items() for version in versions}
    assert missing - both.ours.asked == set()


def test_every_exception_is_needed(both: Both) -> None:
    """Runs after the others."""
    assert EXCEPTIONS.keys() - both.excepted == set()
