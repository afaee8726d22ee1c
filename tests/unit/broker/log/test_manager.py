"""The log manager: locks, identity, restarts, checkpoints, deletion, directories that fail."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.config.log_manager_settings import LogManagerSettings
from ctrlchan.broker.log import checkpoints
from ctrlchan.broker.log.manager import LogManager, read_identity
from ctrlchan.errors import ConfigError, ErrorCode, KafkaError, LogDirectoryError
from tests.kafka.waiting import wait_until
from tests.unit.broker.descriptors import few_descriptors
from tests.unit.broker.log.made_batches import batch, checked

CLUSTER = "fIzLt5gES8yVtylT72FT-w"
NOW = time.time_ns() // 1_000_000
SMALL = LogConfig(segment_bytes=800, segment_index_bytes=400, index_interval_bytes=150)
TOPIC_ID, OTHER_ID, NO_ID = bytes(range(16)), bytes(range(1, 17)), bytes(16)
#: Everything that is due is done within milliseconds.
FAST = LogManagerSettings(
    retention_check_ms=20, recovery_point_checkpoint_ms=20, log_start_checkpoint_ms=20,
    high_watermark_checkpoint_ms=20, initial_delay_ms=1,
)  # fmt: skip


class Managers:
    """Makes log managers, and kills those that a test leaves."""

    def __init__(self, root: Path) -> None:
        self.dirs = [root / "a", root / "b"]
        self.made: list[LogManager] = []

    def __call__(self, dirs: int = 1, config: LogConfig = SMALL, **options: object) -> LogManager:
        manager = self.new(dirs, config, **options)
        manager.start()
        return manager

    def new(self, dirs: int = 1, config: LogConfig = SMALL, **options: object) -> LogManager:
        settings = {"broker_id": 1, "cluster_id": CLUSTER} | options
        manager = LogManager(self.dirs[:dirs], config, **settings)  # type: ignore[arg-type]
        self.made.append(manager)
        return manager


@pytest.fixture
def managers(tmp_path: Path) -> Iterator[Managers]:
    made = Managers(tmp_path)
    yield made
    for manager in made.made:
        manager.kill()


def fill(manager: LogManager, topic: str, number: int, partition: int = 0) -> None:
    log = manager.open_log(topic, partition, TOPIC_ID, SMALL)
    for n in range(number):
        log.append_as_leader(checked(batch([b"0123456789ab"], timestamp=1000 + n)), 0)


def until(condition: Callable[[], bool], what: str) -> None:
    wait_until(lambda: condition() or None, what=what)


@pytest.mark.parametrize("clean", [True, False])
def test_logs_come_back_after_a_restart(managers: Managers, clean: bool) -> None:
    manager = managers(settings=replace(FAST, retention_check_ms=10**9))
    fill(manager, "orders", 25)
    log = manager.log("orders", 0)
    assert log is not None
    # The first retention may come after this.
    manager.update_config("orders", replace(SMALL, retention_ms=-1))
    log.update_high_watermark(20)
    log.increment_start_offset(13)
    folder = managers.dirs[0]
    assert not (folder / checkpoints.CLEAN_SHUTDOWN).exists()
    if clean:
        manager.stop(broker_epoch=7)
        assert checkpoints.read_clean_shutdown(folder) == (7,)
        assert log.closed
    else:
        written = {
            checkpoints.HIGH_WATERMARK_CHECKPOINT: 20,
            checkpoints.LOG_START_CHECKPOINT: 13,
            checkpoints.RECOVERY_POINT_CHECKPOINT: 20,
        }
        for name, offset in written.items():
            expected = {("orders", 0): offset}
            until(lambda: checkpoints.read_offsets(folder / name) == expected, name)  # noqa: B023
        manager.kill()
    loaded: list[tuple[Path, int, int, str]] = []
    again = managers(progress=lambda *call: loaded.append(call))
    assert loaded == [(folder, 1, 1, "orders-0")]
    assert not (folder / checkpoints.CLEAN_SHUTDOWN).exists()
    log = again.log("orders", 0)
    assert log is not None
    assert (log.start_offset, log.high_watermark, log.end_offset) == (13, 20, 25)
    # Of an unclean log nothing more than before is known to survive a crash.
    assert log.recovery_point == (25 if clean else 20)
    assert again.topic_id("orders", 0) == TOPIC_ID
    assert again.log("orders", 1) is None


def test_a_directory_has_one_broker(managers: Managers) -> None:
    manager = managers()
    with pytest.raises(LogDirectoryError, match=r"a: another broker of this process"):
        managers()
    manager.stop()
    code = (
        "import fcntl, sys\nfile = open(sys.argv[1], 'w')\nfcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "print('locked', flush=True)\nsys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(managers.dirs[0] / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(LogDirectoryError, match=r"a: another broker uses this log directory"):
            managers()
        other.communicate()
    managers()


def test_a_directory_belongs_to_one_broker_of_one_cluster(managers: Managers) -> None:
    assert read_identity(managers.dirs) is None
    managers().stop()
    assert read_identity(managers.dirs) == (CLUSTER, 1, None)
    with pytest.raises(LogDirectoryError, match=rf"meta\.properties: cluster\.id {CLUSTER}, but .* other"):
        managers(cluster_id="other")
    with pytest.raises(LogDirectoryError, match=r"meta\.properties: broker\.id 1, but this broker's id is 2"):
        managers(broker_id=2)
    file = managers.dirs[0] / checkpoints.META_PROPERTIES
    file.write_text(f"version=0\nbroker.id=1\ndirectory.id={CLUSTER}\n")
    managers().stop()
    assert read_identity(managers.dirs) == (CLUSTER, 1, CLUSTER)
    checkpoints.write_meta_properties(managers.dirs[0], "other", 1)
    managers.dirs[1].mkdir()
    checkpoints.write_meta_properties(managers.dirs[1], CLUSTER, 1)
    with pytest.raises(LogDirectoryError, match="but another log directory has other"):
        read_identity(managers.dirs)
    file.write_text("version=1\nnode.id=1\n")
    with pytest.raises(LogDirectoryError, match="line 1: version 1, which ZooKeeper mode does not use"):
        managers()
    # A file that nobody can read is a failed disk.
    file.write_text("version=0\nbroker.id=one\n")
    [(path, reason)] = managers(2).offline_dirs.items()
    assert path == managers.dirs[0]
    assert "broker.id 'one'" in reason
    assert read_identity(managers.dirs) == (CLUSTER, 1, None)


def test_new_logs_go_to_the_directory_with_the_fewest(managers: Managers) -> None:
    manager = managers(2)
    for partition in range(4):
        assert manager.open_log("orders", partition, NO_ID) is manager.log("orders", partition)
    assert [len(list(path.glob("orders-*"))) for path in managers.dirs] == [2, 2]
    assert manager.topic_id("orders", 3) is None
    manager.open_log("orders", 3, TOPIC_ID)
    with pytest.raises(KafkaError, match="orders-3 belongs to topic id") as raised:
        manager.open_log("orders", 3, OTHER_ID)
    assert raised.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
    sizes = manager.folder_sizes()
    assert [(one.path, one.failure, len(one.replicas)) for one in sizes] == [
        (path, None, 2) for path in managers.dirs
    ]
    assert 0 < sizes[0].usable_bytes <= sizes[0].total_bytes


def test_a_deleted_replica_is_renamed_and_then_removed(managers: Managers) -> None:
    manager = managers(config=replace(SMALL, file_delete_delay_ms=10**9))
    fill(manager, "orders", 3)
    fill(manager, "payments", 1)
    assert manager.has_logs
    manager.delete_logs([("orders", 0)])
    manager.delete_logs([("orders", 0)])
    manager.delete_logs([("payments", 0)], stray=True)
    folder = managers.dirs[0]
    [deleted], [stray] = folder.glob("orders-0.*-delete"), folder.glob("payments-0.*-stray")
    assert manager.logs() == {}
    assert not manager.has_logs
    assert checkpoints.read_offsets(folder / checkpoints.RECOVERY_POINT_CHECKPOINT) == {}
    # A topic of the same name does not begin with the offsets of the old one.
    assert manager.open_log("orders", 0, OTHER_ID).end_offset == 0
    manager.stop()
    manager = managers(config=replace(SMALL, file_delete_delay_ms=0))
    until(lambda: not deleted.exists(), "the folder's deletion")
    assert stray.exists()
    fill(manager, "orders-2", 3)
    manager.delete_logs([("orders-2", 0)])
    until(lambda: not list(folder.glob("orders-2*")), "the folder's deletion")


def test_a_truncation_is_written_at_once(managers: Managers) -> None:
    manager = managers()
    fill(manager, "orders", 25)
    log = manager.log("orders", 0)
    assert log is not None
    log.flush()
    file = managers.dirs[0] / checkpoints.RECOVERY_POINT_CHECKPOINT
    manager.truncate({("orders", 0): 30, ("payments", 0): 1})
    assert not file.exists()
    manager.truncate({("orders", 0): 12})
    assert checkpoints.read_offsets(file) == {("orders", 0): 12}
    assert log.end_offset == 12


def test_retention_and_flushes_run_in_the_background(managers: Managers) -> None:
    manager = managers(settings=FAST, config=replace(SMALL, file_delete_delay_ms=0, retention_bytes=800))
    log = manager.open_log("orders", 0, TOPIC_ID)
    for n in range(45):
        log.append_as_leader(checked(batch([b"0123456789ab"], timestamp=2**42 + n)), 0)
    log.update_high_watermark(45)
    until(lambda: log.first_offset == 30, "retention")
    until(lambda: not list(log.folder.glob("*.deleted")), "the deletion of files")
    until(lambda: log.recovery_point >= 40, "the flush of rolled segments")
    manager.update_config("orders", replace(SMALL, flush_messages=1))
    until(lambda: log.recovery_point == 45, "a flush by flush.messages")
    log.append_as_leader(checked(batch([b"0123456789ab"])), 0)
    manager.update_config("orders", replace(SMALL, flush_ms=0))
    until(lambda: log.recovery_point == 46, "a flush by flush.ms")


def test_a_directory_that_fails_at_the_start_is_offline(managers: Managers) -> None:
    manager = managers(2)
    fill(manager, "orders", 3)
    fill(manager, "orders", 3, partition=1)
    manager.stop()
    (managers.dirs[1] / "orders-1" / checkpoints.PARTITION_METADATA).write_text("version: 0\n")
    manager = managers(2)
    assert list(manager.logs()) == [("orders", 0)]
    [(path, reason)] = manager.offline_dirs.items()
    assert path == managers.dirs[1]
    assert "partition.metadata, line 2" in reason
    sizes = manager.folder_sizes()[1]
    assert (sizes.failure, sizes.total_bytes, sizes.replicas) == (reason, -1, [])
    # The replica may be in the directory that is offline.
    for call in (
        lambda: manager.open_log("orders", 1, TOPIC_ID),
        lambda: manager.delete_logs([("orders", 1)]),
    ):
        with pytest.raises(KafkaError) as raised:
            call()
        assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert manager.open_log("new", 0, NO_ID, is_new=True).folder.parent == managers.dirs[0]
    manager.stop()
    assert [(path / checkpoints.CLEAN_SHUTDOWN).exists() for path in managers.dirs] == [True, False]
    managers.dirs[0].rename(managers.dirs[0].with_name("elsewhere"))
    managers.dirs[0].write_text("a file")
    with pytest.raises(LogDirectoryError, match=r"(?s)no log directory can be used: .*a: .*b: "):
        managers(2)


@pytest.mark.parametrize("left", [0, 30])
def test_a_new_replica_leaves_descriptors_for_those_that_are_there(managers: Managers, left: int) -> None:
    manager = managers(2)
    orders = manager.open_log("orders", 0, NO_ID)
    with few_descriptors(left) as limit:
        with pytest.raises(
            KafkaError, match=rf"users-0 cannot be created: \d+ of {limit} descriptors"
        ) as raised:
            manager.open_log("users", 0, NO_ID)
        assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        other = next(one for one in manager.online_dirs if one != orders.folder.parent)
        with pytest.raises(KafkaError, match=r"orders-0.* cannot be created: "):
            manager.create_future("orders", 0, str(other))
        if left:
            # Segments are rolled.
            for _ in range(40):
                orders.append_as_leader(checked(batch([b"value"])), 0)
            assert len(orders.segment_offsets()) > 1
    assert (manager.offline_dirs, orders.offline) == ({}, False)
    assert not any((one / "users-0").exists() for one in managers.dirs)
    manager.open_log("users", 0, NO_ID)


def test_a_disk_that_fails_takes_its_directory_offline(managers: Managers) -> None:
    failed: list[tuple[Path, list[tuple[str, int]]]] = []
    called = threading.Event()

    def on_offline(path: Path, replicas: list[tuple[str, int]]) -> None:
        failed.append((path, replicas))
        called.set()

    manager = managers(2, on_offline=on_offline)
    for partition in range(4):
        fill(manager, "orders", 5, partition)
    victim = manager.log("orders", 1)
    other = manager.log("orders", 3)
    assert victim is not None
    assert other is not None
    # The next segment cannot be created.
    (victim.folder / "00000000000000000010.log").mkdir()
    with pytest.raises(KafkaError):
        fill(manager, "orders", 10, 1)
    assert called.wait(60)
    assert failed == [(managers.dirs[1], [("orders", 1), ("orders", 3)])]
    assert other.closed
    assert sorted(manager.logs()) == [("orders", 0), ("orders", 2)]
    fill(manager, "orders", 5, 2)
    assert manager.online_dirs == managers.dirs[:1]
    # Its lock is given back.
    manager.stop()


def test_what_is_no_replica_is_reported_and_left_alone(
    managers: Managers, caplog: pytest.LogCaptureFixture
) -> None:
    folder = managers.dirs[0]
    for name in ("lost+found", "orders-007", "orders-1.0123456789abcdef0123456789abcdef-stray"):
        (folder / name).mkdir(parents=True)
    (folder / checkpoints.RECOVERY_POINT_CHECKPOINT).write_text("rubbish")
    manager = managers()
    assert manager.logs() == {}
    for name in ("lost+found", "orders-007", "-stray", checkpoints.RECOVERY_POINT_CHECKPOINT):
        assert name in caplog.text
    manager.stop()
    assert (folder / "lost+found").exists()


def test_a_future_log_is_loaded_and_goes_with_its_replica(managers: Managers) -> None:
    manager = managers(2)
    fill(manager, "orders", 3)
    manager.stop()
    future = managers.dirs[1] / "orders-0.0123456789abcdef0123456789abcdef-future"
    future.mkdir()
    manager = managers(2)
    assert manager.future_log("orders", 0) is not None
    manager.stop()
    assert future.exists()
    manager = managers(2, config=replace(SMALL, file_delete_delay_ms=0))
    manager.delete_logs([("orders", 0)])
    assert not future.exists()
    until(lambda: not [*managers.dirs[0].glob("orders*"), *managers.dirs[1].glob("orders*")], "the deletion")


def test_a_replica_is_in_one_directory(managers: Managers) -> None:
    for path in managers.dirs:
        (path / "orders-0").mkdir(parents=True)
    with pytest.raises(LogDirectoryError, match="the same replica in two log directories"):
        managers(2)
    (managers.dirs[1] / "orders-0").rename(managers.dirs[1] / "orders-1")
    assert sorted(managers(2).logs()) == [("orders", 0), ("orders", 1)]


def test_what_has_a_period_of_0_is_done_once(managers: Managers) -> None:
    once = replace(
        FAST,
        recovery_point_checkpoint_ms=0,
        log_start_checkpoint_ms=0,
        high_watermark_checkpoint_ms=0,
        initial_delay_ms=0,
    )
    manager = managers(settings=once)
    for name in (
        checkpoints.RECOVERY_POINT_CHECKPOINT,
        checkpoints.LOG_START_CHECKPOINT,
        checkpoints.HIGH_WATERMARK_CHECKPOINT,
    ):
        file = managers.dirs[0] / name
        until(file.exists, name)
    # Retention, which has a period, goes on.
    fill(manager, "orders", 25)
    log = manager.log("orders", 0)
    assert log is not None
    log.update_high_watermark(25)
    until(lambda: log.start_offset > 0, "retention")
    assert checkpoints.read_offsets(managers.dirs[0] / checkpoints.RECOVERY_POINT_CHECKPOINT) == {}


def test_settings() -> None:
    assert LogManagerSettings.of({}) == LogManagerSettings()
    assert LogManagerSettings.of({"background.threads": "3"}).background_threads == 3
    for text in ("x", "0"):
        with pytest.raises(ConfigError, match=r"configuration background\.threads: "):
            LogManagerSettings.of({"background.threads": text})
    config = LogConfig.from_broker_configs({"log.retention.hours": "2", "message.max.bytes": "5", "x": "y"})
    assert (config.retention_ms, config.max_message_bytes) == (7_200_000, 5)
    assert LogConfig.from_broker_configs({"log.retention.minutes": "-1"}).retention_ms == -1
    config = config.with_configs({"cleanup.policy": "compact,delete", "retention.ms": "1"})
    assert (config.cleanup_delete, config.cleanup_compact, config.retention_ms) == (True, True, 1)
    for name, text in (
        ("cleanup.policy", "both"), ("segment.bytes", "x"), ("compression.type", "rar"),
        ("min.cleanable.dirty.ratio", "2"), ("min.cleanable.dirty.ratio", "f"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=name):
            LogConfig().with_configs({name: text})


def test_a_deprecated_limit_of_timestamps_counts_where_its_successors_have_none() -> None:
    most = LogConfig().message_timestamp_before_max_ms
    config = LogConfig.from_broker_configs({"log.message.timestamp.difference.max.ms": "5"})
    assert (LogConfig().timestamp_limits_ms, config.timestamp_limits_ms) == ((most, most), (5, 5))
    config = config.with_configs({"message.timestamp.after.max.ms": "7"})
    assert config.timestamp_limits_ms == (5, 7)
    config = config.with_configs({"message.timestamp.difference.max.ms": "3"})
    assert config.timestamp_limits_ms == (3, 7)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with every kind of file, closed in order."""
    folder = tmp_path_factory.mktemp("closed") / "logs"
    manager = LogManager([folder], SMALL, 1, CLUSTER)
    manager.start()
    for partition in range(2):
        log = manager.open_log("orders", partition, TOPIC_ID)
        for n in range(25):
            data = batch([b"0123456789ab"], timestamp=NOW + n, producer_id=7, producer_epoch=0, sequence=n)
            log.append_as_leader(checked(data), n // 10)
        log.update_high_watermark(25)
        log.increment_start_offset(3)
    manager.stop(broker_epoch=7)
    return folder


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    file=st.integers(0, 10**6), place=st.floats(0, 1), clean=st.booleans(),
    damage=st.sampled_from(["flip", "cut", "more", "zeros", "empty", "folder", "gone"]),
)  # fmt: skip
def test_no_file_is_trusted(
    closed: Path, tmp_path_factory: pytest.TempPathFactory, file: int, place: float, clean: bool, damage: str
) -> None:
    folder = tmp_path_factory.mktemp("damaged") / "logs"
    shutil.copytree(closed, folder)
    if not clean:
        (folder / checkpoints.CLEAN_SHUTDOWN).unlink()
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    victim = files[file % len(files)]
    data = bytearray(victim.read_bytes())
    at = int(place * max(0, len(data) - 1))
    if damage == "flip" and data:
        data[at] ^= 1 << file % 8
    elif damage == "zeros":
        data[at:] = bytes(len(data) - at)
    victim.unlink()
    if damage == "folder":
        victim.mkdir()
    elif damage != "gone":
        victim.write_bytes(
            {"cut": data[:at], "more": data + data[at:], "empty": bytearray()}.get(damage, data)
        )
    manager = LogManager([folder], SMALL, 1, CLUSTER)
    refused = ""
    try:
        manager.start()
    except LogDirectoryError as error:
        refused = str(error)
    if refused:
        assert str(folder) in refused
        shutil.rmtree(folder.parent)
        return
    for log in manager.logs().values():
        # What was flushed long ago is not read before somebody asks for it.
        with suppress(KafkaError):
            found = log.read_file_range(log.start_offset, 1 << 20)
            found.read()
            found.close()
        log.append_as_leader(checked(batch([b"x"])), 3)
    other = manager.log("orders", 1 - int("orders-1" in str(victim)))
    assert other is not None
    assert other.end_offset == 26 or "orders-" not in str(victim)
    manager.stop()
    again = LogManager([folder], SMALL, 1, CLUSTER)
    again.start()
    again.kill()
    shutil.rmtree(folder.parent)
