"""Every other node of a controller on a real ZooKeeper: written by one side, read by the other."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from kazoo.client import KazooClient

from ctrlchan._codec import ListColumn
from ctrlchan.errors import (
    ControllerMovedError,
    MigrationError,
    NodeError,
    ResultCode,
    ZooKeeperError,
)
from ctrlchan.topic_names import id_to_text
from ctrlchan.zookeeper import nodes as forms
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.cluster import ClusterNodes
from ctrlchan.zookeeper.configs import ConfigNodes
from ctrlchan.zookeeper.nodes import Listener
from ctrlchan.zookeeper.operations import Operation
from ctrlchan.zookeeper.values import (
    ControllerEpoch,
    FeatureNode,
    PartitionsNamed,
    ProducerIdBlock,
    Reassignments,
    TopicsRead,
)
from tests.unit.zookeeper.sessions import elected, int32, session

TOPIC_ID = bytes(range(16))


@pytest.fixture
def cluster(zookeeper: str) -> Iterator[ClusterNodes]:
    with elected(zookeeper) as nodes:
        yield nodes


def put(client: KazooClient, path: str, value: Any) -> None:
    """Write a node as a tool or a broker would."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    if client.exists(path):
        client.set(path, data)
    else:
        client.create(path, data, makepath=True)


# -- election


def test_elections_count_epochs_up(zookeeper: str, znodes: KazooClient) -> None:
    with session(zookeeper) as one, session(zookeeper) as two:
        first, second = ClusterNodes(one), ClusterNodes(two)
        assert first.read_election().controller is None
        assert first.read_controller_epoch() is None
        assert first.become_controller(1, 123) == (1, 1)
        found = second.read_election().controller
        assert found is not None
        assert (found.broker_id, found.kraft_epoch, found.ephemeral_owner) == (1, -1, one.session_id)
        assert json.loads(znodes.get(paths.CONTROLLER)[0]) == {
            "version": 2,
            "brokerid": 1,
            "timestamp": "123",
            "kraftControllerEpoch": -1,
        }
        with pytest.raises(ControllerMovedError, match="broker 1 is the controller"):
            second.become_controller(2, 124)
        first.resign()
        first.resign()
        assert second.become_controller(2, 124) == (2, 2)
        assert second.read_controller_epoch() == ControllerEpoch(2, 2)
        with pytest.raises(ControllerMovedError):
            first.resign()
        assert second.read_election().controller is not None


def test_a_controller_of_a_former_term_of_this_session_is_replaced(cluster: ClusterNodes) -> None:
    assert cluster.become_controller(1000, 5).epoch == 2


def test_a_migration_to_kraft_is_refused(zookeeper: str, znodes: KazooClient) -> None:
    put(
        znodes,
        paths.CONTROLLER,
        {"version": 2, "brokerid": 3000, "timestamp": "1", "kraftControllerEpoch": 4},
    )
    with session(zookeeper) as one, pytest.raises(MigrationError, match="kraftControllerEpoch of 4"):
        ClusterNodes(one).become_controller(1, 1)


@pytest.mark.parametrize("path", [paths.CONTROLLER, paths.CONTROLLER_EPOCH])
def test_a_malformed_controller_is_named(zookeeper: str, znodes: KazooClient, path: str) -> None:
    put(znodes, path, b"\xff")
    with session(zookeeper) as one, pytest.raises(ZooKeeperError, match=f"{path}: "):
        ClusterNodes(one).become_controller(1, 1)


# -- brokers


