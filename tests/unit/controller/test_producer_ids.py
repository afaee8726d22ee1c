"""Blocks of producer ids on a real ZooKeeper. Twins of ``AllocateProducerIdsRequestTest``."""

from __future__ import annotations

import json

import pytest
from kazoo.client import KazooClient

from ctrlchan.controller.handlers.producer_ids import BLOCK_SIZE, Allocation, allocate
from ctrlchan.errors import ErrorCode
from ctrlchan.zookeeper import paths
from tests.unit.controller.manual_controller import ManualController, read_json, register_brokers


@pytest.fixture
def cluster(znodes: KazooClient) -> KazooClient:
    register_brokers(znodes, 1, 2)
    return znodes


def epoch(controller: ManualController, broker_id: int) -> int:
    return controller.state.broker(broker_id).epoch


def write_block(znodes: KazooClient, first: int, last: int) -> None:
    block = {"version": 1, "broker": 7, "block_start": str(first), "block_end": str(last)}
    data = json.dumps(block).encode()
    if znodes.exists(paths.PRODUCER_ID_BLOCK):
        znodes.set(paths.PRODUCER_ID_BLOCK, data)
    else:
        znodes.create(paths.PRODUCER_ID_BLOCK, data)


def test_the_node_of_a_new_cluster_is_empty(cluster: KazooClient, zookeeper: str) -> None:
    cluster.create(paths.PRODUCER_ID_BLOCK)
    with ManualController(zookeeper) as controller:
        assert allocate(controller.core, 1, epoch(controller, 1)) == Allocation(0, 0, BLOCK_SIZE)


def test_blocks_follow_each_other(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        assert allocate(controller.core, 1, epoch(controller, 1)) == Allocation(0, 0, BLOCK_SIZE)
        assert allocate(controller.core, 2, epoch(controller, 2)) == Allocation(0, 1_000, BLOCK_SIZE)
        assert read_json(cluster, paths.PRODUCER_ID_BLOCK) == {
            "version": 1,
            "broker": 2,
            "block_start": "1000",
            "block_end": "1999",
        }
        controller.fail_over()
        assert allocate(controller.core, 1, epoch(controller, 1)) == Allocation(0, 2_000, BLOCK_SIZE)


def test_blocks_of_older_brokers_are_passed_over(cluster: KazooClient, zookeeper: str) -> None:
    write_block(cluster, 5_000, 5_999)
    with ManualController(zookeeper) as controller:
        assert allocate(controller.core, 1, epoch(controller, 1)).first == 6_000


def test_another_broker_epoch_is_refused(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        for wrong in (epoch(controller, 1) - 1, epoch(controller, 1) + 1, -1):
            assert allocate(controller.core, 1, wrong) == Allocation(ErrorCode.STALE_BROKER_EPOCH)
        assert cluster.exists(paths.PRODUCER_ID_BLOCK) is None


def test_a_broker_that_is_not_live_is_refused(cluster: KazooClient, zookeeper: str) -> None:
    with ManualController(zookeeper) as controller:
        assert allocate(controller.core, 9, 1) == Allocation(ErrorCode.BROKER_ID_NOT_REGISTERED)


def test_ids_are_used_up(cluster: KazooClient, zookeeper: str) -> None:
    last = 2**63 - 1
    write_block(cluster, last - 999, last)
    with ManualController(zookeeper) as controller:
        answer = allocate(controller.core, 1, epoch(controller, 1))
        assert answer == Allocation(ErrorCode.UNKNOWN_SERVER_ERROR)
        assert read_json(cluster, paths.PRODUCER_ID_BLOCK)["block_end"] == str(last)


@pytest.mark.parametrize("data", [b"{", b"{}", b'{"version":1,"broker":1,"block_start":"x"}'])
def test_a_malformed_node_is_not_overwritten(cluster: KazooClient, zookeeper: str, data: bytes) -> None:
    cluster.create(paths.PRODUCER_ID_BLOCK, data, makepath=True)
    with ManualController(zookeeper) as controller:
        answer = allocate(controller.core, 1, epoch(controller, 1))
        assert answer == Allocation(ErrorCode.UNKNOWN_SERVER_ERROR)
        assert cluster.get(paths.PRODUCER_ID_BLOCK)[0] == data


def test_a_block_that_another_broker_takes_meanwhile_is_not_given_twice(
    cluster: KazooClient, zookeeper: str
) -> None:
    """A broker below IBP 3.0 writes the node between the controller's reading and writing."""
    with ManualController(zookeeper) as controller:
        read = controller.nodes.read_producer_id_block
        blocks = iter([(0, 999), (1_000, 1_999)])

        def read_then_write() -> object:
            block = read()
            for first, last in blocks:
                write_block(cluster, first, last)
                break
            return block

        controller.nodes.read_producer_id_block = read_then_write  # type: ignore[method-assign, assignment]
        assert allocate(controller.core, 1, epoch(controller, 1)).first == 2_000
