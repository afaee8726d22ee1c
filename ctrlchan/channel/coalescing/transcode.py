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
from ctrlchan.channel.endpoints import plaintext_only
from ctrlchan.errors import IllegalStateError
from ctrlchan.protocol import DELETE_PER_PARTITION_SINCE, LISTENER_NAMES_SINCE, SECURITY_PROTOCOLS

if TYPE_CHECKING:
    from ctrlchan._codec import ControlRequestBody, SharedBody

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
        brokers = Brokers(
            brokers.ids,
            brokers.epochs,
            brokers.racks,
            brokers.endpoint_starts,
            brokers.endpoint_lengths,
            brokers.ports,
            brokers.hosts,
            StringColumn.from_strings(names),
            brokers.security_protocols,
        )
    return _plaintext_only(brokers) if version == 0 else brokers


def _plaintext_only(brokers: Brokers) -> Brokers:
    try:
        return plaintext_only(brokers)
    except IllegalStateError as error:
        raise UnsupportedVersionError(
            f"{error}, which version 0 names", api="UpdateMetadataRequest", version=0, field="endpoints"
        ) from error
