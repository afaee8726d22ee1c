"""Tries which of Kafka's semantics a cluster for tests has: each by a client that uses it.

A trial raises where a cluster does not do what Kafka does. Each has a topic of its own; all share a cluster
of three brokers, but for the one that starts a cluster again.
"""

from __future__ import annotations

import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from bench.testing.candidates import Cluster, MissingError, Starter
from tests.kafka.waiting import wait_until
from tests.kafka.wire import exchange
from tests.unit.broker.log.batches import PlainRecord, batch_of

__all__ = ["TRIALS", "try_all"]

T = TypeVar("T")

_BROKERS: Final = 3
#: For one step of a trial, on a busy machine.
_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05
#: What a broker answers that has not heard of a change yet.
_NOT_YET: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.RESOURCE_NOT_FOUND,
)
#: The delay that is asked for.
_DELAY_SECONDS: Final = 0.5
_MISSING: Final = (AssertionError, ConnectionError, KafkaException, MissingError, TimeoutError)


def try_all(start: Starter) -> Iterator[tuple[str, str | None]]:
    """Yield the name of each trial, and why it failed; None: it did not."""
    cluster = start(_BROKERS, None)
    try:
        for name, trial in TRIALS.items():
            yield name, _reason(lambda trial=trial: trial(cluster))  # type: ignore[misc]
    finally:
        cluster.close()
    yield "records outlive a restart", _reason(lambda: _restart(start))


def _reason(trial: Callable[[], None]) -> str | None:
    """Return why a trial fails, None if it does not. One that runs out of time is tried again."""
    try:
        try:
            trial()
        except TimeoutError:
            trial()
    except _MISSING as error:
        first = str(error).partition("\n")[0]
        return f"{type(error).__name__}: {first}"[:200]
    return None


# -- records


def _idempotent_producer(cluster: Cluster) -> None:
    _produce(cluster, "idempotent", [b"1", b"2"], **{"enable.idempotence": True})
    assert _values(cluster, "idempotent", 2) == [b"1", b"2"]


def _batch_sent_twice(cluster: Cluster) -> None:
    topic = "twice"
    _produce(cluster, topic, [b"before"])
    admin = _admin(cluster)
    found = admin.list_topics(topic, timeout=_SECONDS)
    leader: Any = found.brokers[found.topics[topic].partitions[0].leader]

    def ask(key: int, version: int, body: bytes) -> bytes:
        header = struct.pack(">hhih", key, version, 1, -1)
        return exchange(leader.host, leader.port, header + body, timeout=_SECONDS)[4:]

    def new_producer() -> tuple[int, int]:
        # InitProducerId: no transactional id.
        _, code, producer_id, epoch = struct.unpack(">ihqh", ask(22, 0, struct.pack(">hi", -1, 60_000)))
        if code:
            raise KafkaException(KafkaError(code))
        return producer_id, epoch

    producer_id, epoch = _eventually(new_producer)
    fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
    batch = batch_of([PlainRecord(0)], base_timestamp=int(time.time() * 1000), **fields).encoded()
    name = topic.encode()
    body = struct.pack(f">hhiih{len(name)}siii", -1, -1, 30_000, 1, len(name), name, 1, 0, len(batch)) + batch
    for _ in range(2):
        ask(0, 3, body)
    _, end = _consumer(cluster, "twice").get_watermark_offsets(TopicPartition(topic, 0), timeout=_SECONDS)
    assert end == 2, f"{end - 1} copies"


def _codecs(cluster: Cluster) -> None:
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        topic = f"codec-{codec}"
        _produce(cluster, topic, [b"a" * 10_000], **{"compression.type": codec})
        assert _values(cluster, topic, 1) == [b"a" * 10_000]


def _offsets_of_times(cluster: Cluster) -> None:
    topic = "times"
    _create(cluster, topic)
    now = int(time.time() * 1000)
    producer = cluster.producer()
    for value in range(2):
        producer.produce(topic, b"%d" % value, partition=0, timestamp=now + value * 1000)
        producer.flush(_SECONDS)
    asked = [TopicPartition(topic, 0, now + 500)]
    (found,) = _consumer(cluster, "times").offsets_for_times(asked, timeout=_SECONDS)
    assert found.offset == 1, f"offset {found.offset}"


def _transactions(cluster: Cluster) -> None:
    topic = "transactions"
    _create(cluster, topic)
    producer = _transactional(cluster, "transactions")
    for value in (b"aborted", b"committed"):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        if value == b"aborted":
            producer.flush(_SECONDS)
            producer.abort_transaction(_SECONDS)
        else:
            producer.commit_transaction(_SECONDS)
    values = _values(cluster, topic, 1, isolation="read_committed")
    assert values == [b"committed"], f"read: {values}"


