from typing import NamedTuple

from typing_extensions import Buffer

class Converted(NamedTuple):
    data: bytes
    error: int
    next_offset: int
    records: int
    time_ns: int
    temporary_bytes: int

def down_convert(data: Buffer, *, magic: int, fetch_offset: int, limit: int) -> Converted: ...
def carry(batch: Buffer, codec: int, magic: int) -> bytes: ...
