"""StopReplica: every row of what a real broker answers, in every version, and what is hosted then."""

from __future__ import annotations

import pytest

from tests.unit.broker.talk import CONTROLLER_EPOCH, EPOCH, Part, Talk

VERSIONS = range(5)


@pytest.fixture
def talk() -> Talk:
    """A broker that leads alpha-0 and alpha-1 in leader epoch 5."""
    talk = Talk()
    talk.update_metadata()
    talk.leader_and_isr(Part(partition=0, leader_epoch=5), Part(partition=1, leader_epoch=5))
    return talk


@pytest.mark.parametrize("version", VERSIONS)
def test_stopped_replicas_stay_and_deleted_ones_go(talk: Talk, version: int) -> None:
    both = (Part(partition=0, leader_epoch=5), Part(partition=1, leader_epoch=5))
    error, partitions = talk.stop_replica(*both, version=version, controller_epoch=8)
    assert (error, sorted(partitions)) == (0, [("alpha", 0, 0), ("alpha", 1, 0)])
    assert (len(talk.core.replicas), talk.core.controller_epoch) == (2, 8)
    gone = Part(partition=1, leader_epoch=5, delete=True)
    assert talk.stop_replica(gone, version=version, controller_epoch=8) == (
        0,
        [("alpha", 1, 0)],
    )
    assert len(talk.core.replicas) == 1
    # A deleted partition begins anew.
    assert talk.leader_and_isr(Part(partition=1), controller_epoch=8) == (0, [("alpha", 1, 0)])


def test_a_request_may_delete_some_and_stop_others(talk: Talk) -> None:
    rows = (Part(partition=0, leader_epoch=-2, delete=True), Part(partition=1, leader_epoch=-2))
    talk.stop_replica(*rows)
    assert talk.core.replicas.columns.partition.tolist() == [1]


@pytest.mark.parametrize("version", VERSIONS)
def test_stale_controller_epoch_names_no_partitions(talk: Talk, version: int) -> None:
    answer = talk.stop_replica(Part(delete=True), version=version, controller_epoch=CONTROLLER_EPOCH - 1)
    assert answer == (11, [])
    assert len(talk.core.replicas) == 2


@pytest.mark.parametrize("controller_epoch", [CONTROLLER_EPOCH, CONTROLLER_EPOCH - 1])
@pytest.mark.parametrize("version", VERSIONS[1:])
def test_stale_broker_epoch_also_when_both_are_stale(talk: Talk, version: int, controller_epoch: int) -> None:
    answer = talk.stop_replica(
        Part(delete=True), version=version, broker_epoch=EPOCH - 1, controller_epoch=controller_epoch
    )
    assert answer == (77, [])


@pytest.mark.parametrize("broker_epoch", [EPOCH + 1, -1])
def test_higher_or_unknown_broker_epoch(talk: Talk, broker_epoch: int) -> None:
    assert talk.stop_replica(Part(leader_epoch=5), broker_epoch=broker_epoch) == (0, [("alpha", 0, 0)])


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("leader_epoch", "error"), [(4, 74), (0, 74), (-3, 74), (-1, 0), (-2, 0), (5, 0), (6, 0)]
)
def test_leader_epochs(talk: Talk, version: int, leader_epoch: int, error: int) -> None:
    row = Part(leader_epoch=leader_epoch, delete=True)
    assert talk.stop_replica(row, version=version) == (0, [("alpha", 0, error)])
    assert len(talk.core.replicas) == (2 if error else 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_is_not_hosted(talk: Talk, version: int) -> None:
    row = Part("unknown", 3, delete=True)
    assert talk.stop_replica(row, version=version) == (0, [("unknown", 3, 0)])
    assert len(talk.core.replicas) == 2


def test_a_kraft_controller_without_migration(talk: Talk) -> None:
    rows = (Part("alpha", delete=True), Part("beta", 7))
    assert talk.stop_replica(*rows, kraft=True) == (-1, [("alpha", 0, -1), ("beta", 7, -1)])
    assert len(talk.core.replicas) == 2


def test_a_kraft_controller_with_an_unknown_broker_epoch(talk: Talk) -> None:
    assert talk.stop_replica(Part(leader_epoch=5), kraft=True, broker_epoch=-1) == (0, [("alpha", 0, 0)])


def test_a_failed_log_directory(talk: Talk) -> None:
    talk.core.replicas.set_offline("alpha", 0, True)
    error, partitions = talk.stop_replica(
        Part(partition=0, leader_epoch=-2, delete=True), Part(partition=1, leader_epoch=-2, delete=True)
    )
    assert (error, sorted(partitions)) == (0, [("alpha", 0, 56), ("alpha", 1, 0)])
    assert talk.core.replicas.columns.partition.tolist() == [0]


def test_of_one_partition_twice_the_last_counts(talk: Talk) -> None:
    rows = (Part(leader_epoch=-2, delete=True), Part(leader_epoch=3))
    assert talk.stop_replica(*rows) == (0, [("alpha", 0, 74)])
    assert len(talk.core.replicas) == 2


def test_a_request_without_partitions(talk: Talk) -> None:
    for version in VERSIONS:
        assert talk.stop_replica(version=version) == (0, [])
