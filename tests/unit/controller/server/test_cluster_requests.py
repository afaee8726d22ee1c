"""Requests to a controller of embedded brokers, in a real ZooKeeper, by raw frames and by real clients.

Twins of Kafka's CreateTopicsRequestTest, DeleteTopicsRequestTest, AddPartitionsTest, and of what
BrokerEpochIntegrationTest and AllocateProducerIdsRequestTest have to do with requests.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
)
from kazoo.client import KazooClient
from kio.schema.errors import ErrorCode as KioError

from ctrlchan import EmbeddedCluster
from ctrlchan.controller.kafka_controller import KafkaController
from ctrlchan.controller.settings.config import ControllerConfig
from ctrlchan.errors import SessionExpiredError
from tests.kafka.waiting import wait_until
from tests.kafka.zookeeper import ZooKeeperServer
from tests.unit.controller.server.local_server import ID, plaintext
from tests.unit.controller.server.requests import Connection, connection, part, timeout

CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS, METADATA = 19, 20, 37, 3
CONTROLLED_SHUTDOWN, ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 7, 43, 45, 46
ALTER_PARTITION, ALLOCATE_PRODUCER_IDS, INIT_PRODUCER_ID, FIND_COORDINATOR = 56, 67, 22, 10
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
DESCRIBE_QUOTAS, ALTER_QUOTAS = 48, 49
TOPIC, BROKER = 2, 4
NO_ERROR = KioError.none

names = (f"topic-{number}" for number in itertools.count())


@dataclass
class Cluster:
    controller: KafkaController
    brokers: EmbeddedCluster
    address: str
    znodes: KazooClient

    def node(self, path: str) -> Any:
        return json.loads(self.znodes.get(path)[0])

    def epoch(self, broker_id: int) -> int:
        stat: Any = self.znodes.exists(f"/brokers/ids/{broker_id}")
        return int(stat.czxid)


@pytest.fixture(scope="module")
def cluster(zookeeper_server: ZooKeeperServer) -> Iterator[Cluster]:
    """A controller of brokers 1, 2 and 3, two of them in processes of their own."""
    znodes = KazooClient(hosts=zookeeper_server.address, timeout=10)
    znodes.start()
    chroot = f"/requests-{uuid.uuid4().hex[:8]}"
    znodes.create(chroot)
    znodes.chroot = chroot
    zookeeper = f"{zookeeper_server.address}{chroot}"
    config = ControllerConfig(controller_id=ID, zookeeper=zookeeper, listeners=(plaintext(),))
    try:
        with (
            KafkaController(config) as controller,
            EmbeddedCluster(3, log_dir=None, zookeeper=zookeeper) as brokers,
        ):
            controller.wait_until_active(30)
            (endpoint,) = controller.endpoints
            found = Cluster(controller, brokers, f"{endpoint.host}:{endpoint.port}", znodes)
            with connection(found.address) as client:
                wait_until(
                    lambda: (
                        {one.node_id for one in client.ask(METADATA, 9, {"topics": None}).brokers}
                        == {1, 2, 3, ID}
                    ),
                    what="all brokers are live",
                )
            yield found
    finally:
        znodes.stop()
        znodes.close()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Connection]:
    with connection(cluster.address) as client:
        yield client


@pytest.fixture(scope="module")
def kafka_python() -> ModuleType:
    with warnings.catch_warnings():
        # It reads its schemas through a deprecated function of the standard library.
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka

    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    return kafka  # type: ignore[no-any-return]


def new_topic(
    version: int,
    name: str,
    partitions: int = 1,
    replication_factor: int = 1,
    *,
    assignment: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str] | None = None,
) -> Any:
    if assignment:
        partitions = replication_factor = -1
    return part(
        CREATE_TOPICS,
        version,
        "CreatableTopic",
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=tuple(
            part(
                CREATE_TOPICS,
                version,
                "CreatableReplicaAssignment",
                partition_index=partition,
                broker_ids=tuple(replicas),
            )
            for partition, replicas in (assignment or {}).items()
        ),
        configs=tuple(
            part(CREATE_TOPICS, version, "CreatableTopicConfig", name=key, value=value)
            for key, value in (configs or {}).items()
        ),
    )


def create(
    client: Connection, *topics: Any, version: int = 7, seconds: float = 30, validate_only: bool = False
) -> dict[str, Any]:
    body = client.ask(
        CREATE_TOPICS,
        version,
        {"topics": topics, "timeout": timeout(seconds), "validate_only": validate_only},
    )
    return {topic.name: topic for topic in body.topics}


def created(client: Connection, *assignments: Sequence[int], name: str = "") -> str:
    """The name of a new topic with these replicas."""
    name = name or next(names)
    topic = new_topic(7, name, assignment=dict(enumerate(assignments or [[1, 2]])))
    assert create(client, topic)[name].error_code == NO_ERROR
    return name


def delete(client: Connection, *deleted: Any, version: int = 6, seconds: float = 30) -> list[Any]:
    """Topics by name (str) or id (UUID)."""
    topics = tuple(
        part(
            DELETE_TOPICS,
            6,
            "DeleteTopicState",
            name=one if isinstance(one, str) else None,
            topic_id=one if isinstance(one, uuid.UUID) else None,
        )
        for one in deleted
    )
    fields = {"topics": topics, "topic_names": deleted, "timeout": timeout(seconds)}
    return list(client.ask(DELETE_TOPICS, version, fields).responses)


def metadata(client: Connection, name: str) -> Any:
    (topic,) = client.ask(METADATA, 9, {"topics": [name]}).topics
    return topic


# -- CreateTopics


def test_without_a_session_it_is_not_the_controller(
    client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client asks the next controller. The session ends after the request was read, before it is done."""

    def expired(*_: object, **__: object) -> None:
        raise SessionExpiredError("zookeeper 127.0.0.1:2181: the session has expired")

    monkeypatch.setattr("ctrlchan.controller.server.apis.create_topics.create_topics", expired)
    (answer,) = create(client, new_topic(7, "expired")).values()
    assert answer.error_code == KioError.not_controller


