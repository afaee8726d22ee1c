"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords of a broker with real logs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32Timedelta

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.handlers import delete_records, list_offsets, offset_for_leader_epoch
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.replica._partitions import Partition, PartitionTable
from ctrlchan.broker.storing_core import StoringCore
from ctrlchan.server.api import Api, Reply, Request
from tests.unit.broker.cores import storing_core
from tests.unit.broker.log.made_batches import batch
from tests.unit.broker.replica.fetching import BROKER, EPOCH, FOLLOWER, OTHER, VALUE, marker
from tests.unit.server.contexts import LOCAL_CLIENT

CONSUMER, DEBUGGING_CONSUMER = -1, -2
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
UNKNOWN_SERVER_ERROR = -1
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER = 1, 3, 5, 6
REQUEST_TIMED_OUT, INVALID_TOPIC_EXCEPTION, UNSUPPORTED_VERSION, INVALID_REQUEST = 7, 17, 35, 42
POLICY_VIOLATION, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 44, 56, 74, 75
OFFSET_NOT_AVAILABLE = 78


@pytest.fixture
def core() -> Iterator[StoringCore]:
    core = storing_core(BROKER, partitions=PartitionTable(BROKER))
    yield core
    for partition in core.partitions.partitions():
        if partition.log is not None:
            partition.log.close_files()
    core.partitions.close()


@pytest.fixture
def partition(core: StoringCore, tmp_path: Path) -> Partition:
    """Return a partition led here, with three records of times 1000, 1001 and 1002."""
    return led(core, tmp_path)


def led(core: StoringCore, folder: Path, topic: str = "orders", **fields: Any) -> Partition:
    partition: Partition = core.partitions.open(topic, 0)
    replicas = fields.pop("replicas", (BROKER,))
    partition.make_leader(Log(folder / f"{topic}-0", LogConfig(**fields)), EPOCH, 1, replicas, replicas)
    for n in range(3):
        partition.append(batch([VALUE], timestamp=1000 + n), required_acks=1).result(20)
    return partition


def call(core: StoringCore, api: Api[StoringCore], name: str, version: int, request: Any) -> Any:
    """Return kio's response to a request, or a Future of it."""
    body = io.BytesIO()
    entity_writer(type(request))(body, request)
    reply = api.handle(core, Request(version, 1, None, memoryview(body.getvalue()), 0, LOCAL_CLIENT))
    kind = getattr(
        import_module(f"kio.schema.{name}.v{version}.response"), type(request).__name__[:-7] + "Response"
    )

    def read(done: Reply) -> Any:
        return entity_reader(kind)(done.body, 0)[0]

    if isinstance(reply, Future):
        return reply, read
    assert isinstance(reply, Reply)
    return read(reply)


def known(kind: Any, **fields: Any) -> Any:
    return kind(**{name: value for name, value in fields.items() if name in kind.__dataclass_fields__})


def listed(
    core: StoringCore,
    timestamp: int,
    *,
    version: int = 9,
    replica: int = CONSUMER,
    isolation: int = 0,
    epoch: int = -1,
    topic: str = "orders",
    times: int = 1,
) -> tuple[int, int, int, int]:
    """Return error, offset, timestamp and leader epoch."""
    schema: Any = import_module(f"kio.schema.list_offsets.v{version}.request")
    one = known(
        schema.ListOffsetsPartition, partition_index=0, current_leader_epoch=epoch, timestamp=timestamp
    )
    request = known(
        schema.ListOffsetsRequest,
        replica_id=replica,
        isolation_level=isolation,
        topics=(schema.ListOffsetsTopic(name=topic, partitions=(one,) * times),),
    )
    response = call(core, list_offsets.API, "list_offsets", version, request)
    found = response.topics[0].partitions[0]
    return int(found.error_code), found.offset, found.timestamp, getattr(found, "leader_epoch", -1)


@pytest.mark.parametrize("version", range(1, 10))
def test_offsets_of_every_version(core: StoringCore, partition: Partition, version: int) -> None:
    epoch = EPOCH if version >= 4 else -1
    refused = (UNSUPPORTED_VERSION, -1, -1, -1)
    assert listed(core, LATEST, version=version) == (0, 3, -1, epoch)
    assert listed(core, EARLIEST, version=version) == (0, 0, -1, epoch)
    assert listed(core, 1001, version=version) == (0, 1, 1001, epoch)
    assert listed(core, 1003, version=version) == (0, -1, -1, -1)
    assert listed(core, MAX_TIMESTAMP, version=version) == ((0, 2, 1002, epoch) if version >= 7 else refused)
    assert listed(core, EARLIEST_LOCAL, version=version) == ((0, 0, -1, epoch) if version >= 8 else refused)
    assert listed(core, LATEST_TIERED, version=version) == ((0, -1, -1, -1) if version >= 9 else refused)
    assert listed(core, -6, version=version) == refused


