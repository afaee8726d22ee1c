from typing import NamedTuple

from typing_extensions import Buffer

from ctrlchan.broker.log._reading import AbortedTransaction

class SegmentInfo(NamedTuple):
    base_offset: int
    size: int
    first_timestamp: int
    largest_timestamp: int
    modified_ns: int
    index_bytes: int
    time_index_bytes: int

class CleanedSegment:
    def append(self, batch: Buffer, first_offset: int, last_offset: int, max_timestamp: int) -> None: ...
    def add_aborted(self, one: AbortedTransaction) -> None: ...
    def finish(self, modified_ns: int) -> None: ...
    def abandon(self) -> None: ...
