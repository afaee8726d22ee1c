"""State nodes of partitions in bulk, on a real ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from kazoo.client import KazooClient

from ctrlchan.errors import ControllerMovedError, IllegalStateError, ResultCode
from ctrlchan.zookeeper import paths
from ctrlchan.zookeeper.cluster import ClusterNodes
from ctrlchan.zookeeper.settings import ZooKeeperSettings
from tests.unit.zookeeper.sessions import elected, int32, rows_of, session, states


@pytest.fixture
def cluster(zookeeper: str) -> Iterator[ClusterNodes]:
    with elected(zookeeper) as nodes:
        nodes.create_topics(["t", "u"], [None, None], [{0: [1]}, {0: [1]}], [{}, {}])
        yield nodes


def test_twenty_thousand_states(cluster: ClusterNodes) -> None:
    count = 20_000
    names = [b"t", b"u"]
    topic_row = (np.arange(count) % 2).astype(np.int32)
    partition = (np.arange(count) // 2).astype(np.int32)
    absent = cluster.read_partition_states(names, topic_row, partition)
    assert (absent.version == -1).all()
    assert (absent.leader == -1).all()
    assert absent.isr.to_lists() == [[]] * count
    assert absent.malformed == {}

    created = cluster.create_partition_states(names, topic_row, partition, states(count))
    assert not created.error.any()
    assert not created.version.any()
    read = cluster.read_partition_states(names, topic_row, partition)
    assert rows_of(read) == rows_of(states(count))
    assert not read.version.any()

    updated = cluster.update_partition_states(names, topic_row, partition, states(count, 9), read.version)
    assert not updated.error.any()
    assert (updated.version == 1).all()
    read = cluster.read_partition_states(names, topic_row, partition)
    assert rows_of(read) == rows_of(states(count, 9))
    assert (read.version == 1).all()
    assert read.malformed == {}


def test_bad_rows_do_not_stop_others(cluster: ClusterNodes) -> None:
    count = 3_000
    topic_row, partition = np.zeros(count, np.int32), np.arange(count, dtype=np.int32)
    cluster.create_partition_states([b"t"], topic_row, partition, states(count))
    expected = np.zeros(count, np.int32)
    bad = [0, 1, 2, 999, 1_000, 1_500, 2_998, 2_999]
    expected[bad] = 5
    gone = [500, 1_001]
    for number in gone:
        cluster.session.delete(paths.partition_state("t", number))
    written = cluster.update_partition_states([b"t"], topic_row, partition, states(count, 1), expected)
    wanted = np.zeros(count, np.int32)
    wanted[bad], wanted[gone] = ResultCode.BAD_VERSION, ResultCode.NO_NODE
    assert written.error.tolist() == wanted.tolist()
    assert written.version.tolist() == np.where(wanted == 0, 1, -1).tolist()
    read = cluster.read_partition_states([b"t"], topic_row, partition)
    assert read.leader_epoch.tolist() == np.where(wanted == 0, 1, np.where(read.version < 0, -1, 0)).tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 700])
def test_rows_that_are_all_bad(cluster: ClusterNodes, count: int) -> None:
    topic_row, partition = np.zeros(count, np.int32), np.arange(count, dtype=np.int32)
    written = cluster.update_partition_states([b"t"], topic_row, partition, states(count), topic_row)
    assert written.error.tolist() == [ResultCode.NO_NODE] * count


def test_created_where_some_nodes_are_there_already(cluster: ClusterNodes) -> None:
    cluster.create_partition_states([b"t"], int32(0, 0), int32(1, 3), states(2))
    cluster.session.create_path(paths.partition("t", 2))
    written = cluster.create_partition_states(
        [b"t", b"u", b"gone"], int32(0, 0, 0, 0, 1, 2), int32(0, 1, 2, 3, 0, 0), states(6)
    )
    exists, absent = ResultCode.NODE_EXISTS, ResultCode.NO_NODE
    assert written.error.tolist() == [0, exists, 0, exists, 0, absent]
    assert written.version.tolist() == [0, -1, 0, -1, 0, -1]


def test_no_rows(cluster: ClusterNodes) -> None:
    none = int32()
    assert len(cluster.read_partition_states([], none, none).leader) == 0
    assert len(cluster.update_partition_states([], none, none, states(0), none).error) == 0
    assert len(cluster.create_partition_states([], none, none, states(0)).error) == 0


def test_requests_are_below_the_longest_that_the_server_takes(zookeeper: str) -> None:
    """Names of 249 characters: a thousand rows of a topic take more than one request."""
    name, count = b"n" * 249, 300
    with elected(zookeeper) as nodes:
        nodes.session.settings = ZooKeeperSettings(connect=zookeeper, max_request_bytes=10_000)
        nodes.create_topic(name.decode(), None, {0: [1]})
        topic_row, partition = np.zeros(count, np.int32), np.arange(count, dtype=np.int32)
        wide = states(count, isr=[list(range(1_000, 1_000 + row % 50)) for row in range(count)])
        assert not nodes.create_partition_states([name], topic_row, partition, wide).error.any()
        read = nodes.read_partition_states([name], topic_row, partition)
        assert rows_of(read) == rows_of(wide)


def test_a_zombie_cannot_write(zookeeper: str, cluster: ClusterNodes, znodes: KazooClient) -> None:
    """Another controller is elected: every write of this one is refused and changes nothing."""
    cluster.create_partition_states([b"t"], int32(0), int32(0), states(1))
    znodes.delete(paths.CONTROLLER)
    with session(zookeeper) as other:
        another = ClusterNodes(other)
        assert another.become_controller(2, 1).epoch == 2
        before = dump(znodes)
        writes: list[Any] = [
            lambda: cluster.update_partition_states([b"t"], int32(0), int32(0), states(1, 3), int32(0)),
            lambda: cluster.create_partition_states([b"t"], int32(0), int32(1), states(1)),
            lambda: cluster.write_topic_assignment("t", None, {0: ([2], [], [])}),
            lambda: cluster.write_topic_assignments(
                [b"t"], [None], int32(0), int32(0), states(1).isr, states(1).isr, states(1).isr
            ),
            lambda: cluster.create_topic("new", None, {0: [1]}),
            lambda: cluster.delete_topics(["t"]),
            lambda: cluster.queue_topic_deletions(["t"]),
            lambda: cluster.delete_topic_requests(["t"]),
            lambda: cluster.write_reassign_partitions({("t", 0): [1]}),
            cluster.delete_reassign_partitions,
            cluster.delete_preferred_election,
            lambda: cluster.delete_isr_change_notifications(["isr_change_0000000000"]),
            lambda: cluster.delete_log_dir_event_notifications(["log_dir_event_0000000000"]),
            lambda: cluster.write_feature(1, True, {}, None),
            lambda: cluster.write_producer_id_block(1, 0, 9, 0),
            lambda: cluster.write_topic_config("t", {}),
            lambda: cluster.write_user_config("u", {}),
            cluster.resign,
        ]
        for write in writes:
            with pytest.raises(ControllerMovedError, match="another controller was elected"):
                write()
        assert dump(znodes) == before


def dump(client: KazooClient, path: str = "/") -> dict[str, Any]:
    found = {}
    for name in client.get_children(path):
        below = f"{path.rstrip('/')}/{name}"
        found[below] = client.get(below)
        found.update(dump(client, below))
    return found


def test_nothing_is_written_before_an_election(zookeeper: str) -> None:
    with session(zookeeper) as one, pytest.raises(IllegalStateError):
        ClusterNodes(one).delete_topics(["t"])


GOOD = {"version": 1, "leader": 1, "leader_epoch": 2, "controller_epoch": 3, "isr": [1, 2]}
NOT_JSON = "the data is not a JSON object"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", NOT_JSON),
        (b"null", NOT_JSON),
        (b"[]", NOT_JSON),
        (b"{}", "no field leader"),
        (b"\xff\xfe{}", NOT_JSON),
        (json.dumps(GOOD).encode()[:-1], NOT_JSON),
        (json.dumps(GOOD).encode() + b"x", NOT_JSON),
        (json.dumps(GOOD)[:-1].encode() + b',"leader":2}', NOT_JSON),
        (json.dumps({**GOOD, "leader": "1"}), "leader is '\"1\"', not a whole number"),
        (json.dumps({**GOOD, "leader": 1.0}), "leader is '1.0', not a whole number"),
        (json.dumps({**GOOD, "leader": True}), "leader is 'true', not a whole number"),
        (json.dumps({**GOOD, "leader": 2**31}), "leader 2147483648 is not in -2"),
        (json.dumps({**GOOD, "leader": 10**400}), "leader is '1000"),
        (json.dumps({**GOOD, "leader": -3}), "leader -3 is not in -2"),
        (json.dumps({**GOOD, "leader_epoch": -2}), "leader_epoch -2 is not in -1"),
        (json.dumps({**GOOD, "isr": None}), "isr is 'null', not a list of broker ids"),
        (json.dumps({**GOOD, "isr": [1, "2"]}), "not a list of broker ids"),
        (json.dumps({**GOOD, "isr": [-1]}), "isr has -1, which is no broker id"),
        (json.dumps({**GOOD, "isr": [[]] * 10_000}), "not a list of broker ids"),
        (json.dumps({**GOOD, "leader_recovery_state": 2}), "leader_recovery_state 2 is not in 0 .. 1"),
        (b"[" * 100_000, NOT_JSON),
        (b'{"leader":01,"leader_epoch":1,"controller_epoch":1,"isr":[]}', NOT_JSON),
    ],
)
@pytest.mark.parametrize("multi_read", [True, False])
def test_a_malformed_state_is_named_and_stops_no_other(
    cluster: ClusterNodes, data: bytes | str, reason: str, multi_read: bool
) -> None:
    cluster.create_partition_states([b"t"], int32(0, 0, 0), int32(0, 1, 2), states(3))
    cluster.session.set(paths.partition_state("t", 1), data.encode() if isinstance(data, str) else data)
    cluster.session.has_multi_read = multi_read
    read = cluster.read_partition_states([b"t"], int32(0, 0, 0, 0), int32(0, 1, 2, 3))
    assert list(read.malformed) == [1]
    assert reason in read.malformed[1]
    rows, good = rows_of(read), rows_of(states(3))
    assert rows == [good[0], (-1, -1, -1, 0, []), good[2], (-1, -1, -1, 0, [])]
    assert read.version.tolist() == [0, 1, 0, -1]


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(GOOD),
        json.dumps(GOOD, indent=1),
        json.dumps({**GOOD, "unknown": {"a": [1, "x"]}}),
        json.dumps({name: GOOD[name] for name in sorted(GOOD)}, separators=(",", ":")),
        json.dumps(GOOD, separators=(",", ":")).replace("leader_epoch", "leader\\u005fepoch"),
        json.dumps({**GOOD, "version": "one"}),
    ],
)
def test_other_forms_of_good_states_are_read(cluster: ClusterNodes, data: str) -> None:
    cluster.create_partition_states([b"t"], int32(0), int32(0), states(1))
    cluster.session.set(paths.partition_state("t", 0), data.encode())
    read = cluster.read_partition_states([b"t"], int32(0), int32(0))
    assert rows_of(read) == [(1, 2, 3, 0, [1, 2])]
    assert read.malformed == {}
    assert read.version.tolist() == [1]
