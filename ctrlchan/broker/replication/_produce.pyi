from ctrlchan.broker.replication._hot import HotApi, Leaders
from ctrlchan.broker.replication._partitions import PartitionTable

class ProduceApi(HotApi):
    def __init__(self, table: PartitionTable, leaders: Leaders | None = None) -> None: ...
    @property
    def counters(self) -> tuple[int, int, int]: ...
