"""What a test asks an EmbeddedCluster: topics, records, groups, transactions; also with asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from ctrlchan import EmbeddedCluster
from ctrlchan.embedded import requests
from ctrlchan.embedded.aio import StartingCluster
from ctrlchan.errors import ConfigError, CtrlchanError, ErrorCode, KafkaError
from ctrlchan.launch.processes import BrokerProcesses
from ctrlchan.peers.connection import Address, PeerConnection
from tests.kafka.waiting import wait_until


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    # No argument says that records are stored: a cluster stores them.
    with EmbeddedCluster(2, configs={"num.partitions": 3, "auto.create.topics.enable": True}) as started:
        yield started


def test_a_cluster_stores_records_by_default(cluster: EmbeddedCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    errors: list[object] = []
    producer.produce("by-a-client", b"1", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]
    assert [record.value for record in cluster.records("by-a-client")] == [b"1"]


def test_topics_are_created_and_deleted(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("created", 4, 2, configs={"retention.ms": 1000, "preallocate": False})
    for broker in cluster.describe():
        assert broker["metadata"]["topics"] >= 1
    assert cluster.records("created") == []
    with pytest.raises(KafkaError, match="created: TOPIC_ALREADY_EXISTS") as error:
        cluster.create_topic("created")
    assert error.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    cluster.create_topic("other")
    cluster.delete_topics("created", "other")
    for topic in ("created", "other"):
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            cluster.records(topic)
    with pytest.raises(KafkaError, match="created: UNKNOWN_TOPIC_OR_PARTITION"):
        cluster.delete_topics("created")
    with pytest.raises(KafkaError, match="INVALID_REPLICATION_FACTOR"):
        cluster.create_topic("too-many", 1, 3)


def test_records_are_produced_and_read(cluster: EmbeddedCluster) -> None:
    produced = cluster.produce("produced", b"1", "zwei", None, "4")
    assert [(one.partition, one.offset, one.value) for one in produced] == [
        (0, 0, b"1"),
        (1, 0, b"zwei"),
        (2, 0, None),
        (0, 1, b"4"),
    ]
    assert cluster.records("produced") == sorted(produced)
    (keyed,) = cluster.produce("produced", "5", key="k", headers=[("h", b"x"), ("none", None)])
    assert (keyed.key, keyed.headers) == (b"k", (("h", b"x"), ("none", None)))
    (placed,) = cluster.produce("produced", "6", partition=2, key="k")
    assert placed.partition == 2
    assert set(cluster.records("produced")) >= {keyed, placed}
    with pytest.raises(KafkaError, match=r"produced-7: UNKNOWN_TOPIC_OR_PARTITION"):
        cluster.produce("produced", "7", partition=7, timeout=0.2)


def test_records_are_produced_while_a_leader_moves(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("moved", 1, 2)
    for broker_id in (1, 2, 1):
        cluster.move_leader("moved", 0, broker_id)
        cluster.produce("moved", str(broker_id))
    assert [one.value for one in cluster.records("moved", at_least=3)] == [b"1", b"2", b"1"]


def test_a_record_is_appended_once_whatever_the_leader_says(cluster: EmbeddedCluster) -> None:
    """As by a leader that was deposed between the append and its answer."""
    cluster.create_topic("once", 1, 2)
    for broker_id in (1, 2):
        target = cluster.broker(broker_id)
        target.fail("Produce", "once", error="NOT_LEADER_OR_FOLLOWER", times=2, after=True)
    assert [one.offset for one in cluster.produce("once", "1", "2")] == [0, 1]
    assert [one.value for one in cluster.records("once")] == [b"1", b"2"]
    cluster.clear_faults()


def test_records_are_produced_and_read_when_a_leader_has_just_died(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other broker still names the dead one, until the controller has noticed."""
    refused = threading.Event()

    class Watched(PeerConnection):
        def __init__(self, address: Address, client_id: bytes) -> None:
            try:
                super().__init__(address, client_id)
            except ConnectionRefusedError:
                refused.set()
                raise

    monkeypatch.setattr(requests, "PeerConnection", Watched)
    with EmbeddedCluster(2) as cluster, ThreadPoolExecutor(1) as pool:
        cluster.create_topic("kept", 1, 2)
        cluster.move_leader("kept", 0, 1)
        BrokerProcesses.kill_broker(cluster, 1)
        produced = pool.submit(cluster.produce, "kept", "1", timeout=60)
        assert refused.wait(60)
        read = pool.submit(cluster.records, "kept", timeout=60)
        cluster.kill_broker(1)
        assert [record.offset for record in produced.result()] == [0]
        assert [record.value for record in read.result()] == [b"1"]


