"""Brokers of Kafka and of the package in one cluster, under a controller of Kafka and one of the package."""

from __future__ import annotations

import json
import random
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from kazoo.exceptions import NodeExistsError

from ctrlchan.internal_topics import TRANSACTIONS_TOPIC
from ctrlchan.state.brokers import format_host_port, parse_host_port
from tests.acceptance.clients import live_brokers
from tests.acceptance.controller import nodes
from tests.acceptance.controller.agreement import wait_until_agreed, wait_until_in_sync
from tests.acceptance.controller.cluster import BROKER_PROPERTIES, ControlledCluster
from tests.acceptance.controller.load import Load
from tests.acceptance.same_answers.messages import Messages
from tests.acceptance.same_answers.recorder import CLOSED, Broker, differences
from tests.kafka.jars import kafka_jars
from tests.kafka.rig import KafkaRig
from tests.kafka.waiting import wait_until

pytestmark = pytest.mark.long

JVM, OURS = (1, 2), (3, 4)
OFFSETS = "__consumer_offsets"
TIMEOUT = 90.0
PROPERTIES = {
    **BROKER_PROPERTIES,
    # A follower that is stopped leaves the ISR before its session expires.
    "replica.lag.time.max.ms": "1500",
    "zookeeper.session.timeout.ms": "6000",
    "offsets.topic.replication.factor": "4",
    "transaction.state.log.replication.factor": "4",
    "group.initial.rebalance.delay.ms": "0",
}
#: Requests that change nothing, for each API that only the controller answers.
FORWARDED: dict[str, list[dict[str, Any]]] = {
    "CreateTopics": [
        {"Topics": [{"Name": "asked", "NumPartitions": 1, "ReplicationFactor": 1}]},
        {"Topics": [{"Name": "more", "NumPartitions": 1, "ReplicationFactor": 9}]},
    ],
    "DeleteTopics": [{"TopicNames": ["gone"], "Topics": [{"Name": "gone", "TopicId": uuid.UUID(int=0)}]}],
    "CreatePartitions": [
        {"Topics": [{"Name": "asked", "Count": 3, "Assignments": None}], "ValidateOnly": True},
        {"Topics": [{"Name": "asked", "Count": 1, "Assignments": None}]},
    ],
    "ElectLeaders": [{"TopicPartitions": [{"Topic": "asked", "Partitions": [0, 9]}]}],
    "AlterPartitionReassignments": [
        {"Topics": [{"Name": "asked", "Partitions": [{"PartitionIndex": 0, "Replicas": [1, 1]}]}]},
        {"Topics": [{"Name": "asked", "Partitions": [{"PartitionIndex": 0, "Replicas": None}]}]},
    ],
    "ListPartitionReassignments": [{"Topics": None}],
}


@pytest.fixture(scope="module")
def rig(kafka_jars_ready: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaRig]:
    with KafkaRig(tmp_path_factory.mktemp("mixed"), brokers=4, ours=OURS, properties=PROPERTIES) as rig:
        # A controller of Kafka places replicas on the brokers of its metadata, which may be behind ZooKeeper.
        wait_until(
            lambda: all(live_brokers(rig, one) == set(rig.broker_ids) for one in rig.broker_ids),
            timeout=TIMEOUT,
            what="the brokers know one another",
        )
        yield rig


@pytest.fixture(scope="module", params=["controller of Kafka", "controller of the package"])
def cluster(rig: KafkaRig, request: pytest.FixtureRequest) -> Iterator[ControlledCluster]:
    cluster = ControlledCluster(rig)
    if request.param == "controller of the package":
        cluster.hand_to_us()
    try:
        yield cluster
    finally:
        cluster.close()