def test_brokers(cluster: ClusterNodes, znodes: KazooClient) -> None:
    calls: queue.Queue[str] = queue.Queue()
    listeners = [Listener("A", "SSL", "h", 1), Listener("B", "PLAINTEXT", "::1", 2)]
    put(znodes, paths.broker(10), forms.encode_registration(listeners, "rack"))
    registration = json.loads(forms.encode_registration(listeners[:1]))
    registration["features"] = {"f": {"min_version": 1, "first_active_version": 2, "max_version": 3}}
    put(znodes, paths.broker(2), registration)
    put(znodes, paths.broker(3), b"{}")
    put(znodes, paths.broker(4), {**registration, "features": {"f": 1}})
    put(znodes, paths.broker(5), {**registration, "listener_security_protocol_map": {"A": "X"}})
    put(znodes, paths.broker(6), {**registration, "endpoints": ["A://h:99999"]})
    put(znodes, f"{paths.BROKER_IDS}/007", registration)
    put(znodes, f"{paths.BROKER_IDS}/x", registration)
    read = cluster.read_brokers(calls.put)
    czxids = [znodes.get(paths.broker(one))[1].czxid for one in (2, 10)]
    assert [(one.id, one.epoch, one.rack) for one in read.brokers] == [
        (2, czxids[0], None),
        (10, czxids[1], "rack"),
    ]
    assert read.brokers[0].features == {"f": (1, 3)}
    assert read.brokers[1].listeners == tuple(listeners)
    assert read.malformed == {
        "/brokers/ids/3": "no field port; no field host",
        "/brokers/ids/4": "feature 'f' is no JSON object",
        "/brokers/ids/5": "listener 'A' has no security protocol of Kafka",
        "/brokers/ids/6": "port 99999 is not in 0 .. 65535",
        "/brokers/ids/007": "'007' is no broker id",
        "/brokers/ids/x": "broker id is 'x', not a number",
    }
    assert cluster.broker_ids() == [2, 3, 4, 5, 6, 10]
    assert cluster.read_broker(10) == read.brokers[1]
    assert cluster.read_broker(11) is None
    with pytest.raises(ZooKeeperError, match="/brokers/ids/3: no field port; no field host"):
        cluster.read_broker(3)
    put(znodes, paths.broker(2), registration)
    assert calls.get(timeout=10) == "/brokers/ids/2"


def test_a_new_cluster_gets_its_nodes_and_an_id(cluster: ClusterNodes, znodes: KazooClient) -> None:
    assert all(znodes.exists(path) for path in paths.PERSISTENT)
    cluster.create_persistent_nodes()
    assert cluster.read_cluster_id() is None
    assert cluster.create_cluster_id("one") == "one"
    assert cluster.create_cluster_id("two") == "one"
    assert json.loads(znodes.get(paths.CLUSTER_ID)[0]) == {"version": "1", "id": "one"}


# -- topics


def lists(*given: list[int]) -> ListColumn:
    return ListColumn.from_lists(given)


def rows(read: TopicsRead) -> list[tuple[bytes, int, list[int], list[int], list[int]]]:
    columns = (read.replicas.to_lists(), read.adding.to_lists(), read.removing.to_lists())
    names = [read.names[row] for row in read.topic_row.tolist()]
    return list(zip(names, read.partition.tolist(), *columns, strict=True))


