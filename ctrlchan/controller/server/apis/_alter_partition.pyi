from typing import NamedTuple

from ctrlchan._codec import Int32

class Decoded(NamedTuple):
    broker_id: int
    broker_epoch: int
    topics: list[bytes]
    topic: Int32
    partition: Int32
    leader_epoch: Int32
    partition_epoch: Int32
    recovery_state: Int32
    isr_starts: Int32
    isr_lengths: Int32
    isr_values: Int32

def decode_alter_partition(frame: bytes | memoryview, offset: int, version: int) -> Decoded: ...
