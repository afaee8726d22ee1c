"""Moves of replicas to other log directories (KIP-113): AlterReplicaLogDirs and what it starts."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioError
from kio.serial import entity_reader, entity_writer

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.parts import LogDirMoveSettings
from ctrlchan.broker.handlers import alter_replica_log_dirs
from ctrlchan.broker.log import checkpoints
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.log.manager import LogManager
from ctrlchan.broker.metadata.hosted_replicas import Assignment, HostedReplicas
from ctrlchan.broker.quota._replication_quota import ReplicationQuota
from ctrlchan.broker.replica._partitions import Partition, PartitionTable
from ctrlchan.broker.replica.replica_manager import ReplicaManager
from ctrlchan.errors import ErrorCode
from ctrlchan.server.api import Reply, Request
from tests.kafka.waiting import wait_until
from tests.unit.broker.log.made_batches import batch, headers
from tests.unit.server.contexts import LOCAL_CLIENT

TOPIC_ID = bytes(range(16))
CONFIG = LogConfig(segment_bytes=400, segment_index_bytes=400, file_delete_delay_ms=0)
#: One batch at a time.
SETTINGS = LogDirMoveSettings(partition_max_bytes=1, backoff_ms=5)
KEY = "alpha", 0


class Rig:
    """A ReplicaManager with three log directories, which leads ``alpha-0``."""

    def __init__(self, root: Path, settings: LogDirMoveSettings = SETTINGS) -> None:
        self.settings = settings
        self.dirs = [root / name for name in "abc"]
        self.quota = ReplicationQuota()
        self.epoch = 5
        self.start()

    def start(self) -> None:
        self.logs = LogManager(self.dirs, CONFIG, 1, "a-cluster", on_offline=self._failed)
        self.logs.start(lambda _topic: CONFIG)
        self.table = PartitionTable(1)
        self.manager = ReplicaManager(
            self.table,
            self.logs,
            lambda _topic, _is_new: CONFIG,
            HostedReplicas(),
            threading.RLock(),
            max_lag_ms=1_000,
            listeners={},
            moving=self.settings,
            move_quota=self.quota,
        )

    def _failed(self, _path: Path, partitions: list[tuple[str, int]]) -> None:
        self.manager.log_dir_failed(partitions)

    def stop(self, *, crashes: bool = False) -> None:
        self.manager.stop()
        self.table.close()
        if crashes:
            self.logs.kill()
        else:
            self.logs.stop()

    def lead(self, topic_id: bytes = TOPIC_ID) -> Partition:
        self.epoch += 1
        one = Assignment(*KEY, topic_id, 1, self.epoch, self.epoch, (1,), (1,), True)
        assert self.manager.make_leaders([one]) == {}
        return self.partition

    def follow(self) -> Partition:
        self.epoch += 1
        one = Assignment(*KEY, TOPIC_ID, 2, self.epoch, self.epoch, (1, 2), (1, 2), True)
        assert self.manager.make_followers([one]) == {}
        return self.partition

    @property
    def partition(self) -> Partition:
        found = self.table.get(*KEY)
        assert found is not None
        return found

    @property
    def log(self) -> Log:
        log = self.partition.log
        assert log is not None
        return log

    @property
    def place(self) -> Path:
        return self.log.folder.parent

    @property
    def others(self) -> list[Path]:
        """The directories that the replica is not in."""
        return [path for path in self.dirs if path != self.place]

    def fill(self, number: int) -> None:
        for n in range(number):
            done = self.partition.append(batch([b"0123456789ab"], timestamp=1000 + n), required_acks=1)
            assert done.result(20)[0] == 0

    def move(self, path: Path, *, is_known: bool = True) -> int:
        return self.manager.move(*KEY, str(path), is_known=is_known)

    def begin_move(self, path: Path) -> None:
        """Begin a move that waits after its first piece."""
        self.quota.limit(0)
        assert self.move(path) == 0
        wait_until(lambda: self.future.end_offset > 0, what="the first piece")

    @property
    def future(self) -> Log:
        log = self.logs.future_log(*KEY)
        assert log is not None
        return log

    def wait_until_moved(self, path: Path) -> None:
        wait_until(lambda: self.place == path and self.logs.future_log(*KEY) is None, what="the move")

    def records(self) -> bytes:
        found, offset = b"", self.log.start_offset
        while offset < self.log.end_offset:
            data = self.partition.read(offset, 1 << 20)
            first, count = headers(data)[-1]
            found, offset = found + data, first + count
        return found

    def folders(self) -> dict[str, list[str]]:
        return {path.name: sorted(one.name for one in path.glob("alpha-*")) for path in self.dirs}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    rig.lead()
    yield rig
    rig.stop()


def test_replica_moves_with_all_that_it_has(rig: Rig) -> None:
    rig.fill(20)
    rig.log.increment_start_offset(3)
    rig.lead()
    rig.fill(5)
    before, epochs = rig.records(), rig.log.leader_epochs()
    states = rig.log.producer_states()
    former, target = rig.place, rig.others[0]
    assert rig.move(target) == 0
    rig.wait_until_moved(target)
    assert (rig.log.start_offset, rig.log.end_offset, rig.log.high_watermark) == (3, 25, 25)
    assert rig.records() == before
    assert rig.log.leader_epochs()[-1] == epochs[-1]
    assert rig.log.producer_states() == states
    assert checkpoints.read_topic_id(target / "alpha-0") == TOPIC_ID
    wait_until(lambda: rig.folders()[former.name] == [], what="the deletion of the former log")
    assert rig.folders()[target.name] == ["alpha-0"]
    rig.fill(1)
    assert rig.log.end_offset == 26


def test_epoch_without_records_is_known_after_the_move(rig: Rig) -> None:
    rig.fill(2)
    rig.lead()
    target = rig.others[0]
    assert rig.move(target) == 0
    rig.wait_until_moved(target)
    assert rig.log.leader_epochs()[-1] == (rig.epoch, 2)


def test_no_record_is_lost_that_is_appended_meanwhile(tmp_path: Path) -> None:
    rig = Rig(tmp_path, LogDirMoveSettings())
    rig.lead()
    rig.fill(10)
    ended = threading.Event()

    def append() -> None:
        while not ended.wait(0.001):
            rig.fill(1)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        for _ in range(3):
            target = rig.others[0]
            assert rig.move(target) == 0
            rig.wait_until_moved(target)
    finally:
        ended.set()
        thread.join()
    [first, *_] = rig.log.segment_offsets()
    assert first == 0
    found = rig.records()
    assert len(found) == rig.log.end_offset * len(batch([b"0123456789ab"]))
    rig.stop()


def test_transaction_that_was_verified_begins_after_the_move(rig: Rig) -> None:
    rig.fill(1)
    rig.table.verifies_transactions = True
    partition = rig.table.get(*KEY)
    assert partition is not None
    guard = partition.begin_verification(1, 0, 0)
    target = rig.others[0]
    assert rig.move(target) == 0
    rig.wait_until_moved(target)
    in_transaction = batch([b"x"], attributes=0x10, producer_id=1, producer_epoch=0, sequence=0)
    assert partition.append(in_transaction, verification_guard=guard + 1).result(20)[0] != 0
    assert partition.append(in_transaction, verification_guard=guard).result(20)[0] == 0


def test_move_to_where_the_replica_is_does_nothing(rig: Rig) -> None:
    rig.fill(1)
    assert rig.move(rig.place) == 0
    assert rig.logs.future_log(*KEY) is None


def test_throttled_move_waits_and_is_described(rig: Rig) -> None:
    rig.fill(4)
    target = rig.others[0]
    rig.begin_move(target)
    sizes = {(one.path, part.is_future): part for one in rig.logs.folder_sizes() for part in one.replicas}
    assert sizes[target, True].offset_lag == 3
    assert sizes[rig.place, False].offset_lag == 0
    assert rig.manager.moves.largest_lag() == 3
    assert rig.folders()[target.name][0].endswith("-future")
    rig.quota.limit(None)
    rig.wait_until_moved(target)


def test_another_directory_replaces_the_wish(rig: Rig) -> None:
    rig.fill(4)
    first, second = rig.others
    rig.begin_move(first)
    assert rig.move(second) == 0
    assert rig.future.folder.parent == second
    rig.quota.limit(None)
    rig.wait_until_moved(second)
    wait_until(lambda: rig.folders()[first.name] == [], what="the deletion of the first copy")


def test_move_back_to_where_the_replica_is_ends_the_move(rig: Rig) -> None:
    rig.fill(4)
    target = rig.others[0]
    rig.begin_move(target)
    assert rig.move(rig.place) == 0
    assert rig.logs.future_log(*KEY) is None
    wait_until(lambda: rig.folders()[target.name] == [], what="the deletion of the copy")


@pytest.mark.parametrize("crashes", [False, True])
def test_restart_goes_on_with_the_move(rig: Rig, crashes: bool) -> None:
    rig.fill(4)
    target = rig.others[0]
    rig.begin_move(target)
    rig.stop(crashes=crashes)
    rig.quota = ReplicationQuota()
    rig.start()
    assert 0 < rig.future.end_offset < 4
    rig.lead()
    rig.wait_until_moved(target)
    assert rig.log.end_offset == 4


def test_deletion_ends_the_move(rig: Rig) -> None:
    rig.fill(4)
    rig.begin_move(rig.others[0])
    rig.manager.delete([(*KEY, -2)])
    assert rig.logs.future_log(*KEY) is None
    wait_until(lambda: not any(rig.folders().values()), what="the deletion of both logs")
    rig.lead()


def test_copy_of_a_deleted_topic_is_deleted(rig: Rig) -> None:
    rig.fill(4)
    rig.begin_move(rig.others[0])
    checkpoints.write_topic_id(rig.future.folder, bytes(range(1, 17)))
    rig.lead()
    assert rig.logs.future_log(*KEY) is None


def test_truncation_of_the_log_truncates_the_copy(rig: Rig) -> None:
    """A follower has records that its leader does not have; others take their place, in another epoch."""
    rig.fill(6)
    target = rig.others[0]
    rig.begin_move(target)
    rig.follow()
    rig.manager.moves.end(*KEY)
    rig.logs.truncate({KEY: 0})
    assert rig.future.end_offset > 0
    rig.quota.limit(None)
    rig.lead()
    rig.partition.append(batch([b"another value"], timestamp=7), required_acks=1).result(20)
    rig.wait_until_moved(target)
    assert rig.log.end_offset == 1
    assert b"another value" in rig.records()


def test_leader_changes_during_the_move(rig: Rig) -> None:
    rig.fill(6)
    target = rig.others[0]
    rig.begin_move(target)
    rig.follow()
    rig.lead()
    rig.fill(1)
    rig.quota.limit(None)
    rig.wait_until_moved(target)
    assert rig.log.end_offset == 7


def test_start_of_the_log_moves_during_the_move(rig: Rig) -> None:
    """The low watermark of DeleteRecords is that of the copy, too."""
    rig.fill(6)
    target = rig.others[0]
    rig.begin_move(target)
    rig.log.increment_start_offset(5)
    assert rig.partition.low_watermark < 5
    rig.quota.limit(None)
    rig.wait_until_moved(target)
    assert (rig.log.start_offset, rig.partition.low_watermark) == (5, 5)


def fail(log: Log) -> None:
    """Let the disk fail for a log."""
    (log.folder / f"{log.end_offset:020d}.log").mkdir()
    with pytest.raises(Exception, match="alpha-0"):
        log.roll()


def test_failure_of_the_new_directory_leaves_the_replica(rig: Rig) -> None:
    rig.fill(6)
    target = rig.others[0]
    rig.begin_move(target)
    fail(rig.future)
    rig.quota.limit(None)
    wait_until(lambda: target in rig.logs.offline_dirs, what="the failure of the directory")
    assert rig.logs.future_log(*KEY) is None
    rig.fill(1)
    assert rig.move(target) == ErrorCode.KAFKA_STORAGE_ERROR
    # No copy is made while one may be in the directory that has failed.
    assert rig.move(rig.others[1]) == ErrorCode.KAFKA_STORAGE_ERROR


def test_failure_of_the_former_directory_takes_the_replica_offline(rig: Rig) -> None:
    rig.fill(6)
    rig.begin_move(rig.others[0])
    former, log = rig.place, rig.log
    fail(log)
    rig.logs.check_log(*KEY)
    wait_until(lambda: rig.partition.is_offline, what="the partition is offline")
    assert former in rig.logs.offline_dirs
    assert rig.manager.move(*KEY, str(rig.dirs[0]), is_known=True) == ErrorCode.KAFKA_STORAGE_ERROR


def test_compacted_log_moves(rig: Rig) -> None:
    rig.fill(10)
    rig.manager.update_config("alpha", replace(CONFIG, cleanup_compact=True, cleanup_delete=False))
    target = rig.others[0]
    assert rig.move(target) == 0
    rig.wait_until_moved(target)
    assert rig.log.end_offset == 10


# -- replicas that are not here, and errors


def test_wish_is_remembered_for_a_replica_that_is_not_here(rig: Rig) -> None:
    for number, (is_known, error) in enumerate(
        [(True, ErrorCode.REPLICA_NOT_AVAILABLE), (False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    ):
        key = "beta", number
        target = rig.dirs[number]
        assert rig.manager.move(*key, str(target), is_known=is_known) == error
        one = Assignment(*key, bytes(16), 1, 0, 0, (1,), (1,), True)
        assert rig.manager.make_leaders([one]) == {}
        log = rig.logs.log(*key)
        assert log is not None
        assert log.folder.parent == target


def test_refused_moves(rig: Rig) -> None:
    assert rig.move(Path("/nowhere")) == ErrorCode.LOG_DIR_NOT_FOUND
    name = "x" * 249
    target = str(rig.dirs[0])
    assert rig.manager.move(name, 0, target, is_known=True) == ErrorCode.INVALID_TOPIC_EXCEPTION


# -- the request


def alter(manager: Any, version: int, dirs: Mapping[str, Mapping[str, tuple[int, ...]]], access: Any) -> Any:
    request: Any = import_module(f"kio.schema.alter_replica_log_dirs.v{version}.request")
    body = request.AlterReplicaLogDirsRequest(
        dirs=tuple(
            request.AlterReplicaLogDir(
                path=path,
                topics=tuple(
                    request.AlterReplicaLogDirTopic(name=name, partitions=numbers)
                    for name, numbers in topics.items()
                ),
            )
            for path, topics in dirs.items()
        )
    )
    buffer = io.BytesIO()
    entity_writer(type(body))(buffer, body)
    core: Any = SimpleNamespace(
        replica_manager=manager,
        metadata=SimpleNamespace(snapshot=SimpleNamespace(has_partition=lambda topic, _: topic == "beta")),
    )
    frame = memoryview(buffer.getvalue())
    reply = alter_replica_log_dirs.API.handle(core, Request(version, 1, None, frame, 0, LOCAL_CLIENT, access))
    assert isinstance(reply, Reply)
    response: Any = import_module(f"kio.schema.alter_replica_log_dirs.v{version}.response")
    answer, _ = entity_reader(response.AlterReplicaLogDirsResponse)(memoryview(reply.body), 0)
    return {
        (topic.topic_name, one.partition_index): one.error_code
        for topic in answer.results
        for one in topic.partitions
    }


class Allows:
    def __init__(self, answer: bool) -> None:
        self.answer = answer

    def allows_cluster(self, _operation: object) -> bool:
        return self.answer


@pytest.mark.parametrize("version", range(3))
def test_answers_of_all_versions(rig: Rig, version: int) -> None:
    rig.fill(2)
    target, other = map(str, rig.others)
    dirs = {
        other: {"alpha": (0,)},
        target: {"alpha": (0,), "beta": (1,), "gamma": (2,)},
        "/nowhere": {"delta": (0,)},
    }
    assert alter(rig.manager, version, dirs, Allows(True)) == {
        KEY: KioError.none,
        ("beta", 1): KioError.replica_not_available,
        ("gamma", 2): KioError.unknown_topic_or_partition,
        ("delta", 0): KioError.log_dir_not_found,
    }
    rig.wait_until_moved(Path(target))
    denied = alter(rig.manager, version, dirs, Allows(False))
    assert set(denied.values()) == {KioError.cluster_authorization_failed}
    assert len(denied) == 4
