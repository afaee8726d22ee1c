"""Which broker leads a partition, with and without metadata of a controller; deleted partitions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.leaders import PartitionLeaders
from ctrlchan.broker.coordinator.transaction.pending_markers import UNKNOWN_BROKER
from ctrlchan.broker.metadata.published_metadata import PublishedMetadata
from ctrlchan.internal_topics import TRANSACTIONS_TOPIC
from ctrlchan.protocol import LEADER_DURING_DELETE
from tests.unit.broker.cores import storing_core
from tests.unit.broker.local_broker import LiveBroker, LocalBroker, Part

OURS, OTHER, STATE = 1, 2, 7
ALPHA = TopicPartition("alpha", 0)
STATE_PART = Part(TRANSACTIONS_TOPIC, STATE, leader=OURS)


class Rig:
    """A broker that leads what ``led`` has, whose metadata controllers send."""

    def __init__(self) -> None:
        self.broker = LocalBroker(storing_core(OURS, epoch=50))
        metadata = self.broker.core.metadata
        assert isinstance(metadata, PublishedMetadata)
        self.led: set[tuple[str, int]] = set()
        self.leaders = PartitionLeaders(OURS, self._find, metadata, "PLAINTEXT")

    def _find(self, topic: str, partition: int) -> SimpleNamespace | None:
        # There is a replica of every partition but one.
        return None if partition == 99 else SimpleNamespace(is_leader=(topic, partition) in self.led)

    def update(self, *parts: Part, live: tuple[int, ...] = (OURS, OTHER)) -> None:
        assert not self.broker.update_metadata(*parts, live=[LiveBroker(one) for one in live])

    def of(self, partition: TopicPartition = ALPHA) -> int | None:
        return self.leaders.for_marker(partition, STATE)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_before_the_first_metadata_nothing_is_deleted(rig: Rig) -> None:
    assert rig.of() == UNKNOWN_BROKER
    assert rig.leaders.coordinator(STATE) is None
    # A controller that is new sends the live brokers first, and maybe some partition.
    rig.update()
    assert rig.of() == UNKNOWN_BROKER
    rig.update(Part("beta"), Part(TRANSACTIONS_TOPIC, STATE + 1))
    assert rig.of() == UNKNOWN_BROKER
    rig.update(STATE_PART)
    assert rig.of() is None


def test_the_leader_of_the_metadata(rig: Rig) -> None:
    rig.update(STATE_PART, Part(leader=OTHER), Part("beta", 99, leader=OTHER))
    assert rig.of() == OTHER
    assert rig.of(TopicPartition("beta", 99)) == OTHER
    # It does not live any more; then nobody leads.
    rig.update(live=(OURS,))
    assert rig.of() == UNKNOWN_BROKER
    rig.update(Part(leader=-1))
    assert rig.of() == UNKNOWN_BROKER


def test_a_leader_without_the_listener(rig: Rig) -> None:
    other = LiveBroker(OTHER, listeners=(("INTERNAL", 0),))
    assert not rig.broker.update_metadata(STATE_PART, Part(leader=OTHER), live=[LiveBroker(OURS), other])
    assert rig.of() == UNKNOWN_BROKER


def test_a_partition_that_is_deleted(rig: Rig) -> None:
    rig.update(STATE_PART, Part(leader=OTHER), Part(partition=1, leader=OTHER))
    rig.update(Part(leader=LEADER_DURING_DELETE))
    assert rig.of() is None
    assert rig.of(TopicPartition("alpha", 1)) == OTHER
    assert rig.of(TopicPartition("alpha", 2)) is None


def test_a_role_counts_more_than_metadata(rig: Rig) -> None:
    rig.led.add(ALPHA)
    assert rig.of() == OURS
    rig.update(STATE_PART, Part(leader=OTHER))
    assert rig.of() == OURS
    # The metadata are older than the role.
    rig.led.clear()
    rig.update(Part(leader=OURS))
    assert rig.of() == UNKNOWN_BROKER


def test_the_coordinator(rig: Rig) -> None:
    rig.update(Part(TRANSACTIONS_TOPIC, STATE, leader=OTHER))
    assert rig.leaders.coordinator(STATE) == OTHER
    assert rig.leaders.coordinator(STATE + 1) is None
    rig.update(live=(OURS,))
    assert rig.leaders.coordinator(STATE) is None
    rig.led.add((TRANSACTIONS_TOPIC, STATE))
    assert rig.leaders.coordinator(STATE) == OURS
