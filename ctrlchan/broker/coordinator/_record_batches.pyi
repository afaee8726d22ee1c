from typing_extensions import Buffer

from ctrlchan.broker.coordinator.common.topic import StoredBatch

def read_plain_batches(
    data: Buffer, position: int, most: int
) -> tuple[list[tuple[int, StoredBatch]], int]: ...