def test_no_acknowledged_message_is_lost(cluster: ControlledCluster) -> None:
    """Leaders move, brokers of both kinds stop, die and stand still, while a producer writes."""
    rig = cluster.rig
    topic = "moved"
    replicas = [[1, 3, 2], [3, 1, 4], [2, 4, 3], [4, 2, 1], [1, 2, 4], [3, 4, 1]]
    cluster.create_topic(topic, replicas, {"min.insync.replicas": "2", "segment.bytes": "20000"})
    with Load(rig.bootstrap, topic) as load:
        for turn in (1, 2, 3):
            lead(cluster, topic, {p: [*ids[turn % 3 :], *ids[: turn % 3]] for p, ids in enumerate(replicas)})
            load.wait_for_more(partitions=6)
        for broker_id in (OURS[0], JVM[0]):
            stand_still(rig, topic, broker_id)
            load.wait_for_more(partitions=6)
        for broker_id in (OURS[0], JVM[0]):
            rig.kill_broker(broker_id)
            wait_until(lambda b=broker_id: leads_nothing(rig, b), timeout=TIMEOUT, what="others lead")  # type: ignore[misc]
            load.wait_for_more(partitions=6)
            rig.restart_broker(broker_id)
            wait_until_in_sync(rig)
            lead(cluster, topic, dict(enumerate(replicas)))
            load.wait_for_more(partitions=6)
        for broker_id in (OURS[1], JVM[1]):
            rig.stop_broker(broker_id)
            # A controlled shutdown: nobody has waited for a session to expire.
            assert leads_nothing(rig, broker_id)
            load.wait_for_more(partitions=6)
            rig.restart_broker(broker_id)
            wait_until_in_sync(rig)
    wait_until_in_sync(rig)
    load.check_nothing_is_lost()
    check_logs_are_equal(rig, topic, dict(enumerate(replicas)))
    cluster.delete_topic(topic)


@pytest.mark.parametrize("seed", [1, 2])
def test_any_order_of_failures(cluster: ControlledCluster, seed: int) -> None:
    """Brokers die, stop and stand still in a random order; some come back as the other kind."""
    rig = cluster.rig
    topic = f"random-{seed}"
    chance = random.Random(seed)
    replicas = {p: chance.sample(rig.broker_ids, 3) for p in range(6)}
    cluster.create_topic(
        topic, list(replicas.values()), {"min.insync.replicas": "2", "segment.bytes": "20000"}
    )
    strangers: set[int] = set()
    ends: list[Callable[[int], None]] = [rig.kill_broker, rig.stop_broker, partial(stand_still, rig, topic)]
    with Load(rig.bootstrap, topic) as load:
        for _ in range(6):
            broker_id = chance.choice(rig.live_broker_ids)
            chance.choice(ends)(broker_id)
            load.wait_for_more()
            if broker_id not in rig.live_broker_ids:
                # Two brokers are always Kafka's: one of them can be the controller.
                ours = broker_id in OURS and chance.choice([True, False])
                (strangers.discard if ours == (broker_id in OURS) else strangers.add)(broker_id)
                rig.restart_broker(broker_id, ours=ours)
            if chance.random() < 0.7:
                wait_until_in_sync(rig, [topic])
                lead(cluster, topic, {p: chance.sample(ids, 3) for p, ids in replicas.items()})
    wait_until_in_sync(rig)
    load.check_nothing_is_lost()
    check_logs_are_equal(rig, topic, replicas)
    for broker_id in strangers:
        rig.stop_broker(broker_id)
        rig.restart_broker(broker_id, ours=True)
    cluster.delete_topic(topic)


def test_logs_that_differ_are_truncated(cluster: ControlledCluster) -> None:
    """A former leader gives up what its successor, elected uncleanly, does not have."""
    rig = cluster.rig
    topic = "unclean"
    # The first replica leads, dies with records of its own, and returns as the second one's follower.
    replicas = {0: [OURS[0], JVM[0]], 1: [JVM[1], OURS[1]]}
    cluster.create_topic(topic, list(replicas.values()), {"unclean.leader.election.enable": "true"})
    expected: dict[int, list[bytes]] = {0: [], 1: []}

    def write(prefix: bytes) -> list[bytes]:
        values = [b"%s-%d" % (prefix, number) for number in range(20)]
        for partition in replicas:
            produce(rig, topic, partition, values)
        return values

    common = write(b"common")
    at_once(rig.kill_broker, [ids[1] for ids in replicas.values()])
    wait_until(
        lambda: all(len(node.isr) == 1 for node in nodes.partition_nodes(rig.zookeeper, {topic}).values()),
        timeout=TIMEOUT,
        what="the leaders are alone",
    )
    write(b"lost")
    at_once(rig.kill_broker, [ids[0] for ids in replicas.values()])
    at_once(rig.restart_broker, [ids[1] for ids in replicas.values()])
    wait_until(
        lambda: all(
            node.leader == node.replicas[1] for node in nodes.partition_nodes(rig.zookeeper, {topic}).values()
        ),
        timeout=TIMEOUT,
        what="the others are elected uncleanly",
    )
    later = write(b"later")
    expected = {partition: [*common, *later] for partition in replicas}
    at_once(rig.restart_broker, [ids[0] for ids in replicas.values()])
    wait_until_in_sync(rig)
    assert {partition: read(rig, topic, partition) for partition in replicas} == expected
    check_logs_are_equal(rig, topic, replicas)
    cluster.delete_topic(topic)


