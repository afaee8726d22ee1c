"""The nodes of a cluster, from a fake ZooKeeper; acceptance tests read a real one."""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass, field
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError, UnimplementedError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler

from ctrlchan.errors import SnapshotError
from ctrlchan.state import Broker, ClusterState, Endpoint, SecurityProtocol
from ctrlchan.state.brokers import brokers_list
from ctrlchan.topic_names import id_from_text
from ctrlchan.zookeeper.operations import MultiRead
from tests.unit.state.helpers import default_row, rows_of

TOPIC_ID = "dVYtbxg8RRmPJBPeZs0tbw"


@dataclass
class Stat:
    version: int
    czxid: int


@dataclass
class Answer:
    value: Any

    def get(self, timeout: float) -> Any:
        assert timeout > 0
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


@dataclass
class FakeZooKeeper:
    """Answers as kazoo's client of a server older than 3.6. ``nodes``: path -> (data, stat), or an error."""

    nodes: dict[str, Any]
    reads: list[str] = field(default_factory=list)
    chroot: str = ""
    handler: SequentialThreadingHandler = field(default_factory=SequentialThreadingHandler)

    def _call(self, request: Any, result: Any) -> None:
        assert request.type == MultiRead.type
        result.set_exception(UnimplementedError())

    def get_async(self, path: str) -> Answer:
        self.reads.append(path)
        return Answer(self.nodes.get(path, NoNodeError()))

    def get_children_async(self, path: str) -> Answer:
        inside = [
            node[len(path) + 1 :].partition("/")[0] for node in self.nodes if node.startswith(path + "/")
        ]
        return Answer(list(dict.fromkeys(inside)) if inside or path in self.nodes else NoNodeError())


def znode(value: Any, version: int = 0, czxid: int = 1) -> tuple[bytes, Stat]:
    return (value if isinstance(value, bytes) else json.dumps(value).encode()), Stat(version, czxid)


def state_znode(leader: int, isr: list[Any], version: int, **more: Any) -> tuple[bytes, Stat]:
    return znode(
        {"version": 1, "leader": leader, "leader_epoch": 7, "controller_epoch": 3, "isr": isr, **more},
        version,
    )


def cluster() -> dict[str, Any]:
    return {
        "/cluster/id": znode({"version": "1", "id": "the-cluster"}),
        "/controller": znode({"version": 2, "brokerid": 2, "timestamp": "1", "kraftControllerEpoch": -1}),
        "/controller_epoch": znode(b"4"),
        "/brokers/ids/10": znode(
            {
                "version": 5, "host": None, "port": -1, "jmx_port": -1, "rack": "r1", "features": {},
                "endpoints": ["INSIDE://b10:9092", "OUTSIDE://[::1]:9093"],
                "listener_security_protocol_map": {"INSIDE": "PLAINTEXT", "OUTSIDE": "SASL_SSL"},
            },
            czxid=77,
        ),
        "/brokers/ids/2": znode(
            {"version": 2, "host": "b2", "endpoints": ["PLAINTEXT://b2:9", "SSL://b2:10"]}, czxid=55
        ),
        "/brokers/ids/1": znode({"version": 1, "host": "b1", "port": 9}, czxid=44),
        "/brokers/topics/t": znode(
            {
                "topic_id": TOPIC_ID, "partitions": {"1": [2, 1], "0": [1, 2, 3]},
                "adding_replicas": {"0": [3]}, "removing_replicas": {"0": [1]},
            }
        ),
        "/brokers/topics/t/partitions/0/state": state_znode(1, [1, 2], 12, leader_recovery_state=1),
        "/brokers/topics/t/partitions/1/state": state_znode(-1, [2], 13),
        "/brokers/topics/old": znode({"version": 1, "partitions": {"0": [10]}}),
        "/brokers/topics/none": znode({"version": 1, "partitions": {}}),
        "/admin/delete_topics/old": znode(b""),
        "/admin/delete_topics/gone": znode(b""),
    }  # fmt: skip


def read(nodes: dict[str, Any], **options: Any) -> ClusterState:
    return ClusterState.from_zookeeper(FakeZooKeeper(nodes), **options)


def test_a_cluster() -> None:
    state = read(cluster())
    assert (state.cluster_id, state.controller_id, state.controller_epoch) == ("the-cluster", 2, 4)
    plain = SecurityProtocol.PLAINTEXT
    assert brokers_list(state.brokers) == [
        Broker(1, 44, (Endpoint("PLAINTEXT", plain, "b1", 9),)),
        Broker(
            2, 55, (Endpoint("PLAINTEXT", plain, "b2", 9), Endpoint("SSL", SecurityProtocol.SSL, "b2", 10))
        ),
        Broker(
            10,
            77,
            (
                Endpoint("INSIDE", plain, "b10", 9092),
                Endpoint("OUTSIDE", SecurityProtocol.SASL_SSL, "::1", 9093),
            ),
            "r1",
        ),
    ]
    led = {"controller_epoch": 3, "leader_epoch": 7}
    unknown = {"controller_epoch": -1, "leader_epoch": -1, "partition_epoch": -1}
    assert rows_of(state) == {
        ("old", 0): default_row(replicas=[10], **unknown),
        ("t", 0): default_row(
            leader=1, isr=[1, 2], replicas=[1, 2, 3], adding=[3], removing=[1], offline=[3],
            partition_epoch=12, recovery_state=1, **led,
        ),
        ("t", 1): default_row(leader=-1, isr=[2], replicas=[2, 1], partition_epoch=13, **led),
    }  # fmt: skip
    assert [topic_id.tobytes() for topic_id in state.topics.ids] == [bytes(16), id_from_text(TOPIC_ID)]
    assert state.topics.deleting is not None
    assert state.topics.deleting.tolist() == [1, 0]


