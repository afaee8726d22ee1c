"""A broker as the controller sees it: what the three control requests do, with the answers of Kafka 3.9.

Written without the package's own broker, so that both would have to be wrong in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ctrlchan._codec import (
    ControlRequestBody,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from ctrlchan.errors import ErrorCode
from ctrlchan.protocol import NO_BROKER_EPOCH
from ctrlchan.state.brokers import brokers_list
from tests.unit.batch.recording import topic_partitions

__all__ = ["Answered", "HostedReplica", "ModelBroker", "SeenPartition"]

#: (topic, partition)
Key = tuple[str, int]

_NO_EPOCH = -1
_DURING_DELETE = -2
_ZERO_ID = b"\0" * 16


class Answered(NamedTuple):
    """A response: the error of the request, and of each of its partitions in their order."""

    error: int
    partitions: list[int]


class SeenPartition(NamedTuple):
    """A partition in the metadata cache."""

    leader: int
    leader_epoch: int
    isr: list[int]
    replicas: list[int]
    offline: list[int]
    topic_id: bytes


@dataclass
class HostedReplica:
    """A replica in the memory of the broker."""

    leader: int = -1
    leader_epoch: int = _NO_EPOCH
    partition_epoch: int = -1
    isr: list[int] = field(default_factory=list)
    replicas: list[int] = field(default_factory=list)
    stopped: bool = False


class ModelBroker:
    """One broker: its process may run or not, its disk stays."""

    def __init__(self, broker_id: int) -> None:
        self.id = broker_id
        #: Topic ids of the logs on the disk.
        self.logs: dict[Key, bytes] = {}
        #: Logs in failed directories, until the process starts again.
        self.failed: set[Key] = set()
        self.epoch = NO_BROKER_EPOCH
        self.port = 10_000 * broker_id
        self.runs = False
        self.registered = False
        self.controller_epoch = 0
        #: The ports of the live brokers.
        self.live: dict[int, list[int]] = {}
        self.metadata: dict[Key, SeenPartition] = {}
        self.hosted: dict[Key, HostedReplica] = {}

    def start(self) -> None:
        """Start the process: its memory is empty, and the directories work."""
        self.runs = True
        self.failed.clear()
        self._forget()

    def stop(self) -> None:
        """End the process."""
        self.runs = False

    def handle(self, body: ControlRequestBody, broker_epoch: int) -> Answered:
        """Apply a request of this broker epoch, as ``KafkaApis`` and ``ReplicaManager`` do."""
        names = topic_partitions(body)
        if NO_BROKER_EPOCH != broker_epoch < self.epoch:
            return self._refused(body, names, ErrorCode.STALE_BROKER_EPOCH)
        if body.controller_epoch < self.controller_epoch:
            return self._refused(body, names, ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = body.controller_epoch
        if isinstance(body, UpdateMetadataRequest):
            self._update_metadata(body, names)
            return Answered(0, [])
        if isinstance(body, LeaderAndIsrRequest):
            before = {key: self.hosted.get(key, HostedReplica()).leader_epoch for key in names}
            return Answered(
                0, [self._leader_and_isr(body, row, key, before[key]) for row, key in enumerate(names)]
            )
        return Answered(0, [self._stop_replica(body, row, key) for row, key in enumerate(names)])

    @staticmethod
    def _refused(body: ControlRequestBody, names: list[Key], code: int) -> Answered:
        return Answered(code, [code] * len(names) if isinstance(body, LeaderAndIsrRequest) else [])

    def _update_metadata(self, body: UpdateMetadataRequest, names: list[Key]) -> None:
        self.live = {
            broker.id: sorted(endpoint.port for endpoint in broker.endpoints)
            for broker in brokers_list(body.live_brokers)
        }
        columns = body.partitions
        for row, key in enumerate(names):
            if columns.leader[row] == _DURING_DELETE:
                self.metadata.pop(key, None)
                continue
            offline = [] if columns.offline is None else columns.offline[row].tolist()
            self.metadata[key] = SeenPartition(
                int(columns.leader[row]),
                int(columns.leader_epoch[row]),
                columns.isr[row].tolist(),
                columns.replicas[row].tolist(),
                offline,
                _id(body, row),
            )

    def _leader_and_isr(self, body: LeaderAndIsrRequest, row: int, key: Key, current: int) -> int:
        columns, topic_id = body.partitions, _id(body, row)
        if key in self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if _ZERO_ID not in (topic_id, self.logs.get(key, _ZERO_ID)) and self.logs[key] != topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        epoch, leader = int(columns.leader_epoch[row]), int(columns.leader[row])
        if epoch <= current:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        replicas = columns.replicas[row].tolist()
        if self.id not in replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.logs[key] = self.logs.get(key, _ZERO_ID) if topic_id == _ZERO_ID else topic_id
        hosted = self.hosted.setdefault(key, HostedReplica())
        if leader != self.id and leader not in self.live:
            # A follower of an unknown leader gets its log and nothing else.
            return 0
        if int(columns.partition_epoch[row]) < hosted.partition_epoch:
            return 0
        self.hosted[key] = HostedReplica(
            leader, epoch, int(columns.partition_epoch[row]), columns.isr[row].tolist(), replicas
        )
        return 0

    def _stop_replica(self, body: StopReplicaRequest, row: int, key: Key) -> int:
        if key in self.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        hosted, epoch = self.hosted.get(key), int(body.leader_epoch[row])
        if hosted is not None and epoch < hosted.leader_epoch and epoch not in (_NO_EPOCH, _DURING_DELETE):
            return ErrorCode.FENCED_LEADER_EPOCH
        if body.delete[row] or body.delete_partitions:
            self.hosted.pop(key, None)
            self.logs.pop(key, None)
        elif hosted is not None:
            hosted.stopped = True
        return 0

    def _forget(self) -> None:
        self.controller_epoch = 0
        self.live = {}
        self.metadata = {}
        self.hosted = {}


def _id(body: LeaderAndIsrRequest | UpdateMetadataRequest, row: int) -> bytes:
    return bytes(body.topics.ids[body.partitions.topic_row[row]].tobytes())
