"""The frames that the controller's own batch and channel would send, made on the driver without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import ctrlchan
from ctrlchan._codec import SharedBody
from ctrlchan.channel import ChannelConfig, ControlRequest, Sent
from ctrlchan.channel.coalescing.bodies import decode_shared_body
from ctrlchan.channel.coalescing.split import split
from ctrlchan.channel.outcome import OutcomeCallback
from ctrlchan.channel.queues.acknowledged import AcknowledgedMetadata
from ctrlchan.channel.queues.frames import new_frame
from ctrlchan.protocol import request_versions
from ctrlchan.state import NO_LEADERSHIP
from ctrlchan.state.lists import entry_rows, packed_values

__all__ = ["full_push", "shuffled"]

_EPOCH: Final = Struct(">q")
_SIZE_FIELD: Final = 4


class _Channel:
    """A channel that keeps the bytes for each broker, with correlation id 0."""

    acknowledged: AcknowledgedMetadata[Any]
    has_journal = False

    def __init__(
        self, config: ChannelConfig, epochs: Mapping[int, int], protocols: Mapping[int, str]
    ) -> None:
        self.config = config
        self.acknowledged = AcknowledgedMetadata(lambda _: {})
        self.frames: dict[int, list[bytes]] = {broker: [] for broker in epochs}
        self._epochs = epochs
        self._protocols = protocols

    def request_versions(self, broker_ids: Sequence[int], api_key: int) -> dict[int, list[int]]:
        versions: dict[int, list[int]] = {}
        for broker_id in broker_ids:
            ibp = self._protocols.get(broker_id, self.config.inter_broker_protocol)
            versions.setdefault(request_versions(ibp).for_api(api_key), []).append(broker_id)
        return versions

    def send_requests(
        self, broker_ids: Sequence[int], request: ControlRequest, callback: OutcomeCallback | None = None
    ) -> list[Sent]:
        shared_body = request.shared_body
        assert isinstance(shared_body, SharedBody)
        _, before = new_frame(request, self.config)
        limit = self.config.max_request_bytes + _SIZE_FIELD
        shared_bodies: list[SharedBody] | None = [shared_body]
        if request.size > limit:
            shared_bodies = split(decode_shared_body(before, shared_body), limit - len(before))
        assert shared_bodies is not None
        for one in shared_bodies:
            frame, before = new_frame(
                ControlRequest(one, request.controller_epoch, rows=one.rows), self.config
            )
            body = one.to_bytes()
            for broker_id in broker_ids:
                head = bytearray(before)
                if frame.epoch_at:
                    _EPOCH.pack_into(head, frame.epoch_at, self._epochs[broker_id])
                self.frames[broker_id].append(bytes(head) + body)
        return []


def full_push(
    state: ctrlchan.ClusterState,
    config: ChannelConfig,
    *,
    leader_and_isr: bool = True,
    protocols: Mapping[int, str] | None = None,
) -> dict[int, list[bytes]]:
    """Return broker id -> its frames, in the order of a controller's failover.

    A broker with replicas: UpdateMetadata of the live brokers, LeaderAndIsr; every broker: UpdateMetadata of
    all partitions.
    """
    brokers = state.broker_ids.tolist()
    epochs = {broker: state.broker(broker).epoch for broker in brokers}
    channel = _Channel(config, epochs, protocols or {})
    batch = ctrlchan.ControllerBrokerRequestBatch(channel, state)
    batch.new_batch()
    if leader_and_isr:
        replicas = state.partitions.replicas
        rows, receivers = entry_rows(replicas), packed_values(replicas)
        known = state.partitions.leader_epoch[rows] != NO_LEADERSHIP
        stopped = [state.topic_row(name) for name in state.deletion_in_progress]
        known &= ~np.isin(state.partitions.topic_row[rows], stopped)
        batch.add_update_metadata(np.unique(receivers[known & np.isin(receivers, brokers)]).tolist(), ())
        batch.send_requests_to_brokers(state.controller_epoch)
        batch.new_batch()
        for broker in brokers:
            mine = rows[(receivers == broker) & known]
            if len(mine):
                batch.add_leader_and_isr([broker], mine.astype(np.int64))
    batch.add_update_metadata(brokers, rows="all")
    batch.send_requests_to_brokers(state.controller_epoch)
    return channel.frames


def shuffled(path: Path, parts: int) -> None:
    """Write the snapshot's rows in another order and in several files."""
    file = path / "partitions.parquet"
    table = pq.read_table(file)
    order: pa.Array[Any] = pa.array(np.random.default_rng(7).permutation(len(table)))
    table = table.take(order)
    file.unlink()
    file.mkdir()
    for part, rows in enumerate(np.array_split(np.arange(len(table)), parts)):
        pq.write_table(table.slice(int(rows[0]), len(rows)), file / f"part-{part}.parquet")