def test_a_group_follows_its_coordinator(cluster: ControlledCluster) -> None:
    """Offsets that one coordinator has committed are found by the next one, of the other kind."""
    rig = cluster.rig
    topic = "grouped"
    cluster.create_topic(topic, [[1, 3], [3, 1]])
    numbers = 40
    for partition in (0, 1):
        produce(rig, topic, partition, [b"%d" % number for number in range(numbers)])
    consumer = Consumer(
        {
            "bootstrap.servers": rig.bootstrap,
            "group.id": f"{topic}-{len(cluster.controllers)}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 2,
        }
    )
    taken: list[tuple[int, int]] = []
    consumer.subscribe([topic])
    try:
        for coordinator in (OURS[0], JVM[0], OURS[1], JVM[1]):
            if nodes.partition_nodes(rig.zookeeper, {OFFSETS}):
                others = [one for one in rig.broker_ids if one != coordinator]
                lead(cluster, OFFSETS, {0: [coordinator, *others]})
            take(consumer, taken, 20)
            commit(consumer)
            for found in consumer.committed(assignment(topic), timeout=TIMEOUT):
                ours = [offset for partition, offset in taken if partition == found.partition]
                assert found.offset == (max(ours) + 1 if ours else OFFSET_INVALID)
    finally:
        consumer.close()
    assert sorted(taken) == [(partition, offset) for partition in (0, 1) for offset in range(numbers)]
    wait_until_in_sync(rig, [OFFSETS])
    offsets = nodes.partition_nodes(rig.zookeeper, {OFFSETS})
    check_logs_are_equal(rig, OFFSETS, {p: node.replicas for (_, p), node in offsets.items()})
    cluster.delete_topic(topic)


def test_transactions_follow_their_coordinator(cluster: ControlledCluster) -> None:
    """Markers and questions go both ways; an open transaction goes on with the next coordinator."""
    rig = cluster.rig
    topic, group = "transacted", f"transacted-{len(cluster.controllers)}"
    replicas = {0: [1, 3], 1: [3, 1], 2: [2, 4], 3: [4, 2]}
    cluster.create_topic(topic, list(replicas.values()))
    lead(cluster, topic, replicas)
    producer = Producer(
        {"bootstrap.servers": rig.bootstrap, "transactional.id": group, "linger.ms": 0, "log_level": 2}
    )
    producer.init_transactions(TIMEOUT)
    consumer = Consumer({"bootstrap.servers": rig.bootstrap, "group.id": group, "log_level": 2})
    expected: dict[int, list[bytes]] = {partition: [] for partition in replicas}

    def send(value: bytes, *, counts: bool = True) -> None:
        for partition in replicas:
            producer.produce(topic, value, partition=partition)
            if counts:
                expected[partition].append(value)
        assert producer.flush(TIMEOUT) == 0

    try:
        for turn, coordinator in enumerate((OURS[0], JVM[0], OURS[1], JVM[1]), 1):
            producer.begin_transaction()
            send(b"before %d" % turn)
            others = [one for one in rig.broker_ids if one != coordinator]
            lead(cluster, TRANSACTIONS_TOPIC, {0: [coordinator, *others]})
            send(b"after %d" % turn)
            offset = TopicPartition(topic, 0, turn)
            producer.send_offsets_to_transaction([offset], consumer.consumer_group_metadata(), TIMEOUT)
            producer.commit_transaction(TIMEOUT)
            assert consumer.committed([offset], TIMEOUT)[0].offset == turn
            producer.begin_transaction()
            send(b"aborted %d" % turn, counts=False)
            producer.abort_transaction(TIMEOUT)
    finally:
        consumer.close()
    assert {partition: read_committed(rig, topic, partition) for partition in replicas} == expected
    wait_until_in_sync(rig, [topic, TRANSACTIONS_TOPIC])
    check_logs_are_equal(rig, topic, replicas)
    states = nodes.partition_nodes(rig.zookeeper, {TRANSACTIONS_TOPIC})
    check_logs_are_equal(rig, TRANSACTIONS_TOPIC, {p: node.replicas for (_, p), node in states.items()})
    cluster.delete_topic(topic)


