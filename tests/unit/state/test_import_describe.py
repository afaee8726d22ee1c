"""Output of several versions of ``kafka-topics --describe``."""

from __future__ import annotations

import re

import pytest

from ctrlchan.errors import SnapshotError
from ctrlchan.state import Broker, ClusterState
from ctrlchan.state.brokers import brokers_list
from ctrlchan.state.importing.describe_text import import_describe
from ctrlchan.topic_names import id_from_text
from tests.unit.state.helpers import default_row, rows_of

KAFKA_1_1 = """\
Topic:orders\tPartitionCount:3\tReplicationFactor:2\tConfigs:retention.ms=1000,cleanup.policy=compact
\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2
\tTopic: orders\tPartition: 1\tLeader: none\tReplicas: 2,3\tIsr: \t
\tTopic: orders\tPartition: 2\tLeader: 3\tReplicas: 3,1\tIsr: 3
Topic:old\tPartitionCount:1\tReplicationFactor:1\tConfigs:\tMarkedForDeletion:true
\tTopic: old\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tMarkedForDeletion: true
"""
KAFKA_2_8 = """\
Topic: pay\tTopicId: dVYtbxg8RRmPJBPeZs0tbw\tPartitionCount: 1\tReplicationFactor: 3\tConfigs: a=1
\tTopic: pay\tPartition: 0\tLeader: 2\tReplicas: 2,3,4,1\tIsr: 2,3,1\tAdding Replicas: 4\tRemoving Replicas: 1
"""
KAFKA_3_9 = """\
Topic: a\tTopicId: Qa1bTjkbS3qPFB1bJfmVNw\tPartitionCount: 2\tReplicationFactor: 2\tConfigs: x=Partition: 7
\tTopic: a\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\tElr: N/A\tLastKnownElr: N/A
\tTopic: a\tPartition: 1\tLeader: none\tReplicas: 2,1\tIsr: \tElr: 2\tLastKnownElr: 1

"""


def read(text: str, **options: object) -> ClusterState:
    return import_describe(text.splitlines(keepends=True), **options)  # type: ignore[arg-type]


def test_old_versions() -> None:
    state = read(KAFKA_1_1, cluster_id="c", controller_id=2, controller_epoch=9)
    led = {"controller_epoch": 9}
    assert rows_of(state) == {
        ("old", 0): default_row(leader=1, replicas=[1], isr=[1], **led),
        ("orders", 0): default_row(leader=1, replicas=[1, 2], isr=[1, 2], offline=[2][:0], **led),
        ("orders", 1): default_row(leader=-1, replicas=[2, 3], **led),
        ("orders", 2): default_row(leader=3, replicas=[3, 1], isr=[3], **led),
    }
    assert (state.cluster_id, state.controller_id, state.controller_epoch) == ("c", 2, 9)
    assert state.topics.deleting is not None
    assert state.topics.deleting.tolist() == [1, 0]
    assert not state.topics.ids.any()
    assert brokers_list(state.brokers) == [Broker(1), Broker(2), Broker(3)]


def test_topic_ids_and_reassignments() -> None:
    state = read(KAFKA_2_8)
    expected = default_row(
        leader=2, replicas=[2, 3, 4, 1], isr=[2, 3, 1], adding=[4], removing=[1], offline=[4]
    )
    assert rows_of(state) == {("pay", 0): expected}
    assert state.topics.ids[0].tobytes() == id_from_text("dVYtbxg8RRmPJBPeZs0tbw")
    assert state.describe()["under_replicated_partitions"] == 0
    assert state.describe()["reassigning_partitions"] == 1


def test_eligible_leader_replicas_and_a_configuration_that_looks_like_fields() -> None:
    state = read(KAFKA_3_9)
    assert rows_of(state) == {
        ("a", 0): default_row(leader=1, replicas=[1, 2], isr=[1, 2]),
        ("a", 1): default_row(leader=-1, replicas=[2, 1]),
    }


@pytest.mark.parametrize("text", [KAFKA_1_1, KAFKA_2_8, KAFKA_3_9])
def test_a_text_that_went_through_a_terminal_or_windows(text: str) -> None:
    expected = rows_of(read(text))
    assert rows_of(read(text.expandtabs())) == expected
    assert rows_of(read(text.replace("\t", " "))) == expected
    assert rows_of(read(text.replace("\n", "\r\n"))) == expected


