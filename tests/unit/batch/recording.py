"""A channel that sends nothing: it encodes requests like the real one, and keeps their contents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ctrlchan._codec import (
    ControlRequestBody,
    ControlResponse,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    StringColumn,
    Topics,
    UpdateMetadataRequest,
    decode_request,
    encode_head,
)
from ctrlchan.channel import ChannelConfig, ControlRequest, Outcome, OutcomeKind, Sent
from ctrlchan.channel.outcome import OutcomeCallback, RequestResult
from ctrlchan.channel.queues.acknowledged import AcknowledgedMetadata
from ctrlchan.protocol import RequestVersions, request_versions
from ctrlchan.state import Broker, ClusterState, Endpoint, SecurityProtocol

CONTROLLER_ID = 1
CONTROLLER_EPOCH = 1
BROKER_EPOCH = 1

Body = TypeVar("Body", LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest)
TopicPartition = tuple[str, int]


@dataclass(frozen=True)
class Recorded:
    """One request to one broker, decoded from its bytes."""

    broker_id: int
    request: ControlRequest
    body: ControlRequestBody
    callback: OutcomeCallback | None

    def answer(self, error_code: int = 0) -> None:
        """Call the callback as the channel does, with a response that has this error for every partition."""
        if self.callback is None:
            return
        body = self.body
        partitions = body.partition if isinstance(body, StopReplicaRequest) else body.partitions.partition
        if isinstance(body, UpdateMetadataRequest):
            topics, starts, partitions = (
                Topics(StringColumn.from_strings([])),
                np.zeros(1, np.int64),
                partitions[:0],
            )
        else:
            topics, starts = body.topics, body.topic_starts
        response = ControlResponse(
            api_key=self.request.api_key,
            version=self.request.version,
            error_code=error_code,
            topics=topics,
            topic_starts=starts,
            partition=partitions,
            partition_error=np.full(len(partitions), error_code, dtype=np.int32),
            unknown_tagged_fields=0,
        )
        kind = OutcomeKind.REFUSED if error_code else OutcomeKind.ACKNOWLEDGED
        result = RequestResult(kind, error_code, response)
        self.callback(Outcome(Sent(self.broker_id, self.request, None, 0), result))

    def end(self, kind: OutcomeKind) -> None:
        """Call the callback as the channel does for a request that ends without a response."""
        if self.callback is not None:
            self.callback(Outcome(Sent(self.broker_id, self.request, None, 0), RequestResult(kind)))


class RecordingChannel:
    """Records requests. ``sent``: all of them, in order. ``fail_at``: broker ids whose requests raise."""

    def __init__(self, ibp: str = "3.9", versions: Mapping[int, RequestVersions] | None = None) -> None:
        self.config = ChannelConfig(controller_id=CONTROLLER_ID, inter_broker_protocol=ibp)
        self.versions = versions or {}
        self.sent: list[Recorded] = []
        self.requests: list[tuple[list[int], ControlRequest]] = []
        self.fail_at: set[int] = set()
        # Without a Sent there is no acknowledged metadata.
        self.has_journal = False
        self.acknowledged: AcknowledgedMetadata[Any] = AcknowledgedMetadata(lambda _: {})

    def request_versions(self, broker_ids: Sequence[int], api_key: int) -> dict[int, list[int]]:
        fixed = request_versions(self.config.inter_broker_protocol)
        versions: dict[int, list[int]] = {}
        for broker_id in broker_ids:
            version = self.versions.get(broker_id, fixed).for_api(api_key)
            versions.setdefault(version, []).append(broker_id)
        return versions

    def send_requests(
        self, broker_ids: Sequence[int], request: ControlRequest, callback: OutcomeCallback | None = None
    ) -> list[Sent]:
        if self.fail_at.intersection(broker_ids):
            raise OSError("the channel is broken")
        head = encode_head(
            request.api_key,
            request.version,
            CONTROLLER_ID,
            request.controller_epoch,
            BROKER_EPOCH,
            request_type=request.request_type,
            delete_partitions=request.delete_partitions,
        )
        frame = bytearray(len(head) + request.shared_body.size)
        frame[: len(head)] = head
        request.shared_body.write_into(frame, len(head))
        body = decode_request(request.api_key, request.version, frame)
        self.requests.append((list(broker_ids), request))
        self.sent += [Recorded(broker_id, request, body, callback) for broker_id in broker_ids]
        return []

    def brokers(self) -> set[int]:
        """Return the brokers to which requests were sent."""
        return {recorded.broker_id for recorded in self.sent}

    def bodies(self, broker_id: int, kind: type[Body]) -> list[Body]:
        """Return the requests of one API to one broker, in order."""
        return [
            recorded.body
            for recorded in self.sent
            if recorded.broker_id == broker_id and isinstance(recorded.body, kind)
        ]

    def answer_all(self, broker_id: int, error_code: int = 0) -> None:
        for recorded in self.sent:
            if recorded.broker_id == broker_id:
                recorded.answer(error_code)


def broker(broker_id: int, listener: str = "PLAINTEXT") -> Broker:
    endpoint = Endpoint(listener, SecurityProtocol.PLAINTEXT, "localhost", 9900 + broker_id)
    return Broker(broker_id, BROKER_EPOCH, (endpoint,))


def cluster(
    brokers: Sequence[int], partitions: int, replication: int, topic_ids: Mapping[str, bytes]
) -> ClusterState:
    """Return topics assigned round robin, without leadership information."""
    state = ClusterState.empty()
    state.set_brokers([broker(broker_id) for broker_id in brokers])
    first = 0
    for name, topic_id in topic_ids.items():
        assignment = {
            number: [brokers[(first + number + i) % len(brokers)] for i in range(replication)]
            for number in range(partitions)
        }
        first += partitions
        state.add_topic(name, assignment, topic_id, leader_epoch=-1)
    return state


def lead(
    state: ClusterState, topic: str, partition: int, leader: int, isr: Sequence[int], recovery_state: int = 0
) -> None:
    """Set the leadership of a first election: epochs 0."""
    state.update(
        state.row(topic, partition),
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
        controller_epoch=CONTROLLER_EPOCH,
        recovery_state=recovery_state,
        isr=isr,
    )


def leaders(body: LeaderAndIsrRequest | UpdateMetadataRequest) -> dict[TopicPartition, int]:
    return dict(zip(topic_partitions(body), body.partitions.leader.tolist(), strict=True))


def isrs(body: LeaderAndIsrRequest | UpdateMetadataRequest) -> dict[TopicPartition, list[int]]:
    return dict(zip(topic_partitions(body), body.partitions.isr.to_lists(), strict=True))


def stops(body: StopReplicaRequest) -> dict[TopicPartition, tuple[int, bool]]:
    """Return (topic, partition) -> (leader epoch, delete)."""
    states = zip(body.leader_epoch.tolist(), body.delete.astype(bool).tolist(), strict=True)
    return dict(zip(topic_partitions(body), states, strict=True))


def topic_partitions(body: ControlRequestBody) -> list[TopicPartition]:
    names = body.topics.names.to_list()
    rows = body if isinstance(body, StopReplicaRequest) else body.partitions
    return [
        (names[topic] or "", number)
        for topic, number in zip(rows.topic_row.tolist(), rows.partition.tolist(), strict=True)
    ]
