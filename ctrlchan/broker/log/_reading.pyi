from typing import NamedTuple

class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

class FileRange:
    @property
    def fd(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def size(self) -> int: ...
    def read(self) -> bytes: ...
    def close(self) -> None: ...