def _offsets_in_transactions(cluster: Cluster) -> None:
    topic = "consumed"
    _create(cluster, topic)
    _produce(cluster, topic, [b"1", b"2"])
    consumer = _subscribed(cluster, topic, "in-transaction")
    _next(consumer)
    producer = _transactional(cluster, "offsets")
    producer.begin_transaction()
    position = [TopicPartition(topic, 0, 1)]
    producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), _SECONDS)
    producer.commit_transaction(_SECONDS)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=_SECONDS)
    consumer.close()
    assert committed.offset == 1, f"offset {committed.offset}"


# -- groups


def _groups(cluster: Cluster) -> None:
    _create(cluster, "shared", partitions=2)
    _rebalance(cluster, "shared", "members")


def _new_groups(cluster: Cluster) -> None:
    _create(cluster, "shared-848", partitions=2)
    _rebalance(cluster, "shared-848", "members-848", **{"group.protocol": "consumer"})


def _committed_offsets(cluster: Cluster) -> None:
    topic, group = "committed", "goes-on"
    _create(cluster, topic)
    _produce(cluster, topic, [b"1", b"2"])
    first = _subscribed(cluster, topic, group, **{"enable.auto.commit": False})
    first.commit(message=_next(first), asynchronous=False)
    first.close()
    second = _subscribed(cluster, topic, group)
    value = _next(second).value()
    second.close()
    assert value == b"2", repr(value)


def _group_admin(cluster: Cluster) -> None:
    topic, group = "administrated", "administrated"
    _create(cluster, topic)
    _produce(cluster, topic, [b"1", b"2"])
    consumer = _subscribed(cluster, topic, group)
    consumer.commit(message=_next(consumer), asynchronous=False)
    consumer.close()
    admin = _admin(cluster)
    listed = admin.list_consumer_groups(request_timeout=_SECONDS).result()
    assert group in {one.group_id for one in listed.valid}, "not listed"
    described = admin.describe_consumer_groups([group], request_timeout=_SECONDS)[group].result()
    assert described.members == []
    moved = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
    admin.alter_consumer_group_offsets([moved], request_timeout=_SECONDS)[group].result()
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    found = admin.list_consumer_group_offsets([asked], request_timeout=_SECONDS)[group].result()
    assert found.topic_partitions[0].offset == 2
    admin.delete_consumer_groups([group], request_timeout=_SECONDS)[group].result()


# -- several brokers


def _replicas(cluster: Cluster) -> None:
    _create(cluster, "replicated", replicas=_BROKERS)
    _produce(cluster, "replicated", [b"1"])
    found = _admin(cluster).list_topics("replicated", timeout=_SECONDS)
    assert len(found.brokers) == _BROKERS
    replicas = found.topics["replicated"].partitions[0].replicas
    assert len(replicas) == _BROKERS, f"{len(replicas)} replicas"


def _failover(cluster: Cluster) -> None:
    topic = "fails-over"
    _create(cluster, topic, replicas=_BROKERS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    _deliver(producer, topic, [b"1"])
    leader = _leader(cluster, topic)
    cluster.kill_broker(leader)
    _deliver(producer, topic, [b"2"])
    assert _leader(cluster, topic) != leader, "no other leader"
    assert _values(cluster, topic, 2) == [b"1", b"2"]


# -- faults


def _fail(cluster: Cluster) -> None:
    topic = "fails"
    _produce(cluster, topic, [b"1"])
    cluster.fail_produce(topic, "TOPIC_AUTHORIZATION_FAILED")
    (error,) = _errors(cluster.producer(), topic, [b"2"])
    assert error is not None, "no error"
    assert error.name() == "TOPIC_AUTHORIZATION_FAILED", str(error)


def _delay(cluster: Cluster) -> None:
    topic = "slow"
    _produce(cluster, topic, [b"1"])
    cluster.delay_produce(topic, _DELAY_SECONDS)
    began = time.monotonic()
    _produce(cluster, topic, [b"2"])
    took = time.monotonic() - began
    assert took > _DELAY_SECONDS, f"after {took:.3f} s"


# -- logs


def _restart(start: Starter) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cluster = start(1, Path(folder))
        try:
            _create(cluster, "kept")
            _produce(cluster, "kept", [b"1"])
        finally:
            cluster.close()
        cluster = start(1, Path(folder))
        try:
            assert _values(cluster, "kept", 1) == [b"1"]
        finally:
            cluster.close()


def _retention(cluster: Cluster) -> None:
    topic = "retained"
    cluster.create_topic(topic, configs={"retention.ms": "100", "segment.ms": "100"})
    _produce(cluster, topic, [b"1"])
    consumer = _consumer(cluster, "retention")

    def is_deleted() -> bool:
        begin, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_SECONDS)
        return begin > 0

    wait_until(is_deleted, timeout=_SECONDS, what="the record is deleted")