def test_live_brokers_that_are_given() -> None:
    state = read(KAFKA_1_1, brokers=[Broker(1), Broker(7)])
    assert brokers_list(state.brokers) == [Broker(1), Broker(7)]
    assert [row["offline"] for row in rows_of(state).values()] == [[], [2], [2, 3], [3]]


def test_a_text_without_topic_lines() -> None:
    """``--under-replicated-partitions`` prints none."""
    text = "".join(line for line in KAFKA_1_1.splitlines(keepends=True) if line.startswith("\t"))
    assert list(rows_of(read(text))) == list(rows_of(read(KAFKA_1_1)))


GOOD = "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            "[2024-01-01] WARN something",
            "not a line of kafka-topics --describe: '[2024-01-01] WARN something'",
        ),
        ("x" * 200, "not a line of kafka-topics --describe: 'xxxx"),
        ("Topic: t", "neither a topic's line (no PartitionCount) nor a partition's (no Partition)"),
        ("Topic: ..\tPartition: 0", "the topic name is '.' or '..' ('..')"),
        ("Topic:\tPartition: 0", "the topic name is empty"),
        ("Topic: t\tPartition: x\tLeader: 1\tReplicas: 1\tIsr: 1", "Partition is 'x', not a number"),
        ("Topic: t\tPartition: -1\tLeader: 1\tReplicas: 1\tIsr: 1", "Partition is '-1', not a number"),
        (
            "Topic: t\tPartition: 4294967296\tLeader: 1\tReplicas: 1\tIsr: 1",
            "partition 4294967296 is not in 0 .. 2147483647",
        ),
        ("Topic: t\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1", "partition t-0 is on line 1 already"),
        ("Topic: t\tPartition: 1\tReplicas: 1\tIsr: 1", "no field Leader"),
        ("Topic: t\tPartition: 1\tLeader: 1\tIsr: 1", "no field Replicas"),
        ("Topic: t\tPartition: 1\tLeader: 1\tReplicas: 1", "no field Isr"),
        ("Topic: t\tPartition: 1\tLeader: 1\tReplicas: \tIsr: 1", "Replicas is empty"),
        ("Topic: t\tPartition: 1\tLeader: b\tReplicas: 1\tIsr: 1", "Leader is 'b', not a number"),
        ("Topic: t\tPartition: 1\tLeader: 1\tReplicas: 1,,2\tIsr: 1", "Replicas has '', not a number"),
        (
            "Topic: t\tPartition: 1\tLeader: 1\tReplicas: 99999999999\tIsr: 1",
            "replicas has 99999999999, which is no broker id",
        ),
        ("Topic: t\tTopicId: short\tPartitionCount: 1", "'short' is not a topic id"),
        ("Topic: t\tPartitionCount: many", "PartitionCount is 'many', not a number"),
    ],
)
def test_a_bad_line_is_named(line: str, reason: str) -> None:
    with pytest.raises(SnapshotError, match=re.escape(f"topics.txt: line 2: {reason}")) as caught:
        read(GOOD + line + "\n", source="topics.txt")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_the_first_bad_lines_are_listed_with_their_number() -> None:
    with pytest.raises(SnapshotError) as caught:
        read(GOOD + "junk\n" * 9)
    assert str(caught.value).count("line ") - str(caught.value).count("a line of") == 5
    assert str(caught.value).endswith("; and 4 more bad lines")


def test_a_text_that_was_cut() -> None:
    cut = "".join(KAFKA_1_1.splitlines(keepends=True)[:3])
    with pytest.raises(
        SnapshotError, match="line 1: topic orders has PartitionCount 3, but there are 2 of its"
    ):
        read(cut)


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_a_text_without_partitions(text: str) -> None:
    with pytest.raises(SnapshotError, match=f"describe: no partition in {len(text)} lines"):
        read(text)


def test_progress_is_reported() -> None:
    steps: list[int] = []
    text = "".join(f"Topic: t\tPartition: {n}\tLeader: 1\tReplicas: 1\tIsr: 1\n" for n in range(25_000))
    read(text, progress=steps.append)
    assert steps == [10_000, 20_000, 25_000]
