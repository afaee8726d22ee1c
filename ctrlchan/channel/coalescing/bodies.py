"""Decodes frames and shared bodies to columns, and encodes ranges of their rows as shared bodies.

Pure functions. A partition is a row of columns, never an object.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

import numpy as np

from ctrlchan._codec import (
    ControlRequestBody,
    LeaderAndIsrRequest,
    ListColumn,
    LiveLeaders,
    Partitions,
    SharedBody,
    StopReplicaRequest,
    StringColumn,
    Topics,
    UpdateMetadataRequest,
    decode_request,
    decode_request_header,
    leader_and_isr_body,
    stop_replica_body,
    update_metadata_body,
)

if TYPE_CHECKING:
    from ctrlchan._codec import Bytes, Int32, Int64
    from ctrlchan.channel.request import RequestBody

__all__ = ["decode_frame_body", "decode_shared_body", "rows_of", "shared_body_of_rows"]

_SIZE: Final = Struct(">i")


def decode_frame_body(frame: Bytes) -> ControlRequestBody:
    """Decode the body of a complete frame, size field included; the result does not refer to ``frame``.

    Raises DecodeError, UnsupportedVersionError.
    """
    data = memoryview(frame)[_SIZE.size :]
    header = decode_request_header(data)
    return decode_request(header.api_key, header.api_version, data, header.size)


def decode_shared_body(before: bytes, shared_body: RequestBody) -> ControlRequestBody:
    """Decode a shared body; ``before`` are the bytes that precede it in its frame.

    Raises DecodeError, UnsupportedVersionError, EncodeError.
    """
    frame = bytearray(len(before) + shared_body.size)
    frame[: len(before)] = before
    shared_body.write_into(frame, len(before))
    return decode_frame_body(frame)


def rows_of(body: ControlRequestBody) -> int:
    """Return the number of partitions in the body."""
    return int(body.topic_starts[-1])


def shared_body_of_rows(body: ControlRequestBody, first: int, last: int) -> SharedBody:
    """Return a shared body with rows ``first`` to ``last`` (exclusive) only, in the same order.

    It has all live brokers, and the live leaders of these rows. A topic without rows is in the range of the
    row that follows it, or of the last row. Raises EncodeError, UnsupportedVersionError.
    """
    topics, starts = _topics_of_rows(body, first, last)
    if isinstance(body, UpdateMetadataRequest):
        return update_metadata_body(
            body.version,
            topics,
            _partition_range(body.partitions, first, last),
            body.live_brokers,
            topic_starts=starts,
            request_type=body.request_type,
        )
    if isinstance(body, LeaderAndIsrRequest):
        return leader_and_isr_body(
            body.version,
            topics,
            _partition_range(body.partitions, first, last),
            _leaders_among(body.live_leaders, body.partitions.leader[first:last]),
            is_new=body.is_new[first:last],
            topic_starts=starts,
        )
    assert isinstance(body, StopReplicaRequest)
    return stop_replica_body(
        body.version,
        topics,
        body.topic_row[first:last],
        body.partition[first:last],
        body.leader_epoch[first:last],
        body.delete[first:last],
        topic_starts=starts,
    )


def _topics_of_rows(body: ControlRequestBody, first: int, last: int) -> tuple[Topics, Int64]:
    starts = body.topic_starts
    begin = int(np.searchsorted(starts, first, "left"))
    if begin == len(starts) or starts[begin] != first:
        begin -= 1
    end = len(body.topics) if last == starts[-1] else int(np.searchsorted(starts, last, "left"))
    names = body.topics.names
    named = StringColumn(names.starts[begin:end], names.lengths[begin:end], names.data)
    return Topics(named, body.topics.ids[begin:end]), np.clip(starts[begin : end + 1], first, last) - first


def _partition_range(partitions: Partitions, first: int, last: int) -> Partitions:
    """Return rows ``first`` to ``last`` as views of the same memory."""

    def lists(column: ListColumn | None) -> ListColumn | None:
        if column is None:
            return None
        return ListColumn(column.starts[first:last], column.lengths[first:last], column.values)

    isr, replicas = lists(partitions.isr), lists(partitions.replicas)
    assert isr is not None
    assert replicas is not None
    return Partitions(
        partitions.topic_row[first:last],
        partitions.partition[first:last],
        partitions.controller_epoch[first:last],
        partitions.leader[first:last],
        partitions.leader_epoch[first:last],
        partitions.partition_epoch[first:last],
        partitions.recovery_state[first:last],
        isr,
        replicas,
        lists(partitions.adding),
        lists(partitions.removing),
        lists(partitions.offline),
    )


def _leaders_among(leaders: LiveLeaders, wanted: Int32) -> LiveLeaders:
    rows = np.flatnonzero(np.isin(leaders.ids, wanted))
    hosts = leaders.hosts
    return LiveLeaders(
        leaders.ids[rows],
        StringColumn(hosts.starts[rows], hosts.lengths[rows], hosts.data),
        leaders.ports[rows],
    )
