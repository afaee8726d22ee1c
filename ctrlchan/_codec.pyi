"""Columns <-> wire bytes for the three control requests and their responses.

The codec is sans-io. A partition is a row in NumPy columns, never a Python object. The GIL is released
while bytes are counted, written or read.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]
Bytes = bytes | bytearray | memoryview

LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6
HIGHEST_VERSION: Final[dict[int, int]]

class CtrlchanError(Exception):
    """The root of every error this package raises on purpose. See ``ctrlchan.errors`` for the tree."""

class ProtocolError(CtrlchanError, ValueError):
    """Bytes or columns that the protocol does not allow.

    ``api`` is the message's Kafka name, ``version`` its version, ``field`` the Kafka name of the field
    (JSON form, camelCase) and ``offset`` the offset of the wrong byte in the given buffer, or None when
    the error is not about one byte.
    """

    api: str
    version: int
    field: str
    offset: int | None
    reason: str
    def __init__(
        self, reason: str, *, api: str = "", version: int = -1, field: str = "", offset: int | None = None
    ) -> None: ...

class DecodeError(ProtocolError):
    """Bytes that are not a message of this api and version."""

class EncodeError(ProtocolError):
    """Columns that cannot be put on the wire."""

class UnsupportedVersionError(ProtocolError):
    """A version that does not exist, or a value that the chosen version cannot carry."""

class StringColumn:
    """``n`` byte strings in one buffer: int32 ``starts``, int32 ``lengths`` (-1 is null), uint8 ``data``."""

    starts: Int32
    lengths: Int32
    data: UInt8
    def __init__(self, starts: Int32, lengths: Int32, data: UInt8) -> None: ...
    @staticmethod
    def from_strings(strings: Iterable[str | bytes | None]) -> StringColumn: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> bytes | None: ...
    def to_list(self) -> list[str | None]: ...

class ListColumn:
    """``n`` lists of int32 in one buffer: int32 ``starts``, int32 ``lengths`` (>= 0), int32 ``values``.

    Arrow's list layout when ``starts = offsets[:-1]`` and ``lengths = diff(offsets)``. Lists may be
    in any order, share values and leave gaps.
    """

    starts: Int32
    lengths: Int32
    values: Int32
    def __init__(self, starts: Int32, lengths: Int32, values: Int32) -> None: ...
    @staticmethod
    def from_lists(lists: Iterable[Sequence[int]]) -> ListColumn: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Int32: ...
    def to_lists(self) -> list[list[int]]: ...

class Topics:
    """Topic rows: ``names`` and ``ids`` uint8[n, 16] (all zero: unknown).

    ``deleting`` uint8[n] or None: with a set flag, UpdateMetadata has LeaderDuringDelete (leader -2,
    leader epoch 0, partition epoch 0) in every partition of the topic.
    """

    names: StringColumn
    ids: UInt8
    deleting: UInt8 | None
    def __init__(
        self, names: StringColumn, ids: UInt8 | None = None, deleting: UInt8 | None = None
    ) -> None: ...
    def __len__(self) -> int: ...

class Partitions:
    """Partition rows: seven int32[n] columns and five list columns of n lists (None: all empty)."""

    topic_row: Int32
    partition: Int32
    controller_epoch: Int32
    leader: Int32
    leader_epoch: Int32
    partition_epoch: Int32
    recovery_state: Int32
    isr: ListColumn
    replicas: ListColumn
    adding: ListColumn | None
    removing: ListColumn | None
    offline: ListColumn | None
    def __init__(
        self,
        topic_row: Int32,
        partition: Int32,
        controller_epoch: Int32,
        leader: Int32,
        leader_epoch: Int32,
        partition_epoch: Int32,
        recovery_state: Int32,
        isr: ListColumn,
        replicas: ListColumn,
        adding: ListColumn | None = None,
        removing: ListColumn | None = None,
        offline: ListColumn | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...

class Brokers:
    """Broker rows: ``ids`` int32[n], ``epochs`` int64[n] (-1 unknown), ``racks`` (null: none).

    Endpoints of broker i are rows ``endpoint_starts[i] : endpoint_starts[i] + endpoint_lengths[i]`` of
    ``ports`` int32[m], ``hosts``, ``listeners`` and ``security_protocols`` int32[m] (0 PLAINTEXT,
    1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL; int16 on the wire).
    """

    ids: Int32
    epochs: Int64
    racks: StringColumn
    endpoint_starts: Int32
    endpoint_lengths: Int32
    ports: Int32
    hosts: StringColumn
    listeners: StringColumn
    security_protocols: Int32
    def __init__(
        self,
        ids: Int32,
        epochs: Int64 | None,
        racks: StringColumn,
        endpoint_starts: Int32,
        endpoint_lengths: Int32,
        ports: Int32,
        hosts: StringColumn,
        listeners: StringColumn,
        security_protocols: Int32,
    ) -> None: ...
    def __len__(self) -> int: ...

class LiveLeaders:
    """Rows of LeaderAndIsr's live leaders: ``ids`` int32[n], ``hosts``, ``ports`` int32[n]."""

    ids: Int32
    hosts: StringColumn
    ports: Int32
    def __init__(self, ids: Int32, hosts: StringColumn, ports: Int32) -> None: ...
    def __len__(self) -> int: ...