def test_offsets_after_the_deletion_of_records(core: StoringCore, partition: Partition) -> None:
    assert partition.log is not None
    partition.log.increment_start_offset(2)
    assert listed(core, EARLIEST) == (0, 2, -1, EPOCH)
    assert listed(core, 0) == (0, 2, 1002, EPOCH)


def test_offsets_that_are_not_listed(core: StoringCore, partition: Partition) -> None:
    log = partition.log
    assert log is not None
    assert listed(core, LATEST, times=2)[0] == INVALID_REQUEST
    assert listed(core, LATEST, isolation=7) == (UNKNOWN_SERVER_ERROR, -1, -1, -1)
    assert listed(core, LATEST, epoch=-2)[0] == FENCED_LEADER_EPOCH
    assert listed(core, LATEST, epoch=EPOCH - 1)[0] == FENCED_LEADER_EPOCH
    assert listed(core, LATEST, epoch=EPOCH + 1)[0] == UNKNOWN_LEADER_EPOCH
    assert listed(core, LATEST, topic="gone")[0] == UNKNOWN_TOPIC_OR_PARTITION
    partition.make_follower(log, OTHER, EPOCH + 1, 2, (BROKER, OTHER))
    assert listed(core, LATEST)[0] == NOT_LEADER_OR_FOLLOWER
    assert listed(core, LATEST, replica=DEBUGGING_CONSUMER) == (0, 3, -1, EPOCH + 1)
    partition.set_offline()
    assert listed(core, LATEST)[0] == KAFKA_STORAGE_ERROR
    log.close_files()


def test_consumers_see_what_is_committed(core: StoringCore, tmp_path: Path) -> None:
    partition = led(core, tmp_path, replicas=(BROKER, FOLLOWER))
    # A new leader does not know the high watermark of the one before it.
    assert partition.epoch_start_offset == 0
    assert listed(core, LATEST) == (0, 0, -1, EPOCH)
    assert listed(core, LATEST, replica=FOLLOWER) == (0, 3, -1, EPOCH)
    assert listed(core, 1001) == (0, -1, -1, -1)
    partition.update_follower(FOLLOWER, 2, -1, 0)
    assert listed(core, LATEST) == (0, 2, -1, EPOCH)
    assert listed(core, 1001) == (0, 1, 1001, EPOCH)
    assert listed(core, 1002, replica=FOLLOWER) == (0, 2, 1002, EPOCH)
    assert partition.log is not None
    partition.make_leader(partition.log, EPOCH + 1, 2, (BROKER, FOLLOWER), (BROKER, FOLLOWER))
    assert listed(core, LATEST)[0] == OFFSET_NOT_AVAILABLE
    assert listed(core, LATEST, version=4)[0] == LEADER_NOT_AVAILABLE
    assert listed(core, 1002)[0] == OFFSET_NOT_AVAILABLE
    assert listed(core, 5000)[0] == OFFSET_NOT_AVAILABLE
    assert listed(core, 1001) == (0, 1, 1001, EPOCH)
    assert listed(core, EARLIEST) == (0, 0, -1, EPOCH)


def test_readers_of_committed_records_see_no_open_transaction(
    core: StoringCore, partition: Partition
) -> None:
    data = batch([VALUE], timestamp=1003, producer_id=5, producer_epoch=0, sequence=0, attributes=0x10)
    partition.append(data).result(20)
    assert listed(core, LATEST) == (0, 4, -1, EPOCH)
    assert listed(core, LATEST, isolation=1) == (0, 3, -1, EPOCH)
    assert listed(core, 1003, isolation=1) == (0, -1, -1, -1)
    partition.append(marker(5, commit=True), origin=1).result(20)
    assert listed(core, LATEST, isolation=1) == (0, 5, -1, EPOCH)


def ended(
    core: StoringCore, epoch: int, *, version: int = 4, current: int = -1, topic: str = "orders"
) -> tuple[int, int, int]:
    """Return error, leader epoch and end offset."""
    schema: Any = import_module(f"kio.schema.offset_for_leader_epoch.v{version}.request")
    one = known(
        schema.OffsetForLeaderPartition, partition=0, current_leader_epoch=current, leader_epoch=epoch
    )
    topics = (schema.OffsetForLeaderTopic(topic=topic, partitions=(one,)),)
    request = known(schema.OffsetForLeaderEpochRequest, replica_id=FOLLOWER, topics=topics)
    response = call(core, offset_for_leader_epoch.API, "offset_for_leader_epoch", version, request)
    found = response.topics[0].partitions[0]
    return int(found.error_code), getattr(found, "leader_epoch", -1), found.end_offset