def test_topics_of_all_formats(cluster: ClusterNodes, znodes: KazooClient) -> None:
    text = id_to_text(TOPIC_ID)
    put(znodes, paths.topic("v1"), {"version": 1, "partitions": {"0": [1, 2]}})
    put(
        znodes,
        paths.topic("v2"),
        {
            "version": 2,
            "partitions": {"10": [1], "9": [2, 3]},
            "adding_replicas": {"9": [3]},
            "removing_replicas": {},
        },
    )
    put(znodes, paths.topic("v3"), {"version": 3, "partitions": {"0": [1, 2, 3]}, "topic_id": text,
        "adding_replicas": {"0": [3]}, "removing_replicas": {"0": [1]}})  # fmt: skip
    put(znodes, paths.topic("kafka"), b'{"removing_replicas":{},"partitions":{"2":[3,1],"1":[2],"0":[1]},'
        b'"topic_id":"' + text.encode() + b'","adding_replicas":{},"version":3}')  # fmt: skip
    put(znodes, paths.topic("empty"), {"version": 3, "partitions": {}})
    hostile = {
        "not-json": b"\xff",
        "no-list": {"partitions": {"0": 1}},
        "bad-id": {"partitions": {"0": [1]}, "topic_id": "x"},
        "bad-key": {"partitions": {"x": [1], "0": [1]}},
        "huge": {"partitions": {"0": [2**40]}},
        "far": {"partitions": {str(2**31): [1]}},
        "twice": {"partitions": {"0": [1], "00": [2]}},
        "negative": {"partitions": {"0": [-1]}},
    }
    for name, value in hostile.items():
        put(znodes, paths.topic(name), value)
    read = cluster.read_topics([*cluster.topic_names(), "gone", "no/name"])
    assert read.names == [b"empty", b"kafka", b"v1", b"v2", b"v3"]
    assert read.ids.tobytes() == bytes(16) + TOPIC_ID + bytes(32) + TOPIC_ID
    assert read.versions.tolist() == [0] * 5
    assert rows(read) == [
        (b"kafka", 0, [1], [], []),
        (b"kafka", 1, [2], [], []),
        (b"kafka", 2, [3, 1], [], []),
        (b"v1", 0, [1, 2], [], []),
        (b"v2", 9, [2, 3], [3], []),
        (b"v2", 10, [1], [], []),
        (b"v3", 0, [1, 2, 3], [3], [1]),
    ]
    assert set(read.malformed) == {paths.topic(name) for name in hostile} | {paths.topic("no/name")}
    assert read.malformed[paths.topic("twice")] == "partition 0 is there twice"
    assert read.malformed[paths.topic("huge")] == f"partition 0 has {2**40}, which is no broker id"
    assert "partition x: partition is 'x', not a number" in read.malformed[paths.topic("bad-key")]


def test_topics_are_created_changed_and_deleted(cluster: ClusterNodes, znodes: KazooClient) -> None:
    put(znodes, paths.topic_config("left"), {"version": 1, "config": {"old": "1"}})
    codes = cluster.create_topics(
        ["a", "left"], [TOPIC_ID, None], [{0: [1, 2], 1: [2]}, {0: [1]}], [{"x": "y"}, {}]
    )
    assert codes == [0, 0]
    assert cluster.create_topics(["a", "b"], [None] * 2, [{0: [9]}] * 2, [{"z": "z"}, {}]) == [
        ResultCode.NODE_EXISTS,
        0,
    ]
    assert cluster.read_topic_configs(["a", "left", "b", "gone"]) == [{"x": "y"}, {}, {}, None]
    assert cluster.write_topic_assignment("a", TOPIC_ID, {0: ([1, 2, 3], [3], [1])}, 0) == 0
    assert cluster.write_topic_assignment("a", TOPIC_ID, {0: ([1], [], [])}, 0) == ResultCode.BAD_VERSION
    assert cluster.write_topic_assignment("gone", None, {}) == ResultCode.NO_NODE
    assert rows(cluster.read_topics(["a"])) == [(b"a", 0, [1, 2, 3], [3], [1])]

    errors = cluster.write_topic_assignments(
        [b"a", b"gone", b"left"],
        np.frombuffer(TOPIC_ID + bytes(32), np.uint8).reshape(3, 16),
        int32(0, 0, 1, 2),
        int32(0, 1, 0, 0),
        lists([4, 5], [5], [1], [6]),
        lists([5], [], [], []),
        lists([], [4], [], []),
    )
    assert errors.tolist() == [0, ResultCode.NO_NODE, 0]
    read = cluster.read_topics(["a", "left"])
    assert rows(read) == [(b"a", 0, [4, 5], [5], []), (b"a", 1, [5], [], [4]), (b"left", 0, [6], [], [])]
    assert read.ids.tobytes() == TOPIC_ID + bytes(16)

    znodes.create(f"{paths.partition('a', 0)}/state", b"", makepath=True)
    znodes.create(f"{paths.topic('a')}/unknown/below", b"", makepath=True)
    assert cluster.queue_topic_deletions(["a", "b", "a"]) == [0, 0, ResultCode.NODE_EXISTS]
    assert cluster.topic_deletions() == ["a", "b"]
    cluster.delete_topics(["a", "gone"])
    assert cluster.topic_names() == ["b", "left"]
    assert cluster.topic_deletions() == ["b"]
    assert cluster.read_topic_config("a") is None
    cluster.delete_topic_requests(["b", "gone"])
    assert cluster.topic_deletions() == []


