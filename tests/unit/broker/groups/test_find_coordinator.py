"""FindCoordinator of a broker that stores records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from ctrlchan.broker.config.group_config import GroupConfig
from ctrlchan.broker.controller_client import NewTopic
from ctrlchan.broker.handlers import find_coordinator
from ctrlchan.errors import ErrorCode
from ctrlchan.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, coordinator_partition
from tests.unit.broker.groups.group_broker import DEADLINE, GROUP, GroupBroker, group_broker
from tests.unit.broker.local_broker import Part

GROUPS, TRANSACTIONS, SHARES = 0, 1, 2


CONFIG = GroupConfig(offsets_topic_partitions=7, offsets_topic_replication_factor=2)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[GroupBroker]:
    with group_broker(tmp_path, CONFIG, leads=False) as made:
        yield made


def find(broker: GroupBroker, version: int, *keys: str, key_type: int = GROUPS) -> list[Any]:
    response = broker.ask("FindCoordinator", version, key=keys[0], coordinator_keys=keys, key_type=key_type)
    return list(response.coordinators) if version >= 4 else [response]


def fields(found: Any) -> tuple[int, int, str, int]:
    return found.error_code.value, found.node_id, found.host, found.port


@pytest.mark.parametrize("version", range(7))
def test_the_leader_of_the_groups_partition(broker: GroupBroker, version: int) -> None:
    # The topic has another number of partitions than the settings say.
    parts = [Part(OFFSETS_TOPIC, partition, leader=partition + 1) for partition in range(3)]
    broker.local.update_metadata(*parts)
    assert broker.core.groups is not None
    keys = [GROUP, "another", "a third", "ω"] if version >= 4 else [GROUP]
    found = find(broker, version, *keys)
    for key, one in zip(keys, found, strict=True):
        leader = broker.core.groups.coordinator.partition_for(key) + 1
        assert fields(one) == (0, leader, f"host-{leader}", 9000 + leader)
        assert getattr(one, "key", key) == key
        assert getattr(one, "error_message", "") == ("NONE" if 1 <= version < 4 else "")


def test_no_coordinator_while_the_partition_has_no_leader(broker: GroupBroker) -> None:
    for leader in (-1, 9):
        broker.local.update_metadata(Part(OFFSETS_TOPIC, 0, leader=leader))
        [found] = find(broker, 3, GROUP)
        assert fields(found) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)
        assert found.error_message == "The coordinator is not available."


def test_the_topic_cannot_be_created_without_a_controller(
    broker: GroupBroker, caplog: pytest.LogCaptureFixture
) -> None:
    assert find(broker, 6, GROUP)[0].error_code.value == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert "no controller" in caplog.text


class Controller:
    """Takes topics to create, and never answers."""

    def __init__(self) -> None:
        self.asked: list[NewTopic] = []

    def create_topics(self, topics: Sequence[NewTopic], timeout: float) -> Future[dict[str, int]]:
        assert timeout == 0
        self.asked += topics
        return Future()


def test_the_topics_are_created_when_a_client_asks(tmp_path: Path) -> None:
    controller = Controller()
    with group_broker(tmp_path, CONFIG, leads=False, controller=controller) as broker:
        for key_type, topic in ((GROUPS, OFFSETS_TOPIC), (TRANSACTIONS, TRANSACTIONS_TOPIC)):
            keys: dict[str, Any] = {"key": GROUP, "coordinator_keys": (GROUP,), "key_type": key_type}
            answer = broker.send("FindCoordinator", 6, **keys)
            # The topic is there, but has no leaders yet.
            broker.local.update_metadata(Part(topic, 0, leader=-1))
            assert not answer.done()
            broker.local.update_metadata(Part(topic, 0, leader=1))
            [found] = answer.result(DEADLINE).coordinators
            assert fields(found) == (0, 1, "host-1", 9001)
    configs = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
    of_transactions = {"unclean.leader.election.enable": "false", "min.insync.replicas": "1"}
    assert controller.asked == [
        NewTopic(OFFSETS_TOPIC, 7, 2, configs | {"compression.type": "producer"}),
        NewTopic(TRANSACTIONS_TOPIC, 7, 2, configs | of_transactions | {"compression.type": "uncompressed"}),
    ]


@pytest.mark.parametrize("version", range(7))
def test_a_client_does_not_wait_for_ever(
    tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_coordinator, "_ELECTION_SECONDS", 0.01)
    with group_broker(tmp_path, CONFIG, leads=False, controller=Controller()) as broker:
        [found] = find(broker, version, "key")
        assert fields(found) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, "", -1)


@pytest.mark.parametrize("version", range(1, 7))
def test_the_leader_of_the_transactions_partition(broker: GroupBroker, version: int) -> None:
    # The topic has another number of partitions than the settings say.
    parts = [Part(TRANSACTIONS_TOPIC, partition, leader=partition + 1) for partition in range(3)]
    broker.local.update_metadata(*parts)
    keys = ["mine", "another", "ω"] if version >= 4 else ["mine"]
    found = find(broker, version, *keys, key_type=TRANSACTIONS)
    for key, one in zip(keys, found, strict=True):
        leader = coordinator_partition(key, 3) + 1
        assert fields(one) == (0, leader, f"host-{leader}", 9000 + leader)
        assert getattr(one, "key", key) == key
        assert getattr(one, "error_message", "") == ("NONE" if version < 4 else "")


@pytest.mark.parametrize(
    ("version", "key_type", "error"),
    [
        (1, SHARES, ErrorCode.INVALID_REQUEST),
        (3, SHARES, ErrorCode.INVALID_REQUEST),
        (4, SHARES, ErrorCode.INVALID_REQUEST),
        (5, SHARES, ErrorCode.INVALID_REQUEST),
        # Share groups have no coordinator yet.
        (6, SHARES, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (6, 3, ErrorCode.INVALID_REQUEST),
        (6, -1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_other_types_are_refused(broker: GroupBroker, version: int, key_type: int, error: ErrorCode) -> None:
    [found] = find(broker, version, "key", key_type=key_type)
    assert fields(found) == (error, -1, "", -1)
