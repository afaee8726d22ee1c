"""What stands in a journal file. Version 1.

One row for each request that has ended, (channel, sequence) is its key; those that have not ended stand
beside the rows (``channels.py``). What a broker knows after an acknowledged UpdateMetadata: of the state
``state_id``, as it was at ``state_version``, everything that changed after ``from_version`` (-1: all there
is), and ``partitions``. Of what it knew before it forgets nothing, but with its process: a higher
``generation`` in the same channel, or a higher ``broker_epoch``, is another process.

Columns that end in ``_ns`` are
nanoseconds of the host's monotonic clock, shared by all its processes: differences between them are exact.
``…_at`` are the same moments as wall time, microseconds UTC (Spark reads no nanoseconds), by the offset of
the two clocks when the file was written. Null: it never came to that.

=================  =====================================================================================
encode             the request's bytes were ready; before ``enqueue``, and shared by all its brokers
enqueue            ``send_request`` took it
first_byte         the last attempt's first byte was written ...
last_byte          ... and its last
response           the whole response was there
end                its outcome was known to the controller
callback           its callback had returned; null without one
=================  =====================================================================================

A newer version may add columns; one that changes the meaning of a column has a higher number.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

__all__ = ["LATER", "MOMENTS", "SCHEMA", "VERSION", "VERSION_KEY"]

VERSION: Final = 1
#: In the metadata of every file.
VERSION_KEY: Final = b"ctrlchan.journal.version"

#: Columns that older files of this version do not have: they are null there.
LATER: Final = frozenset({"generation", "state_id", "from_version", "partitions", "dataset", "frame"})

#: Name in the file -> field of ``rows.ROW``.
MOMENTS: Final = {
    "encode": "encoded",
    "enqueue": "enqueued",
    "first_byte": "first_byte",
    "last_byte": "last_byte",
    "response": "response",
    "end": "ended",
    "callback": "callback",
}

_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("channel", pa.string(), nullable=False),
    pa.field("sequence", pa.int64(), nullable=False),
    pa.field("host", pa.string(), nullable=False),
    pa.field("controller_id", pa.int32(), nullable=False),
    pa.field("controller_epoch", pa.int32(), nullable=False),
    pa.field("broker", pa.int32(), nullable=False),
    # Of the generation that answered; null without a response.
    pa.field("broker_epoch", pa.int64()),
    # Which of the channel's generations of brokers that was, counted from 1; null without a response.
    pa.field("generation", pa.int32()),
    pa.field("api", pa.int16(), nullable=False),
    # Of what went to this broker, or would have gone, as are the bytes: all of a request that was split, all
    # that was merged with it.
    pa.field("version", pa.int16(), nullable=False),
    # On the connection that brought the response; null without one.
    pa.field("correlation_id", pa.int32()),
    # Which version of the controller's state it carried; null: nobody said.
    pa.field("state_version", pa.int64()),
    # Whose versions these are; null: nobody said.
    pa.field("state_id", pa.string()),
    # It says everything that changed after this version, -1: everything; null: of its partitions alone.
    pa.field("from_version", pa.int64()),
    # "topic-partition" of all it speaks of; null: nobody said, or they were too many.
    pa.field("partitions", pa.list_(pa.field("element", pa.string(), nullable=False))),
    # Where it was a ready frame: of which dataset, and its number among its broker's (pipeline/dispatch.py).
    pa.field("dataset", pa.string()),
    pa.field("frame", pa.int64()),
    pa.field("bytes", pa.int64(), nullable=False),
    # Partitions it spoke of.
    pa.field("rows", pa.int64(), nullable=False),
    pa.field("attempts", pa.int32(), nullable=False),
    # Requests that travelled as this one did, itself included.
    pa.field("merged", pa.int32(), nullable=False),
    # The value of an OutcomeKind: "acknowledged", ...
    pa.field("outcome", pa.string(), nullable=False),
    # Kafka's; 0 without a response or without an error.
    pa.field("error_code", pa.int16(), nullable=False),
    pa.field("detail", pa.string(), nullable=False),
    # How long encoding took; null when nobody measured it.
    pa.field("encoding_ns", pa.int64()),
    *(pa.field(f"{name}_ns", pa.int64()) for name in MOMENTS),
    *(pa.field(f"{name}_at", pa.timestamp("us", tz="UTC")) for name in MOMENTS),
]

SCHEMA: Final = pa.schema(_FIELDS, metadata={VERSION_KEY: str(VERSION).encode()})
