"""Partitions of ``__consumer_offsets`` of a broker, with faults on demand."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.replica._partitions import PartitionTable
from ctrlchan.errors import ErrorCode, KafkaError
from ctrlchan.internal_topics import OFFSETS_TOPIC

_BROKER = 1
_Result = tuple[int, int, int]


class FaultyPartition:
    """A partition that this broker leads alone.

    ``error``: of the next appends, in place of appending. ``verification_error``: of the next verifications.
    ``held``: the ends of appends that wait, as for another replica, when it is not None; ``release`` calls
    them.
    """

    def __init__(self, table: PartitionTable, folder: Path, partition: int) -> None:
        folder.mkdir(exist_ok=True)
        config = LogConfig(cleanup_delete=False, cleanup_compact=True)
        self._table = table
        self._partition = table.open(OFFSETS_TOPIC, partition)
        self._partition.update_config(config)
        self._partition.make_leader(Log(folder, config), 0, 0, (_BROKER,), (_BROKER,))
        self.error = 0
        self.verification_error = 0
        self.fail_reads = False
        self.held: list[Callable[[], None]] | None = None
        self.acks: list[tuple[int, int]] = []

    @property
    def log(self) -> Log | None:
        return self._partition.log

    def append(
        self,
        data: bytes,
        *,
        origin: int,
        required_acks: int,
        timeout_ms: int,
        verification_guard: int = 0,
    ) -> Future[_Result]:
        self.acks.append((required_acks, timeout_ms))
        appended: Future[_Result] = Future()
        if self.error:
            appended.set_result((self.error, -1, -1))
            return appended
        stored = self._partition.append(
            data,
            origin=origin,
            required_acks=required_acks,
            timeout_ms=timeout_ms,
            verification_guard=verification_guard,
        )
        if self.held is None:
            return stored
        self.held.append(lambda: appended.set_result(stored.result()))
        return appended

    def verify_transactions(self) -> None:
        """Refuse transactions that begin without a verification, from now on."""
        self._table.verifies_transactions = True

    def begin_verification(self, producer_id: int, producer_epoch: int, base_sequence: int) -> int:
        if self.verification_error:
            raise KafkaError(self.verification_error)
        return self._partition.begin_verification(producer_id, producer_epoch, base_sequence)

    def append_marker(self, producer_id: int, epoch: int, *, commits: bool) -> None:
        """Append the end of a transaction, as the coordinator of transactions asks for it."""
        stored = self._partition.append_marker(producer_id, epoch, commits, 0, timeout_ms=30_000)
        assert stored.result().error_code == 0

    def release(self) -> None:
        held, self.held = self.held or [], None
        for end in held:
            end()

    def read(self, offset: int, max_bytes: int, *, isolation: int) -> bytes:
        if self.fail_reads:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return self._partition.read(offset, max_bytes, isolation=isolation)


class FaultyPartitions:
    """The only partition of ``__consumer_offsets``, with its log in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._table = PartitionTable(_BROKER)
        self.replicas = {0: FaultyPartition(self._table, folder / f"{OFFSETS_TOPIC}-0", 0)}
        self._logs = [replica.log for replica in self.replicas.values()]

    def get(self, topic: str, partition: int) -> FaultyPartition | None:
        return self.replicas.get(partition) if topic == OFFSETS_TOPIC else None

    def close(self) -> None:
        self._table.close()
        for log in self._logs:
            assert log is not None
            log.close()
