from typing import NamedTuple

from typing_extensions import Buffer

class OldRecords(NamedTuple):
    batch: bytes
    has_other_format: bool

def as_batch(data: Buffer) -> OldRecords: ...
