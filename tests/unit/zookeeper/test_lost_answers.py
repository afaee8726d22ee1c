"""Writes whose answer, or request, is lost with the connection: each kind is applied exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from kazoo.client import KazooClient

from ctrlchan.errors import ControllerMovedError, NodeError, ResultCode
from ctrlchan.zookeeper import nodes as forms
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.cluster import ClusterNodes
from ctrlchan.zookeeper.lost_answers import was_applied
from ctrlchan.zookeeper.operations import Check, Create, Delete, Node, SetData
from tests.kafka.zookeeper import ZooKeeperServer
from tests.kafka.zookeeper_proxy import MULTI, MULTI_READ, Loss, ZooKeeperProxy
from tests.unit.zookeeper.sessions import elected, int32, rows_of, states

LOSSES = [Loss.REQUEST, Loss.ANSWER]


@pytest.fixture
def proxy(zookeeper_server: ZooKeeperServer) -> Iterator[ZooKeeperProxy]:
    with ZooKeeperProxy(zookeeper_server.port) as made:
        yield made


@pytest.fixture
def cluster(proxy: ZooKeeperProxy, zookeeper: str) -> Iterator[ClusterNodes]:
    """A controller behind the proxy, and a topic with two partitions."""
    with elected(f"{proxy.address}/{zookeeper.partition('/')[2]}") as nodes:
        nodes.create_topics(["t"], [bytes(16)], [{0: [1], 1: [1]}], [{}])
        yield nodes


def lose(proxy: ZooKeeperProxy, loss: Loss, skip: int = 0) -> None:
    """Lose the next multi."""
    (proxy.lose_request if loss is Loss.REQUEST else proxy.lose_answer)(MULTI, skip)


def controller(nodes: ClusterNodes) -> None:
    nodes.resign()
    nodes.become_controller(1000, 2)


def update(nodes: ClusterNodes) -> None:
    written = nodes.update_partition_states([b"t"], int32(0, 0), int32(0, 1), states(2, 5), int32(0, 0))
    assert written.error.tolist() == [0, 0]
    assert written.version.tolist() == [1, 1]


def create_states(nodes: ClusterNodes) -> None:
    written = nodes.create_partition_states([b"t"], int32(0, 0), int32(0, 1), states(2))
    assert written.error.tolist() == [0, 0]
    assert written.version.tolist() == [0, 0]


QUOTA = (("user", "alice"), ("client-id", "app"))

#: What is written, with how many multis, and what is written before.
WRITES: dict[str, tuple[Callable[[ClusterNodes], object], int, Callable[[ClusterNodes], object]]] = {
    "election": (lambda n: n.become_controller(1000, 2), 1, lambda n: n.resign()),
    "resign": (lambda n: n.resign(), 1, lambda n: None),
    "update states": (update, 1, create_states),
    "create states": (create_states, 3, lambda n: None),
    "assignment": (lambda n: n.write_topic_assignment("t", None, {0: ([2], [2], [1])}, 0), 1, lambda n: None),
    "assignments": (
        lambda n: n.write_topic_assignments(
            [b"t"], [None], int32(0), int32(0), states(1).isr, states(1).isr, states(1).isr
        ),
        1,
        lambda n: None,
    ),
    "create topic": (lambda n: n.create_topic("new", None, {0: [1]}, {"a": "b"}), 4, lambda n: None),
    "delete topic": (lambda n: n.delete_topics(["t"]), 6, create_states),
    "queue deletion": (lambda n: n.queue_topic_deletions(["t"]), 1, lambda n: None),
    "delete request": (lambda n: n.delete_topic_requests(["t"]), 1, lambda n: n.queue_topic_deletions(["t"])),
    "reassignment": (lambda n: n.write_reassign_partitions({("t", 0): [2]}), 2, lambda n: None),
    "producer ids": (lambda n: n.write_producer_id_block(1, 0, 999, 0), 1, lambda n: None),
    "feature": (lambda n: n.write_feature(2, True, {"f": 1}, None), 1, lambda n: None),
    "topic config": (lambda n: n.write_topic_config("t", {"x": "y"}), 1, lambda n: None),
    "user config": (lambda n: n.write_user_config("alice", {"x": "y"}), 2, lambda n: None),
    "broker config": (lambda n: n.write_broker_config(None, {"x": "y"}), 2, lambda n: None),
    "no quota": (lambda n: n.write_quota(QUOTA, {}), 2, lambda n: n.write_quota(QUOTA, {"x": "1"})),
}  # fmt: skip


def tree(client: KazooClient, path: str = "/") -> dict[str, tuple[bytes, int]]:
    """Return path -> (data, version) of everything but notifications, whose number may differ."""
    found = {}
    for name in client.get_children(path):
        below = f"{path.rstrip('/')}/{name}"
        if below != paths.CONFIG_CHANGES:
            data, stat = client.get(below)
            found[below] = (data, stat.version)
            found.update(tree(client, below))
    return found


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", list(WRITES))
def test_each_kind_of_write_is_applied_once(
    proxy: ZooKeeperProxy, cluster: ClusterNodes, znodes: KazooClient, name: str, loss: Loss
) -> None:
    write, multis, prepare = WRITES[name]
    prepare(cluster)
    before = tree(znodes)
    expected_result = write(cluster)
    expected = tree(znodes)
    for skip in range(multis):
        restore(znodes, cluster, before)
        losses = proxy.losses
        lose(proxy, loss, skip)
        assert write(cluster) == expected_result or name in ("election", "assignments")
        assert proxy.losses == losses + 1, "there are fewer multis than the test says"
        found = tree(znodes)
        # Restoring counts versions up: the difference that the write made is compared.
        assert {path: data for path, (data, _) in found.items() if path != paths.CONTROLLER_EPOCH} == {
            path: data for path, (data, _) in expected.items() if path != paths.CONTROLLER_EPOCH
        }


def restore(client: KazooClient, cluster: ClusterNodes, wanted: dict[str, tuple[bytes, int]]) -> None:
    """Make the nodes again as they were, with their versions; the controller stays or resigns."""
    for path in sorted(tree(client), key=len, reverse=True):
        if path not in (paths.CONTROLLER, paths.CONTROLLER_EPOCH) and path in tree(client):
            client.delete(path, recursive=True)
    if paths.CONTROLLER not in wanted:
        cluster.resign()
    elif not client.exists(paths.CONTROLLER):
        cluster.become_controller(1000, 1)
    for path, (data, version) in sorted(wanted.items()):
        if path not in (paths.CONTROLLER, paths.CONTROLLER_EPOCH) and not client.exists(path):
            client.create(path, data if version == 0 else b"", makepath=True)
            for _ in range(version):
                client.set(path, data)


@pytest.mark.parametrize("loss", LOSSES)
def test_bulk_writes_survive_a_lost_connection(
    proxy: ZooKeeperProxy, cluster: ClusterNodes, loss: Loss
) -> None:
    """Of six batches under way at once one is lost, and those behind it with it."""
    count = 5_500
    topic_row, partition = np.zeros(count, np.int32), np.arange(count, dtype=np.int32)
    created = cluster.create_partition_states([b"t"], topic_row, partition, states(count))
    assert not created.error.any()
    lose(proxy, loss, skip=2)
    versions = np.zeros(count, np.int32)
    versions[[17, 4_444]] = 9
    written = cluster.update_partition_states([b"t"], topic_row, partition, states(count, 1), versions)
    assert proxy.losses == 1
    assert np.flatnonzero(written.error).tolist() == [17, 4_444]
    read = cluster.read_partition_states([b"t"], topic_row, partition)
    assert np.array_equal(read.version, np.where(written.error == 0, written.version, 0))
    old, new, found = rows_of(states(count)), rows_of(states(count, 1)), rows_of(read)
    assert found == [old[row] if row in (17, 4_444) else new[row] for row in range(count)]


def test_bulk_reads_survive_a_lost_connection(proxy: ZooKeeperProxy, cluster: ClusterNodes) -> None:
    count = 3_500
    topic_row, partition = np.zeros(count, np.int32), np.arange(count, dtype=np.int32)
    cluster.create_partition_states([b"t"], topic_row, partition, states(count))
    proxy.lose_answer(MULTI_READ, skip=1)
    read = cluster.read_partition_states([b"t"], topic_row, partition)
    assert proxy.losses == 1
    assert rows_of(read) == rows_of(states(count))


def test_a_write_that_another_controller_prevents_is_not_taken_for_applied(
    proxy: ZooKeeperProxy, cluster: ClusterNodes, znodes: KazooClient
) -> None:
    """The request is lost, and another controller is elected before it is sent again."""
    create_states(cluster)

    def plan(opcode: int) -> Loss | None:
        if opcode != MULTI:
            return None
        proxy.plan = lambda _opcode: None
        znodes.set(paths.CONTROLLER_EPOCH, b"99")
        return Loss.REQUEST

    proxy.plan = plan
    with pytest.raises(ControllerMovedError):
        cluster.update_partition_states([b"t"], int32(0), int32(0), states(1, 1), int32(0))
    read = cluster.read_partition_states([b"t"], int32(0), int32(0))
    assert read.version.tolist() == [0]


def test_an_election_that_another_wins_in_between_is_lost(
    proxy: ZooKeeperProxy, cluster: ClusterNodes, znodes: KazooClient
) -> None:
    cluster.resign()

    def plan(opcode: int) -> Loss | None:
        if opcode != MULTI:
            return None
        proxy.plan = lambda _opcode: None
        znodes.create(paths.CONTROLLER, forms.encode_controller(5, 1), ephemeral=True)
        return Loss.REQUEST

    proxy.plan = plan
    with pytest.raises(ControllerMovedError):
        cluster.become_controller(1000, 2)
    found = cluster.read_election().controller
    assert found is not None
    assert found.broker_id == 5


def test_a_single_write_with_a_bad_version_stays_refused(
    proxy: ZooKeeperProxy, cluster: ClusterNodes
) -> None:
    lose(proxy, Loss.ANSWER)
    with pytest.raises(NodeError) as raised:
        cluster.write([SetData(paths.topic("t"), b"{}", 7)])
    assert raised.value.code == ResultCode.BAD_VERSION


SENT, SESSION = 100, 77


def node(data: bytes = b"new", version: int = 0, czxid: int = 5, mzxid: int = 5, owner: int = 0) -> Node:
    return Node(data, version, czxid, mzxid, owner)


@pytest.mark.parametrize(
    ("operation", "found", "applied"),
    [
        (Create("/p", b"new"), None, False),
        (Create("/p", b"new"), node(), False),
        (Create("/p", b"new"), node(czxid=101, mzxid=101), True),
        (Create("/p", b"new"), node(b"other", czxid=101, mzxid=101), False),
        (Create("/p", b"new", ephemeral=True), node(czxid=101, owner=SESSION), True),
        (Create("/p", b"new", ephemeral=True), node(czxid=101, owner=5), False),
        (Create("/p", None), node(b"", czxid=101), True),
        (Create("/p-", None, sequential=True), None, None),
        (SetData("/p", b"new", 3), None, False),
        (SetData("/p", b"new", 3), node(b"old", 3), False),
        (SetData("/p", b"new", 3), node(version=4, mzxid=101), True),
        (SetData("/p", b"new", 3), node(b"other", 4, mzxid=101), False),
        (SetData("/p", b"new", 3), node(b"other", 5, mzxid=101), None),
        (SetData("/p", b"new"), node(version=9, mzxid=101), True),
        (SetData("/p", b"new"), node(b"other", 9, mzxid=101), None),
        (SetData("/p", b"new"), node(version=9), False),
        (Delete("/p", 3), None, None),
        (Delete("/p", 3), node(), False),
        (Delete("/p", 3), node(czxid=101), None),
        (Check("/p", 3), node(), None),
    ],
)
def test_what_a_node_shows_of_a_write(operation: Any, found: Node | None, applied: bool | None) -> None:
    assert was_applied(operation, found, SENT, SESSION) is applied