# -- notifications and requests


def test_notifications(cluster: ClusterNodes, znodes: KazooClient) -> None:
    for path, data in [
        (paths.isr_change_notification(), forms.encode_partitions([("t", 1), ("u", 0)])),
        (paths.isr_change_notification(), forms.encode_partitions([("t", 1)])),
        (paths.isr_change_notification(), b"{}"),
        (paths.log_dir_event_notification(), forms.encode_log_dir_event(3)),
        (paths.log_dir_event_notification(), b'{"broker":"x"}'),
        (paths.config_change(), forms.encode_config_change("topics", "t")),
        (paths.config_change(), b'{"version":1,"entity_type":"clients","entity_name":"c"}'),
        (paths.config_change(), b'{"version":2,"entity_path":"users/u/clients/c"}'),
        (paths.config_change(), b'{"version":2,"entity_path":"users"}'),
    ]:
        znodes.create(path, data, sequence=True)
    names = cluster.isr_change_notifications()
    assert names == [f"isr_change_000000000{number}" for number in range(3)]
    assert cluster.read_isr_change_notifications([*names, "isr_change_0000000099"]) == PartitionsNamed(
        [("t", 1), ("u", 0)], {"/isr_change_notification/isr_change_0000000002": "no field partitions"}
    )
    cluster.delete_isr_change_notifications(names[:1])
    assert cluster.isr_change_notifications() == names[1:]
    cluster.delete_isr_change_notifications()
    assert cluster.isr_change_notifications() == []

    events = cluster.log_dir_event_notifications()
    broker_ids, malformed = cluster.read_log_dir_event_notifications(events)
    assert broker_ids == [3]
    assert list(malformed) == ["/log_dir_event_notification/log_dir_event_0000000001"]
    cluster.delete_log_dir_event_notifications()
    assert cluster.log_dir_event_notifications() == []

    calls: queue.Queue[str] = queue.Queue()
    changes = cluster.config_changes(calls.put)
    assert cluster.read_config_changes(changes) == [
        ("topics", "t"),
        ("clients", "c"),
        ("users", "u/clients/c"),
    ]
    znodes.create(paths.config_change(), forms.encode_config_change("brokers", "1"), sequence=True)
    assert calls.get(timeout=10) == paths.CONFIG_CHANGES
    assert cluster.read_config_changes(cluster.config_changes()[-1:]) == [("brokers", "1")]


def test_reassignments(cluster: ClusterNodes, znodes: KazooClient) -> None:
    assert cluster.read_reassign_partitions() is None
    cluster.write_reassign_partitions({("t", 0): [1, 2]})
    cluster.write_reassign_partitions({("t", 0): [3], ("u", 1): []})
    assert cluster.read_reassign_partitions() == Reassignments({("t", 0): [3], ("u", 1): []})
    put(znodes, paths.REASSIGN_PARTITIONS, {"version": 1, "partitions": [{"topic": 1, "partition": 0}, 7]})
    read = cluster.read_reassign_partitions()
    assert read is not None
    assert read.partitions == {}
    assert "no field replicas" in read.reasons
    cluster.delete_reassign_partitions()
    cluster.delete_reassign_partitions()
    assert cluster.read_reassign_partitions() is None


