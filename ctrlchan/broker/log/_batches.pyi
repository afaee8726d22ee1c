from enum import IntEnum
from typing import NamedTuple

from typing_extensions import Buffer

class BatchHeader(NamedTuple):
    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

def crc32c_of(data: Buffer) -> int: ...
def crc32c_of_table(data: Buffer) -> int: ...
def read_key_values(records: Buffer, count: int) -> list[tuple[bytes | None, bytes | None]] | None: ...
def read_header(data: Buffer, position: int = 0) -> BatchHeader: ...

class Origin(IntEnum):
    REPLICATION = 0
    COORDINATOR = 1
    CLIENT = 2

class AppendRules:
    def __init__(
        self,
        *,
        now_ms: int,
        before_max_ms: int = ...,
        after_max_ms: int = ...,
        max_message_bytes: int = ...,
        segment_bytes: int = ...,
        compression: int = ...,
        origin: int = ...,
        log_append_time: bool = ...,
        compacted: bool = ...,
        refuses_zstd: bool = ...,
    ) -> None: ...

class Checked:
    data: bytearray
    converted_records: int
    conversion_ns: int
    temporary_bytes: int
    @property
    def needs_decompression(self) -> bool: ...
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def offset_of_max_timestamp(self) -> int: ...
    @property
    def batches(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def bad_records(self) -> int: ...
    @property
    def first_bad_record(self) -> int: ...
    def assign_offsets(self, next_offset: int, leader_epoch: int) -> None: ...

def check(data: Buffer, rules: AppendRules) -> tuple[int, Checked]: ...
def record_errors(data: Buffer, rules: AppendRules, most: int = ...) -> list[tuple[int, str]]: ...
