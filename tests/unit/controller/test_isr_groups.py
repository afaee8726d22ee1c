"""AlterPartition requests that are handled together, on real ZooKeeper."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from kazoo.client import KazooClient

from ctrlchan._codec import ListColumn, UpdateMetadataRequest
from ctrlchan.controller.handlers.isr_changes import (
    AlterPartitionRequest,
    AlterPartitionResult,
    alter_partitions,
)
from ctrlchan.errors import ControllerMovedError, ErrorCode, ZooKeeperError
from ctrlchan.zookeeper import nodes, paths
from tests.unit.controller.faulty_nodes import FaultyNodes
from tests.unit.controller.manual_controller import (
    ManualController,
    create_topic,
    read_json,
    register_brokers,
)

REPLICAS = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2], 3: [1, 3, 2], 4: [2, 1, 3]}
#: Topics of equal partitions.
TOPICS = ("t", "u")


class Asked(NamedTuple):
    """One partition of a request."""

    partition: int
    isr: Sequence[int]
    partition_epoch: int = 0
    leader_epoch: int = 0
    recovery_state: int = 0


@pytest.fixture
def controller(zookeeper: str, znodes: KazooClient) -> Iterator[ManualController]:
    """Brokers 1, 2 and 3, and two topics with the partitions of ``REPLICAS``, led by their first replicas."""
    register_brokers(znodes, 1, 2, 3)
    for topic in TOPICS:
        create_topic(znodes, topic, REPLICAS)
    with ManualController(zookeeper) as controller:
        controller.forget_requests()
        yield controller


def request(
    controller: ManualController,
    broker_id: int,
    *asked: Asked,
    topic: str = "t",
    version: int = 3,
    epoch_ahead: int = 0,
) -> AlterPartitionRequest:
    state = controller.state
    topic_id = state.topics.ids[state.topic_row(topic)].tobytes()

    def column(name: str) -> Any:
        return np.array([getattr(one, name) for one in asked], np.int32)

    return AlterPartitionRequest(
        version=version,
        broker_id=broker_id,
        broker_epoch=int(state.brokers.epochs[state.broker_row(broker_id)]) + epoch_ahead,
        topics=[topic_id if version >= 2 else topic.encode()],
        topic=np.zeros(len(asked), np.int32),
        partition=column("partition"),
        leader_epoch=column("leader_epoch"),
        partition_epoch=column("partition_epoch"),
        recovery_state=column("recovery_state"),
        isr=ListColumn.from_lists([list(one.isr) for one in asked]),
    )


def alter(controller: ManualController, *requests: AlterPartitionRequest) -> list[AlterPartitionResult]:
    results = []
    for result in alter_partitions(controller.core, requests):
        assert isinstance(result, AlterPartitionResult)
        results.append(result)
    return results


def contents(result: AlterPartitionResult) -> tuple[Any, ...]:
    columns = (result.error, result.leader, result.leader_epoch, result.partition_epoch)
    return (result.error_code, *(one.tolist() for one in columns), result.isr.to_lists())


def errors(results: Sequence[AlterPartitionResult]) -> list[int | list[int]]:
    return [one.error_code or one.error.tolist() for one in results]


def isr_node(znodes: KazooClient, partition: int, topic: str = "t") -> tuple[list[int], int]:
    """Return (ISR, version) of a state node."""
    data, stat = znodes.get(paths.partition_state(topic, partition))
    return nodes.parse_partition_state(data).isr, stat.version


def watch_writes(controller: ManualController) -> FaultyNodes:
    faulty = FaultyNodes(controller.nodes)
    controller.core.nodes = faulty  # type: ignore[assignment]
    return faulty


def announced(controller: ManualController, broker_id: int) -> list[int]:
    """Return how many partitions each UpdateMetadata to a broker had."""
    return [
        len(one.body.partitions)
        for one in controller.channel.sent
        if one.broker_id == broker_id and isinstance(one.body, UpdateMetadataRequest)
    ]


def test_requests_of_different_partitions_share_a_write_and_a_push(
    controller: ManualController, znodes: KazooClient
) -> None:
    faulty = watch_writes(controller)
    results = alter(
        controller,
        request(controller, 1, Asked(0, [1, 2]), Asked(3, [1])),
        request(controller, 2, Asked(1, [2]), version=1),
        request(controller, 3, Asked(2, [3, 1])),
    )
    assert errors(results) == [[0, 0], [0], [0]]
    assert [one.leader.tolist() for one in results] == [[1, 1], [2], [3]]
    assert [one.isr.to_lists() for one in results] == [[[1, 2], [1]], [[2]], [[3, 1]]]
    assert [isr_node(znodes, number) for number in range(4)] == [([1, 2], 1), ([2], 1), ([3, 1], 1), ([1], 1)]
    assert faulty.updates == [4]
    assert [announced(controller, broker_id) for broker_id in (1, 2, 3)] == [[4]] * 3


def test_a_second_change_of_a_partition_sees_the_first(
    controller: ManualController, znodes: KazooClient
) -> None:
    results = alter(
        controller,
        request(controller, 1, Asked(0, [1, 2])),
        request(controller, 1, Asked(0, [1], partition_epoch=1), Asked(3, [1])),
        request(controller, 1, Asked(0, [1, 3], partition_epoch=1)),
        request(controller, 1, Asked(0, [1], partition_epoch=1), topic="u"),
    )
    assert errors(results) == [
        [0],
        [0, 0],
        [ErrorCode.INVALID_UPDATE_VERSION],
        [ErrorCode.NOT_CONTROLLER],
    ]
    assert [one.partition_epoch.tolist() for one in results[:2]] == [[1], [2, 1]]
    assert isr_node(znodes, 0) == ([1], 2)
    assert announced(controller, 2) == [1, 2, 2]


def test_bad_requests_among_good_ones(controller: ManualController, znodes: KazooClient) -> None:
    znodes.set(
        paths.partition_state("t", 1),
        nodes.encode_partition_state(nodes.PartitionState(2, 0, 1, [2, 3])),
    )
    results = alter(
        controller,
        request(controller, 1, Asked(0, [1, 2])),
        request(controller, 3, Asked(2, [3]), epoch_ahead=1),
        request(controller, 2, Asked(1, [2]), Asked(4, [2]), Asked(9, [2])),
        request(controller, 1, Asked(3, [1, 7])),
        request(controller, 1, Asked(3, [1, 7]), topic="u", version=1),
        request(controller, 3, Asked(2, [3], recovery_state=5)),
        request(controller, 3, Asked(2, [3, 2])),
    )
    assert errors(results) == [
        [0],
        ErrorCode.STALE_BROKER_EPOCH,
        [ErrorCode.INVALID_UPDATE_VERSION, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        [ErrorCode.INELIGIBLE_REPLICA],
        [ErrorCode.OPERATION_NOT_ATTEMPTED],
        ErrorCode.UNKNOWN_SERVER_ERROR,
        [0],
    ]
    assert [isr_node(znodes, number)[0] for number in range(5)] == [
        [1, 2],
        [2, 3],
        [3, 2],
        [1, 3, 2],
        [2],
    ]
    # The node that somebody else has written was read again.
    assert errors(alter(controller, request(controller, 2, Asked(1, [2], partition_epoch=1)))) == [[0]]


def test_an_unknown_recovery_state_is_never_written(
    controller: ManualController, znodes: KazooClient
) -> None:
    before = znodes.get(paths.partition_state("t", 0))[0]
    for state in (-1, 2):
        [result] = alter(controller, request(controller, 1, Asked(0, [1], recovery_state=state)))
        assert result.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert znodes.get(paths.partition_state("t", 0))[0] == before


def test_refused_brokers_alone_cost_nothing(controller: ManualController) -> None:
    faulty = watch_writes(controller)
    [result] = alter(controller, request(controller, 1, Asked(0, [1]), epoch_ahead=1))
    assert result.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert (faulty.updates, controller.channel.sent) == ([], [])


def test_an_error_of_zookeeper_ends_the_requests_of_its_write(
    controller: ManualController, znodes: KazooClient
) -> None:
    faulty = watch_writes(controller)
    faulty.failing.add("update")
    requests = [
        request(controller, 1, Asked(0, [1])),
        request(controller, 2, Asked(1, [2]), epoch_ahead=-1),
        request(controller, 3, Asked(2, [3])),
        request(controller, 1, Asked(0, [1], partition_epoch=1)),
    ]
    first, second, third, last = alter_partitions(controller.core, requests)
    assert isinstance(first, ZooKeeperError)
    assert first is third
    assert isinstance(second, AlterPartitionResult)
    assert second.error_code == ErrorCode.STALE_BROKER_EPOCH
    # Nothing was written before it, as it finds without asking ZooKeeper.
    assert isinstance(last, AlterPartitionResult)
    assert last.error.tolist() == [ErrorCode.NOT_CONTROLLER]
    faulty.failing.clear()
    assert errors(alter(controller, *requests[:3])) == [[0], ErrorCode.STALE_BROKER_EPOCH, [0]]
    assert isr_node(znodes, 0) == ([1], 1)


def test_another_controller_ends_all_requests(controller: ManualController) -> None:
    faulty = watch_writes(controller)
    faulty.failing.add("update")
    faulty.error = ControllerMovedError("another controller was elected")
    with pytest.raises(ControllerMovedError):
        alter_partitions(
            controller.core,
            [request(controller, 1, Asked(0, [1])), request(controller, 2, Asked(1, [2]))],
        )
    assert controller.channel.sent == []


@pytest.mark.parametrize("seed", range(10))
def test_results_are_those_of_one_request_after_the_other(
    controller: ManualController, znodes: KazooClient, seed: int
) -> None:
    """The same requests of two topics with equal partitions: of ``t`` together, of ``u`` singly."""
    made = [random_request(random.Random(f"{seed} {number}")) for number in range(20)]
    together = alter(controller, *(make(controller, "t") for make in made))
    singly = [alter(controller, make(controller, "u"))[0] for make in made]
    assert list(map(contents, together)) == list(map(contents, singly))
    for number in REPLICAS:
        assert isr_node(znodes, number, "t") == isr_node(znodes, number, "u")
        assert read_json(znodes, paths.partition_state("t", number)) == read_json(
            znodes, paths.partition_state("u", number)
        )
        assert controller.last_metadata(("t", number)) == controller.last_metadata(("u", number))


def random_request(chance: random.Random) -> Callable[[ManualController, str], AlterPartitionRequest]:
    """Return what makes a request for a topic: mostly right, sometimes with wrong epochs or members."""
    broker_id = chance.choice([1, 2, 3])
    epoch_ahead = chance.choice([0] * 9 + [1])
    asked = []
    for number in chance.sample(range(6), chance.randint(1, 3)):
        followers = chance.sample([1, 2, 3, 7], chance.randint(0, 2))
        asked.append(
            Asked(
                number,
                [broker_id, *(one for one in followers if one != broker_id)],
                partition_epoch=chance.randint(0, 3),
                leader_epoch=chance.choice([0] * 6 + [-1, 1]),
                recovery_state=chance.choice([0] * 9 + [1]),
            )
        )
    version = chance.randint(0, 3)

    def make(controller: ManualController, topic: str) -> AlterPartitionRequest:
        return request(controller, broker_id, *asked, topic=topic, version=version, epoch_ahead=epoch_ahead)

    return make