def test_preferred_elections(cluster: ClusterNodes, znodes: KazooClient) -> None:
    path, calls = paths.PREFERRED_REPLICA_ELECTION, queue.Queue[str]()
    assert cluster.read_preferred_election(calls.put) is None
    put(znodes, path, {"version": 1, "partitions": [{"topic": "t", "partition": 2}] * 2})
    assert calls.get(timeout=10) == path
    assert cluster.read_preferred_election() == PartitionsNamed([("t", 2)])
    put(znodes, path, b"x")
    assert cluster.read_preferred_election() == PartitionsNamed([], {path: "the data is not a JSON object"})
    cluster.delete_preferred_election()
    assert cluster.read_preferred_election() is None


# -- configurations, features, producer ids


def test_quotas(cluster: ClusterNodes, znodes: KazooClient) -> None:
    alice, app, both = ("user", "älice"), ("client-id", "app"), (("user", "älice"), ("client-id", None))
    cluster.write_quota(both, {"request_percentage": "2.0"})
    assert znodes.exists("/config/users/%C3%A4lice/clients/<default>")
    cluster.write_quota((alice,), {"SCRAM-SHA-256": "secret"})
    cluster.write_quota((app,), {"producer_byte_rate": "5"})
    cluster.write_quota((("ip", None),), {"connection_creation_rate": "1"})
    assert cluster.read_quotas(["user", "client-id", "ip"]) == {
        (alice,): {"SCRAM-SHA-256": "secret"},
        both: {"request_percentage": "2.0"},
        (app,): {"producer_byte_rate": "5"},
        (("ip", None),): {"connection_creation_rate": "1"},
    }
    assert list(cluster.read_quotas(["client-id"])) == [(app,)]
    assert cluster.read_quota(both) == {"request_percentage": "2.0"}
    # Nodes without a configuration go, unless there is one below or above them.
    cluster.write_quota((alice,), {})
    assert cluster.read_quota((alice,)) == {}
    assert cluster.read_quota(both) == {"request_percentage": "2.0"}
    second = (alice, ("client-id", "second"))
    cluster.write_quota(second, {"request_percentage": "1.0"})
    cluster.write_quota(second, {})
    assert znodes.get_children("/config/users/%C3%A4lice/clients") == ["<default>"]
    cluster.write_quota((alice,), {"SCRAM-SHA-256": "secret"})
    cluster.write_quota(both, {})
    assert znodes.get_children("/config/users/%C3%A4lice") == []
    cluster.write_quota(both, {"request_percentage": "2.0"})
    cluster.write_quota((alice,), {})
    cluster.write_quota(both, {})
    cluster.write_quota((app,), {})
    cluster.write_quota((app,), {})
    assert znodes.get_children(paths.USER_CONFIGS) == znodes.get_children("/config/clients") == []
    changes = cluster.read_config_changes(cluster.config_changes())
    assert ("users", "%C3%A4lice/clients/<default>") in changes
    assert ("clients", "app") in changes


def test_configurations(cluster: ClusterNodes, znodes: KazooClient, caplog: pytest.LogCaptureFixture) -> None:
    assert cluster.read_broker_config() == {}
    put(znodes, paths.broker_config(), {"version": 1, "config": {"unclean.leader.election.enable": "true"}})
    put(znodes, paths.broker_config(7), {"version": 1, "config": {"a": "b"}})
    assert cluster.read_broker_config() == {"unclean.leader.election.enable": "true"}
    assert cluster.read_broker_config(7) == {"a": "b"}
    cluster.write_topic_config("t", {"x": "1"})
    cluster.write_topic_config("t", {"x": "2"})
    assert cluster.read_topic_config("t") == {"x": "2"}
    cluster.write_user_config("a b*/~ü", {"SCRAM-SHA-256": "salt=x"})
    assert znodes.get_children(paths.USER_CONFIGS) == ["a%20b%2A%2F%7E%C3%BC"]
    assert cluster.read_user_config("a b*/~ü") == {"SCRAM-SHA-256": "salt=x"}
    assert cluster.user_names() == ["a b*/~ü"]
    assert cluster.read_user_config("nobody") is None
    assert cluster.read_config_changes(cluster.config_changes()) == [
        ("topics", "t"),
        ("users", "a%20b%2A%2F%7E%C3%BC"),
    ]
    put(znodes, paths.topic_config("bad"), {"version": 1, "config": {"password": 17}})
    assert cluster.read_topic_configs(["bad", "t"]) == [{}, {"x": "2"}]
    assert "/config/topics/bad: config 'password' is not a text" in caplog.text
    assert "17" not in caplog.text.partition("bad")[2].partition("\n")[0]