@pytest.mark.parametrize("validate_only", [False, True])
def test_valid_requests(client: Connection, validate_only: bool) -> None:
    """testValidCreateTopicsRequests: chosen, given and default assignments, several topics at once."""
    requests: list[dict[str, Any]] = [
        {},
        {"replication_factor": 3},
        {"partitions": 5, "replication_factor": 2, "configs": {"min.insync.replicas": "2"}},
        {"assignment": {0: [1]}},
        {"assignment": {0: [1, 2], 1: [2, 1], 2: [2, 3]}},
        {"partitions": -1, "replication_factor": -1},
        {"partitions": -1, "replication_factor": 2},
        {"partitions": 2, "replication_factor": -1},
    ]
    wanted = {next(names): fields for fields in requests}
    topics = [new_topic(7, name, **fields) for name, fields in wanted.items()]
    results = create(client, *topics, validate_only=validate_only)
    for name, fields in wanted.items():
        given = fields.get("assignment")
        partitions = len(given) if given else abs(fields.get("partitions", 1))
        factor = len(given[0]) if given else abs(fields.get("replication_factor", 1))
        result = results[name]
        assert (result.error_code, result.error_message) == (NO_ERROR, None)
        assert (result.num_partitions, result.replication_factor) == (partitions, factor)
        assert (result.topic_id is None) is validate_only
        found = metadata(client, name)
        if validate_only:
            assert found.error_code == KioError.unknown_topic_or_partition
        else:
            # The effect is there when the answer is.
            assert found.error_code == NO_ERROR
            assert [one.error_code for one in found.partitions] == [NO_ERROR] * partitions
            assert all(len(one.replica_nodes) == factor for one in found.partitions)
            assert all(ID not in one.replica_nodes for one in found.partitions)


def test_requests_with_errors(client: Connection) -> None:
    """testErrorCreateTopicsRequests: a topic that fails does not stop the others."""
    existing, good = created(client), next(names)
    results = create(
        client,
        new_topic(7, existing),
        new_topic(7, "partial-partitions", partitions=-2),
        new_topic(7, "partial-replication", replication_factor=4),
        new_topic(7, "partial-config", configs={"not.a.property": "error"}),
        new_topic(7, "partial-assignment", assignment={0: [1, 2], 1: [1]}),
        new_topic(7, good),
    )
    assert {name: result.error_code for name, result in results.items()} == {
        existing: KioError.topic_already_exists,
        "partial-partitions": KioError.invalid_partitions,
        "partial-replication": KioError.invalid_replication_factor,
        "partial-config": KioError.invalid_config,
        "partial-assignment": KioError.invalid_replica_assignment,
        good: NO_ERROR,
    }
    failed = results[existing]
    assert failed.error_message == f"Topic '{existing}' already exists."
    assert (failed.num_partitions, failed.replication_factor, failed.configs) == (-1, -1, ())


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_timeout_that_is_over(client: Connection, seconds: float) -> None:
    """testErrorCreateTopicsRequests: the topic is created nevertheless."""
    name = next(names)
    assert create(client, new_topic(7, name), seconds=seconds)[name].error_code == KioError.request_timed_out
    wait_until(lambda: metadata(client, name).error_code == NO_ERROR, what="the topic is created")


def test_a_timeout_before_there_are_leaders(client: Connection) -> None:
    """A partition whose only replica is on a broker that does not live has no leader."""
    name = next(names)
    result = create(client, new_topic(7, name, assignment={0: [77]}), seconds=0.2)[name]
    assert (result.error_code, result.error_message) == (KioError.request_timed_out, None)
    assert (result.num_partitions, result.configs) == (-1, ())


def test_invalid_requests(client: Connection) -> None:
    """testInvalidCreateTopicsRequests, and topics that come twice."""
    both = part(
        CREATE_TOPICS,
        7,
        "CreatableTopic",
        name="both",
        num_partitions=10,
        replication_factor=3,
        assignments=(
            part(CREATE_TOPICS, 7, "CreatableReplicaAssignment", partition_index=0, broker_ids=(1,)),
        ),
        configs=(),
    )
    for validate_only in (False, True):
        assert create(client, both, validate_only=validate_only)["both"].error_code == (
            KioError.invalid_request
        )
    name, twice = next(names), next(names)
    results = create(client, new_topic(7, twice), new_topic(7, name), new_topic(7, twice))
    assert results[name].error_code == NO_ERROR
    assert results[twice].error_code == KioError.invalid_request
    assert results[twice].error_message == "Found multiple entries for this topic."


