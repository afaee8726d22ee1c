from collections.abc import Callable

from ctrlchan.broker.replication._hot import HotApi, Leaders
from ctrlchan.broker.replication._partitions import PartitionTable

class FetchApi(HotApi):
    @property
    def partitions(self) -> PartitionTable: ...
    def __init__(
        self,
        partitions: PartitionTable,
        missing: Callable[[str | None, bytes, int], int],
        *,
        max_bytes: int = 57_671_680,
        sessions: int = 1000,
        eviction_ms: int = 120_000,
        leaders: Leaders | None = None,
    ) -> None: ...
    def counters(self) -> dict[str, int]: ...