class SharedBody:
    """The part of a request body that every broker shares, sized and ready to be written.

    It references its columns and does not copy them: write it before they change.
    """

    api_key: int
    version: int
    size: int
    rows: int
    def write_into(self, out: bytearray | memoryview, offset: int = 0) -> int:
        """Write exactly ``size`` bytes at ``out[offset:]`` and return ``size``.

        Raises EncodeError when a row or list points outside its columns, a string is too long or the
        columns changed since the shared body was sized; ValueError when ``out`` is too small.
        """
    def to_bytes(self) -> bytes: ...

def update_metadata_body(
    version: int,
    topics: Topics,
    partitions: Partitions,
    live_brokers: Brokers,
    rows: Int64 | None = None,
    *,
    topic_starts: Int64 | None = None,
    request_type: int = 0,
) -> SharedBody:
    """Size an UpdateMetadata shared body (topic states, live brokers).

    ``rows``: ascending int64 row numbers, None for every row. A new topic state begins where
    ``topic_row`` changes. With ``topic_starts`` int64[len(topics) + 1], topic t has the rows
    ``topic_starts[t]:topic_starts[t+1]`` instead; so a decoded message with a topic without rows, or with
    the same topic twice, can be written again. v0 carries one PLAINTEXT endpoint a broker:
    UnsupportedVersionError otherwise (Kafka's own rule).
    """

def leader_and_isr_body(
    version: int,
    topics: Topics,
    partitions: Partitions,
    live_leaders: LiveLeaders,
    rows: Int64 | None = None,
    *,
    is_new: UInt8 | None = None,
    topic_starts: Int64 | None = None,
) -> SharedBody:
    """Size a LeaderAndIsr shared body. ``is_new`` uint8, one for each selected row (None: all false)."""

def stop_replica_body(
    version: int,
    topics: Topics,
    topic_row: Int32,
    partition: Int32,
    leader_epoch: Int32 | None = None,
    delete: UInt8 | None = None,
    *,
    topic_starts: Int64 | None = None,
) -> SharedBody:
    """Size a StopReplica shared body: one entry per element of the (equally long) arrays, grouped by ``topic_row``.

    v0-2 do not carry ``leader_epoch`` and ``delete`` (the head's delete_partitions is for all entries).
    """

def encode_head(
    api_key: int,
    version: int,
    controller_id: int,
    controller_epoch: int,
    broker_epoch: int = -1,
    *,
    is_kraft_controller: bool = False,
    request_type: int = 0,
    delete_partitions: bool = False,
) -> bytes:
    """Return the part of a request body that belongs to one broker. ``request_type``: LeaderAndIsr v5+ only."""

def encode_frame_prefix(
    api_key: int,
    version: int,
    correlation_id: int,
    client_id: bytes | None,
    head: bytes,
    shared_body_size: int,
) -> bytes:
    """Return everything before a shared body on the wire: 4-byte size, request header and head."""