def test_the_topic_of_kraft(client: Connection) -> None:
    """testCreateClusterMetadataTopic."""
    result = create(client, new_topic(7, "__cluster_metadata"))["__cluster_metadata"]
    assert result.error_code == KioError.invalid_request
    assert result.error_message == "Creation of internal topic __cluster_metadata is prohibited."


@pytest.mark.parametrize("version", range(8))
def test_versions_of_create_topics(client: Connection, version: int) -> None:
    """testCreateTopicsRequestVersions."""
    name = next(names)
    topic = new_topic(version, name, configs={"min.insync.replicas": "2"})
    result = create(client, topic, version=version)[name]
    assert result.error_code == NO_ERROR
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (1, 1)
        configs = {one.name: (one.value, one.config_source) for one in result.configs}
        assert configs["min.insync.replicas"] == ("2", 1)
        assert configs["retention.ms"] == ("604800000", 5)
    if version >= 7:
        assert result.topic_id is not None


# -- DeleteTopics


def test_valid_deletions(client: Connection, cluster: Cluster) -> None:
    """testValidDeleteTopicRequests: one topic, several, by id."""
    for count in (1, 2):
        deleted = [created(client) for _ in range(count)]
        assert [one.error_code for one in delete(client, *deleted)] == [NO_ERROR] * count
        for name in deleted:
            assert metadata(client, name).error_code == KioError.unknown_topic_or_partition
            wait_until(lambda name=name: not is_there(cluster, name), what="nothing is left")  # type: ignore[misc]
    name = next(names)
    topic_id = create(client, new_topic(7, name))[name].topic_id
    (result,) = delete(client, topic_id)
    assert (result.name, result.topic_id, result.error_code) == (name, topic_id, NO_ERROR)


def is_there(cluster: Cluster, name: str) -> bool:
    paths = (f"/brokers/topics/{name}", f"/config/topics/{name}", f"/admin/delete_topics/{name}")
    return any(cluster.znodes.exists(path) for path in paths)


def test_deletions_with_errors(client: Connection) -> None:
    """testErrorDeleteTopicRequests: unknown names and ids; a timeout that is over deletes nevertheless."""
    name, unknown = created(client), uuid.uuid4()
    results = delete(client, name, "unknown-topic", unknown)
    assert [(one.name, one.error_code) for one in results] == [
        (name, NO_ERROR),
        ("unknown-topic", KioError.unknown_topic_or_partition),
        (None, KioError.unknown_topic_id),
    ]
    name = created(client)
    (result,) = delete(client, name, seconds=0)
    assert result.error_code == KioError.request_timed_out
    wait_until(
        lambda: metadata(client, name).error_code == KioError.unknown_topic_or_partition,
        what="the topic is deleted",
    )


def test_a_name_and_an_id_in_one_topic(client: Connection) -> None:
    topic = part(DELETE_TOPICS, 6, "DeleteTopicState", name="a", topic_id=uuid.uuid4())
    body = client.ask(DELETE_TOPICS, 6, {"topics": (topic,), "timeout": timeout(1)})
    assert [one.error_code for one in body.responses] == [KioError.invalid_request]


@pytest.mark.parametrize("version", range(7))
def test_versions_of_delete_topics(client: Connection, version: int) -> None:
    """testDeleteTopicsVersions."""
    name = created(client)
    (result,) = delete(client, name, version=version)
    assert (result.name, result.error_code) == (name, NO_ERROR)
    assert metadata(client, name).error_code == KioError.unknown_topic_or_partition


def test_a_topic_with_a_replica_on_a_dead_broker(client: Connection) -> None:
    """testTopicDeletionClusterHasOfflinePartitions: it is gone for clients before its replicas are."""
    name = next(names)
    create(client, new_topic(7, name, assignment={0: [77]}), seconds=0)
    wait_until(lambda: metadata(client, name).partitions, what="the topic is there")
    (result,) = delete(client, name)
    assert result.error_code == NO_ERROR
    assert metadata(client, name).error_code == KioError.unknown_topic_or_partition
    # While it waits for its broker the name is taken.
    again = create(client, new_topic(7, name))[name]
    assert again.error_message == f"Topic '{name}' is marked for deletion."


# -- CreatePartitions


def grow(
    client: Connection,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None = None,
    *,
    version: int = 3,
    seconds: float = 30,
) -> Any:
    given = (
        None
        if assignments is None
        else tuple(
            part(CREATE_PARTITIONS, version, "CreatePartitionsAssignment", broker_ids=tuple(replicas))
            for replicas in assignments
        )
    )
    topic = part(
        CREATE_PARTITIONS, version, "CreatePartitionsTopic", name=name, count=count, assignments=given
    )
    fields = {"topics": (topic,), "timeout": timeout(seconds), "validate_only": False}
    (result,) = client.ask(CREATE_PARTITIONS, version, fields).results
    return result


