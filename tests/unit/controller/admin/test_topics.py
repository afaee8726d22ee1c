"""Creation and deletion of topics, and more partitions, in a real ZooKeeper.

The nodes' effects are the event loop's; here the context is changed as the loop changes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from kazoo.client import KazooClient

from ctrlchan._codec import ListColumn
from ctrlchan.channel import ChannelConfig
from ctrlchan.config.policies import CreateTopicPolicy, Policies, PolicyViolation, TopicRequest
from ctrlchan.controller.admin.topics import (
    CreatedTopic,
    NewPartitions,
    NewTopic,
    create_partitions,
    create_topics,
    delete_topics,
    has_leaders,
    is_deleted,
)
from ctrlchan.controller.core import ControllerCore
from ctrlchan.controller.machines.context import ControllerContext
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.errors import ControllerMovedError, ErrorCode, KafkaError
from ctrlchan.state import Broker, ClusterState
from ctrlchan.zookeeper.cluster import ClusterNodes

CONTROLLER_ID = 1000
BROKERS = (1, 2, 3)


def core_of(nodes: ClusterNodes, brokers: Sequence[Broker] = (), **settings: Any) -> ControllerCore:
    """A controller with brokers 1, 2 and 3, that announces itself."""
    state = ClusterState.empty()
    state.set_brokers(brokers or [Broker(broker_id) for broker_id in BROKERS])
    state.set_announced([Broker(CONTROLLER_ID)])
    context = ControllerContext(state, 1, 0)
    without: Any = None
    core = ControllerCore(
        config=ControllerConfig(controller_id=CONTROLLER_ID, zookeeper="localhost:2181", **settings),
        loop=without,
        session=without,
        nodes=nodes,
        context=context,
        channel=without,
        batch=without,
        topic_configs=without,
        notifier=without,
    )
    deletion: Any = SimpleNamespace(is_queued=lambda name: name in context.topics_to_delete)
    core.deletion = deletion
    return core


@pytest.fixture
def core(nodes: ClusterNodes) -> ControllerCore:
    return core_of(nodes)


def add(core: ControllerCore, name: str, assignment: Mapping[int, Sequence[int]], leader: int = -1) -> None:
    """What the loop does when it finds a topic, and has elected its leaders."""
    count = len(assignment)
    rows = core.context.add_partitions(
        [name.encode()],
        np.zeros((1, 16), np.uint8),
        np.zeros(count, np.int32),
        np.array(list(assignment), np.int32),
        ListColumn.from_lists(list(assignment.values())),
    )
    if leader >= 0:
        core.state.update(rows, leader=leader, leader_epoch=0)


def create(core: ControllerCore, *topics: NewTopic, **options: bool) -> dict[str, Any]:
    """Name -> CreatedTopic, or (code, message)."""
    return {
        name: (result.code, result.message) if isinstance(result, KafkaError) else result
        for name, result in create_topics(core, topics, **options).items()
    }


def read(znodes: KazooClient, path: str) -> Any:
    return json.loads(znodes.get(path)[0])


def test_a_topic_as_kafka_writes_it(core: ControllerCore, znodes: KazooClient) -> None:
    configs = [("retention.ms", "5"), ("min.insync.replicas", "2")]
    created = create(core, NewTopic(name="t", num_partitions=4, replication_factor=2, configs=configs))["t"]
    assert isinstance(created, CreatedTopic)
    node = read(znodes, "/brokers/topics/t")
    assert node["version"] == 3
    assert len(node["topic_id"]) == 22
    assert node["adding_replicas"] == node["removing_replicas"] == {}
    assert {int(key): value for key, value in node["partitions"].items()} == created.assignment
    assert all(set(replicas) < set(BROKERS) for replicas in created.assignment.values())
    assert read(znodes, "/config/topics/t") == {
        "version": 1,
        "config": {"retention.ms": "5", "min.insync.replicas": "2"},
    }
    assert create(core, NewTopic(name="t"))["t"] == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "Topic 't' already exists.",
    )


def test_defaults(nodes: ClusterNodes) -> None:
    core = core_of(nodes, num_partitions=3, default_replication_factor=2)
    created = create(core, NewTopic(name="a"), NewTopic(name="b", replication_factor=1))
    assert [len(replicas) for replicas in created["a"].assignment.values()] == [2, 2, 2]
    assert [len(replicas) for replicas in created["b"].assignment.values()] == [1, 1, 1]


def test_topic_ids_are_given_from_inter_broker_protocol_2_8_on(
    nodes: ClusterNodes, znodes: KazooClient
) -> None:
    core = core_of(nodes, channel=ChannelConfig(inter_broker_protocol="2.7"))
    assert create(core, NewTopic(name="t"))["t"].topic_id == bytes(16)
    assert "topic_id" not in read(znodes, "/brokers/topics/t")


def test_a_manual_assignment(core: ControllerCore, znodes: KazooClient) -> None:
    """Of brokers that need not live, as in Kafka."""
    assignment = {0: [1, 7], 1: [7, 2]}
    create(core, NewTopic(name="t", assignment=assignment))
    assert read(znodes, "/brokers/topics/t")["partitions"] == {"0": [1, 7], "1": [7, 2]}


def test_only_validated(core: ControllerCore, znodes: KazooClient) -> None:
    created = create(core, NewTopic(name="t", num_partitions=2), validate_only=True)
    assert len(created["t"].assignment) == 2
    assert znodes.exists("/brokers/topics/t") is None
    assert create(core, NewTopic(name="t", num_partitions=0), validate_only=True)["t"][0] == (
        ErrorCode.INVALID_PARTITIONS
    )


def test_each_topic_fails_for_itself(core: ControllerCore, znodes: KazooClient) -> None:
    """CreateTopicsRequestTest.testErrorCreateTopicsRequests and testInvalidCreateTopicsRequests."""
    add(core, "existing-topic", {0: [1]})
    add(core, "dying-topic", {0: [1]})
    core.context.queue_topic_deletion(["dying-topic"])
    results = create(
        core,
        NewTopic(name="existing-topic"),
        NewTopic(name="dying-topic"),
        NewTopic(name="partitions", num_partitions=-2),
        NewTopic(name="replication", replication_factor=4),
        NewTopic(name="config", configs=[("not.a.property", "error")]),
        NewTopic(name="null-config", configs=[("retention.ms", None), ("segment.ms", None)]),
        NewTopic(name="sizes", assignment={0: [1, 2], 1: [1]}),
        NewTopic(name="duplicates", assignment={0: [1, 1]}),
        NewTopic(name="gap", assignment={0: [1], 2: [1]}),
        NewTopic(name="no-replicas", assignment={0: []}),
        NewTopic(name="both", num_partitions=10, replication_factor=3, assignment={0: [1]}),
        NewTopic(name="controller", assignment={0: [CONTROLLER_ID]}),
        NewTopic(name="bad name"),
        NewTopic(name="__cluster_metadata"),
        NewTopic(name="good"),
    )
    good = results.pop("good")
    assert isinstance(good, CreatedTopic)
    assert results == {
        "existing-topic": (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'existing-topic' already exists."),
        "dying-topic": (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'dying-topic' is marked for deletion."),
        "partitions": (ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
        "replication": (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor: 4 larger than available brokers: 3.",
        ),
        "config": (ErrorCode.INVALID_CONFIG, "Unknown topic config name: not.a.property"),
        "null-config": (
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms,segment.ms",
        ),
        "sizes": (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "All partitions should have the same number of replicas",
        ),
        "duplicates": (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Duplicate replica assignment found: 0 -> [1, 1]",
        ),
        "gap": (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        "no-replicas": (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Invalid replica list for partition 0: []",
        ),
        "both": (
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. "
            "Both cannot be used at the same time.",
        ),
        "controller": (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Broker 1000 is a controller that stores no replicas.",
        ),
        "bad name": (
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'bad name' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'",
        ),
        "__cluster_metadata": (
            ErrorCode.INVALID_REQUEST,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
    }
    assert znodes.get_children("/brokers/topics") == ["good"]
    assert znodes.get_children("/config/topics") == ["good"]


def test_colliding_names_also_within_one_request(core: ControllerCore) -> None:
    add(core, "a.b", {0: [1]})
    results = create(core, NewTopic(name="a_b"), NewTopic(name="x.y"), NewTopic(name="x_y"))
    assert results["a_b"] == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Topic 'a_b' collides with existing topics: a.b",
    )
    assert isinstance(results["x.y"], CreatedTopic)
    assert results["x_y"][0] == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_another_broker_was_faster(core: ControllerCore, znodes: KazooClient) -> None:
    """Its topic is not in the context yet, and is not changed."""
    znodes.create("/brokers/topics/t", b"theirs", makepath=True)
    assert create(core, NewTopic(name="t"))["t"][0] == ErrorCode.TOPIC_ALREADY_EXISTS
    assert znodes.get("/brokers/topics/t")[0] == b"theirs"
    assert znodes.exists("/config/topics/t") is None


def test_racks_are_used(nodes: ClusterNodes) -> None:
    core = core_of(nodes, [Broker(one, rack=f"r{one % 2}") for one in (1, 2, 3, 4)])
    created = create(core, NewTopic(name="t", num_partitions=8, replication_factor=2))["t"]
    assert all({broker % 2 for broker in replicas} == {0, 1} for replicas in created.assignment.values())
    core = core_of(nodes, [Broker(1, rack="r"), Broker(2)])
    assert create(core, NewTopic(name="u"))["u"][0] == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_controller_that_has_moved_writes_nothing(core: ControllerCore, znodes: KazooClient) -> None:
    znodes.set("/controller_epoch", b"99")
    add(core, "t", {0: [1]})
    with pytest.raises(ControllerMovedError):
        create_topics(core, [NewTopic(name="u")])
    with pytest.raises(ControllerMovedError):
        delete_topics(core, ["t"])
    assert znodes.exists("/brokers/topics/u") is None
    assert znodes.exists("/admin/delete_topics/t") is None


# -- deletion


def test_topics_are_queued_once(core: ControllerCore, znodes: KazooClient) -> None:
    add(core, "t", {0: [1]})
    for _ in range(2):
        results = delete_topics(core, ["t", "unknown"])
        assert results["t"] is None
        unknown = results["unknown"]
        assert unknown is not None
        assert unknown.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert znodes.get_children("/admin/delete_topics") == ["t"]


def test_a_topic_whose_deletion_has_begun_is_unknown(core: ControllerCore) -> None:
    add(core, "t", {0: [1]})
    assert not is_deleted(core, "t")
    core.context.queue_topic_deletion(["t"])
    core.context.begin_topic_deletion(["t"])
    assert is_deleted(core, "t")
    error = delete_topics(core, ["t"])["t"]
    assert error is not None
    assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- partitions (AddPartitionsTest)


@pytest.fixture
def grown(core: ControllerCore, znodes: KazooClient) -> ControllerCore:
    """Topics of two replicas, in ZooKeeper and in the context."""
    for name, assignment in (("new-topic1", {0: [1, 2]}), ("new-topic2", {0: [2, 3]})):
        create(core, NewTopic(name=name, assignment=assignment))
        add(core, name, assignment)
    return core


def partitions(core: ControllerCore, *topics: NewPartitions, **options: bool) -> dict[str, Any]:
    return {
        name: (result.code, result.message) if isinstance(result, KafkaError) else result
        for name, result in create_partitions(core, topics, **options).items()
    }


def test_more_partitions(grown: ControllerCore, znodes: KazooClient) -> None:
    """testIncrementPartitions, testReplicaPlacementPartialServers: they go on behind partition 0."""
    before = read(znodes, "/brokers/topics/new-topic1")
    assert partitions(grown, NewPartitions(name="new-topic1", count=3)) == {"new-topic1": 3}
    node = read(znodes, "/brokers/topics/new-topic1")
    assert node["topic_id"] == before["topic_id"]
    assert node["partitions"]["0"] == [1, 2]
    assert [node["partitions"][str(at)][0] for at in (1, 2)] == [2, 3]
    assert all(len(set(replicas)) == 2 for replicas in node["partitions"].values())


def test_more_partitions_with_given_replicas(grown: ControllerCore, znodes: KazooClient) -> None:
    """testManualAssignmentOfReplicas."""
    asked = NewPartitions(name="new-topic2", count=3, assignments=[[1, 2], [2, 3]])
    assert partitions(grown, asked) == {"new-topic2": 3}
    assert read(znodes, "/brokers/topics/new-topic2")["partitions"] == {
        "0": [2, 3],
        "1": [1, 2],
        "2": [2, 3],
    }


def test_partitions_that_are_only_validated(grown: ControllerCore, znodes: KazooClient) -> None:
    before = znodes.get("/brokers/topics/new-topic1")
    assert partitions(grown, NewPartitions(name="new-topic1", count=3), validate_only=True) == {
        "new-topic1": 3
    }
    assert znodes.get("/brokers/topics/new-topic1") == before


@pytest.mark.parametrize(
    ("count", "assignments", "error", "message"),
    [
        (1, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 1 partitions."),
        (
            0,
            None,
            ErrorCode.INVALID_PARTITIONS,
            "Topic currently has 1 partitions, which is higher than the requested 0.",
        ),
        (
            2,
            [[1, 2, 3]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Inconsistent replication factor between partitions, partition 0 has 2 while partitions [1] "
            "have replication factors [3], respectively.",
        ),
        (
            2,
            [[1, 2], [2, 3]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Increasing the number of partitions by 1 but 2 assignments provided.",
        ),
        (
            2,
            [[1, 9]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Unknown broker(s) in replica assignment: 9.",
        ),
        (
            2,
            [[1, CONTROLLER_ID]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Unknown broker(s) in replica assignment: 1000.",
        ),
        (
            2,
            [[1, 1]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Duplicate brokers not allowed in replica assignment: 1, 1 for partition id 1.",
        ),
        (
            2,
            [[]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Cannot have replication factor of 0 for partition id 1.",
        ),
    ],
)
def test_partitions_that_are_refused(
    grown: ControllerCore,
    znodes: KazooClient,
    count: int,
    assignments: list[list[int]] | None,
    error: ErrorCode,
    message: str,
) -> None:
    """testWrongReplicaCount and others; another topic of the request is not affected."""
    before = znodes.get("/brokers/topics/new-topic1")
    results = partitions(
        grown,
        NewPartitions(name="new-topic1", count=count, assignments=assignments),
        NewPartitions(name="new-topic2", count=2),
    )
    assert results == {"new-topic1": (error, message), "new-topic2": 2}
    assert znodes.get("/brokers/topics/new-topic1") == before


def test_topics_that_get_no_partitions(grown: ControllerCore, znodes: KazooClient) -> None:
    """testMissingPartition0, dying topics, reassignments, topics that do not exist or cannot be read."""
    node = read(znodes, "/brokers/topics/new-topic1")
    for name, changes in (
        ("no-partition-0", {"partitions": {"1": [1, 2]}}),
        ("moving", {"adding_replicas": {"0": [3]}, "partitions": {"0": [1, 2, 3]}}),
    ):
        znodes.create(f"/brokers/topics/{name}", json.dumps({**node, **changes}).encode())
    znodes.create("/brokers/topics/malformed", b"{")
    grown.context.queue_topic_deletion(["new-topic1"])
    names = ("new-topic1", "unknown", "not a topic", "no-partition-0", "moving", "malformed")
    results = partitions(grown, *(NewPartitions(name=name, count=5) for name in names))
    assert results["new-topic1"] == (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "The topic is queued for deletion.",
    )
    assert results["unknown"] == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "The topic 'unknown' does not exist.",
    )
    assert results["not a topic"][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    code, message = results["no-partition-0"]
    assert code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert message.startswith(
        "Unexpected existing replica assignment for topic 'no-partition-0', partition id 0 is missing"
    )
    assert results["moving"] == (
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        "A partition reassignment is in progress for the topic 'moving'.",
    )
    assert results["malformed"][0] == ErrorCode.UNKNOWN_SERVER_ERROR


def test_has_leaders(core: ControllerCore) -> None:
    assert not has_leaders(core, "t", 1)
    add(core, "t", {0: [1], 1: [2]})
    assert not has_leaders(core, "t", 2)
    core.state.update("all", leader=1, leader_epoch=0)
    assert has_leaders(core, "t", 2)
    assert not has_leaders(core, "t", 3)


class TwoReplicas(CreateTopicPolicy):
    asked: ClassVar[list[TopicRequest]] = []

    def validate(self, request: TopicRequest) -> None:
        self.asked.append(request)
        if request.replication_factor == 1:
            raise PolicyViolation("too few")


def test_a_policy_is_asked_about_topics_that_could_be_created(nodes: ClusterNodes) -> None:
    core = core_of(nodes)
    core.policies = Policies(TwoReplicas())
    TwoReplicas.asked.clear()
    topics = [
        NewTopic(name="small", num_partitions=2, replication_factor=1, configs=[("retention.ms", "7")]),
        NewTopic(name="assigned", assignment={0: [1]}),
        NewTopic(name="not a topic", num_partitions=1, replication_factor=1),
    ]
    results = create_topics(core, topics, validate_only=True)
    small, assigned = results["small"], results["assigned"]
    assert isinstance(small, KafkaError)
    assert (small.code, small.message) == (ErrorCode.POLICY_VIOLATION, "too few")
    assert isinstance(assigned, CreatedTopic)
    assert [one.topic for one in TwoReplicas.asked] == ["small", "assigned"]
    first, second = TwoReplicas.asked
    assert (first.num_partitions, first.replicas_assignments) == (2, None)
    assert first.configs == {"retention.ms": "7"}
    assert (second.num_partitions, second.replication_factor) == (None, None)
    assert second.replicas_assignments == {0: [1]}