def _compaction(cluster: Cluster) -> None:
    topic = "compacted"
    settings = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    cluster.create_topic(topic, configs=settings)
    written = 0

    def is_compacted() -> bool:
        nonlocal written
        # A new record begins a new segment, and so makes the one before it cleanable.
        _deliver(cluster.producer(), topic, [b"%d" % written], key=b"key")
        written += 1
        time.sleep(0.2)
        values = _values(cluster, topic, 1, last=b"%d" % (written - 1))
        return values[0] != b"0"

    wait_until(is_compacted, timeout=_SECONDS, what="older values are removed")


# -- administration


def _topic_admin(cluster: Cluster) -> None:
    topic = "made"
    admin = _admin(cluster)
    cluster.create_topic(topic)
    wanted = [NewPartitions(topic, 2)]
    _eventually(lambda: admin.create_partitions(wanted, request_timeout=_SECONDS)[topic].result())

    def partitions() -> int:
        return len(admin.list_topics(timeout=_SECONDS).topics[topic].partitions)

    wait_until(lambda: partitions() == 2, timeout=_SECONDS, what="two partitions")
    _eventually(lambda: admin.delete_topics([topic], request_timeout=_SECONDS)[topic].result())
    wait_until(
        lambda: topic not in admin.list_topics(timeout=_SECONDS).topics,
        timeout=_SECONDS,
        what="the topic is deleted",
    )


def _configs(cluster: Cluster) -> None:
    topic = "configured"
    cluster.create_topic(topic)
    admin = _admin(cluster)
    entry = ConfigEntry("retention.ms", "12345", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])

    def alter() -> None:
        (altered,) = admin.incremental_alter_configs([changed], request_timeout=_SECONDS).values()
        altered.result()

    def value() -> str:
        asked = ConfigResource(ResourceType.TOPIC, topic)
        (described,) = admin.describe_configs([asked], request_timeout=_SECONDS).values()
        return str(described.result()["retention.ms"].value)

    _eventually(alter)
    wait_until(lambda: _eventually(value) == "12345", timeout=_SECONDS, what="the topic has the config")


def _delete_records(cluster: Cluster) -> None:
    topic = "shortened"
    _create(cluster, topic)
    _produce(cluster, topic, [b"1", b"2"])
    # A client that is dropped never ends its futures.
    admin = _admin(cluster)
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 1)], request_timeout=_SECONDS).values()
    assert deleted.result().low_watermark == 1
    assert _values(cluster, topic, 1) == [b"2"]


def _acls(cluster: Cluster) -> None:
    admin = _admin(cluster)
    fields = (ResourceType.TOPIC, "guarded", ResourcePatternType.LITERAL, "User:alice", "*")
    binding = AclBinding(*fields, AclOperation.READ, AclPermissionType.ALLOW)
    (created,) = admin.create_acls([binding], request_timeout=_SECONDS).values()
    created.result()
    wanted = AclBindingFilter(*fields, AclOperation.READ, AclPermissionType.ALLOW)
    wait_until(
        lambda: len(admin.describe_acls(wanted, request_timeout=_SECONDS).result()) == 1,
        timeout=_SECONDS,
        what="the ACL is known",
    )


def _scram_users(cluster: Cluster) -> None:
    admin = _admin(cluster)
    information = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    user = UserScramCredentialUpsertion("alice", information, b"secret")
    (altered,) = admin.alter_user_scram_credentials([user], request_timeout=_SECONDS).values()
    altered.result()

    def is_known() -> bool:
        described: Any = admin.describe_user_scram_credentials(["alice"], request_timeout=_SECONDS)
        return len(described["alice"].result().scram_credential_infos) == 1

    wait_until(lambda: _eventually(is_known), timeout=_SECONDS, what="the user is known")


def _kafka_python(cluster: Cluster) -> None:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    topic = "kafka-python"
    _produce(cluster, topic, [b"1"])
    try:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers.split(","),
            group_id="kafka-python",
            auto_offset_reset="earliest",
            consumer_timeout_ms=int(_SECONDS * 1000),
        )
        values = [next(iter(consumer)).value]
        consumer.close()
    except (KafkaError, StopIteration) as error:
        raise MissingError(f"kafka-python: {error!r}") from error
    assert values == [b"1"]


# -- what trials share


def _eventually(function: Callable[[], T]) -> T:
    """Call a function until no broker answers any more that it has not heard of a change."""
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            return function()
        except KafkaException as error:
            if error.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                raise
        time.sleep(_POLL_SECONDS)


