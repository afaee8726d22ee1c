"""The transaction coordinator with its threads, on logs in a folder."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.transaction_config import TransactionConfig
from ctrlchan.broker.coordinator import transaction_service
from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.requests import InitResult, ProducerIdentity
from ctrlchan.broker.coordinator.transaction_service import TransactionService
from ctrlchan.broker.log._batches import read_header
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.metadata.published_metadata import PublishedMetadata
from ctrlchan.broker.producer_ids import ProducerIds, random_block
from ctrlchan.broker.replica._partitions import Partition, PartitionTable
from ctrlchan.errors import ConfigError, ErrorCode, KafkaError
from ctrlchan.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, coordinator_partition
from tests.kafka.waiting import wait_until
from tests.unit.broker.cores import storing_core
from tests.unit.broker.local_broker import LocalBroker, Part
from tests.unit.broker.log.made_batches import transactional_batch
from tests.unit.broker.replica.serving import QUEUED, outcomes, produce_frame, producing

DEADLINE = 60.0
OURS, OTHER = 1, 2
ID = "an-id"
DATA, OFFSETS = TopicPartition("t", 0), TopicPartition(OFFSETS_TOPIC, 0)
NONE = ErrorCode.NONE
CONFIG = TransactionConfig(topic_partitions=1)
_CONTROL_IN_TRANSACTION = 0x30


def soon(condition: Callable[[], bool]) -> None:
    wait_until(condition, timeout=DEADLINE, what="a thread of the transactions")


class Broker:
    """Partitions of a broker: of the transactions' topic, of a topic with records, of the groups' topic."""

    def __init__(self, folder: Path, table: PartitionTable | None = None) -> None:
        self.table = PartitionTable(OURS) if table is None else table
        self.logs: list[Log] = []
        config = LogConfig(cleanup_delete=False, cleanup_compact=True)
        for topic in (TRANSACTIONS_TOPIC, DATA.topic, OFFSETS_TOPIC):
            path = folder / f"{topic}-0"
            path.mkdir(exist_ok=True)
            partition = self.table.open(topic, 0)
            partition.update_config(config)
            self.logs.append(Log(path, config))
            partition.make_leader(self.logs[-1], 0, 0, (OURS,), (OURS,))
        self.metadata = LocalBroker(storing_core(OURS, epoch=50))
        self.completed: list[tuple[int, Collection[int], bool]] = []
        self.fails_reads = False

    def find(self, topic: str, partition: int) -> Partition | None:
        if self.fails_reads:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return self.table.get(topic, partition)

    def __getitem__(self, partition: TopicPartition) -> Partition:
        found = self.table.get(*partition)
        assert found is not None
        return found

    @property
    def state_partition(self) -> Partition:
        return self[TopicPartition(TRANSACTIONS_TOPIC, 0)]

    def close(self) -> None:
        self.table.close()
        for log in self.logs:
            log.close()


@contextmanager
def serving(broker: Broker, config: TransactionConfig = CONFIG) -> Iterator[TransactionService]:
    metadata = broker.metadata.core.metadata
    assert isinstance(metadata, PublishedMetadata)
    service = TransactionService(
        OURS,
        config,
        ProducerIds(random_block),
        broker.find,
        metadata,
        "PLAINTEXT",
        lambda *ended: broker.completed.append(ended),
    )
    service.start()
    try:
        yield service
    finally:
        service.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    yield made
    made.close()


def lead(service: TransactionService, epoch: int = 0) -> None:
    """Let the broker lead the partition, and wait until its ids are loaded."""
    service.on_leader(0, epoch)
    soon(lambda: service.coordinator.list((), (), -1)[0] is NONE)


def init(service: TransactionService, timeout: int = 60_000) -> ProducerIdentity:
    answers: queue.Queue[InitResult] = queue.Queue()
    service.coordinator.init_producer_id(ID, timeout, None, answers.put)
    result = answers.get(timeout=DEADLINE)
    assert result.error is NONE
    return ProducerIdentity(result.producer_id, result.epoch)


def send_add(
    service: TransactionService, producer: ProducerIdentity, *partitions: TopicPartition
) -> queue.Queue[ErrorCode]:
    answers: queue.Queue[ErrorCode] = queue.Queue()
    service.coordinator.add_partitions(ID, producer, partitions, answers.put)
    return answers


def add(service: TransactionService, producer: ProducerIdentity, *partitions: TopicPartition) -> ErrorCode:
    return send_add(service, producer, *partitions).get(timeout=DEADLINE)


def end(service: TransactionService, producer: ProducerIdentity, commit: bool = True) -> ErrorCode:
    answers: queue.Queue[ErrorCode] = queue.Queue()
    service.coordinator.end(ID, producer, commit, answers.put)
    return answers.get(timeout=DEADLINE)


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
