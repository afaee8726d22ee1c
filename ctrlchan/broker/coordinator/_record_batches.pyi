from collections.abc import Sequence
from typing import Any

from typing_extensions import Buffer

from ctrlchan.broker.coordinator.common.topic import BatchProducer, Record, StoredBatch

def read_plain_batches(
    data: Buffer, position: int, most: int
) -> tuple[list[tuple[int, StoredBatch]], int]: ...
def take_idle_batches(ids: dict[str, Any], data: Buffer, position: int, most: int) -> tuple[int, int]: ...
def encode_batch(
    records: Sequence[Record], timestamp: int, producer: BatchProducer | None = None
) -> bytes: ...