@pytest.mark.parametrize("version", range(4))
def test_more_partitions(client: Connection, version: int) -> None:
    name = created(client, [1, 2])
    assert grow(client, name, 3, version=version).error_code == NO_ERROR
    found = metadata(client, name).partitions
    assert [one.error_code for one in found] == [NO_ERROR] * 3
    assert [len(one.replica_nodes) for one in found] == [2, 2, 2]
    assert found[0].replica_nodes == (1, 2)


def test_more_partitions_with_given_replicas(client: Connection) -> None:
    name = created(client, [1, 2])
    assert grow(client, name, 2, [[3, 1]]).error_code == NO_ERROR
    assert metadata(client, name).partitions[1].replica_nodes == (3, 1)
    for assignments in ([[1]], [[1, 2], [2, 3]], [[1, 77]], [[ID, 1]], [[1, 1]]):
        assert grow(client, name, 3, assignments).error_code == KioError.invalid_replica_assignment
    assert grow(client, name, 2).error_code == KioError.invalid_partitions
    assert grow(client, "unknown-topic", 2).error_code == KioError.unknown_topic_or_partition
    assert grow(client, name, 4, seconds=0).error_code == KioError.request_timed_out


# -- elections, reassignments


def elect(client: Connection, kind: int, name: str, *partitions: int, version: int = 2) -> dict[int, Any]:
    asked = (part(ELECT_LEADERS, version, "TopicPartitions", topic=name, partitions=partitions),)
    fields = {"election_type": kind, "topic_partitions": asked, "timeout": timeout(10)}
    (topic,) = client.ask(ELECT_LEADERS, version, fields).replica_election_results
    return {one.partition_id: one for one in topic.partition_result}


@pytest.mark.parametrize("version", range(3))
def test_elections(client: Connection, version: int) -> None:
    name = created(client, [1, 2])
    found = elect(client, 0, name, 0, 9, version=version)
    assert found[0].error_code == KioError.election_not_needed
    assert found[9].error_code == KioError.unknown_topic_or_partition
    if version >= 1:
        assert elect(client, 1, name, 0, version=version)[0].error_code == KioError.election_not_needed
        assert elect(client, 7, name, 0, version=version)[0].error_code == KioError.invalid_request


def test_reassignments(client: Connection, cluster: Cluster) -> None:
    """To a broker that never joins the ISR: embedded brokers ask for no ISR. It is listed, then cancelled."""
    name = created(client, [1, 2])

    def reassign(replicas: tuple[int, ...] | None) -> Any:
        partition = part(
            ALTER_REASSIGNMENTS, 0, "ReassignablePartition", partition_index=0, replicas=replicas
        )
        topic = part(ALTER_REASSIGNMENTS, 0, "ReassignableTopic", name=name, partitions=(partition,))
        body = client.ask(ALTER_REASSIGNMENTS, 0, {"topics": (topic,), "timeout": timeout(30)})
        assert body.error_code == NO_ERROR
        return body.responses[0].partitions[0]

    def listed() -> list[Any]:
        topic = part(
            LIST_REASSIGNMENTS, 0, "ListPartitionReassignmentsTopics", name=name, partition_indexes=(0,)
        )
        body = client.ask(LIST_REASSIGNMENTS, 0, {"topics": (topic,), "timeout": timeout(30)})
        return [one for topic in body.topics for one in topic.partitions]

    assert reassign(None).error_code == KioError.no_reassignment_in_progress
    assert reassign((1, 77)).error_code == KioError.invalid_replica_assignment
    assert listed() == []
    assert reassign((1, 3)).error_code == NO_ERROR
    (one,) = listed()
    assert (set(one.replicas), one.adding_replicas, one.removing_replicas) == ({1, 2, 3}, (3,), (2,))
    grown = grow(client, name, 2)
    assert grown.error_code == KioError.reassignment_in_progress
    assert reassign(None).error_code == NO_ERROR
    assert listed() == []
    assert cluster.node(f"/brokers/topics/{name}")["partitions"]["0"] == [1, 2]


# -- brokers' requests


def test_stale_broker_epochs(client: Connection, cluster: Cluster) -> None:
    """BrokerEpochIntegrationTest, AllocateProducerIdsRequestTest: the registration's epoch counts."""
    epoch = cluster.epoch(2)
    for broker_id, given, error in (
        (2, epoch - 1, KioError.stale_broker_epoch),
        (2, epoch + 1, KioError.stale_broker_epoch),
        (77, epoch, KioError.broker_id_not_registered),
    ):
        body = client.ask(ALLOCATE_PRODUCER_IDS, 0, {"broker_id": broker_id, "broker_epoch": given})
        assert body.error_code == error
    for given in (epoch - 1, epoch + 1):
        fields = {"broker_id": 2, "broker_epoch": given, "topics": ()}
        assert client.ask(ALTER_PARTITION, 3, fields).error_code == KioError.stale_broker_epoch
    assert client.ask(CONTROLLED_SHUTDOWN, 3, {"broker_id": 2, "broker_epoch": epoch - 1}).error_code == (
        KioError.stale_broker_epoch
    )
    assert client.ask(CONTROLLED_SHUTDOWN, 3, {"broker_id": 77, "broker_epoch": 1}).error_code == (
        KioError.broker_not_available
    )


