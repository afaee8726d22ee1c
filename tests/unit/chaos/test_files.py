"""Logs on the disk: how they are read, and how a crash leaves them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ctrlchan.broker.log import checkpoints
from tests.chaos.comparing import left_of_deleted_topics, wrong_replicas
from tests.chaos.replicas import batches_in, logs_of, read_replica, read_replicas
from tests.chaos.report import Result
from tests.chaos.torn import tear_logs
from tests.unit.broker.log.made_batches import batch

PARTITION = ("orders", 0)


def replica(log_dir: Path, name: str = "orders-0", begin: int = 0) -> Path:
    """Make a replica of two segments with ten batches each, from offset ``begin``."""
    folder = log_dir / name
    folder.mkdir(parents=True)
    for segment in range(2):
        first = begin + segment * 10
        data = b"".join(
            batch([b"%03d" % at], base_offset=at, leader_epoch=3) for at in range(first, first + 10)
        )
        (folder / f"{first:020d}.log").write_bytes(data)
    return folder


def test_a_replica_is_read(tmp_path: Path) -> None:
    folder = replica(tmp_path)
    found = read_replica(folder)
    assert [one.offset for one in found] == list(range(20))
    assert {one.leader_epoch for one in found} == {3}
    assert len({one.content for one in found}) == 20
    log = logs_of(folder)[-1]
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    assert [one == two for one, two in zip(found, read_replica(folder), strict=True)] == [True] * 19 + [False]


def test_a_batch_that_is_not_whole_is_none(tmp_path: Path) -> None:
    log = logs_of(replica(tmp_path))[-1]
    whole = log.read_bytes()
    for end in (b"\0" * 40, whole[:20], b""):
        log.write_bytes(whole + end)
        assert len(list(batches_in(log))) == 10
    log.write_bytes(whole[:-1])
    assert len(list(batches_in(log))) == 9


def test_replicas_are_found_by_partition(tmp_path: Path) -> None:
    for broker in ("a", "b"):
        replica(tmp_path / broker / "log")
        (tmp_path / broker / "log" / "orders-1.0123-delete").mkdir()
    replica(tmp_path / "b" / "more", "with-dash-12")
    found = read_replicas(
        {"a": [tmp_path / "a" / "log"], "b": [tmp_path / "b" / "log", tmp_path / "b" / "more"]}
    )
    assert {partition: sorted(folders) for partition, folders in found.items()} == {
        PARTITION: ["a", "b"],
        ("with-dash", 12): ["b"],
    }


def test_replicas_of_the_assignment_are_compared(tmp_path: Path) -> None:
    brokers: list[Any] = [
        SimpleNamespace(name=f"broker-{one}", log_dirs=[tmp_path / f"{one}"]) for one in (1, 2, 3)
    ]
    first, second, third = (replica(broker.log_dirs[0]) for broker in brokers)
    result = Result(1, "command")
    assert wrong_replicas(brokers, {PARTITION: [1, 2]}, result) == []
    assert (result.compared, result.left) == (2, 1)
    # One that was left behind by a move may be older; one of the assignment may not.
    logs_of(third)[-1].unlink()
    assert wrong_replicas(brokers, {PARTITION: [1, 2]}, result) == []
    (line,) = wrong_replicas(brokers, {PARTITION: [1, 2, 3]}, result)
    assert line.endswith("broker-3 has no batch 10")
    shutil.rmtree(second)
    missing, _ = wrong_replicas(brokers, {PARTITION: [1, 2]}, result)
    assert missing == "('orders', 0): broker-2 has no log"
    (first.parent / "passing-7-0.0123-delete").mkdir()
    assert left_of_deleted_topics(brokers) == ["passing-7-0.0123-delete"]


def torn(
    tmp_path: Path, seed: int, *, is_in_sync: bool, recovery_point: int = 0
) -> tuple[bytes, bytes, bytes]:
    """Tear a replica; return the first segment, and the active one before and after."""
    log_dir = tmp_path / f"{seed}"
    folder = replica(log_dir)
    checkpoints.write_offsets(log_dir / checkpoints.RECOVERY_POINT_CHECKPOINT, {PARTITION: recovery_point})
    first, active = logs_of(folder)
    before = active.read_bytes()
    tear_logs(log_dir, lambda partition: partition != PARTITION or is_in_sync, random.Random(seed))
    return first.read_bytes(), before, active.read_bytes()


def test_what_is_in_sync_gets_garbage_alone(tmp_path: Path) -> None:
    changed = 0
    for seed in range(40):
        first, before, after = torn(tmp_path, seed, is_in_sync=True)
        assert after.startswith(before)
        assert len(after) - len(before) <= 60
        assert len(first) == len(before)
        changed += after != before
    assert changed > 10


def test_what_is_flushed_is_not_cut(tmp_path: Path) -> None:
    cuts = set()
    for seed in range(60):
        first, before, after = torn(tmp_path, seed, is_in_sync=False, recovery_point=14)
        assert len(after) >= len(before) * 4 // 10
        assert after[: len(before)] == before[: len(after)]
        assert len(first) == len(before)
        if len(after) < len(before):
            cuts.add(len(after))
    assert len(cuts) > 5


def test_a_log_directory_that_was_closed_is_left_alone(tmp_path: Path) -> None:
    folder = replica(tmp_path)
    checkpoints.write_clean_shutdown(tmp_path, 1)
    before = [log.read_bytes() for log in logs_of(folder)]
    for seed in range(20):
        assert tear_logs(tmp_path, lambda _: False, random.Random(seed)) == []
    assert [log.read_bytes() for log in logs_of(folder)] == before
