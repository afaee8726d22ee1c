from typing import NamedTuple

from typing_extensions import Buffer

class CachedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int

class ProducerState(NamedTuple):
    producer_id: int
    epoch: int
    coordinator_epoch: int
    last_timestamp: int
    txn_first_offset: int
    batches: list[CachedBatch]

class Appended(NamedTuple):
    error: int
    duplicate: CachedBatch | None
    completed_txn: tuple[int, bool] | None

class ProducerStates:
    end_offset: int
    snapshot_offset: int
    @property
    def expiration_ms(self) -> int: ...
    @property
    def count(self) -> int: ...
    def __init__(self, expiration_ms: int = 86400000) -> None: ...
    def __len__(self) -> int: ...
    @property
    def verification_count(self) -> int: ...
    def append_batch(self, data: Buffer, origin: int, guard: int = -1) -> Appended: ...
    def begin_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> int: ...
    def producers(self) -> list[ProducerState]: ...
    def first_undecided_offset(self) -> int: ...
    def remove_expired(self, now_ms: int) -> None: ...
    def clear(self) -> None: ...