def test_blocks_of_producer_ids(client: Connection, cluster: Cluster) -> None:
    blocks = []
    for broker_id in (1, 2, 1):
        fields = {"broker_id": broker_id, "broker_epoch": cluster.epoch(broker_id)}
        body = client.ask(ALLOCATE_PRODUCER_IDS, 0, fields)
        assert (body.error_code, body.producer_id_len) == (NO_ERROR, 1000)
        blocks.append(body.producer_id_start)
    assert len(set(blocks)) == 3
    ids = set()
    for _ in range(1005):
        body = client.ask(INIT_PRODUCER_ID, 4, {"transactional_id": None, "transaction_timeout": timeout(1)})
        assert (body.error_code, body.producer_epoch) == (NO_ERROR, 0)
        ids.add(body.producer_id)
    assert len(ids) == 1005
    assert not any(block <= one < block + 1000 for block in blocks for one in ids)
    body = client.ask(INIT_PRODUCER_ID, 4, {"transactional_id": "t", "transaction_timeout": timeout(1)})
    assert body.error_code == KioError.not_coordinator


def test_an_isr_is_changed(client: Connection, cluster: Cluster) -> None:
    """AlterPartition in every version: shrink to the leader, and back."""
    name = next(names)
    topic_id = create(client, new_topic(7, name, assignment={0: [1, 2]}))[name].topic_id
    for version in range(4):
        for isr in ((1,), (1, 2)):
            state, stat = cluster.znodes.get(f"/brokers/topics/{name}/partitions/0/state")
            brokers = tuple(
                part(ALTER_PARTITION, 3, "BrokerState", broker_id=one, broker_epoch=cluster.epoch(one))
                for one in isr
            )
            partition = part(
                ALTER_PARTITION,
                version,
                "PartitionData",
                partition_index=0,
                leader_epoch=json.loads(state)["leader_epoch"],
                partition_epoch=stat.version,
                new_isr=isr,
                new_isr_with_epochs=brokers,
            )
            topic = part(
                ALTER_PARTITION,
                version,
                "TopicData",
                topic_name=name,
                topic_id=topic_id,
                partitions=(partition,),
            )
            fields = {"broker_id": 1, "broker_epoch": cluster.epoch(1), "topics": (topic,)}
            body = client.ask(ALTER_PARTITION, version, fields)
            assert body.error_code == NO_ERROR
            (answer,) = body.topics[0].partitions
            assert (answer.error_code, answer.isr) == (NO_ERROR, isr)
            assert answer.partition_epoch == stat.version + 1
            assert tuple(cluster.node(f"/brokers/topics/{name}/partitions/0/state")["isr"]) == isr


# -- requests that clients send to any node


def test_coordinators(client: Connection) -> None:
    created(client, *[[1 + at % 3] for at in range(50)], name="__consumer_offsets")
    keys = ("a-group", "ünïcode-💫", "", "orders-group", "group-7", "payments")
    body = client.ask(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": keys})
    # Java: Utils.abs("…".hashCode()) % 50.
    places = [abs_hash(key) for key in keys]
    assert [one.node_id for one in body.coordinators] == [1 + place % 50 % 3 for place in places]
    assert client.ask(FIND_COORDINATOR, 0, {"key": "a-group"}).node_id == 1 + places[0] % 50 % 3
    body = client.ask(FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ("t",)})
    assert body.coordinators[0].error_code == KioError.coordinator_not_available


def abs_hash(text: str) -> int:
    """The absolute value of Java's hash over UTF-16 units, in the form of a sum."""
    units = text.encode("utf-16-be")
    values = [units[at] * 256 + units[at + 1] for at in range(0, len(units), 2)]
    total: int = sum(value * 31 ** (len(values) - 1 - at) for at, value in enumerate(values))
    return abs((total + 2**31) % 2**32 - 2**31)


def described(client: Connection, name: str, kind: int = 2) -> Any:
    resource = part(
        DESCRIBE_CONFIGS,
        4,
        "DescribeConfigsResource",
        resource_type=kind,
        resource_name=name,
        configuration_keys=None,
    )
    fields = {"resources": (resource,), "include_synonyms": True, "include_documentation": False}
    (result,) = client.ask(DESCRIBE_CONFIGS, 4, fields).results
    return result


def altered(
    client: Connection,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    validate_only: bool = False,
) -> Any:
    """The error of IncrementalAlterConfigs: (config, operation, value)."""
    configs = tuple(
        part(
            INCREMENTAL_ALTER_CONFIGS, 1, "AlterableConfig", name=key, config_operation=operation, value=value
        )
        for key, operation, value in changes
    )
    resource = part(
        INCREMENTAL_ALTER_CONFIGS,
        1,
        "AlterConfigsResource",
        resource_type=kind,
        resource_name=name,
        configs=configs,
    )
    fields = {"resources": (resource,), "validate_only": validate_only}
    (result,) = client.ask(INCREMENTAL_ALTER_CONFIGS, 1, fields).responses
    return result.error_code


