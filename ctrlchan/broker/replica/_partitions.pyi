from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from typing_extensions import Buffer

from ctrlchan._c.clock_functions import Clock
from ctrlchan.broker.config.log_config import LogConfig
from ctrlchan.broker.log._log import Log
from ctrlchan.broker.log._reading import FileRange

class ProduceResult(NamedTuple):
    error_code: int
    base_offset: int = -1
    append_time: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str]] = ()
    error_message: str | None = None

class WantedIsr(NamedTuple):
    isr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int

class PartitionTable:
    @property
    def broker_id(self) -> int: ...
    @property
    def verifies_transactions(self) -> bool: ...
    @verifies_transactions.setter
    def verifies_transactions(self, verifies: bool) -> None: ...
    def __init__(
        self,
        broker_id: int,
        *,
        isr_wanted: Callable[[Partition, WantedIsr], None] | None = None,
        storage_failed: Callable[[Partition], None] | None = None,
        max_lag_ms: int = 30_000,
        clock: Clock | None = None,
        has_thread: bool = True,
    ) -> None: ...
    def __len__(self) -> int: ...
    def open(self, topic: str, partition: int, topic_id: bytes = ...) -> Partition: ...
    def get(self, topic: str, partition: int) -> Partition | None: ...
    def remove(self, topic: str, partition: int) -> None: ...
    def partitions(self) -> list[Partition]: ...
    def set_live_brokers(self, ids: Collection[int]) -> None: ...
    def shrink_isrs(self, now_ms: int | None = None) -> None: ...
    def serve_events(self) -> int: ...
    def close(self) -> None: ...

class Partition:
    topic: str
    log: Log | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    @property
    def partition(self) -> int: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def leader(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def partition_epoch(self) -> int: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def is_offline(self) -> bool: ...
    @property
    def isr_is_pending(self) -> bool: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def epoch_start_offset(self) -> int: ...
    @property
    def low_watermark(self) -> int: ...
    def add_low_watermark_listener(self, listener: Callable[[], None]) -> None: ...
    def remove_low_watermark_listener(self, listener: Callable[[], None]) -> None: ...
    def follow_watermark(self, offset: int) -> None: ...
    @property
    def counters(self) -> tuple[int, int, int]: ...
    @property
    def watchers(self) -> int: ...
    def followers(self) -> list[tuple[int, int, bool]]: ...
    def make_leader(
        self,
        log: Log,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
    ) -> None: ...
    def make_follower(
        self,
        log: Log,
        leader: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int] = (),
    ) -> None: ...
    def set_offline(self) -> None: ...
    def update_config(self, config: LogConfig) -> None: ...
    def set_isr(self, isr: Sequence[int], partition_epoch: int, leader_epoch: int | None = None) -> None: ...
    def keep_isr(self, leader_epoch: int, partition_epoch: int) -> None: ...
    def update_follower(
        self,
        replica_id: int,
        fetch_offset: int,
        broker_epoch: int,
        now_ms: int,
        *,
        start_offset: int = 0,
    ) -> None: ...
    def append(
        self,
        data: Buffer,
        *,
        origin: int = ...,
        required_acks: int = -1,
        timeout_ms: int = 30_000,
        verification_guard: int = 0,
    ) -> Future[tuple[int, int, int]]: ...
    def append_records(
        self,
        data: Buffer,
        *,
        origin: int = ...,
        required_acks: int = -1,
        timeout_ms: int = 30_000,
        refuses_zstd: bool = False,
        verification_guard: int = 0,
    ) -> Future[ProduceResult]: ...
    def begin_verification(self, producer_id: int, producer_epoch: int, base_sequence: int) -> int: ...
    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        *,
        required_acks: int = -1,
        timeout_ms: int,
    ) -> Future[ProduceResult]: ...
    def _complete_appends(self) -> None: ...
    def read(self, offset: int, max_bytes: int, *, isolation: int = 0) -> bytes: ...
    def read_range(self, offset: int, max_bytes: int, *, isolation: int = 0) -> FileRange: ...
