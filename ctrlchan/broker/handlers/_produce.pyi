from ctrlchan.broker.handlers._hot import HotApi
from ctrlchan.broker.metadata._snapshot import CurrentMetadata
from ctrlchan.broker.replica._partitions import PartitionTable

class ProduceApi(HotApi):
    def __init__(self, table: PartitionTable, metadata: CurrentMetadata) -> None: ...
    @property
    def counters(self) -> tuple[int, int, int]: ...
    @property
    def waiting(self) -> int: ...