def test_groups_have_members_and_offsets(cluster: EmbeddedCluster) -> None:
    cluster.produce("grouped", "1", partition=1)
    settings = {"group.id": "a-group", "client.id": "a-client", "auto.offset.reset": "earliest"}
    consumer: Any = Consumer({"bootstrap.servers": cluster.bootstrap_servers} | settings)
    consumer.subscribe(["grouped"])
    try:
        message = wait_until(lambda: consumer.poll(0.1), what="the record", timeout=60)
        consumer.commit(message=message, asynchronous=False)
        (group,) = (one for one in cluster.groups() if one.group_id == "a-group")
        assert (group.state, group.members) == ("Stable", ("a-client",))
        assert group.offsets == {("grouped", 1): 1}
    finally:
        consumer.close()


def test_aborted_and_open_transactions_are_not_read_as_committed(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("in-transactions", 1, 2)

    def begin(transactional_id: str) -> Any:
        producer: Any = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id}
        )
        producer.init_transactions(60)
        producer.begin_transaction()
        return producer

    def send(producer: Any, *values: str) -> None:
        for value in values:
            producer.produce("in-transactions", value, partition=0)
        assert producer.flush(60) == 0

    committing, aborting, staying = begin("commits"), begin("aborts"), begin("stays")
    send(aborting, "a1")
    send(committing, "c1")
    send(aborting, "a2")
    committing.commit_transaction(60)
    send(aborting, "a3")
    aborting.abort_transaction(60)
    aborting.begin_transaction()
    send(aborting, "c2")  # the same producer id
    aborting.commit_transaction(60)
    cluster.produce("in-transactions", "plain")

    def values(isolation: Any, at_least: int = 0) -> list[str]:
        records = cluster.records("in-transactions", isolation=isolation, at_least=at_least)
        return [(record.value or b"").decode() for record in records]

    assert values("read_committed") == ["c1", "c2", "plain"]
    send(staying, "s1")
    cluster.produce("in-transactions", "behind")
    every = ["a1", "c1", "a2", "a3", "c2", "plain", "s1", "behind"]
    assert values("read_uncommitted") == every
    assert [record.value for record in cluster.records("in-transactions")] == [one.encode() for one in every]
    assert values("read_committed") == ["c1", "c2", "plain"]
    staying.commit_transaction(60)
    assert values("read_committed") == ["c1", "c2", "plain", "s1", "behind"]
    with pytest.raises(ValueError, match="isolation 'committed', where read_uncommitted or read_committed"):
        values("committed")


def test_what_was_committed_is_seen_although_markers_are_late(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("late-markers", 2, 2)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "late-markers"}
    producer: Any = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    for partition in range(2):  # they have different leaders, of which one is asked for its marker
        producer.produce("late-markers", "x", partition=partition)
    for broker in cluster.brokers:
        cluster.broker(broker.id).delay("WriteTxnMarkers", 0.5)
    producer.commit_transaction(60)
    seen = cluster.records("late-markers", isolation="read_committed")
    for broker in cluster.brokers:
        cluster.broker(broker.id).clear_faults()
    assert [one.partition for one in seen] == [0, 1]