def test_a_broker_of_the_package_forwards_to_the_controller(cluster: ControlledCluster) -> None:
    """Topics are created, grown and deleted through it; Kafka's brokers hear of them."""
    rig = cluster.rig
    topic = "forwarded"
    # Admin clients look for the controller and ask it themselves.
    broker = Broker(client_messages(), parse_host_port(address(rig, OURS[0])))
    versions = broker.announced()

    def forward(api: str, results: str, **fields: Any) -> None:
        answer = broker.ask(api, versions[api][-1], **fields, TimeoutMs=60_000, timeoutMs=60_000)
        assert [(one["Name"], one["ErrorCode"]) for one in answer[results]] == [(topic, 0)], answer

    config = {"Name": "retention.ms", "Value": "123456789"}
    new = {"Name": topic, "NumPartitions": 2, "ReplicationFactor": 3, "Configs": [config]}
    forward("CreateTopics", "Topics", Topics=[new])
    forward("CreatePartitions", "Results", Topics=[{"Name": topic, "Count": 4, "Assignments": None}])
    wait_until_in_sync(rig, [topic])
    assert len(nodes.partition_nodes(rig.zookeeper, {topic})) == 4
    data, _ = rig.zookeeper.get(f"/config/topics/{topic}")
    assert json.loads(data)["config"] == {config["Name"]: config["Value"]}
    forward("DeleteTopics", "Responses", Topics=[{"Name": topic}])
    cluster.wait_until_gone(topic)
    broker.close()


def test_forwarded_requests_are_answered_as_by_the_controller(cluster: ControlledCluster) -> None:
    """The same bytes through a broker of the package and from the controller itself, in all versions."""
    rig = cluster.rig
    topic = "asked"
    cluster.create_topic(topic, [[1, 3], [3, 1]])
    lead(cluster, topic, {0: [1, 3], 1: [3, 1]})
    messages = client_messages()
    controller = rig.jvm_controller()
    assert controller is not None
    if controller in JVM:
        of_controller = address(rig, controller)
    else:
        of_controller = format_host_port(cluster.active.endpoints[0].host, cluster.active.endpoints[0].port)
    direct, forwarded = (
        Broker(messages, parse_host_port(one)) for one in (of_controller, address(rig, OURS[0]))
    )
    versions = forwarded.announced()
    for broker in (direct, forwarded):
        for api in FORWARDED:
            for version in versions[api]:
                broker.ask(api, version, **broker.sample(api, version))
                for fields in FORWARDED[api]:
                    broker.ask(api, version, **fields, TimeoutMs=30_000, timeoutMs=30_000)
        broker.close()
    assert len(direct.answers) > 50
    assert differences(direct.answers, forwarded.answers) == []
    # Each was answered: a version that the controller does not serve would have closed the connection.
    assert not [one.label for one in direct.answers if one.data == CLOSED]
    cluster.delete_topic(topic)


