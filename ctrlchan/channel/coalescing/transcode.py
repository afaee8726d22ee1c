"""Encodes a request body at another version, for a broker that does not have its version.

A field that the other version does not have is left out if the schema calls it ignorable, and is an error
otherwise; the codec decides. Below v3, a StopReplica that deletes some replicas and not others becomes two
requests. UpdateMetadata v0 has only the PLAINTEXT endpoint of each broker, as in Kafka's batch.
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
    """Return the shared bodies to send, in order, each with the ``delete_partitions`` of its head.

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
    """Return brokers with these endpoint rows and listener names.

    ``starts``, ``lengths``: which endpoints each broker has; None: as in ``brokers``.
    """
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
        # In v0 the listener's name alone means PLAINTEXT, whatever protocol it is mapped to.
        protocols if starts is None else np.zeros_like(protocols),
    )
