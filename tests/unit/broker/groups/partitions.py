"""Partitions of ``__consumer_offsets`` with real logs, in place of the broker's table."""

from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path

from ctrlchan.broker.groups.offsets_log import OFFSETS_TOPIC
from ctrlchan.broker.log._batches import AppendRules, check
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.log.config import LogConfig
from ctrlchan.errors import ErrorCode, KafkaError


class LoggedPartition:
    """One replica, which leads. ``error``: of the next appends, in place of appending.

    ``held``: appends that wait for another replica, when it is not None; ``release`` ends them.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.log = Log(folder, LogConfig(cleanup_delete=False, cleanup_compact=True))
        self.error = 0
        self.fail_reads = False
        self.held: list[tuple[Future[tuple[int, int, int]], tuple[int, int, int]]] | None = None
        self.acks: list[tuple[int, int]] = []

    def append(
        self, data: bytes, *, origin: int, required_acks: int, timeout_ms: int
    ) -> Future[tuple[int, int, int]]:
        now = time.time_ns() // 1_000_000
        self.acks.append((required_acks, timeout_ms))
        appended: Future[tuple[int, int, int]] = Future()
        if self.error:
            appended.set_result((self.error, -1, -1))
            return appended
        error, checked = check(data, AppendRules(now_ms=now, origin=origin, compacted=True))
        assert not error
        first, _ = self.log.append_as_leader(checked, 0, origin=origin)
        if self.held is None:
            appended.set_result((0, first, -1))
        else:
            self.held.append((appended, (0, first, -1)))
        return appended

    def release(self) -> None:
        held, self.held = self.held or [], None
        for appended, result in held:
            appended.set_result(result)

    def read(self, offset: int, max_bytes: int, *, isolation: int) -> bytes:
        if self.fail_reads:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        found = self.log.read_file_range(offset, max_bytes, isolation=isolation)
        try:
            return found.read()
        finally:
            found.close()


class LoggedPartitions:
    """Partitions 0 to `count` - 1 of ``__consumer_offsets`` in `folder`."""

    def __init__(self, folder: Path, count: int = 1) -> None:
        self.replicas = {
            partition: LoggedPartition(folder / f"{OFFSETS_TOPIC}-{partition}") for partition in range(count)
        }

    def get(self, topic: str, partition: int) -> LoggedPartition | None:
        return self.replicas.get(partition) if topic == OFFSETS_TOPIC else None

    def close(self) -> None:
        for replica in self.replicas.values():
            replica.log.close()
