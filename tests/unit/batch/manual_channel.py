"""A channel with queues that a test empties by hand; its brokers are metadata caches in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from ctrlchan._codec import (
    LEADER_AND_ISR,
    UpdateMetadataRequest,
    decode_request,
    encode_head,
)
from ctrlchan.broker.metadata.metadata_cache import MetadataCache
from ctrlchan.channel import ChannelConfig, ControlRequest, Outcome, OutcomeKind, Sent
from ctrlchan.channel.outcome import OutcomeCallback, RequestResult
from ctrlchan.channel.outcome import publish as publish_ended
from ctrlchan.channel.queues.acknowledged import AcknowledgedMetadata, MetadataStatus
from ctrlchan.protocol import request_versions
from ctrlchan.state import NO_LEADERSHIP, Broker, ClusterState, Endpoint, SecurityProtocol

__all__ = ["ManualChannel", "broker", "metadata_of"]


def broker(broker_id: int, epoch: int = 1) -> Broker:
    endpoint = Endpoint("PLAINTEXT", SecurityProtocol.PLAINTEXT, f"host{broker_id}", 9092)
    return Broker(broker_id, epoch, (endpoint,))


class ManualChannel:
    """A channel without processes.

    ``queues``: unfinished requests of each broker, in order. ``caches``: the metadata cache of each broker.
    """

    def __init__(self, broker_ids: Sequence[int], ibp: str = "3.9") -> None:
        self.config = ChannelConfig(controller_id=1, inter_broker_protocol=ibp)
        self.queues: dict[int, deque[tuple[Sent, Any]]] = {one: deque() for one in broker_ids}
        self.caches = {one: MetadataCache() for one in broker_ids}
        self.statuses = {one: MetadataStatus(one, 0) for one in broker_ids}
        self.requests: list[tuple[list[int], UpdateMetadataRequest, ControlRequest]] = []
        self.has_journal = False
        self.acknowledged: AcknowledgedMetadata[Any] = AcknowledgedMetadata(
            lambda ids: {one: self.statuses[one] for one in ids if one in self.statuses}
        )

    def request_versions(self, broker_ids: Sequence[int], api_key: int) -> dict[int, list[int]]:
        return {request_versions(self.config.inter_broker_protocol).for_api(api_key): list(broker_ids)}

    def send_requests(
        self, broker_ids: Sequence[int], request: ControlRequest, callback: OutcomeCallback | None = None
    ) -> list[Sent]:
        head = encode_head(request.api_key, request.version, 1, request.controller_epoch, 1)
        body = bytearray(len(head) + request.shared_body.size)
        body[: len(head)] = head
        request.shared_body.write_into(body, len(head))
        message = decode_request(request.api_key, request.version, body)
        if isinstance(message, UpdateMetadataRequest):
            self.requests.append((list(broker_ids), message, request))
        else:
            assert request.api_key == LEADER_AND_ISR
        sent = [Sent(broker_id, request, None, 0) for broker_id in broker_ids]
        for one in sent:
            if one.broker_id in self.queues:
                self.queues[one.broker_id].append((one, message))
            else:
                publish(one, OutcomeKind.BROKER_GONE)
        return sent

    # -- the brokers

    def end_next(
        self,
        broker_id: int,
        kind: OutcomeKind = OutcomeKind.ACKNOWLEDGED,
        *,
        applied: bool = True,
        at: int = 0,
    ) -> None:
        """End the request at this place of the broker's queue. ``applied``: the broker has applied it."""
        queue = self.queues[broker_id]
        sent, message = queue[at]
        del queue[at]
        if applied and isinstance(message, UpdateMetadataRequest):
            self.caches[broker_id].update(message)
        if kind not in (OutcomeKind.ACKNOWLEDGED, OutcomeKind.CANCELLED):
            self.metadata_error(broker_id)
        publish(sent, kind)

    def metadata_error(self, broker_id: int) -> None:
        status = self.statuses[broker_id]
        self.statuses[broker_id] = status._replace(metadata_errors=status.metadata_errors + 1)

    def end_all(self) -> None:
        for broker_id, queue in self.queues.items():
            while queue:
                self.end_next(broker_id)

    def restart(self, broker_id: int, *, forgets: bool) -> None:
        """Begin another generation; without ``forgets`` the broker has only lost its ZooKeeper session."""
        while self.queues[broker_id]:
            sent, _ = self.queues[broker_id].popleft()
            publish(sent, OutcomeKind.BROKER_GONE)
        if forgets:
            self.caches[broker_id] = MetadataCache()
        self.statuses[broker_id] = MetadataStatus(self.statuses[broker_id].generation + 1000, 0)


def publish(sent: Sent, kind: OutcomeKind) -> None:
    sent.end(Outcome(sent, RequestResult(kind)))
    for listener, one in publish_ended([sent]):
        listener.finished(one)


def metadata_of(state: ClusterState) -> tuple[dict[tuple[str, int], tuple[Any, ...]], dict[int, Any]]:
    """Return the metadata of a state: partitions with leadership that are not being deleted, live brokers."""
    columns, rows = state.partitions, {}
    assert state.topics.deleting is not None
    assert columns.offline is not None
    for row in range(len(columns)):
        topic_row = int(columns.topic_row[row])
        if state.topics.deleting[topic_row] or columns.leader_epoch[row] == NO_LEADERSHIP:
            continue
        rows[state.topic_name(topic_row), int(columns.partition[row])] = (
            state.topics.ids[topic_row].tobytes(),
            int(columns.leader[row]),
            int(columns.leader_epoch[row]),
            int(columns.partition_epoch[row]),
            int(columns.controller_epoch[row]),
            columns.isr[row].tolist(),
            columns.replicas[row].tolist(),
            columns.offline[row].tolist(),
        )
    return rows, {one: state.broker(one).endpoints for one in np.sort(state.broker_ids).tolist()}
