"""StopReplica: every row of what a real broker answers, in every version, and what is hosted then."""

from __future__ import annotations

import pytest

from tests.unit.broker.local_broker import CONTROLLER_EPOCH, EPOCH, LocalBroker, Part

VERSIONS = range(5)


@pytest.fixture
def broker() -> LocalBroker:
    """A broker that leads alpha-0 and alpha-1 in leader epoch 5."""
    broker = LocalBroker()
    broker.update_metadata()
    broker.leader_and_isr(Part(partition=0, leader_epoch=5), Part(partition=1, leader_epoch=5))
    return broker


@pytest.mark.parametrize("version", VERSIONS)
def test_stopped_replicas_stay_and_deleted_ones_are_removed(broker: LocalBroker, version: int) -> None:
    both = (Part(partition=0, leader_epoch=5), Part(partition=1, leader_epoch=5))
    error, partitions = broker.stop_replica(*both, version=version, controller_epoch=8)
    assert (error, sorted(partitions)) == (0, [("alpha", 0, 0), ("alpha", 1, 0)])
    assert (len(broker.core.replicas), broker.core.controller_epoch) == (2, 8)
    gone = Part(partition=1, leader_epoch=5, delete=True)
    assert broker.stop_replica(gone, version=version, controller_epoch=8) == (
        0,
        [("alpha", 1, 0)],
    )
    assert len(broker.core.replicas) == 1
    # A deleted partition starts without an epoch.
    assert broker.leader_and_isr(Part(partition=1), controller_epoch=8) == (0, [("alpha", 1, 0)])


def test_a_request_may_delete_some_and_stop_others(broker: LocalBroker) -> None:
    rows = (Part(partition=0, leader_epoch=-2, delete=True), Part(partition=1, leader_epoch=-2))
    broker.stop_replica(*rows)
    assert broker.core.replicas.columns.partition.tolist() == [1]


@pytest.mark.parametrize("version", VERSIONS)
def test_stale_controller_epoch_names_no_partitions(broker: LocalBroker, version: int) -> None:
    answer = broker.stop_replica(Part(delete=True), version=version, controller_epoch=CONTROLLER_EPOCH - 1)
    assert answer == (11, [])
    assert len(broker.core.replicas) == 2


@pytest.mark.parametrize("controller_epoch", [CONTROLLER_EPOCH, CONTROLLER_EPOCH - 1])
@pytest.mark.parametrize("version", VERSIONS[1:])
def test_stale_broker_epoch_also_when_both_are_stale(
    broker: LocalBroker, version: int, controller_epoch: int
) -> None:
    answer = broker.stop_replica(
        Part(delete=True), version=version, broker_epoch=EPOCH - 1, controller_epoch=controller_epoch
    )
    assert answer == (77, [])


@pytest.mark.parametrize("broker_epoch", [EPOCH + 1, -1])
def test_higher_or_unknown_broker_epoch(broker: LocalBroker, broker_epoch: int) -> None:
    assert broker.stop_replica(Part(leader_epoch=5), broker_epoch=broker_epoch) == (0, [("alpha", 0, 0)])


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("leader_epoch", "error"), [(4, 74), (0, 74), (-3, 74), (-1, 0), (-2, 0), (5, 0), (6, 0)]
)
def test_leader_epochs(broker: LocalBroker, version: int, leader_epoch: int, error: int) -> None:
    row = Part(leader_epoch=leader_epoch, delete=True)
    assert broker.stop_replica(row, version=version) == (0, [("alpha", 0, error)])
    assert len(broker.core.replicas) == (2 if error else 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_topic_that_is_not_hosted(broker: LocalBroker, version: int) -> None:
    row = Part("unknown", 3, delete=True)
    assert broker.stop_replica(row, version=version) == (0, [("unknown", 3, 0)])
    assert len(broker.core.replicas) == 2


def test_a_kraft_controller_without_migration(broker: LocalBroker) -> None:
    rows = (Part("alpha", delete=True), Part("beta", 7))
    assert broker.stop_replica(*rows, kraft=True) == (-1, [("alpha", 0, -1), ("beta", 7, -1)])
    assert len(broker.core.replicas) == 2


def test_a_kraft_controller_with_an_unknown_broker_epoch(broker: LocalBroker) -> None:
    assert broker.stop_replica(Part(leader_epoch=5), kraft=True, broker_epoch=-1) == (0, [("alpha", 0, 0)])


def test_a_failed_log_directory(broker: LocalBroker) -> None:
    broker.core.replicas.set_offline("alpha", 0, True)
    error, partitions = broker.stop_replica(
        Part(partition=0, leader_epoch=-2, delete=True), Part(partition=1, leader_epoch=-2, delete=True)
    )
    assert (error, sorted(partitions)) == (0, [("alpha", 0, 56), ("alpha", 1, 0)])
    assert broker.core.replicas.columns.partition.tolist() == [0]


def test_the_last_of_equal_partitions_counts(broker: LocalBroker) -> None:
    rows = (Part(leader_epoch=-2, delete=True), Part(leader_epoch=3))
    assert broker.stop_replica(*rows) == (0, [("alpha", 0, 74)])
    assert len(broker.core.replicas) == 2


def test_a_request_without_partitions(broker: LocalBroker) -> None:
    for version in VERSIONS:
        assert broker.stop_replica(version=version) == (0, [])
