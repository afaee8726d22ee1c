from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from ctrlchan._codec import Int32, ListColumn, StringColumn

class Node(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def rack(self) -> str | None: ...

class MetadataRequest(NamedTuple):
    topics: list[tuple[bytes, str | None]] | None
    allows_creation: bool
    asks_cluster_operations: bool
    asks_topic_operations: bool

class TopicRows:
    def __init__(
        self,
        errors: npt.NDArray[np.int16],
        names: StringColumn,
        ids: npt.NDArray[np.uint8],
        is_internal: npt.NDArray[np.uint8],
        operations: Int32,
        starts: Int32,
    ) -> None: ...
    def __len__(self) -> int: ...

class PartitionRows:
    def __init__(
        self,
        errors: npt.NDArray[np.int16],
        partition: Int32,
        leader: Int32,
        leader_epoch: Int32,
        replicas: ListColumn,
        isr: ListColumn,
        offline: ListColumn,
    ) -> None: ...
    def __len__(self) -> int: ...

def decode_metadata(frame: Buffer, offset: int, version: int) -> MetadataRequest: ...
def encode_metadata(
    version: int,
    nodes: Iterable[Node],
    cluster_id: str | None,
    controller_id: int,
    cluster_operations: int,
    topics: TopicRows,
    rows: PartitionRows,
) -> bytes: ...
