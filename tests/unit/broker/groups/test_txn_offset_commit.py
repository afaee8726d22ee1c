"""TxnOffsetCommit in all versions, on a log in a folder: requests and responses are kio's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import OFFSETS_TOPIC
from tests.kafka.waiting import wait_until
from tests.unit.broker.groups.group_broker import DEADLINE, GROUP, TOPIC, GroupBroker, group_broker

PRODUCER = ProducerIdentity(7, 0)
OFFSETS_PARTITION = TopicPartition(OFFSETS_TOPIC, 0)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


class _Verifier:
    """Stands in for the coordinators of transactions."""

    def __init__(self) -> None:
        self.error = ErrorCode.NONE
        self.asked: list[tuple[str, ProducerIdentity, list[TopicPartition]]] = []

    def verify(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        then: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        self.asked.append((transactional_id, producer, list(partitions)))
        then(dict.fromkeys(partitions, self.error))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[GroupBroker]:
    with group_broker(tmp_path) as made:
        yield made


@pytest.fixture
def verifier(broker: GroupBroker) -> _Verifier:
    made = _Verifier()
    broker.core.groups.verify_with(made)
    broker.offsets_partition.verify_transactions()
    return made


def end(broker: GroupBroker, producer: ProducerIdentity = PRODUCER, *, commits: bool) -> None:
    """Do what a marker does that the coordinator of transactions sends."""
    broker.offsets_partition.append_marker(*producer, commits=commits)
    broker.core.groups.coordinator.complete_transactions(producer.producer_id, [0], commits)


def committed(broker: GroupBroker) -> tuple[int, int]:
    """Return offset and error of partition 0, as of a consumer that reads committed records."""
    _, offsets = broker.core.groups.coordinator.fetch(GROUP, [TopicPartition(TOPIC, 0)], require_stable=True)
    [fetched] = offsets.values()
    return fetched.offset, fetched.error


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_committed_with_their_transaction(
    broker: GroupBroker, verifier: _Verifier, version: int
) -> None:
    assert broker.commit_in_transaction({(TOPIC, 0): 5}, version) == [(TOPIC, 0, 0)]
    assert verifier.asked == [("tx", PRODUCER, [OFFSETS_PARTITION])]
    assert broker.commit_in_transaction({(TOPIC, 0): 6}, version) == [(TOPIC, 0, 0)]
    assert len(verifier.asked) == 1  # the log has the transaction
    assert committed(broker) == (-1, UNSTABLE)
    end(broker, commits=True)
    assert committed(broker) == (6, 0)
    broker.commit_in_transaction({(TOPIC, 0): 7}, version)
    assert len(verifier.asked) == 2
    end(broker, commits=False)
    assert committed(broker) == (6, 0)


def test_what_the_log_has_is_loaded(broker: GroupBroker) -> None:
    broker.commit_in_transaction({(TOPIC, 0): 5})
    end(broker, commits=True)
    broker.commit_in_transaction({(TOPIC, 0): 6})
    groups = broker.core.groups
    coordinator = groups.coordinator
    groups.on_resigned(0, 1)
    wait_until(lambda: bool(coordinator.describe(GROUP).error), timeout=DEADLINE, what="the resignation")
    groups.on_leader(0, 2)
    wait_until(lambda: not coordinator.describe(GROUP).error, timeout=DEADLINE, what="the groups")
    assert committed(broker) == (-1, UNSTABLE)
    end(broker, commits=False)
    assert committed(broker) == (5, 0)


@pytest.mark.parametrize("version", range(5))
def test_a_transaction_without_the_partition(broker: GroupBroker, verifier: _Verifier, version: int) -> None:
    verifier.error = ErrorCode.TRANSACTION_ABORTABLE
    expected = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    assert broker.commit_in_transaction({(TOPIC, 0): 5}, version) == [(TOPIC, 0, expected)]
    assert committed(broker) == (-1, 0)


@pytest.mark.parametrize("version", range(5))
def test_clients_before_2_0_do_not_hear_of_loading(
    broker: GroupBroker, verifier: _Verifier, version: int
) -> None:
    verifier.error = ErrorCode.NETWORK_EXCEPTION
    expected = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.commit_in_transaction({(TOPIC, 0): 5}, version) == [(TOPIC, 0, expected)]


def test_a_log_that_cannot_verify(broker: GroupBroker, verifier: _Verifier) -> None:
    broker.offsets_partition.verification_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.commit_in_transaction({(TOPIC, 0): 5}) == [(TOPIC, 0, ErrorCode.NOT_COORDINATOR)]
    assert verifier.asked == []


def test_an_older_epoch_of_the_producer_is_refused_by_the_log(broker: GroupBroker) -> None:
    broker.commit_in_transaction({(TOPIC, 0): 5}, producer_epoch=3)
    refused = broker.commit_in_transaction({(TOPIC, 0): 6}, producer_epoch=2)
    assert refused == [(TOPIC, 0, ErrorCode.INVALID_PRODUCER_EPOCH)]
    end(broker, ProducerIdentity(7, 3), commits=True)
    assert committed(broker) == (5, 0)


@pytest.mark.parametrize("version", range(5))
def test_unknown_partitions_come_first_in_the_answer(broker: GroupBroker, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    offsets = {(TOPIC, 0): 5, (TOPIC, 2): 5, ("other", 0): 5}
    assert broker.commit_in_transaction(offsets, version) == [
        (TOPIC, 2, unknown),
        (TOPIC, 0, 0),
        ("other", 0, unknown),
    ]
    assert broker.commit_in_transaction({("other", 0): 5}, version) == [("other", 0, unknown)]
    assert broker.commit_in_transaction({}, version) == []


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"member_id": "nobody", "generation_id": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "nobody", "generation_id": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_refused_commits(broker: GroupBroker, fields: dict[str, Any], error: ErrorCode) -> None:
    assert broker.commit_in_transaction({(TOPIC, 0): 5}, **fields) == [(TOPIC, 0, error)]


@pytest.mark.parametrize(
    ("producer_id", "epoch", "error"),
    [
        (-1, -1, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (-(2**63), 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (7, -1, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_an_id_of_no_producer_is_refused(
    broker: GroupBroker, producer_id: int, epoch: int, error: ErrorCode
) -> None:
    assert broker.commit_in_transaction({(TOPIC, 0): 5}, producer_id=producer_id, producer_epoch=epoch) == [
        (TOPIC, 0, error)
    ]
    assert committed(broker) == (-1, 0)
