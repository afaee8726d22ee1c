from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

SET_STATES: Final = 0
CREATE_STATES: Final = 1
CREATE_EMPTY: Final = 2

class PartitionPaths:
    def __init__(
        self,
        head: bytes,
        middle: bytes,
        end: bytes,
        names: Iterable[bytes],
        topic_row: Int32,
        partition: Int32,
    ) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, row: int) -> bytes: ...

class StateValues:
    def __init__(
        self,
        leader: Int32,
        leader_epoch: Int32,
        controller_epoch: Int32,
        recovery_state: Int32,
        starts: Int32,
        lengths: Int32,
        values: Int32,
    ) -> None: ...
    def __len__(self) -> int: ...
    def encoded(self, row: int) -> bytes: ...

class StateColumns:
    leader: Int32
    leader_epoch: Int32
    controller_epoch: Int32
    recovery_state: Int32
    version: Int32
    starts: Int32
    lengths: Int32
    def __init__(self, n: int) -> None: ...
    def values(self) -> Int32: ...
    def decode(self, data: bytes, offset: int, first: int, count: int) -> list[tuple[int, bytes | int]]: ...
    def put(
        self,
        row: int,
        leader: int,
        leader_epoch: int,
        controller_epoch: int,
        recovery_state: int,
        isr: Sequence[int],
    ) -> None: ...

class AssignmentColumns:
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def columns(self) -> tuple[Int32, Int32, Int32, Int32, Int32]: ...
    def decode(self, data: bytes, topic_row: int) -> bytes | None: ...
    def put(self, topic_row: int, partition: int, replicas: Sequence[int]) -> None: ...

def encode_reads(paths: PartitionPaths, begin: int, max_rows: int, max_bytes: int) -> tuple[bytes, int]: ...
def encode_writes(
    kind: int,
    guard: bytes,
    paths: PartitionPaths,
    rows: Int64,
    begin: int,
    values: StateValues | None,
    versions: Int32,
    acl: bytes,
    max_rows: int,
    max_bytes: int,
) -> tuple[bytes, int]: ...
def encode_topic(
    topic_id: bytes,
    partition: Int32,
    replicas: tuple[Int32, Int32, Int32],
    adding: tuple[Int32, Int32, Int32],
    removing: tuple[Int32, Int32, Int32],
    begin: int,
    end: int,
) -> bytes: ...
def decode_writes(data: bytes, offset: int, count: int, versions: Int32) -> tuple[int, int]: ...