def test_transactions_have_states_and_partitions(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("of-a-transaction", 2, 2)
    settings = {"transactional.id": "looked-at", "transaction.timeout.ms": 54_321}
    producer: Any = Producer({"bootstrap.servers": cluster.bootstrap_servers} | settings)

    def found(state: str) -> Any:
        def look() -> Any:
            (one,) = (one for one in cluster.transactions() if one.transactional_id == "looked-at")
            return one if one.state == state else None

        return wait_until(look, what=f"the transaction in the state {state}", timeout=60)

    producer.init_transactions(60)
    fresh = found("Empty")
    assert (fresh.producer_epoch, fresh.timeout_ms, fresh.start_ms) == (0, 54_321, None)
    assert fresh.producer_id >= 0
    producer.begin_transaction()
    before = time.time_ns() // 1_000_000
    for partition in (1, 0):
        producer.produce("of-a-transaction", "x", partition=partition)
    assert producer.flush(60) == 0
    ongoing = found("Ongoing")
    assert ongoing.partitions == (("of-a-transaction", 0), ("of-a-transaction", 1))
    assert before <= ongoing.start_ms <= time.time_ns() // 1_000_000
    producer.commit_transaction(60)
    done = found("CompleteCommit")
    assert (done.partitions, done.producer_id) == ((), fresh.producer_id)
    ids = [one.transactional_id for one in cluster.transactions()]
    assert ids == sorted(ids)
    assert asyncio.run(cluster.aio.transactions()) == cluster.transactions()


def test_the_calls_for_asyncio(cluster: EmbeddedCluster) -> None:
    async def work() -> None:
        await cluster.aio.create_topic("awaited", 1, 2)
        (record,) = await cluster.aio.produce("awaited", "1", key="k")
        assert await cluster.aio.records("awaited", at_least=1) == [record]
        assert await cluster.aio.records("awaited", isolation="read_committed") == [record]
        await cluster.aio.move_leader("awaited", 0, 2)
        assert isinstance(await cluster.aio.groups(), list)
        await cluster.aio.delete_topics("awaited")

    asyncio.run(work())


def test_a_cluster_in_asyncio() -> None:
    async def work() -> EmbeddedCluster:
        async with EmbeddedCluster.start(1) as cluster:
            await cluster.aio.kill_broker(1)
            with pytest.raises(CtrlchanError, match="no broker of the cluster lives"):
                await cluster.aio.groups()
            await cluster.aio.start_broker(1)
            assert repr(cluster) == f"<EmbeddedCluster: 1 broker, {cluster.bootstrap_servers}>"
            return cluster

    assert repr(asyncio.run(work())) == "<EmbeddedCluster: 1 broker, closed>"


class CountingCluster(EmbeddedCluster):
    """A cluster whose start ends when a loop has gone round three times."""

    def __init__(self, rounds: threading.Semaphore) -> None:
        for _ in range(3):
            assert rounds.acquire(timeout=60)
        super().__init__(1)


def test_the_loop_goes_on_while_a_cluster_starts() -> None:
    rounds = threading.Semaphore(0)

    async def go_round() -> None:
        while True:
            rounds.release()
            await asyncio.sleep(0.01)

    async def work() -> EmbeddedCluster:
        going = asyncio.create_task(go_round())
        cluster = await CountingCluster.start(rounds)
        async with cluster:
            assert cluster.bootstrap_servers.startswith("127.0.0.1:")
        going.cancel()
        return cluster

    assert repr(asyncio.run(work())) == "<EmbeddedCluster: 1 broker, closed>"


def test_a_start_that_is_cancelled_leaves_no_cluster() -> None:
    started: list[EmbeddedCluster] = []
    may_start = threading.Event()

    def start() -> EmbeddedCluster:
        assert may_start.wait(60)
        started.append(EmbeddedCluster(1))
        return started[0]

    async def wait_for_it() -> None:
        async with StartingCluster(start):
            pytest.fail("nobody waits for it")

    async def work() -> None:
        waiting = asyncio.create_task(wait_for_it())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        may_start.set()

    asyncio.run(work())
    wait_until(
        lambda: repr(started[0]) == "<EmbeddedCluster: 1 broker, closed>", what="the cluster is closed"
    )


def test_a_start_that_fails_raises_the_constructors_error() -> None:
    async def work() -> None:
        async with EmbeddedCluster.start(1, configs={"num.partition": 3}):
            pytest.fail("this name is unknown")

    with pytest.raises(ConfigError, match=r"num\.partitions"):
        asyncio.run(work())


def test_the_text_of_a_cluster_has_its_bootstrap_servers(cluster: EmbeddedCluster) -> None:
    assert repr(cluster) == f"<EmbeddedCluster: 2 brokers, {cluster.bootstrap_servers}>"
    assert cluster.bootstrap_servers.startswith("127.0.0.1:")
