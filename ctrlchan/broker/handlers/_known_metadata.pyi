from ctrlchan.broker.handlers._hot import HotApi
from ctrlchan.broker.metadata._snapshot import CurrentMetadata, MetadataSnapshot

class MetadataApi(HotApi):
    def __init__(self, metadata: CurrentMetadata) -> None: ...
    @property
    def known(self) -> int: ...
    def add(
        self, snapshot: MetadataSnapshot, version: int, listener: str, request: bytes, body: bytes
    ) -> None: ...