def lead(cluster: ControlledCluster, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
    """Make the first of these replicas the leader of each partition."""
    zookeeper = cluster.rig.zookeeper
    partitions = [{"topic": topic, "partition": p, "replicas": list(ids)} for p, ids in replicas.items()]
    write_when_free(cluster, "/admin/reassign_partitions", {"version": 1, "partitions": partitions})
    wait_until(
        lambda: all(
            nodes.partition_nodes(zookeeper, {topic})[topic, p].replicas == tuple(ids)
            for p, ids in replicas.items()
        ),
        timeout=TIMEOUT,
        what="the replicas have another order",
    )

    def led() -> bool:
        found = nodes.partition_nodes(zookeeper, {topic})
        others = [p for p, ids in replicas.items() if found[topic, p].leader != ids[0]]
        if others:
            # A replica that is not in sync is not elected.
            asked = [{"topic": topic, "partition": p} for p in others]
            write_when_free(cluster, "/admin/preferred_replica_election", {"version": 1, "partitions": asked})
        return not others

    wait_until(led, timeout=TIMEOUT, what="the first replicas lead")
    wait_until_agreed(cluster.rig, [topic])


def write_when_free(cluster: ControlledCluster, path: str, content: object) -> None:
    """Create a node that the controller deletes when it has done what the node asks for; wait for that."""
    zookeeper = cluster.rig.zookeeper

    def written() -> bool:
        try:
            zookeeper.create(path, json.dumps(content).encode())
        except NodeExistsError:
            return False
        return True

    wait_until(written, timeout=TIMEOUT, what=f"{path} is free")
    wait_until(lambda: zookeeper.exists(path) is None, timeout=TIMEOUT, what=f"{path} is done")


def stand_still(rig: KafkaRig, topic: str, broker_id: int) -> None:
    """Stop a process for as long as the leaders need to take it out of their ISRs."""
    rig.signal_broker(broker_id, signal.SIGSTOP)
    try:
        wait_until(
            lambda: all(
                broker_id not in node.isr or node.leader == broker_id
                for node in nodes.partition_nodes(rig.zookeeper, {topic}).values()
            ),
            timeout=TIMEOUT,
            what="ISRs shrink",
        )
    finally:
        rig.signal_broker(broker_id, signal.SIGCONT)
    wait_until(lambda: rig.is_registered(broker_id), timeout=TIMEOUT, what="the broker is registered")
    wait_until_in_sync(rig, [topic])


def leads_nothing(rig: KafkaRig, broker_id: int) -> bool:
    return all(node.leader != broker_id for node in nodes.partition_nodes(rig.zookeeper).values())


def at_once(call: Callable[[int], object], ids: Sequence[int]) -> None:
    with ThreadPoolExecutor(len(ids)) as pool:
        list(pool.map(call, ids))


def address(rig: KafkaRig, broker_id: int) -> str:
    endpoint = rig.broker(broker_id).endpoint("PLAINTEXT")
    return f"{endpoint.host}:{endpoint.port}"


def client_messages() -> Messages:
    return Messages(next(kafka_jars().glob("kafka-clients-*.jar")))


def produce(rig: KafkaRig, topic: str, partition: int, values: Sequence[bytes]) -> None:
    """Write the values; each is acknowledged by the replicas in sync."""
    producer = Producer({"bootstrap.servers": rig.bootstrap, "acks": "all", "log_level": 2})
    failed: list[object] = []
    for value in values:
        producer.produce(
            topic,
            value,
            partition=partition,
            on_delivery=lambda error, _message: failed.append(error) if error else None,
        )
    assert producer.flush(TIMEOUT) == 0
    assert failed == []


def assignment(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in (0, 1)]


def take(consumer: Any, taken: list[tuple[int, int]], count: int) -> None:
    """Take so many messages more; none comes twice."""
    deadline = threading.Event()
    timer = threading.Timer(TIMEOUT, deadline.set)
    timer.start()
    before = len(taken)
    while len(taken) < before + count:
        assert not deadline.is_set(), f"{len(taken) - before} of {count} messages"
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            taken.append((message.partition(), message.offset()))
    timer.cancel()


def commit(consumer: Any) -> None:
    """Commit what was taken; the coordinator may move meanwhile."""

    def committed() -> bool:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            return False
        return True

    wait_until(committed, timeout=TIMEOUT, what="the coordinator takes offsets")


def read(rig: KafkaRig, topic: str, partition: int) -> list[bytes]:
    """Return all values of a partition."""
    consumer = Consumer(
        {"bootstrap.servers": rig.bootstrap, "group.id": "none", "enable.auto.commit": False, "log_level": 2}
    )
    place = TopicPartition(topic, partition, 0)
    values: list[bytes] = []
    try:
        _, end = consumer.get_watermark_offsets(place, timeout=TIMEOUT)
        consumer.assign([place])
        while len(values) < end:
            message = consumer.poll(TIMEOUT)
            assert message is not None, f"{len(values)} of {end} messages"
            if message.error() is None:
                values.append(message.value() or b"")
    finally:
        consumer.close()
    return values


def read_committed(rig: KafkaRig, topic: str, partition: int) -> list[bytes]:
    """Return all committed values of a partition, in which no transaction stays open."""
    consumer = Consumer(
        {
            "bootstrap.servers": rig.bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    place = TopicPartition(topic, partition, 0)
    values: list[bytes] = []
    try:
        _, end = consumer.get_watermark_offsets(place, timeout=TIMEOUT)
        consumer.assign([place])
        while True:
            message = consumer.poll(TIMEOUT)
            assert message is not None, f"{len(values)} messages before the end at {end}"
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF and (message.offset() or 0) >= end:
                return values
    finally:
        consumer.close()


def check_logs_are_equal(rig: KafkaRig, topic: str, replicas: Mapping[int, Sequence[int]]) -> None:
    """All replicas of a partition have the same bytes, wherever their segments begin."""
    for partition, ids in replicas.items():
        logs = {broker_id: log_bytes(rig.data(broker_id) / f"{topic}-{partition}") for broker_id in ids}
        assert len(set(logs.values())) == 1, {broker_id: len(log) for broker_id, log in logs.items()}


def log_bytes(folder: Path) -> bytes:
    """Return the records of a log as they are on disk."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