def test_configs_of_topics(client: Connection, cluster: Cluster) -> None:
    name = next(names)
    create(client, new_topic(7, name, configs={"retention.ms": "5"}))

    def alter(*changes: tuple[str, int, str | None], validate_only: bool = False) -> Any:
        return altered(client, TOPIC, name, *changes, validate_only=validate_only)

    def own() -> Any:
        return cluster.node(f"/config/topics/{name}")["config"]

    assert alter(("segment.ms", 0, "9"), ("retention.ms", 1, None)) == NO_ERROR
    assert own() == {"segment.ms": "9"}
    assert alter(("cleanup.policy", 2, "compact")) == NO_ERROR
    assert own()["cleanup.policy"] == "delete,compact"
    assert alter(("cleanup.policy", 3, "delete")) == NO_ERROR
    assert own()["cleanup.policy"] == "compact"
    assert alter(("segment.ms", 0, "7"), validate_only=True) == NO_ERROR
    for change in (("segment.ms", 0, "0"), ("segment.ms", 2, "1"), ("unknown", 0, "1")):
        assert alter(change) == KioError.invalid_config
    for changes in (
        [("segment.ms", 0, None)],
        [("segment.ms", 9, "1")],
        [("segment.ms", 0, "1"), ("segment.ms", 1, None)],
    ):
        assert alter(*changes) == KioError.invalid_request
    assert own() == {"segment.ms": "9", "cleanup.policy": "compact"}
    configs = {one.name: one for one in described(client, name).configs}
    assert (configs["segment.ms"].value, configs["segment.ms"].config_source) == ("9", 1)
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("604800000", 5)
    assert described(client, "unknown-topic").error_code == KioError.unknown_topic_or_partition


def test_dynamic_configs_of_brokers(client: Connection, cluster: Cluster) -> None:
    """As DynamicBrokerReconfigurationTest, for the controller's id and for all brokers."""

    def shown(name: str) -> dict[str, Any]:
        result = described(client, name, kind=BROKER)
        assert result.error_code == NO_ERROR
        return {one.name: (one.value, one.config_source, one.is_sensitive) for one in result.configs}

    def reported() -> Any:
        return cluster.node(f"/config/changes/{max(cluster.znodes.get_children('/config/changes'))}")

    rate = "leader.replication.throttled.rate"
    assert shown("") == {}
    for name, node in ((str(ID), str(ID)), ("", "<default>")):
        assert altered(client, BROKER, name, (rate, 0, "7"), ("num.io.threads", 0, "9")) == NO_ERROR
        assert cluster.node(f"/config/brokers/{node}")["config"] == {rate: "7", "num.io.threads": "9"}
        assert reported() == {"version": 2, "entity_path": f"brokers/{node}"}
    assert altered(client, BROKER, str(ID), ("num.io.threads", 1, None), (rate, 0, "8")) == NO_ERROR
    assert shown("") == {rate: ("7", 3, False), "num.io.threads": ("9", 3, False)}
    own = shown(str(ID))
    assert own["broker.id"] == (str(ID), 4, False)
    assert own["num.io.threads"] == ("9", 3, False)
    assert own[rate] == ("8", 2, False)
    assert own["max.connections"][1:] == (5, False)
    # What brokers have set is kept, and not shown where it may be a secret.
    default = {"of.a.plugin": "secret", "num.partitions": "3", rate: "x"}
    data = json.dumps({"version": 1, "config": default}).encode()
    cluster.znodes.set("/config/brokers/<default>", data)
    assert altered(client, BROKER, "", (rate, 0, "5")) == NO_ERROR
    assert cluster.node("/config/brokers/<default>")["config"] == default | {rate: "5"}
    assert shown("") == {"of.a.plugin": (None, 3, True), rate: ("5", 3, False)}
    for change in (
        ("num.partitions", 0, "3"),
        ("listener.name.x.ssl.keystore.password", 0, "secret"),
        (rate, 0, "-1"),
        (rate, 9, "1"),
    ):
        assert altered(client, BROKER, "", change) == KioError.invalid_request
    assert altered(client, BROKER, "", (rate, 2, "1")) == KioError.invalid_config
    for name in ("1", "x", str(2**40)):
        assert altered(client, BROKER, name, (rate, 1, None)) == KioError.invalid_request
    assert altered(client, 8, str(ID), ("no.such.logger", 0, "DEBUG")) == KioError.invalid_config
    assert altered(client, 8, "1", ("root", 0, "ERROR")) == KioError.invalid_request
    assert altered(client, BROKER, "", (rate, 0, "1"), validate_only=True) == NO_ERROR
    assert cluster.node("/config/brokers/<default>")["config"][rate] == "5"
    assert described(client, "1", kind=BROKER).error_code == KioError.invalid_request