def test_a_cluster_without_controller_and_topics() -> None:
    nodes = {path: node for path, node in cluster().items() if path.startswith("/brokers/ids")}
    state = read({**nodes, "/brokers/topics": znode(b"")})
    assert (state.cluster_id, state.controller_id, state.controller_epoch) == ("", -1, 0)
    assert len(state.brokers) == 3
    assert len(state.partitions) == 0


def test_many_partitions_are_read_in_turn_with_progress() -> None:
    nodes = cluster()
    nodes["/brokers/topics/big"] = znode(
        {"version": 1, "partitions": {str(n): [n % 3] for n in range(2_500)}}
    )
    for number in range(2_500):
        nodes[f"/brokers/topics/big/partitions/{number}/state"] = state_znode(
            number % 3, [number % 3], number
        )
    steps: list[tuple[str, int, int]] = []
    state = read(nodes, progress=lambda *step: steps.append(step))
    assert [state.partitions.partition_epoch[state.row("big", n)] for n in (0, 2_499)] == [0, 2_499]
    assert [step for step in steps if step[0] == "partitions"] == [
        ("partitions", done, 2_503) for done in (0, 1_000, 2_000, 2_503)
    ]


def test_what_goes_while_it_is_read_is_left_out() -> None:
    nodes = cluster()
    nodes["/brokers/ids/10"] = nodes["/brokers/topics/old"] = NoNodeError()
    state = read(nodes)
    assert state.broker_ids.tolist() == [1, 2]
    assert state.topics.names.to_list() == ["t"]


@pytest.mark.parametrize(
    ("path", "node", "reason"),
    [
        ("/brokers/ids/1", znode(b"{"), "the data is not a JSON object"),
        ("/brokers/ids/1", znode([]), "the data is not a JSON object"),
        ("/brokers/ids/1", znode({"version": 1, "port": 1}), "no field host"),
        ("/brokers/ids/1", znode({"endpoints": ["b1:9"]}), "'b1:9' is no endpoint (LISTENER://HOST:PORT)"),
        ("/brokers/ids/1", znode({"endpoints": ["IN://b1:9"]}), "'IN' is no security protocol"),
        (
            "/brokers/ids/1",
            znode({"endpoints": ["SSL://b1:x"]}),
            "'SSL://b1:x' is no endpoint (LISTENER://HOST:PORT)",
        ),
        ("/brokers/ids/1", znode({"endpoints": [], "rack": 5}), "rack is '5', not a text"),
        ("/brokers/ids/1", znode({"endpoints": [5]}), "'5' is no endpoint"),
        ("/brokers/topics/t", znode({"topic_id": "x", "partitions": {}}), "'x' is not a topic id"),
        ("/brokers/topics/t", znode({"partitions": {"x": [1]}}), "partition is 'x', not a number"),
        ("/brokers/topics/t", znode({"partitions": [1]}), "partitions is no JSON object"),
        (
            "/brokers/topics/t ",
            znode({"partitions": {"0": [1]}}),
            "the topic name has a character other than",
        ),
        (
            "/brokers/topics/t/partitions/0/state",
            znode({"leader": 1, "leader_epoch": 0, "controller_epoch": 0}),
            "no field isr",
        ),
        (
            "/brokers/topics/t/partitions/0/state",
            state_znode(1, ["1"], 0),
            "isr is '[\"1\"]', not a list of broker ids",
        ),
        (
            "/brokers/topics/t/partitions/0/state",
            state_znode(-7, [1], 0),
            "leader -7 is not in -2 .. 2147483647",
        ),
        (
            "/brokers/topics/t/partitions/0/state",
            state_znode(2**31, [1], 0),
            "leader 2147483648 is not in -2 .. 2147483647",
        ),
        ("/controller_epoch", znode(b"x"), "controller epoch is 'x', not a number"),
        ("/controller", znode({}), "no field brokerid"),
        ("/cluster/id", KazooTimeoutError(), "no answer within 30 s"),
        ("/brokers/topics/t", ConnectionLoss("x"), "cannot be read (ConnectionLoss: x)"),
    ],
)
def test_a_bad_znode_is_named(path: str, node: Any, reason: str) -> None:
    with pytest.raises(SnapshotError, match=re.escape(f"{path}: {reason}")) as caught:
        read({**cluster(), path: node})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["/brokers/ids", "/brokers/topics"])
def test_what_is_no_kafka_cluster(missing: str) -> None:
    nodes = {path: node for path, node in cluster().items() if not path.startswith(missing)}
    with pytest.raises(SnapshotError, match=r"no Kafka cluster here: no /brokers/ids or no /brokers/topics"):
        read(nodes)


def test_no_connection() -> None:
    with socket.socket() as taken:
        # Bound and not listening: connections are refused.
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}/kafka"
        with pytest.raises(SnapshotError, match=rf"^zookeeper {address}: .*: Connection refused$"):
            ClusterState.from_zookeeper(address, timeout=0.3)
