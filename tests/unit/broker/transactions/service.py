"""The transaction coordinator of a broker with its threads, on logs in a folder, for tests."""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.transaction_config import TransactionConfig
from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.transaction.gates import Gates
from ctrlchan.broker.coordinator.transaction.requests import InitResult, ProducerIdentity
from ctrlchan.broker.coordinator.transaction_service import TransactionService
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.metadata.published_metadata import PublishedMetadata
from ctrlchan.broker.producer_ids import ProducerIds, random_block
from ctrlchan.broker.replica._partitions import Partition, PartitionTable
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.kafka.waiting import wait_until
from tests.unit.broker.cores import storing_core
from tests.unit.broker.local_broker import LocalBroker

DEADLINE = 60.0
OURS = 1
ID = "an-id"
DATA, OFFSETS = TopicPartition("t", 0), TopicPartition(OFFSETS_TOPIC, 0)
NONE = ErrorCode.NONE
CONFIG = TransactionConfig(topic_partitions=1)


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
def serving(
    broker: Broker, config: TransactionConfig = CONFIG, gates: Gates | None = None
) -> Iterator[TransactionService]:
    metadata = broker.metadata.core.metadata
    assert isinstance(metadata, PublishedMetadata)
    service = TransactionService(
        OURS,
        config,
        ProducerIds(OURS, random_block),
        broker.find,
        metadata,
        "PLAINTEXT",
        lambda *ended: broker.completed.append(ended),
        gates=gates,
    )
    service.start()
    try:
        yield service
    finally:
        service.stop()


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