def request_header_version(api_key: int, version: int) -> int: ...
def response_header_version(api_key: int, version: int) -> int: ...
def encode_request_header(
    header_version: int, api_key: int, api_version: int, correlation_id: int, client_id: bytes | None
) -> bytes: ...
def encode_response_header(header_version: int, correlation_id: int) -> bytes: ...

class RequestHeader:
    """A decoded request header. ``size`` is its number of bytes, which is the body's offset."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: bytes | None
    size: int
    unknown_tagged_fields: int

def decode_request_header(data: Bytes, header_version: int | None = None) -> RequestHeader:
    """Read the header at the front of ``data``, and nothing after it.

    ``header_version`` None: the version that a control request has (1 for other requests).
    """

def decode_response_header(data: Bytes, header_version: int) -> tuple[int, int, int]:
    """Read the header at the front of ``data``: (correlation_id, size in bytes, unknown tagged fields)."""

class LeaderAndIsrRequest:
    """A whole LeaderAndIsr body as columns; fields the version does not have hold the schema's default.

    ``topic_starts`` int64[len(topics) + 1]: rows of topic t are ``topic_starts[t]:topic_starts[t+1]``.
    v0-1 repeat the topic name with each partition: a run of equal names is one topic here.
    """

    version: int
    controller_id: int
    is_kraft_controller: bool
    controller_epoch: int
    broker_epoch: int
    request_type: int
    topics: Topics
    topic_starts: Int64
    partitions: Partitions
    is_new: UInt8
    live_leaders: LiveLeaders
    unknown_tagged_fields: int
    def __init__(self, **fields: Any) -> None: ...
    def encode(self) -> bytes: ...

class UpdateMetadataRequest:
    """A whole UpdateMetadata body as columns. v0's host and port are an endpoint with listener ``""``."""

    version: int
    controller_id: int
    is_kraft_controller: bool
    controller_epoch: int
    broker_epoch: int
    request_type: int
    topics: Topics
    topic_starts: Int64
    partitions: Partitions
    live_brokers: Brokers
    unknown_tagged_fields: int
    def __init__(self, **fields: Any) -> None: ...
    def encode(self) -> bytes: ...

class StopReplicaRequest:
    """A whole StopReplica body as columns: ``topic_row``, ``partition``, ``leader_epoch`` int32[n], ``delete`` uint8[n].

    v0-2: ``delete`` repeats ``delete_partitions``, ``leader_epoch`` is -1. v3+: ``delete_partitions`` is False.
    """

    version: int
    controller_id: int
    is_kraft_controller: bool
    controller_epoch: int
    broker_epoch: int
    delete_partitions: bool
    topics: Topics
    topic_starts: Int64
    topic_row: Int32
    partition: Int32
    leader_epoch: Int32
    delete: UInt8
    unknown_tagged_fields: int
    def __init__(self, **fields: Any) -> None: ...
    def encode(self) -> bytes: ...

ControlRequestBody = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest

def decode_request(api_key: int, version: int, data: Bytes, offset: int = 0) -> ControlRequestBody:
    """Decode the body that begins at ``offset`` and must end with ``data``.

    Raises DecodeError, UnsupportedVersionError.
    """

class ControlResponse:
    """A whole response body of one of the three requests: ``error_code`` and the partitions' errors as columns.

    ``topics``: names for LeaderAndIsr v0-4 and StopReplica (a run of equal names is one topic), ids for
    LeaderAndIsr v5+. ``topic_starts`` int64[len(topics) + 1], ``partition`` int32[n], ``partition_error``
    int32[n] (int16 on the wire). UpdateMetadata has no partitions.
    """

    api_key: int
    version: int
    error_code: int
    topics: Topics
    topic_starts: Int64
    partition: Int32
    partition_error: Int32
    unknown_tagged_fields: int
    def __init__(self, **fields: Any) -> None: ...
    def encode(self) -> bytes: ...

def decode_response(api_key: int, version: int, data: Bytes, offset: int = 0) -> ControlResponse: ...
def _limit_vectors(most: int) -> int:
    """For tests and profiles: use vectors of at most ``most`` bytes (0, 16 or 64); returns the size now used."""
