"""The columns of all files on disk: snapshots, journals, diffs and frames, with their versions.

One rule for all: a reader accepts files of its version or older, refuses newer ones, refuses a column that is
missing or of another type, and keeps unknown columns. A new column needs no new version when readers can do
without it (``…_LATER``: null in older files). A new meaning of a column needs one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import pyarrow as pa

from ctrlchan.errors import PipelineError

__all__ = [
    "BROKERS",
    "CHANNELS",
    "DIFF_BROKERS",
    "DIFF_ROWS",
    "DIFF_VERSION",
    "FRAMES",
    "FRAMES_VERSION",
    "JOURNAL",
    "JOURNAL_LATER",
    "JOURNAL_VERSION",
    "JOURNAL_VERSION_KEY",
    "PARTITIONS",
    "PARTITIONS_LATER",
    "ROW_VERSION",
    "SNAPSHOT_VERSION",
    "TIMESTAMPS",
    "check",
    "check_version",
]

_UTC: Final = pa.timestamp("us", tz="UTC")
_INT_LIST: Final = pa.list_(pa.field("element", pa.int32(), nullable=False))

# -- snapshots: a folder of cluster.json, partitions.parquet and brokers.parquet (state/storage/snapshot.py)

#: In cluster.json. Raised when an older program would misread what is written.
SNAPSHOT_VERSION: Final = 1
#: One partition. (topic, partition) is the key and the order. An unknown epoch or leader is -1, an unknown
#: topic id zero; the leader of a topic that is being deleted is -2.
PARTITIONS: Final = pa.schema(
    pa.field(name, kind, nullable=False)
    for name, kind in (
        ("topic", pa.string()),
        ("topic_id", pa.binary(16)),
        ("partition", pa.int32()),
        ("controller_epoch", pa.int32()),
        ("leader", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("partition_epoch", pa.int32()),
        ("recovery_state", pa.int32()),
        ("isr", _INT_LIST),
        ("replicas", _INT_LIST),
        ("adding_replicas", _INT_LIST),
        ("removing_replicas", _INT_LIST),
        ("offline_replicas", _INT_LIST),
    )
)
#: The version at which the row changed last, counted by the counter that cluster.json's state_id identifies.
ROW_VERSION: Final = "row_version"
#: Further columns that a snapshot may have.
PARTITIONS_LATER: Final = pa.schema([pa.field(ROW_VERSION, pa.int64(), nullable=False)])

_ENDPOINT: Final = pa.struct(
    [
        pa.field("listener", pa.string(), nullable=False),
        # Its name: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL.
        pa.field("security_protocol", pa.string(), nullable=False),
        pa.field("host", pa.string(), nullable=False),
        pa.field("port", pa.int32(), nullable=False),
    ]
)
#: One live or shutting-down broker. Epoch -1: not known.
BROKERS: Final = pa.schema(
    pa.field(name, kind, nullable=name == "rack")
    for name, kind in (
        ("id", pa.int32()),
        ("epoch", pa.int64()),
        ("rack", pa.string()),
        ("endpoints", pa.list_(pa.field("element", _ENDPOINT, nullable=False))),
    )
)

# -- journals: a folder of Parquet files (journal/)

JOURNAL_VERSION: Final = 1
#: In the metadata of every file.
JOURNAL_VERSION_KEY: Final = b"ctrlchan.journal.version"
_JOURNAL_METADATA: Final[dict[bytes | str, bytes | str]] = {
    JOURNAL_VERSION_KEY: str(JOURNAL_VERSION).encode()
}
#: Timestamps of a request, and the fields of ``journal.rows.ROW`` with them. ``…_ns``: nanoseconds of the
#: host's monotonic clock, shared by all its processes, so that differences are exact. ``…_at``: the same as
#: wall time, microseconds UTC (Spark reads no nanoseconds), computed with the offset of the two clocks when
#: the file was written. Null: the request did not get so far.
TIMESTAMPS: Final = {
    # The request is encoded; before ``enqueue``, one timestamp for all brokers of the request.
    "encode": "encoded",
    # ``send_request`` queued it.
    "enqueue": "enqueued",
    # The last attempt's first byte was written, and its last.
    "first_byte": "first_byte",
    "last_byte": "last_byte",
    # The whole response was received.
    "response": "response",
    # The controller had the outcome.
    "end": "ended",
    # The callback had returned; null without one.
    "callback": "callback",
}
_JOURNAL: Final[list[pa.Field[Any]]] = [
    pa.field("channel", pa.string(), nullable=False),
    pa.field("sequence", pa.int64(), nullable=False),
    pa.field("host", pa.string(), nullable=False),
    pa.field("controller_id", pa.int32(), nullable=False),
    pa.field("controller_epoch", pa.int32(), nullable=False),
    pa.field("broker", pa.int32(), nullable=False),
    # Epoch of the generation that answered; null without a response.
    pa.field("broker_epoch", pa.int64()),
    # Number of that generation in the channel, from 1; null without a response.
    pa.field("generation", pa.int32()),
    pa.field("api", pa.int16(), nullable=False),
    # Version (and below, bytes) of the requests to this broker, sent or not: all parts of a split request,
    # all requests that were merged with it.
    pa.field("version", pa.int16(), nullable=False),
    # Correlation id on the connection of the response; null without one.
    pa.field("correlation_id", pa.int32()),
    # Version of the controller's state in the request; null: not given.
    pa.field("state_version", pa.int64()),
    # Id of the counter of these versions; null: not given.
    pa.field("state_id", pa.string()),
    # The request has all changes after this version, -1: everything; null: its partitions alone.
    pa.field("from_version", pa.int64()),
    # "topic-partition" of its partitions, or of those besides from_version; null: not given, or too many.
    pa.field("partitions", pa.list_(pa.field("element", pa.string(), nullable=False))),
    # Of a ready frame: its dataset, and its number among the broker's frames (pipeline/jobs/dispatch).
    pa.field("dataset", pa.string()),
    pa.field("frame", pa.int64()),
    pa.field("bytes", pa.int64(), nullable=False),
    # Number of its partitions.
    pa.field("rows", pa.int64(), nullable=False),
    pa.field("attempts", pa.int32(), nullable=False),
    # Number of requests that were sent as one with this one, itself included.
    pa.field("merged", pa.int32(), nullable=False),
    # The value of an OutcomeKind: "acknowledged", ...
    pa.field("outcome", pa.string(), nullable=False),
    # Kafka's error code; 0 without a response or without an error.
    pa.field("error_code", pa.int16(), nullable=False),
    pa.field("detail", pa.string(), nullable=False),
    # Time for encoding; null when it was not measured.
    pa.field("encoding_ns", pa.int64()),
    *(pa.field(f"{name}_ns", pa.int64()) for name in TIMESTAMPS),
    *(pa.field(f"{name}_at", _UTC) for name in TIMESTAMPS),
]
#: One request that has ended. (channel, sequence) is the key. After an acknowledged UpdateMetadata a broker
#: has, of the state ``state_id`` at ``state_version``, everything that changed after ``from_version`` (-1:
#: everything), and ``partitions``, besides what it had before. A restarted broker has nothing: a higher
#: ``generation`` in the same channel, or a higher ``broker_epoch``, is another process.
JOURNAL: Final = pa.schema(_JOURNAL, metadata=_JOURNAL_METADATA)
JOURNAL_LATER: Final = frozenset({"generation", "state_id", "from_version", "partitions", "dataset", "frame"})


def _like(name: str) -> pa.Field[Any]:
    """Return a column of the journal."""
    return JOURNAL.field(name)


_REQUEST: Final = pa.struct(
    [
        pa.field("enqueue_ns", pa.int64(), nullable=False),
        pa.field("enqueue_at", _UTC, nullable=False),
        *map(_like, ("api", "version", "controller_epoch", "state_version", "state_id", "from_version")),
        *map(_like, ("partitions", "rows", "bytes")),
        # A sender process has the request.
        pa.field("in_flight", pa.bool_(), nullable=False),
    ]
)
_CHANNELS: Final[list[pa.Field[Any]]] = [
    *map(_like, ("channel", "host", "controller_id")),
    pa.field("seen_at", _UTC, nullable=False),
    pa.field("seen_ns", pa.int64(), nullable=False),
    pa.field("closed", pa.bool_(), nullable=False),
    pa.field("outcomes", pa.int64(), nullable=False),
    _like("broker"),
    _like("broker_epoch"),
    pa.field("generation", pa.int32(), nullable=False),
    pa.field("since_at", _UTC, nullable=False),
    pa.field("state", pa.string(), nullable=False),
    pa.field("attempts", pa.int32(), nullable=False),
    pa.field("last_error", pa.string(), nullable=False),
    pa.field("needs_resync", pa.bool_(), nullable=False),
    pa.field("unfinished", pa.int64(), nullable=False),
    pa.field("unfinished_bytes", pa.int64(), nullable=False),
    pa.field("requests", pa.list_(pa.field("element", _REQUEST, nullable=False)), nullable=False),
]
#: The status of one broker in a channel, in a file that is replaced (journal/channels.py). Same version.
CHANNELS: Final = pa.schema(_CHANNELS, metadata=_JOURNAL_METADATA)

# -- diffs: a folder of diff.json, rows and brokers.parquet (pipeline/jobs/diff/tables.py)

#: In diff.json. Version 1 has the column ``told`` in place of ``update_metadata``.
DIFF_VERSION: Final = 2
#: One row of a request for one receiver: the snapshot's columns, final, to be encoded as they are.
DIFF_ROWS: Final = pa.schema(
    [
        # A broker's requests in order: 0 StopReplica of a topic that was deleted and made again,
        # 1 LeaderAndIsr, 2 UpdateMetadata, 3 StopReplica. A broker rejects a LeaderAndIsr whose leaders it
        # does not have as live brokers: before it, a receiver of "all" rows gets its UpdateMetadata, one of
        # "brokers" an UpdateMetadata without rows (KafkaController.onBrokerStartup).
        pa.field("step", pa.int32(), nullable=False),
        pa.field("api", pa.int16(), nullable=False),
        # Null: an UpdateMetadata row, written once for all its receivers (DIFF_BROKERS.update_metadata).
        pa.field("broker", pa.int32()),
        *PARTITIONS,
        # Not set: UpdateMetadata for brokers that get all rows, and for no others.
        pa.field("changed", pa.bool_(), nullable=False),
        # UpdateMetadata of a removed partition; after the existing ones of its topic.
        pa.field("gone", pa.bool_(), nullable=False),
        # LeaderAndIsr's isNew, StopReplica's deletePartition.
        pa.field("is_new", pa.bool_(), nullable=False),
        pa.field("delete", pa.bool_(), nullable=False),
    ]
)
#: The receivers. ``update_metadata``: the rows that the broker gets. "all"; "brokers": rows with ``changed``,
#: perhaps none, because the live brokers have changed; "rows": rows with ``changed``, no request if none.
DIFF_BROKERS: Final = pa.schema([*BROKERS, pa.field("update_metadata", pa.string(), nullable=False)])


# -- frames: a folder of frames.json, brokers.parquet and Parquet files (pipeline/spark/tables.py)

FRAMES_VERSION: Final = 1
#: One request, ready for the wire of one broker. (broker, sequence) is the key.
_FRAMES: Final[list[pa.Field[Any]]] = [
    pa.field("broker", pa.int32(), nullable=False),
    # The order of the broker's requests, from 0 without gaps.
    pa.field("sequence", pa.int64(), nullable=False),
    pa.field("api", pa.int16(), nullable=False),
    pa.field("version", pa.int16(), nullable=False),
    pa.field("controller_epoch", pa.int32(), nullable=False),
    # Version of the controller's state in the request; null: the snapshot has none.
    pa.field("state_version", pa.int64()),
    # With this frame the broker has all changes after this version, -1: everything; null: unknown.
    pa.field("from_version", pa.int64()),
    # Number of its partitions.
    pa.field("rows", pa.int64(), nullable=False),
    # The length of ``frame``, its own four bytes of length included.
    pa.field("bytes", pa.int64(), nullable=False),
    pa.field("frame", pa.binary(), nullable=False),
]
FRAMES: Final = pa.schema(_FRAMES)

# -- readers' checks


def check(found: pa.Schema, wanted: pa.Schema, source: object, *, optional: Collection[str] = ()) -> None:
    """Raise PipelineError, naming ``source`` and the columns, unless ``found`` has the wanted columns.

    Types are compared as readers see them: integers by their width, lists and structs by their elements, text
    and bytes in any storage (Spark writes no bytes of fixed width). Nullability and further columns do not
    matter.
    """
    missing = [name for name in wanted.names if name not in found.names and name not in optional]
    if missing:
        there = ", ".join(found.names) or "none"
        raise PipelineError(f"{source}: no column {', '.join(missing)} (columns: {there})")
    for field in wanted:
        if field.name in found.names:
            kind = found.field(field.name).type
            if not _alike(kind, field.type):
                raise PipelineError(f"{source}: column {field.name} has type {kind}, expected {field.type}")


def check_version(found: object, supported: int, what: str, source: object) -> None:
    """Raise PipelineError unless ``found`` is a version of ``what`` that this ctrlchan reads."""
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise PipelineError(f"{source}: {found!r} is no version of {what}")
    if found > supported:
        raise PipelineError(
            f"{source}: {what} version {found} is of a newer ctrlchan; this one reads up to {supported}"
        )


def _alike(found: Any, wanted: Any) -> bool:
    if pa.types.is_dictionary(found):
        return _alike(found.value_type, wanted)
    if pa.types.is_fixed_size_binary(wanted) and pa.types.is_fixed_size_binary(found):
        return bool(found.byte_width == wanted.byte_width)
    if _is_binary(wanted):
        return _is_binary(found)
    if pa.types.is_string(wanted):
        return pa.types.is_string(found) or pa.types.is_large_string(found)
    if pa.types.is_list(wanted):
        is_list = pa.types.is_list(found) or pa.types.is_large_list(found)
        return is_list and _alike(found.value_type, wanted.value_type)
    if pa.types.is_struct(wanted):
        if not pa.types.is_struct(found):
            return False
        names = [field.name for field in found]
        return all(
            field.name in names and _alike(found.field(field.name).type, field.type) for field in wanted
        )
    return bool(found.equals(wanted))


def _is_binary(kind: Any) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
