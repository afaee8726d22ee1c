from collections.abc import Callable

from ctrlchan.broker._decisions import Decisions
from ctrlchan.broker.handlers._hot import HotApi
from ctrlchan.broker.log.old_formats.fetched import Fetched
from ctrlchan.broker.metadata._snapshot import CurrentMetadata
from ctrlchan.broker.quota._replication_quota import ReplicationQuota
from ctrlchan.broker.replica._partitions import PartitionTable

class FetchApi(HotApi):
    @property
    def partitions(self) -> PartitionTable: ...
    def __init__(
        self,
        partitions: PartitionTable,
        metadata: CurrentMetadata,
        *,
        max_bytes: int = 57_671_680,
        sessions: int = 1000,
        eviction_ms: int = 120_000,
        seed: int | None = None,
        leader_quota: ReplicationQuota | None = None,
    ) -> None: ...
    def authorize_with(self, decisions: Decisions) -> None: ...
    def select_replicas(self, by_own_class: bool) -> None: ...
    def choose_replicas(
        self, connection: int, select: Callable[[str, int, list[tuple[int, int, int]]], int]
    ) -> bool: ...
    def take(self, connection: int) -> Fetched | None: ...
    def count_replicated(self, size: int) -> None: ...
    def session_topics(self, session_id: int) -> tuple[list[bytes], bool]: ...
    def counters(self) -> dict[str, int]: ...