def test_configs_are_replaced(client: Connection, cluster: Cluster) -> None:
    name = next(names)
    create(client, new_topic(7, name, configs={"retention.ms": "5"}))

    def replace(*resources: tuple[int, str, Mapping[str, str | None]]) -> list[Any]:
        parts = tuple(
            part(
                ALTER_CONFIGS,
                2,
                "AlterConfigsResource",
                resource_type=kind,
                resource_name=of,
                configs=tuple(
                    part(ALTER_CONFIGS, 2, "AlterableConfig", name=key, value=value)
                    for key, value in configs.items()
                ),
            )
            for kind, of, configs in resources
        )
        body = client.ask(ALTER_CONFIGS, 2, {"resources": parts, "validate_only": False})
        return [one.error_code for one in body.responses]

    both = (TOPIC, name, {"segment.ms": "9"}), (BROKER, "", {"num.io.threads": "9"})
    assert replace(*both) == [NO_ERROR] * 2
    assert cluster.node(f"/config/topics/{name}")["config"] == {"segment.ms": "9"}
    assert cluster.node("/config/brokers/<default>")["config"] == {"num.io.threads": "9"}
    assert replace((BROKER, "", {})) == [NO_ERROR]
    assert cluster.node("/config/brokers/<default>")["config"] == {}
    assert replace((TOPIC, name, {"segment.ms": None})) == [KioError.invalid_request]
    assert replace((BROKER, "", {"num.partitions": "9"})) == [KioError.invalid_request]
    assert replace(both[0], both[1], both[0]) == [
        KioError.invalid_request,
        NO_ERROR,
        KioError.invalid_request,
    ]


QuotaNames = tuple[tuple[str, str | None], ...]


def test_client_quotas(client: Connection, cluster: Cluster) -> None:
    """Twins of ClientQuotasRequestTest."""

    def alter(names: QuotaNames, *changes: tuple[str, float | None], validate_only: bool = False) -> Any:
        entry = part(
            ALTER_QUOTAS,
            1,
            "EntryData",
            entity=tuple(
                part(ALTER_QUOTAS, 1, "EntityData", entity_type=kind, entity_name=name)
                for kind, name in names
            ),
            ops=tuple(
                part(ALTER_QUOTAS, 1, "OpData", key=key, value=value or 0.0, remove=value is None)
                for key, value in changes
            ),
        )
        body = client.ask(ALTER_QUOTAS, 1, {"entries": (entry,), "validate_only": validate_only})
        (result,) = body.entries
        assert tuple((one.entity_type, one.entity_name) for one in result.entity) == names
        return result.error_code

    def describe(*components: tuple[str, int, str | None], strict: bool = False) -> Any:
        parts = tuple(
            part(DESCRIBE_QUOTAS, 1, "ComponentData", entity_type=kind, match_type=match, match=name)
            for kind, match, name in components
        )
        body = client.ask(DESCRIBE_QUOTAS, 1, {"components": parts, "strict": strict})
        if body.error_code != NO_ERROR:
            return body.error_code
        return {
            tuple((one.entity_type, one.entity_name) for one in entry.entity): {
                one.key: one.value for one in entry.values
            }
            for entry in body.entries
        }

    alice, default = ("user", "älice"), ("user", None)
    app, both = ("client-id", "app"), (("user", "älice"), ("client-id", "app"))
    ip = ("ip", "127.0.0.1")
    rate, percentage = "producer_byte_rate", "request_percentage"
    assert describe() == {}
    assert alter((alice,), (rate, 5.0), (percentage, 2.5)) == NO_ERROR
    assert cluster.node("/config/users/%C3%A4lice")["config"] == {rate: "5", percentage: "2.5"}
    entities: list[QuotaNames] = [(default,), (app,), both]
    for entity in entities:
        assert alter(entity, (rate, 6.0)) == NO_ERROR
    assert alter((ip,), ("connection_creation_rate", 7.0)) == NO_ERROR
    change = max(cluster.znodes.get_children("/config/changes"))
    assert cluster.node(f"/config/changes/{change}")["entity_path"] == "ips/127.0.0.1"
    # A SCRAM credential beside the quotas is not one.
    cluster.znodes.create("/config/users/scram", b'{"version":1,"config":{"SCRAM-SHA-256":"x"}}')
    of_users = {(alice,): {rate: 5.0, percentage: 2.5}, (default,): {rate: 6.0}}
    everything = of_users | {(app,): {rate: 6.0}, both: {rate: 6.0}, (ip,): {"connection_creation_rate": 7.0}}
    assert describe() == everything
    assert describe(strict=True) == {}
    assert describe(("user", 2, None)) == of_users | {both: {rate: 6.0}}
    assert describe(("user", 2, None), strict=True) == of_users
    assert describe(("user", 1, None), strict=True) == {(default,): {rate: 6.0}}
    assert describe(("user", 0, "älice"), strict=True) == {(alice,): of_users[(alice,)]}
    assert describe(("user", 0, "älice")) == {(alice,): of_users[(alice,)], both: {rate: 6.0}}
    assert describe(("client-id", 2, None), ("user", 0, "älice")) == {both: {rate: 6.0}}
    assert describe(("client-id", 2, None), strict=True) == {(app,): {rate: 6.0}}
    assert describe(("ip", 2, None)) == {(ip,): {"connection_creation_rate": 7.0}}
    assert describe(("ip", 1, None)) == {}
    for components in (
        [("user", 2, None), ("user", 2, None)],
        [("user", 2, None), ("ip", 2, None)],
        [("", 2, None)],
        [("user", 3, None)],
    ):
        assert describe(*components) == KioError.invalid_request
    assert describe(("group", 2, None)) == KioError.unsupported_version
    refused: list[tuple[QuotaNames, tuple[str, float]]] = [
        ((), (rate, 1.0)),
        ((("user", ""),), (rate, 1.0)),
        ((("group", "g"),), (rate, 1.0)),
        ((alice, ip), (rate, 1.0)),
        ((ip,), (rate, 1.0)),
        ((("ip", "no host"),), ("connection_creation_rate", 1.0)),
        ((ip,), ("connection_creation_rate", -1.0)),
        ((alice,), (rate, 1.5)),
        ((alice,), (rate, 1e30)),
        ((alice,), (percentage, float("nan"))),
        ((alice,), ("SCRAM-SHA-256", 1.0)),
    ]
    for names, quota in refused:
        assert alter(names, quota) == KioError.invalid_request, (names, quota)
    assert alter((alice,), (rate, 9.0), validate_only=True) == NO_ERROR
    assert describe() == everything
    for entity, quotas in everything.items():
        assert alter(entity, *dict.fromkeys(quotas).items()) == NO_ERROR
    assert describe() == {}
    cluster.znodes.delete("/config/users/scram")
    assert cluster.znodes.get_children("/config/users") == []


