"""The transaction coordinator with its threads, on logs in a folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.transaction_config import TransactionConfig
from ctrlchan.broker.coordinator import transaction_service
from ctrlchan.broker.coordinator.transaction.requests import ProducerIdentity
from ctrlchan.broker.coordinator.transaction_service import TransactionService
from ctrlchan.broker.log._batches import read_header
from ctrlchan.errors import ConfigError, ErrorCode
from ctrlchan.internal_topics import TRANSACTIONS_TOPIC, coordinator_partition
from tests.unit.broker.local_broker import Part
from tests.unit.broker.log.made_batches import transactional_batch
from tests.unit.broker.replica.serving import QUEUED, outcomes, produce_frame, producing
from tests.unit.broker.transactions.service import (
    DATA,
    DEADLINE,
    ID,
    NONE,
    OFFSETS,
    OURS,
    Broker,
    add,
    end,
    init,
    lead,
    send_add,
    serving,
    soon,
)

OTHER = 2
_CONTROL_IN_TRANSACTION = 0x30


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    yield made
    made.close()


def state(service: TransactionService) -> str:
    return service.coordinator.describe(ID).state


def test_a_transaction_lives_on_in_the_log(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    with serving(broker) as service:
        lead(service)
        producer = init(service)
        assert add(service, producer, DATA) is NONE
        described = service.coordinator.describe(ID)
        assert (described.state, described.partitions) == ("Ongoing", frozenset({DATA}))
    broker.close()
    broker = Broker(tmp_path)
    with serving(broker) as service:
        lead(service)
        assert service.coordinator.describe(ID) == described
        assert end(service, producer) is NONE
        soon(lambda: state(service) == "CompleteCommit")
        marker = read_header(broker[DATA].read(0, 1_000))
        assert (marker.producer_id, marker.producer_epoch) == producer
        assert (marker.attributes, marker.size) == (_CONTROL_IN_TRANSACTION, 78)
        assert init(service) == ProducerIdentity(producer.producer_id, producer.epoch + 1)
    broker.close()


def test_a_first_batch_stays_on_the_processor(tmp_path: Path) -> None:
    with producing(tmp_path) as server:
        server.table.verifies_transactions = True
        broker = Broker(tmp_path, server.table)
        broker[DATA].update_config(LogConfig())
        with serving(broker) as service, server.client() as client:
            lead(service)
            producer = init(service)
            data = transactional_batch(producer.producer_id, producer.epoch, 0)
            frame = produce_frame(9, [(DATA.topic, [(DATA.partition, data)])], transactional_id=ID)
            client.frames(frame)
            assert client.answer() == QUEUED
            assert add(service, producer, DATA) is NONE
            client.frames(frame)
            assert outcomes(9, client.answer()) == [(*DATA, NONE, 0)]
            assert len(server.queued) == 1
            assert end(service, producer) is NONE
    broker.close()


def test_groups_hear_of_the_end(broker: Broker) -> None:
    with serving(broker) as service:
        lead(service)
        producer = init(service)
        add(service, producer, DATA, OFFSETS)
        assert end(service, producer, commit=False) is NONE
        soon(lambda: state(service) == "CompleteAbort")
        ((producer_id, partitions, commit),) = broker.completed
        assert (producer_id, list(partitions), commit) == (producer.producer_id, [0], False)


def test_ids_come_and_go_with_the_leadership(broker: Broker) -> None:
    with serving(broker) as service:
        assert service.coordinator.describe(ID).error is ErrorCode.NOT_COORDINATOR
        lead(service)
        producer = init(service)
        service.on_resigned(0, 1)
        assert service.coordinator.describe(ID).error is ErrorCode.NOT_COORDINATOR
        service.on_leader(0, 0)  # a request of the past
        assert service.coordinator.describe(ID).error is ErrorCode.NOT_COORDINATOR
        service.on_leader(0, 2)
        soon(lambda: service.coordinator.describe(ID).error is NONE)
        assert add(service, producer, DATA) is NONE
        service.on_resigned(0, None)
        assert service.coordinator.describe(ID).error is ErrorCode.NOT_COORDINATOR


def test_a_transaction_whose_time_is_over_is_aborted(broker: Broker) -> None:
    with serving(broker) as service:
        lead(service)
        producer = init(service, timeout=20)
        add(service, producer, DATA)
        soon(lambda: state(service) == "CompleteAbort")
        assert end(service, producer) is ErrorCode.PRODUCER_FENCED
        assert read_header(broker[DATA].read(0, 1_000)).producer_epoch == producer.epoch + 1


def test_unused_ids_expire(broker: Broker) -> None:
    with serving(broker, TransactionConfig(topic_partitions=1, id_expiration=20)) as service:
        lead(service)
        init(service)
        gone = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        soon(lambda: service.coordinator.describe(ID).error is gone)
        service.on_resigned(0, 1)
        lead(service, 2)
        assert service.coordinator.describe(ID).error is gone


def test_an_append_waits_for_the_other_replica(broker: Broker) -> None:
    with serving(broker) as service:
        lead(service)
        producer = init(service)
        partition = broker.state_partition
        assert partition.log is not None
        partition.make_leader(partition.log, 1, 1, (OURS, OTHER), (OURS, OTHER))
        answers = send_add(service, producer, DATA)
        assert add(service, producer, DATA) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert answers.empty()
        partition.update_follower(OTHER, partition.log.end_offset, -1, 0)
        assert answers.get(timeout=DEADLINE) is NONE
        assert state(service) == "Ongoing"


def test_errors_of_the_log_become_errors_of_transactions(broker: Broker) -> None:
    with serving(broker) as service:
        lead(service)
        producer = init(service)
        broker.table.remove(TRANSACTIONS_TOPIC, 0)
        assert add(service, producer, DATA) is ErrorCode.NOT_COORDINATOR


def test_a_partition_that_cannot_be_read_is_read_again(
    broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_service, "_PAUSE", 0.01)
    with serving(broker) as service:
        broker.fails_reads = True
        service.on_leader(0, 0)
        soon(lambda: caplog.text.count("cannot be loaded") > 1)
        assert service.coordinator.describe(ID).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        broker.fails_reads = False
        soon(lambda: service.coordinator.describe(ID).error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)


def test_the_topic_says_how_many_partitions_there_are(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(broker, TransactionConfig(topic_partitions=50)) as service:
        assert service.coordinator.partition_for(ID) == coordinator_partition(ID, 50)
        broker.metadata.update_metadata(*(Part(TRANSACTIONS_TOPIC, number) for number in range(4)))
        assert service.coordinator.partition_for(ID) == coordinator_partition(ID, 4)
        broker.metadata.update_metadata(*(Part(TRANSACTIONS_TOPIC, number) for number in range(9)))
        assert service.coordinator.partition_for(ID) == coordinator_partition(ID, 4)
        service.on_leader(0, 1)
        soon(lambda: "the topic has 9 partitions instead of 4" in caplog.text)
        assert service.coordinator.list((), (), -1)[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_stop_ends_the_threads_and_refuses_requests(broker: Broker) -> None:
    before = set(threading.enumerate())
    with serving(broker) as service:
        lead(service)
        assert len(set(threading.enumerate()) - before) == 2  # timers, loader
    assert set(threading.enumerate()) == before
    assert service.coordinator.describe(ID).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    service.on_leader(0, 3)  # of a request that was handled late
    assert add(service, ProducerIdentity(1, 0), DATA) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    service.stop()


def test_settings_have_kafkas_names() -> None:
    settings = {
        "transaction.max.timeout.ms": "100",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transactional.id.expiration.ms": "7",
        "log.dirs": "elsewhere",
    }
    expected = TransactionConfig(
        max_timeout=100, topic_replication_factor=1, topic_min_in_sync_replicas=1, id_expiration=7
    )
    assert TransactionConfig.of(settings) == expected


@pytest.mark.parametrize(
    "name", ["transaction.max.timeout.ms", "transaction.state.log.num.partitions", "request.timeout.ms"]
)
def test_settings_that_cannot_work(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        TransactionConfig.of({name: "0"})
