"""Packed rows -> whole frames of one broker, on executors.

Uses the calls of the batch and of the channel: the codec's shared bodies, ``frames_for`` to split a request
larger than ``max_request_bytes``, ``new_frame`` for the bytes before a shared body. So a frame has the bytes
that a channel would send, with correlation id 0, which belongs to a connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from ctrlchan._codec import (
    LEADER_AND_ISR,
    UPDATE_METADATA,
    Brokers,
    SharedBody,
    Topics,
    leader_and_isr_body,
    stop_replica_body,
    update_metadata_body,
)
from ctrlchan.channel import ChannelConfig, ControlRequest
from ctrlchan.channel.encoding import RequestTooLargeError, frames_for, most_frame_bytes
from ctrlchan.channel.endpoints import live_leaders, plaintext_only, require_endpoints
from ctrlchan.channel.listeners import ListenerRule
from ctrlchan.channel.queues.frames import new_frame
from ctrlchan.errors import EncodeError
from ctrlchan.pipeline.jobs.frames.columns import WireRows, wire_rows
from ctrlchan.pipeline.spark.packed_rows import unpack
from ctrlchan.protocol import API_NAMES, DELETE_PER_PARTITION_SINCE, request_versions
from ctrlchan.state.storage.arrow_brokers import brokers_from_arrow
from ctrlchan.state.storage.problems import Source
from ctrlchan.state.storage.schemas import PARTITIONS

__all__ = ["FrameEncoder", "Part", "SharedPart"]

_EPOCH: Final = Struct(">q")
#: ``from_version`` of a request with the full state.
_EVERYTHING: Final = -1
#: For a request of the live brokers alone.
_NO_ROWS: Final = PARTITIONS.append(pa.field("changed", pa.bool_())).empty_table()


class SharedPart(NamedTuple):
    """A part of an UpdateMetadata: the same for every broker of this version and selection."""

    version: int
    #: Every row, or those that changed.
    whole: bool
    part: int
    rows: int
    data: pa.Buffer | bytes


class Part(NamedTuple):
    """A frame in two parts: ``before``, which differs per broker, and the shared body."""

    api: int
    version: int
    rows: int
    before: bytes
    shared_body: SharedBody | pa.Buffer | bytes
    #: With this frame and those before it the broker has all changes after this version of the state; None:
    #: not known, or more frames follow (``ctrlchan.channel.request.Coverage``).
    from_version: int | None = None

    @property
    def size(self) -> int:
        shared_body = self.shared_body
        return len(self.before) + (len(shared_body) if isinstance(shared_body, bytes) else shared_body.size)

    def write_into(self, out: memoryview, offset: int) -> int:
        """Write the frame at ``out[offset:]`` and return its end."""
        begin, end = offset + len(self.before), offset + self.size
        out[offset:begin] = self.before
        if isinstance(self.shared_body, SharedBody):
            self.shared_body.write_into(out, begin)
        else:
            out[begin:end] = memoryview(self.shared_body).cast("B")
        return end


@dataclass(frozen=True, kw_only=True)
class FrameEncoder:
    """Encodes the frames of one dataset. It is sent to the executors with each task.

    - ``brokers``: table of the live brokers as packed rows; every UpdateMetadata has all of them.
    - ``protocols``: inter.broker.protocol.version of single brokers, if it is not the channel's.
    - ``deleting``: names of topics queued for deletion.
    - ``from_version``: version of the old state, if the rows are a difference.
    - ``source``: name for errors.
    """

    channel: ChannelConfig
    controller_epoch: int
    brokers: bytes
    protocols: Mapping[int, str] = field(default_factory=dict)
    deleting: frozenset[str] = frozenset()
    from_version: int | None = None
    source: str = "snapshot"

    @cached_property
    def live(self) -> Brokers:
        return brokers_from_arrow(unpack([self.brokers]), Source(f"{self.source}: brokers"))

    @cached_property
    def _epochs(self) -> dict[int, int]:
        return dict(zip(self.live.ids.tolist(), self.live.epochs.tolist(), strict=True))

    def version(self, broker: int, api: int) -> int:
        ibp = self.protocols.get(broker, self.channel.inter_broker_protocol)
        return request_versions(ibp).for_api(api)

    # -- UpdateMetadata, for all brokers at once

    def shared_bodies(
        self, packed: Sequence[pa.Buffer | bytes], selections: Sequence[tuple[int, bool]]
    ) -> Iterator[SharedPart]:
        """Yield the parts for each (version, whether of all rows); without packed rows, of no rows."""
        rows = wire_rows(unpack(packed) if packed else _NO_ROWS, self.source)
        topics = self._with_deleting(rows.topics)
        for version, whole in selections:
            chosen = None if whole else np.flatnonzero(rows.flags["changed"])
            brokers = plaintext_only(self.live) if version == 0 else self.live
            shared_body = update_metadata_body(version, topics, rows.partitions, brokers, chosen)
            for part, one in enumerate(self._parts(shared_body, False)):
                yield SharedPart(version, whole, part, one.rows, one.to_bytes())

    @cached_property
    def _live_shared_bodies(self) -> dict[int, bytes]:
        return {}

    def live_part(self, broker: int) -> Part:
        """Return an UpdateMetadata of the live brokers alone."""
        version = self.version(broker, UPDATE_METADATA)
        shared_body = self._live_shared_bodies.get(version)
        if shared_body is None:
            (only,) = self.shared_bodies((), [(version, True)])
            shared_body = self._live_shared_bodies[version] = bytes(only.data)
        before = self._before(broker, UPDATE_METADATA, version, len(shared_body), False)
        return Part(UPDATE_METADATA, version, 0, before, shared_body)

    def shared_parts(self, broker: int, shared_bodies: Sequence[SharedPart]) -> Iterator[Part]:
        for shared_body in shared_bodies:
            before = self._before(broker, UPDATE_METADATA, shared_body.version, len(shared_body.data), False)
            since = (
                None
                if shared_body is not shared_bodies[-1]
                else _EVERYTHING
                if shared_body.whole
                else self.from_version
            )
            yield Part(
                UPDATE_METADATA, shared_body.version, shared_body.rows, before, shared_body.data, since
            )

    def _with_deleting(self, topics: Topics) -> Topics:
        if not self.deleting:
            return topics
        flags = [name in self.deleting for name in topics.names.to_list()]
        return Topics(topics.names, topics.ids, np.array(flags, dtype=np.uint8))

    # -- LeaderAndIsr and StopReplica, for one broker

    def parts(self, broker: int, api: int, packed: Sequence[pa.Buffer | bytes]) -> Iterator[Part]:
        """Yield the frames of LeaderAndIsr or StopReplica of these packed rows."""
        rows = wire_rows(unpack(packed), self.source)
        version = self.version(broker, api)
        if api == LEADER_AND_ISR:
            shared_bodies = [(self._leader_and_isr(version, rows), False)]
        else:
            shared_bodies = list(_stop_replicas(version, rows))
        for shared_body, delete in shared_bodies:
            for part in self._parts(shared_body, delete):
                yield Part(
                    api, version, part.rows, self._before(broker, api, version, part.size, delete), part
                )

    def _leader_and_isr(self, version: int, rows: WireRows) -> SharedBody:
        listener = self.channel.broker_listener
        leaders, left_out = live_leaders(self.live, rows.partitions.leader, ListenerRule(listener))
        require_endpoints(left_out, listener)
        is_new = rows.flags.get("is_new")
        return leader_and_isr_body(version, rows.topics, rows.partitions, leaders, is_new=is_new)

    # -- as the channel does

    def _request(self, shared_body: Any, delete: bool) -> ControlRequest:
        return ControlRequest(shared_body, self.controller_epoch, delete_partitions=delete, rows=0)

    def _parts(self, shared_body: SharedBody, delete: bool) -> list[SharedBody]:
        """Return the shared body, or several of at most ``max_request_bytes``."""
        request = self._request(shared_body, delete)
        try:
            frames = frames_for(request, self.channel, most_frame_bytes(self.channel))
        except RequestTooLargeError as problem:
            raise EncodeError(
                f"{API_NAMES[shared_body.api_key]} of {shared_body.rows} partitions cannot be split "
                f"into requests of {self.channel.max_request_bytes} bytes (max_request_bytes)",
                api=API_NAMES[shared_body.api_key],
                version=shared_body.version,
            ) from problem
        parts = [one.request.shared_body for one in frames]
        return [part for part in parts if isinstance(part, SharedBody)]

    def _before(self, broker: int, api: int, version: int, shared_body_size: int, delete: bool) -> bytes:
        """Return the bytes before a shared body of this size: frame size, header, head with broker epoch."""
        frame, before = new_frame(self._request(_Sized(api, version, shared_body_size), delete), self.channel)
        if not frame.epoch_at:
            return before
        with_epoch = bytearray(before)
        _EPOCH.pack_into(with_epoch, frame.epoch_at, self._epochs[broker])
        return bytes(with_epoch)


class _Sized(NamedTuple):
    """The attributes of a shared body that the bytes before it depend on."""

    api_key: int
    version: int
    size: int


def _stop_replicas(version: int, rows: WireRows) -> Iterator[tuple[SharedBody, bool]]:
    """Yield (shared body, deletes): below version 3 first the partitions to delete, then the others."""
    delete, columns = rows.flags["delete"], rows.partitions
    if version >= DELETE_PER_PARTITION_SINCE:
        yield (
            stop_replica_body(
                version, rows.topics, columns.topic_row, columns.partition, columns.leader_epoch, delete
            ),
            False,
        )
        return
    for deletes in (True, False):
        chosen = np.flatnonzero((delete != 0) == deletes)
        if len(chosen):
            shared_body = stop_replica_body(
                version, rows.topics, columns.topic_row[chosen], columns.partition[chosen]
            )
            yield shared_body, deletes