# -- real clients


def test_confluents_admin_client(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 2})
    name = next(names)
    new = NewTopic(name, num_partitions=3, replication_factor=2, config={"retention.ms": "5"})
    admin.create_topics([new], operation_timeout=30)[name].result(timeout=60)
    with pytest.raises(KafkaException, match="already exists"):
        admin.create_topics([new])[name].result(timeout=60)
    admin.create_partitions([NewPartitions(name, 5)], operation_timeout=30)[name].result(timeout=60)
    listed: Any = admin.list_topics(name, timeout=60)
    assert listed.controller_id == ID
    assert set(listed.brokers) == {1, 2, 3, ID}
    partitions = listed.topics[name].partitions
    assert sorted(partitions) == [0, 1, 2, 3, 4]
    assert all(one.leader in one.replicas for one in partitions.values())
    assert all(ID not in one.replicas for one in partitions.values())
    cluster_found: Any = admin.describe_cluster().result(timeout=60)
    assert cluster_found.controller.id == ID
    admin.delete_topics([name], operation_timeout=30)[name].result(timeout=60)
    with pytest.raises(KafkaException):
        admin.delete_topics([name], operation_timeout=30)[name].result(timeout=60)


def test_confluents_admin_client_and_scram_users(cluster: Cluster) -> None:
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 2})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    upsertion = UserScramCredentialUpsertion("älice *", info, b"secret")
    admin.alter_user_scram_credentials([upsertion])["älice *"].result(timeout=60)
    (user,) = cluster.znodes.get_children("/config/users")
    assert user == "%C3%A4lice%20%2A"
    text = cluster.node(f"/config/users/{user}")["config"]["SCRAM-SHA-256"]
    fields = dict(one.split("=", 1) for one in text.split(","))
    assert fields["iterations"] == "8192"
    assert len(fields["stored_key"]) == len(hashlib.sha256(b"").digest()) * 4 // 3 + 2
    change = max(cluster.znodes.get_children("/config/changes"))
    assert cluster.node(f"/config/changes/{change}") == {"version": 2, "entity_path": f"users/{user}"}
    deletion = UserScramCredentialDeletion("älice *", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["älice *"].result(timeout=60)
    with pytest.raises(KafkaException):
        admin.alter_user_scram_credentials([deletion])["älice *"].result(timeout=60)


def test_kafka_pythons_admin_client(cluster: Cluster, kafka_python: ModuleType) -> None:
    client = kafka_python.KafkaAdminClient(bootstrap_servers=cluster.address)
    try:
        name = next(names)
        client.create_topics([kafka_python.admin.NewTopic(name, 2, 2)], timeout_ms=30_000)
        # A request is answered when its partitions have leaders; brokers are sent them after that.
        wait_until(lambda: name in client.list_topics(), what="brokers know the topic")
        client.create_partitions({name: 3}, timeout_ms=30_000)
        wait_until(
            lambda: len(client.describe_topics([name])[0]["partitions"]) == 3,
            what="brokers know the partition",
        )
        with pytest.raises(kafka_python.errors.TopicAlreadyExistsError):
            client.create_topics([kafka_python.admin.NewTopic(name, 2, 2)], timeout_ms=30_000)
        client.delete_topics([name], timeout_ms=30_000)
        wait_until(lambda: name not in client.list_topics(), what="brokers know that the topic is gone")
    finally:
        client.close()
