"""ControlRequest: one (API, version, selection), the same for every broker it goes to."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ctrlchan._codec import leader_and_isr_body, stop_replica_body, update_metadata_body
from ctrlchan.channel.endpoints import live_leaders, plaintext_only
from ctrlchan.protocol import API_NAMES, request_versions

if TYPE_CHECKING:
    from collections.abc import Hashable

    import numpy.typing as npt

    from ctrlchan._codec import Brokers, Partitions, Topics
    from ctrlchan.channel.coalescing.merge import Facts
    from ctrlchan.channel.outcome import Canceller
    from ctrlchan.channel.queues.full_state import FullStateSource
    from ctrlchan.channel.queues.shared_memory import Frame

__all__ = ["ControlRequest", "Coverage", "RequestBody"]


class ClusterColumns(Protocol):
    """The columns of a cluster that requests are made of; a ``ClusterState`` has them."""

    @property
    def topics(self) -> Topics: ...
    @property
    def partitions(self) -> Partitions: ...
    @property
    def brokers(self) -> Brokers: ...


class RequestBody(Protocol):
    """What a request needs of a ``_codec.SharedBody``."""

    @property
    def api_key(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def size(self) -> int: ...
    def write_into(self, out: bytearray | memoryview, offset: int = 0) -> int: ...


class RowsBody(RequestBody, Protocol):
    """A shared body that has its number of partitions."""

    @property
    def rows(self) -> int: ...


class Coverage(NamedTuple):
    """What a broker knows once it has acknowledged a request, for the journal: which of the brokers is stale,
    and in what, can be computed from it."""

    #: Whose versions are meant (``ClusterState.changes.id``).
    state_id: str
    #: The request says everything that changed after this version; -1: everything. None: nobody can say that,
    #: and it counts for its partitions alone.
    from_version: int | None
    #: The partitions it speaks of, or those of them that ``from_version`` does not say: ``topic-partition``
    #: with commas between. None: they were too many.
    partitions: str | None


class ControlRequest:
    """A request with nothing in it that belongs to one broker; send it to as many as you like.

    ``shared_body``: the part of the body that all brokers share. It is encoded when the request is first
    sent, into
    memory that all senders read, and that memory is given back when the last broker has answered: a request
    that is sent again after that is encoded again, from columns that must still be the same.
    ``rows``: how many partitions it speaks of, for outcomes and logs. ``request_type``: LeaderAndIsr v5+.
    ``delete_partitions``: StopReplica v0-2. ``full``: it says all that a broker has to know, so that its
    acknowledgement ends the need of a resync. ``state_version``, ``coverage``: what of a state it tells; only
    the journal asks for it. ``full_state``: who can say, at any later time, all that this UpdateMetadata says
    and what has changed since; its body need not be kept in a backlog that is too long.
    """

    __slots__ = (
        "__weakref__",
        "_channel",
        "api_key",
        "controller_epoch",
        "coverage",
        "delete_partitions",
        "encoded_ns",
        "encoding",
        "encoding_ns",
        "facts",
        "frame",
        "full",
        "full_state",
        "goes_alone",
        "has_limit",
        "knowledge",
        "origin",
        "parts",
        "request_type",
        "rows",
        "shared_body",
        "size",
        "sources",
        "state_version",
        "version",
    )

    def __init__(
        self,
        shared_body: RequestBody,
        controller_epoch: int,
        *,
        request_type: int = 0,
        delete_partitions: bool = False,
        full: bool = False,
        rows: int,
        state_version: int | None = None,
        coverage: Coverage | None = None,
        origin: tuple[str, int] | None = None,
        full_state: FullStateSource | None = None,
    ) -> None:
        self.shared_body = shared_body
        self.api_key = shared_body.api_key
        self.version = shared_body.version
        self.controller_epoch = controller_epoch
        self.request_type = request_type
        self.delete_partitions = delete_partitions
        self.full = full
        self.rows = rows
        #: Which version of the sender's state it tells of; the journal keeps it, to find stale brokers.
        self.state_version = state_version
        self.coverage = coverage
        #: The dataset of ready frames that it stands in, and its number among its broker's; for the journal.
        self.origin = origin
        self.full_state = full_state
        #: Monotonic nanoseconds when it was encoded, and how many that took; 0: nobody asked (``Recorder``).
        self.encoded_ns = 0
        self.encoding_ns = 0
        #: Bytes of the whole frame on the wire; 0 until it was first sent.
        self.size = 0
        # The channel's: the encoded frame while any broker owes an answer, and who may make it.
        self.frame: Frame | None = None
        # In its place, where the request is too large to go as one: what goes, in order.
        self.parts: tuple[ControlRequest, ...] | None = None
        # Of how many requests it was merged; what was found out about merging it with others.
        self.sources = 1
        self.facts: Facts | None = None
        self.goes_alone = False
        # It was sent with a time limit: what becomes of it is nobody else's business.
        self.has_limit = False
        # It was made by asking ``full_state``: what its acknowledgement proves (``FullState.knowledge``).
        self.knowledge: Hashable | None = None
        self._channel: weakref.ref[Canceller] | None = None
        self.encoding = threading.Lock()

    @classmethod
    def update_metadata(
        cls,
        state: ClusterColumns,
        controller_epoch: int,
        *,
        inter_broker_protocol: str = "3.9",
        version: int | None = None,
        rows: npt.NDArray[np.int64] | None = None,
    ) -> ControlRequest:
        """Return an UpdateMetadata of these rows of the state, and of all its brokers as live brokers.

        ``rows``: ascending int64 row numbers; None: every row. ``version``: 0 to 8; None: the one that Kafka
        sends at this ``inter_broker_protocol``. The columns must stay as they are until the request is sent.
        Raises UnsupportedVersionError, EncodeError; IllegalStateError for v0 and a broker without an endpoint
        for the listener PLAINTEXT. Source:
        ``ControllerBrokerRequestBatch.addUpdateMetadataRequestForBrokers`` (Kafka 3.9).
        """
        if version is None:
            version = request_versions(inter_broker_protocol).update_metadata
        brokers = plaintext_only(state.brokers) if version == 0 else state.brokers
        shared_body = update_metadata_body(version, state.topics, state.partitions, brokers, rows)
        return cls(shared_body, controller_epoch, full=rows is None, rows=shared_body.rows)

    @classmethod
    def leader_and_isr(
        cls,
        state: ClusterColumns,
        controller_epoch: int,
        *,
        listener: str = "PLAINTEXT",
        inter_broker_protocol: str = "3.9",
        version: int | None = None,
        rows: npt.NDArray[np.int64] | None = None,
        is_new: npt.NDArray[np.uint8] | None = None,
    ) -> ControlRequest:
        """Return a LeaderAndIsr of these rows of the state.

        ``listener``: whose endpoints the followers connect to. ``rows``, ``version``: as for
        ``update_metadata`` (0 to 7). ``is_new``: uint8, one for each row, 1 for a partition that is new to
        its replicas; None: all 0. Raises IllegalStateError for a leader without an endpoint for the listener,
        UnsupportedVersionError, EncodeError. Source:
        ``ControllerBrokerRequestBatch.addLeaderAndIsrRequestForBrokers`` (Kafka 3.9).
        """
        if version is None:
            version = request_versions(inter_broker_protocol).leader_and_isr
        leaders = state.partitions.leader if rows is None else state.partitions.leader[rows]
        shared_body = leader_and_isr_body(
            version,
            state.topics,
            state.partitions,
            live_leaders(state.brokers, leaders, listener),
            rows,
            is_new=is_new,
        )
        return cls(shared_body, controller_epoch, rows=shared_body.rows)

    @classmethod
    def stop_replica(
        cls,
        state: ClusterColumns,
        controller_epoch: int,
        *,
        delete: bool = False,
        inter_broker_protocol: str = "3.9",
        version: int | None = None,
        rows: npt.NDArray[np.int64] | None = None,
    ) -> ControlRequest:
        """Return a StopReplica of these rows of the state, with their leader epochs from v3 on.

        ``delete``: the replicas are deleted too. ``rows``, ``version``: as for ``update_metadata`` (0 to 4).
        Raises UnsupportedVersionError, EncodeError. Source:
        ``ControllerBrokerRequestBatch.addStopReplicaRequestForBrokers`` (Kafka 3.9).
        """
        if version is None:
            version = request_versions(inter_broker_protocol).stop_replica
        columns = state.partitions
        chosen = np.arange(len(columns)) if rows is None else rows
        shared_body = stop_replica_body(
            version,
            state.topics,
            columns.topic_row[chosen],
            columns.partition[chosen],
            columns.leader_epoch[chosen],
            np.full(len(chosen), delete, dtype=np.uint8),
        )
        return cls(shared_body, controller_epoch, delete_partitions=delete, rows=shared_body.rows)

    @property
    def channel(self) -> Canceller | None:
        """What it was last sent through, as long as anybody has that: what has ended keeps no channel."""
        return None if self._channel is None else self._channel()

    @channel.setter
    def channel(self, channel: Canceller | None) -> None:
        self._channel = None if channel is None else weakref.ref(channel)

    def frames(self) -> tuple[Frame, ...]:
        """What lies in memory of it, as long as any broker owes an answer."""
        if self.parts is None:
            assert self.frame is not None
            return (self.frame,)
        return tuple(frame for part in self.parts for frame in part.frames())

    def part(self, shared_body: RowsBody, *, delete_partitions: bool | None = None) -> ControlRequest:
        """Return a request like this one for another shared body: a part of it, or the same rewritten."""
        return ControlRequest(
            shared_body,
            self.controller_epoch,
            request_type=self.request_type,
            delete_partitions=self.delete_partitions if delete_partitions is None else delete_partitions,
            rows=shared_body.rows,
        )

    def __repr__(self) -> str:
        name = API_NAMES.get(self.api_key, str(self.api_key))
        return f"<{name} v{self.version} controllerEpoch={self.controller_epoch} rows={self.rows}>"
