"""ControlRequest: a control request of one API and version, the same for all its brokers."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ctrlchan._codec import leader_and_isr_body, stop_replica_body, update_metadata_body
from ctrlchan.channel.endpoints import live_leaders, plaintext_only, require_endpoints
from ctrlchan.channel.listeners import ListenerRule
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
    """The columns of a cluster that requests are made of, such as a ``ClusterState``."""

    @property
    def topics(self) -> Topics: ...
    @property
    def partitions(self) -> Partitions: ...
    @property
    def brokers(self) -> Brokers: ...
    @property
    def live_brokers(self) -> Brokers: ...


class RequestBody(Protocol):
    """The part of ``_codec.SharedBody`` that a request uses."""

    @property
    def api_key(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def size(self) -> int: ...
    def write_into(self, out: bytearray | memoryview, offset: int = 0) -> int: ...


class RowsBody(RequestBody, Protocol):
    """A shared body with its number of partitions."""

    @property
    def rows(self) -> int: ...


class Coverage(NamedTuple):
    """The changes of a state that a request contains.

    The journal keeps it, so that reports can compute which brokers have stale metadata, and of which
    partitions.
    """

    #: The state whose versions are meant (``ClusterState.changes.id``).
    state_id: str
    #: The request has all changes after this version; -1: the whole state. None if it has its ``partitions``
    #: alone.
    from_version: int | None
    #: The partitions in the request, without those that ``from_version`` includes: ``topic-partition``,
    #: separated by commas. None if there were too many.
    partitions: str | None


class ControlRequest:
    """A control request without the fields that differ per broker; it can be sent to any number of brokers.

    Make one with ``update_metadata``, ``leader_and_isr`` or ``stop_replica``.

    - ``shared_body``: the part of the body that all brokers share. It is encoded into shared memory when the
      request is first sent, and that memory is freed when all brokers have answered. A request that is sent
      again after that is encoded again, so its columns must not have changed.
    - ``controller_epoch``: int32.
    - ``request_type``: LeaderAndIsr v5+.
    - ``delete_partitions``: StopReplica v0-2.
    - ``full``: the request has all metadata, so its acknowledgement makes a resync unnecessary.
    - ``rows``: number of partitions, for outcomes and logs.
    - ``state_version``, ``coverage``: which version and changes of a state it contains, for the journal.
    - ``origin``: name of the dataset of frames it was read from, and its number among the frames of its
      broker, for the journal.
    - ``full_state``: can replace this UpdateMetadata by a later full state, so its body need not be kept in a
      long backlog.
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
        self._set_common(shared_body.api_key, shared_body.version, controller_epoch, full, rows, full_state)
        self.request_type = request_type
        self.delete_partitions = delete_partitions
        self.state_version = state_version
        self.coverage = coverage
        self.origin = origin

    def _set_common(
        self,
        api_key: int,
        version: int,
        controller_epoch: int,
        full: bool,
        rows: int,
        full_state: FullStateSource | None,
    ) -> None:
        """Set the fields that a request without a body has too (``PendingFullState``)."""
        self.api_key = api_key
        self.version = version
        self.controller_epoch = controller_epoch
        self.full = full
        self.rows = rows
        self.full_state = full_state
        self.request_type = 0
        self.delete_partitions = False
        self.state_version = None
        self.coverage = None
        self.origin = None
        #: Monotonic nanoseconds when it was encoded, and how many that took; 0 without a ``Recorder``.
        self.encoded_ns = 0
        self.encoding_ns = 0
        #: Bytes of the frame on the wire, or of all parts; 0 until it is first sent.
        self.size = 0
        # The fields below are for the channel. The encoded frame, while any broker has yet to answer.
        self.frame: Frame | None = None
        # If the request is too large for one frame: the requests to send in its place, in order.
        self.parts: tuple[ControlRequest, ...] | None = None
        # Number of requests that were merged into it; the facts that decide about merging it again.
        self.sources = 1
        self.facts: Facts | None = None
        # It must not be merged.
        self.goes_alone = False
        # It was sent with a timeout, so it is not replaced by a full state.
        self.has_limit = False
        # It is a full state: the metadata that its acknowledgement proves (``FullState.knowledge``).
        self.knowledge: Hashable | None = None
        self._channel: weakref.ref[Canceller] | None = None
        # Held while the request is encoded and queued.
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
        """Return an UpdateMetadata with these rows of the state, and its live brokers.

        ``rows``: ascending int64 row numbers, or None for all. ``version``: 0 to 8, or None for the one that
        Kafka sends at this ``inter_broker_protocol``. The columns must not change until the request is sent.
        Raises UnsupportedVersionError, EncodeError; IllegalStateError for v0 and a broker without an endpoint
        for the listener PLAINTEXT. Source:
        ``ControllerBrokerRequestBatch.addUpdateMetadataRequestForBrokers`` (Kafka 3.9).
        """
        if version is None:
            version = request_versions(inter_broker_protocol).update_metadata
        brokers = plaintext_only(state.live_brokers) if version == 0 else state.live_brokers
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
        """Return a LeaderAndIsr with these rows of the state.

        - ``listener``: followers connect to the leaders' endpoints for this listener.
        - ``rows``, ``version``: as for ``update_metadata`` (0 to 7).
        - ``is_new``: uint8, one for each row, 1 for a partition that is new to its replicas; None: all 0.

        Raises IllegalStateError for a leader without an endpoint for the listener, UnsupportedVersionError,
        EncodeError. Source: ``ControllerBrokerRequestBatch.addLeaderAndIsrRequestForBrokers`` (Kafka 3.9).
        """
        if version is None:
            version = request_versions(inter_broker_protocol).leader_and_isr
        leaders = state.partitions.leader if rows is None else state.partitions.leader[rows]
        live, left_out = live_leaders(state.brokers, leaders, ListenerRule(listener))
        require_endpoints(left_out, listener)
        shared_body = leader_and_isr_body(
            version,
            state.topics,
            state.partitions,
            live,
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
        """Return a StopReplica with these rows of the state, with their leader epochs from v3 on.

        ``delete``: the brokers delete the replicas too. ``rows``, ``version``: as for ``update_metadata`` (0
        to 4). Raises UnsupportedVersionError, EncodeError. Source:
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
        """The channel through which the request was last sent; a weak reference, so None if that is gone."""
        return None if self._channel is None else self._channel()

    @channel.setter
    def channel(self, channel: Canceller | None) -> None:
        self._channel = None if channel is None else weakref.ref(channel)

    def frames(self) -> tuple[Frame, ...]:
        """Return the frames of the request, while any broker has yet to answer."""
        if self.parts is None:
            assert self.frame is not None
            return (self.frame,)
        return tuple(frame for part in self.parts for frame in part.frames())

    def part(self, shared_body: RowsBody, *, delete_partitions: bool | None = None) -> ControlRequest:
        """Return a request like this one with another shared body: a part of it, or a rewritten one."""
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