@pytest.mark.parametrize("format_version", [1, 2])
def test_features(cluster: ClusterNodes, znodes: KazooClient, format_version: int) -> None:
    assert cluster.read_feature() is None
    assert cluster.write_feature(format_version, True, {"f": 3}, None) == 0
    assert cluster.read_feature() == FeatureNode(format_version, True, {"f": 3}, 0)
    levels = {"max_version_level": 3} | ({"min_version_level": 3} if format_version == 1 else {})
    assert json.loads(znodes.get(paths.FEATURE)[0]) == {
        "version": format_version,
        "status": 1,
        "features": {"f": levels},
    }
    assert cluster.write_feature(format_version, False, {}, 0) == 1
    assert cluster.read_feature() == FeatureNode(format_version, False, {}, 1)
    with pytest.raises(NodeError, match="BAD_VERSION"):
        cluster.write_feature(format_version, False, {}, 0)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "the data is not a JSON object"),
        ({"version": 3, "status": 1, "features": {}}, "version is 3, not 1 or 2"),
        ({"version": 2, "status": 2, "features": {}}, "status is 2, not 0 or 1"),
        ({"version": 2, "status": 1}, "no field features"),
        ({"version": 2, "status": 1, "features": {"f": {}}}, "no field max_version_level"),
        (
            {"version": 1, "status": 1, "features": {"f": {"max_version_level": 2}}},
            "no field min_version_level",
        ),
        (
            {"version": 2, "status": 1, "features": {"f": {"max_version_level": 0}}},
            "feature 'f' has versions 0",
        ),
    ],
)
def test_malformed_features(cluster: ClusterNodes, znodes: KazooClient, value: Any, reason: str) -> None:
    put(znodes, paths.FEATURE, value)
    with pytest.raises(ZooKeeperError, match=f"/feature: .*{reason}"):
        cluster.read_feature()


def test_producer_ids(cluster: ClusterNodes, znodes: KazooClient) -> None:
    assert cluster.read_producer_id_block() == ProducerIdBlock(-1, 0, -1, 0)
    assert cluster.write_producer_id_block(1, 0, 999, 0)
    assert not cluster.write_producer_id_block(2, 1_000, 1_999, 0)
    assert cluster.read_producer_id_block() == ProducerIdBlock(1, 0, 999, 1)
    assert json.loads(znodes.get(paths.PRODUCER_ID_BLOCK)[0]) == {
        "version": 1,
        "broker": 1,
        "block_start": "0",
        "block_end": "999",
    }
    znodes.delete(paths.PRODUCER_ID_BLOCK)
    assert cluster.read_producer_id_block() is None
    assert cluster.write_producer_id_block(1, 5, 9, None)
    assert not cluster.write_producer_id_block(1, 5, 9, None)
    for value in (
        b"{}",
        {"broker": 1, "block_start": 0, "block_end": "9"},
        {"broker": 1, "block_start": "9", "block_end": "1"},
    ):
        put(znodes, paths.PRODUCER_ID_BLOCK, value)
        with pytest.raises(ZooKeeperError, match="/latest_producer_id_block: "):
            cluster.read_producer_id_block()


def test_a_missing_chroot_is_an_error(zookeeper: str) -> None:
    class Unguarded(ConfigNodes):
        """A broker's: its writes check no epoch, whose node would be missing, too."""

        def write(self, operations: Sequence[Operation]) -> list[int]:
            return self.session.multi(operations)

    with (
        session(f"{zookeeper}/not/there") as one,
        pytest.raises(ZooKeeperError, match="the chroot does not exist"),
    ):
        Unguarded(one).create_missing(["/config/topics"])