@pytest.mark.parametrize("version", range(5))
def test_ends_of_leader_epochs(core: StoringCore, partition: Partition, version: int) -> None:
    def end(epoch: int, **fields: Any) -> tuple[int, int, int]:
        return ended(core, epoch, version=version, **fields)

    def epoch_of(epoch: int) -> int:
        return epoch if version >= 1 else -1

    log = partition.log
    assert log is not None
    partition.make_leader(log, EPOCH + 2, 2, (BROKER,), (BROKER,))
    assert end(EPOCH) == (0, epoch_of(EPOCH), 3)
    assert end(EPOCH + 1) == (0, epoch_of(EPOCH), 3)
    assert end(EPOCH + 2) == (0, epoch_of(EPOCH + 2), 3)
    assert end(EPOCH + 3) == (0, -1, -1)
    assert end(EPOCH, topic="gone") == (UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    if version >= 2:
        assert end(EPOCH, current=EPOCH)[0] == FENCED_LEADER_EPOCH
        assert end(EPOCH, current=EPOCH + 3)[0] == UNKNOWN_LEADER_EPOCH
    partition.make_follower(log, OTHER, EPOCH + 3, 3, (BROKER, OTHER))
    assert end(EPOCH)[0] == NOT_LEADER_OR_FOLLOWER


def delete(
    core: StoringCore, offset: int, *, topic: str = "orders", version: int = 2, timeout: float = 600
) -> Any:
    schema: Any = import_module(f"kio.schema.delete_records.v{version}.request")
    one = schema.DeleteRecordsPartition(partition_index=0, offset=offset)
    request = schema.DeleteRecordsRequest(
        topics=(schema.DeleteRecordsTopic(name=topic, partitions=(one,)),),
        timeout=i32Timedelta.parse(timedelta(seconds=timeout)),
    )
    return call(core, delete_records.API, "delete_records", version, request)


def deleted(response: Any) -> tuple[int, int]:
    """Return error and low watermark of the only partition."""
    (topic,) = response.topics
    (found,) = topic.partitions
    return int(found.error_code), found.low_watermark


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted_up_to_an_offset(core: StoringCore, partition: Partition, version: int) -> None:
    assert deleted(delete(core, 2, version=version)) == (0, 2)
    assert partition.log is not None
    assert partition.log.start_offset == 2
    assert deleted(delete(core, 1, version=version)) == (0, 2)
    assert deleted(delete(core, 4, version=version)) == (OFFSET_OUT_OF_RANGE, -1)
    assert deleted(delete(core, -2, version=version)) == (OFFSET_OUT_OF_RANGE, -1)
    assert deleted(delete(core, -1, version=version)) == (0, 3)
    assert deleted(delete(core, 0, topic="gone", version=version)) == (UNKNOWN_TOPIC_OR_PARTITION, -1)
    # An internal topic that there is not yet.
    assert deleted(delete(core, 0, topic="__consumer_offsets")) == (UNKNOWN_TOPIC_OR_PARTITION, -1)
    core.metadata.state.add_topic("__consumer_offsets", {0: [BROKER]})
    core.metadata.publish()
    assert deleted(delete(core, 0, topic="__consumer_offsets")) == (INVALID_TOPIC_EXCEPTION, -1)


def test_records_of_a_compacted_topic_are_kept(core: StoringCore, tmp_path: Path) -> None:
    led(core, tmp_path, "compacted", cleanup_delete=False)
    assert deleted(delete(core, 1, topic="compacted")) == (POLICY_VIOLATION, -1)


def test_the_deletion_waits_for_live_followers(core: StoringCore, tmp_path: Path) -> None:
    partition = led(core, tmp_path, replicas=(BROKER, FOLLOWER))
    core.partitions.set_live_brokers([BROKER, FOLLOWER])
    partition.update_follower(FOLLOWER, 3, -1, 0, start_offset=0)
    response, read = delete(core, 2)
    partition.update_follower(FOLLOWER, 3, -1, 1, start_offset=1)
    assert not response.done()
    partition.update_follower(FOLLOWER, 3, -1, 1, start_offset=2)
    assert deleted(read(response.result(20))) == (0, 2)
    # A follower that is dead holds nothing back from the next move of the high watermark on.
    response, read = delete(core, 3)
    core.partitions.set_live_brokers([BROKER])
    assert not response.done()
    partition.append(batch([b"value"]), required_acks=1).result(20)
    partition.update_follower(FOLLOWER, 4, -1, 2, start_offset=2)
    assert deleted(read(response.result(20))) == (0, 3)
    core.partitions.set_live_brokers([BROKER, FOLLOWER])
    # In vain, until the time is over, the leader is another, or the follower is dead.
    response, read = delete(core, 3, timeout=0.01)
    assert deleted(read(response.result(20))) == (REQUEST_TIMED_OUT, 2)
    response, read = delete(core, 3)
    assert partition.log is not None
    log = partition.log
    partition.make_follower(log, FOLLOWER, EPOCH + 1, 2, (BROKER, FOLLOWER))
    assert deleted(read(response.result(20))) == (NOT_LEADER_OR_FOLLOWER, -1)
    partition.make_leader(log, EPOCH + 2, 3, (BROKER, FOLLOWER), (BROKER,))
    core.partitions.set_live_brokers([BROKER])
    assert deleted(delete(core, 3)) == (0, 3)
