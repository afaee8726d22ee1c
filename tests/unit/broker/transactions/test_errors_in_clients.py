"""What librdkafka makes of each error in a transaction, and that it can go on in the way that it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ctrlchan import EmbeddedCluster
from tests.kafka.waiting import wait_until

TOPIC, GROUP = "target", "group"
TIMEOUT: Final = 60.0
RETRIED, ABORTABLE, FATAL = "retried", "abortable", "fatal"
COORDINATORS: Final = ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn")
#: API, error, and what the client does about it.
CASES: Final = [
    *(
        (api, error, RETRIED)
        for api in (*COORDINATORS, "TxnOffsetCommit")
        for error in ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS")
    ),
    *((api, "CONCURRENT_TRANSACTIONS", RETRIED) for api in COORDINATORS),
    ("AddPartitionsToTxn", "UNKNOWN_TOPIC_OR_PARTITION", RETRIED),
    ("TxnOffsetCommit", "UNKNOWN_TOPIC_OR_PARTITION", RETRIED),
    ("Produce", "NOT_LEADER_OR_FOLLOWER", RETRIED),
    ("Produce", "REQUEST_TIMED_OUT", RETRIED),
    ("Produce", "NOT_ENOUGH_REPLICAS", RETRIED),
    ("Produce", "UNKNOWN_PRODUCER_ID", ABORTABLE),
    ("AddOffsetsToTxn", "GROUP_AUTHORIZATION_FAILED", ABORTABLE),
    ("AddOffsetsToTxn", "UNKNOWN_PRODUCER_ID", ABORTABLE),
    ("TxnOffsetCommit", "ILLEGAL_GENERATION", ABORTABLE),
    ("TxnOffsetCommit", "UNKNOWN_MEMBER_ID", ABORTABLE),
    ("TxnOffsetCommit", "FENCED_INSTANCE_ID", ABORTABLE),
    ("EndTxn", "INVALID_PRODUCER_ID_MAPPING", ABORTABLE),
    ("AddOffsetsToTxn", "PRODUCER_FENCED", ABORTABLE),
    *((api, "PRODUCER_FENCED", FATAL) for api in COORDINATORS if api != "AddOffsetsToTxn"),
    *((api, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", FATAL) for api in COORDINATORS),
    ("AddPartitionsToTxn", "INVALID_TXN_STATE", FATAL),
    ("EndTxn", "INVALID_TXN_STATE", FATAL),
    ("EndTxn", "INVALID_PRODUCER_EPOCH", FATAL),
    ("TxnOffsetCommit", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", FATAL),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(1) as cluster:
        cluster.create_topic(TOPIC)
        yield cluster


@pytest.fixture(scope="module")
def consumer(cluster: EmbeddedCluster) -> Iterator[Any]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": GROUP, "log_level": 2})
    yield consumer
    consumer.close()


@pytest.fixture
def committed(cluster: EmbeddedCluster) -> list[bytes | None]:
    """Return the committed records so far: a case adds those of its own."""
    return [record.value for record in cluster.records(TOPIC, isolation="read_committed")]


def open_producer(cluster: EmbeddedCluster, name: str) -> Any:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": name,
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "log_level": 0,
        }
    )
    producer.init_transactions(TIMEOUT)
    return producer


def transact(producer: Any, consumer: Any, value: bytes, offset: int) -> None:
    """Commit a record and an offset. Raises KafkaException."""
    producer.begin_transaction()
    producer.produce(TOPIC, value, partition=0)
    producer.flush(TIMEOUT)
    producer.send_offsets_to_transaction(
        [TopicPartition(TOPIC, 0, offset)], consumer.consumer_group_metadata(), TIMEOUT
    )
    producer.commit_transaction(TIMEOUT)


def is_settled(cluster: EmbeddedCluster) -> bool:
    """Return whether no transaction is open, or waits for its markers."""
    return {one.state for one in cluster.transactions()} <= {"Empty", "CompleteCommit", "CompleteAbort"}


@pytest.mark.parametrize(("api", "error", "then"), CASES, ids=lambda one: str(one))
def test_an_error(
    cluster: EmbeddedCluster, consumer: Any, committed: list[bytes | None], api: str, error: str, then: str
) -> None:
    name = f"{api}-{error}"
    broker = cluster.broker(1)
    if api == "InitProducerId":
        broker.fail(api, error=error, times=2 if then == RETRIED else 1)
        if then == FATAL:
            with pytest.raises(KafkaException) as failure:
                open_producer(cluster, name)
            assert failure.value.args[0].fatal()
    producer = open_producer(cluster, name)
    offset = len(committed) + 1
    if api != "InitProducerId":
        broker.fail(api, error=error, times=2 if then == RETRIED else 1)
    if then == RETRIED or api == "InitProducerId":
        transact(producer, consumer, b"first", offset)
        committed.append(b"first")
    else:
        with pytest.raises(KafkaException) as failure:
            transact(producer, consumer, b"first", offset)
        said = failure.value.args[0]
        assert (said.txn_requires_abort(), said.fatal()) == (then == ABORTABLE, then == FATAL), said
        if then == ABORTABLE:
            producer.abort_transaction(TIMEOUT)
        else:
            # Its successor aborts what it has left.
            producer = open_producer(cluster, name)
    transact(producer, consumer, b"second", offset + 1)
    committed.append(b"second")
    wait_until(lambda: is_settled(cluster), timeout=TIMEOUT, what="all transactions have ended")
    assert [record.value for record in cluster.records(TOPIC, isolation="read_committed")] == committed
    (stable,) = consumer.committed([TopicPartition(TOPIC, 0)], TIMEOUT)
    assert stable.offset == offset + 1


@pytest.mark.parametrize("api", COORDINATORS[1:])
def test_a_request_counts_although_its_answer_says_otherwise(
    cluster: EmbeddedCluster, consumer: Any, committed: list[bytes | None], api: str
) -> None:
    producer = open_producer(cluster, f"{api}-after")
    cluster.broker(1).fail(api, error="COORDINATOR_NOT_AVAILABLE", after=True)
    transact(producer, consumer, b"once", 1)
    transact(producer, consumer, b"again", 2)
    wait_until(lambda: is_settled(cluster), timeout=TIMEOUT, what="all transactions have ended")
    found = [record.value for record in cluster.records(TOPIC, isolation="read_committed")]
    assert found == [*committed, b"once", b"again"]