def _admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


def _create(cluster: Cluster, topic: str, partitions: int = 1, replicas: int = 1) -> None:
    """Create a topic, by use where nothing else does."""
    try:
        cluster.create_topic(topic, partitions, replicas)
    except MissingError:
        cluster.producer().list_topics(topic, timeout=_SECONDS)


def _produce(cluster: Cluster, topic: str, values: list[bytes], **settings: Any) -> None:
    _deliver(cluster.producer(**settings), topic, values)


def _deliver(producer: Producer, topic: str, values: list[bytes], key: bytes | None = None) -> None:
    """Produce records to partition 0 and wait until each is acknowledged. Raises KafkaException."""
    for error in _errors(producer, topic, values, key):
        if error is not None:
            raise KafkaException(error)


def _errors(
    producer: Producer, topic: str, values: list[bytes], key: bytes | None = None
) -> list[KafkaError | None]:
    """Produce records to partition 0 and return how each ended. Raises TimeoutError."""
    errors: list[KafkaError | None] = []
    for value in values:
        producer.produce(
            topic, value, key=key, partition=0, on_delivery=lambda error, _: errors.append(error)
        )
    producer.flush(_SECONDS)
    if len(errors) < len(values):
        raise TimeoutError(f"{len(values) - len(errors)} records were not acknowledged")
    return errors


def _transactional(cluster: Cluster, name: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(_SECONDS)
    return producer


def _consumer(cluster: Cluster, group: str, **settings: Any) -> Consumer:
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "log_level": 0}
    return Consumer(servers | {"auto.offset.reset": "earliest"} | settings)


def _subscribed(cluster: Cluster, topic: str, group: str, **settings: Any) -> Consumer:
    consumer = _consumer(cluster, group, **settings)
    consumer.subscribe([topic])
    return consumer


def _next(consumer: Consumer) -> Message:
    """Return the next record. Raises TimeoutError."""
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(_POLL_SECONDS)
        if message is not None and message.error() is None:
            return message
    raise TimeoutError("no record")


def _values(
    cluster: Cluster,
    topic: str,
    count: int,
    last: bytes | None = None,
    isolation: str = "read_uncommitted",
) -> list[bytes | None]:
    """Return the first values of partition 0, without a group: so many, or all up to ``last``."""
    consumer = _consumer(cluster, "readers", **{"isolation.level": isolation})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    while len(values) < count or (last is not None and values[-1] != last):
        values.append(_next(consumer).value())
    consumer.close()
    return values


def _leader(cluster: Cluster, topic: str) -> int:
    return int(_admin(cluster).list_topics(topic, timeout=_SECONDS).topics[topic].partitions[0].leader)


def _rebalance(cluster: Cluster, topic: str, group: str, **settings: Any) -> None:
    """Let two consumers of a group share all partitions of a topic."""
    consumers = [_subscribed(cluster, topic, group, **settings) for _ in range(2)]

    def is_shared() -> bool:
        for consumer in consumers:
            message = consumer.poll(_POLL_SECONDS)
            error = None if message is None else message.error()
            if error is not None and not error.retriable() and error.code() not in _NOT_YET:
                raise KafkaException(error)
        assigned = [{one.partition for one in consumer.assignment()} for consumer in consumers]
        return all(assigned) and not assigned[0] & assigned[1]

    wait_until(is_shared, timeout=_SECONDS, what="both consumers have partitions")
    for consumer in consumers:
        consumer.close()


#: In the order in which they are tried. The death of a broker is the last.
TRIALS: Final[Mapping[str, Callable[[Cluster], None]]] = {
    "another client library (kafka-python)": _kafka_python,
    "codecs gzip, snappy, LZ4, Zstandard": _codecs,
    "offsets of times": _offsets_of_times,
    "consumer groups: members share partitions": _groups,
    "consumer groups: a later member goes on": _committed_offsets,
    "consumer groups of KIP-848": _new_groups,
    "idempotent producers": _idempotent_producer,
    "a batch that is sent twice is stored once": _batch_sent_twice,
    "transactions: aborted records are hidden": _transactions,
    "transactions: with offsets of a group": _offsets_in_transactions,
    "retention": _retention,
    "compaction": _compaction,
    "an error on demand": _fail,
    "a delay on demand": _delay,
    "AdminClient: topics": _topic_admin,
    "AdminClient: configs": _configs,
    "AdminClient: DeleteRecords": _delete_records,
    "AdminClient: groups": _group_admin,
    "AdminClient: ACLs": _acls,
    "AdminClient: SCRAM users": _scram_users,
    "several brokers, replicas": _replicas,
    "failover after a broker's death": _failover,
}
