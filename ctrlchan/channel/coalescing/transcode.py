"""A request body at another version: for a broker that does not have the one it was encoded at.

What the other version cannot carry is left out where the schema calls it ignorable, and is an error
elsewhere; both are the codec's to know. Below v3, StopReplica is two requests where some replicas are to be
deleted and others not, and UpdateMetadata v0 names each broker's PLAINTEXT endpoint alone, as Kafka's batch
has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ctrlchan._codec import (
    Brokers,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    StringColumn,
    UnsupportedVersionError,
    UpdateMetadataRequest,
    leader_and_isr_body,
    stop_replica_body,
    update_metadata_body,
)
from ctrlchan.protocol import DELETE_PER_PARTITION_SINCE, LISTENER_NAMES_SINCE, SECURITY_PROTOCOLS

if TYPE_CHECKING:
    from ctrlchan._codec import ControlRequestBody, Int32, Int64, SharedBody

__all__ = ["transcode"]

_PROTOCOLS: Final = tuple(name.encode() for name in SECURITY_PROTOCOLS)


def transcode(body: ControlRequestBody, version: int) -> list[tuple[SharedBody, bool]]:
    """The shared bodies to send, in order, each with its head's ``delete_partitions``.

    Raises UnsupportedVersionError, EncodeError.
    """
    if isinstance(body, UpdateMetadataRequest):
        brokers = _brokers(body, version)
        return [
            (
                update_metadata_body(
                    version,
                    body.topics,
                    body.partitions,
                    brokers,
                    topic_starts=body.topic_starts,
                    request_type=body.request_type,
                ),
                False,
            )
        ]
    if isinstance(body, LeaderAndIsrRequest):
        shared_body = leader_and_isr_body(
            version,
            body.topics,
            body.partitions,
            body.live_leaders,
            is_new=body.is_new,
            topic_starts=body.topic_starts,
        )
        return [(shared_body, False)]
    assert isinstance(body, StopReplicaRequest)
    if version >= DELETE_PER_PARTITION_SINCE:
        shared_body = stop_replica_body(
            version,
            body.topics,
            body.topic_row,
            body.partition,
            body.leader_epoch,
            body.delete,
            topic_starts=body.topic_starts,
        )
        return [(shared_body, False)]
    shared_bodies = []
    for delete in (False, True):
        rows = np.flatnonzero(body.delete.astype(bool) == delete)
        if len(rows):
            shared_body = stop_replica_body(version, body.topics, body.topic_row[rows], body.partition[rows])
            shared_bodies.append((shared_body, delete))
    return shared_bodies


def _brokers(body: UpdateMetadataRequest, version: int) -> Brokers:
    brokers = body.live_brokers
    if body.version < LISTENER_NAMES_SINCE:
        # UpdateMetadataRequest.normalize: an old version's listener is named after its protocol.
        names = [_PROTOCOLS[protocol] for protocol in brokers.security_protocols.tolist()]
        brokers = _with_endpoints(brokers, np.arange(len(names)), StringColumn.from_strings(names))
    return _plaintext_only(brokers) if version == 0 else brokers


def _plaintext_only(brokers: Brokers) -> Brokers:
    rows = []
    for row in range(len(brokers)):
        first = int(brokers.endpoint_starts[row])
        endpoints = range(first, first + int(brokers.endpoint_lengths[row]))
        found = [at for at in endpoints if brokers.listeners[at] == _PROTOCOLS[0]]
        if not found:
            raise UnsupportedVersionError(
                f"broker {brokers.ids[row]} has no endpoint for listener PLAINTEXT, which version 0 names",
                api="UpdateMetadataRequest",
                version=0,
                field="endpoints",
            )
        rows.append(found[0])
    kept = np.array(rows, dtype=np.int64)
    listeners = brokers.listeners
    named = StringColumn(listeners.starts[kept], listeners.lengths[kept], listeners.data)
    count = np.arange(len(brokers), dtype=np.int32)
    return _with_endpoints(brokers, kept, named, starts=count, lengths=np.ones_like(count))


def _with_endpoints(
    brokers: Brokers,
    rows: Int64,
    listeners: StringColumn,
    starts: Int32 | None = None,
    lengths: Int32 | None = None,
) -> Brokers:
    """These endpoint rows under these names; None: as they were divided among the brokers."""
    hosts = brokers.hosts
    protocols = brokers.security_protocols[rows]
    return Brokers(
        brokers.ids,
        brokers.epochs,
        brokers.racks,
        brokers.endpoint_starts if starts is None else starts,
        brokers.endpoint_lengths if lengths is None else lengths,
        brokers.ports[rows],
        StringColumn(hosts.starts[rows], hosts.lengths[rows], hosts.data),
        listeners,
        # v0 says PLAINTEXT by the listener's name alone, whatever protocol that is mapped to.
        protocols if starts is None else np.zeros_like(protocols),
    )
