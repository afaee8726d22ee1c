"""The status of the channels of a journal: ``_channels/<channel>.parquet``, one row for each broker.

A request has its row in the journal when it has ended. Unfinished requests are listed here, so that a stuck
request can be seen and is not counted twice. The file of a channel is replaced when a request has waited for
longer than a flush interval, when that is over, when a generation of a broker begins, and when the channel
closes. Spark and Arrow ignore files and folders that begin with ``_``.

=====================  ===================================================================================
seen_at, seen_ns       when the status was read (wall time; the monotonic clock of ``host``)
closed                 the channel has shut down; false also when it was killed
outcomes               rows it had handed to the journal by then, lost ones included
broker_epoch, since_at of the broker's present generation, and when it was added to the channel
generation             as in the journal: rows with a lower one are of an earlier process of the broker
state, attempts, ...   as in ``describe()``: attempts and last error are those of the first request
unfinished, ..._bytes  all unfinished requests of the broker
requests               the first of them, in the order of the queue, that have waited for long, with the
                       columns of the journal. (channel, broker, enqueue_ns) identifies a request: one with a
                       row in the journal has ended since
=====================  ===================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ctrlchan.errors import JournalError
from ctrlchan.journal.reader import REMEDY, require_types
from ctrlchan.journal.rows import ChannelStatus, Unfinished
from ctrlchan.state.storage.schemas import CHANNELS, JOURNAL_VERSION, JOURNAL_VERSION_KEY
from ctrlchan.storage import AnyPath, PathLike, files_in, path_of, replace
from ctrlchan.storage.parquet import unreadable

__all__ = ["CHANNELS_FOLDER", "channel_files", "read_channels", "write_channel"]

CHANNELS_FOLDER: Final = "_channels"

#: In a microsecond.
_NANOSECONDS: Final = 1_000


def write_channel(folder: AnyPath, status: ChannelStatus, host: str, now: int, offset: int) -> None:
    """Replace the channel's file in one step.

    ``now``: monotonic nanoseconds of the status. ``offset``: nanoseconds from the monotonic clock to wall
    time. Raises OSError.
    """
    channels = folder / CHANNELS_FOLDER
    if isinstance(channels, Path):
        channels.mkdir(parents=True, exist_ok=True)
    sink = pa.BufferOutputStream()
    pq.write_table(_table_of(status, host, now, offset), sink, compression="zstd")
    replace(channels / f"{status.channel}.parquet", sink.getvalue().to_pybytes())


def channel_files(path: PathLike) -> list[AnyPath]:
    """Return the files of the channels that have written into this journal folder, sorted by name."""
    return files_in(path_of(path) / CHANNELS_FOLDER, ".parquet")


def read_channels(path: PathLike) -> pa.Table:
    """Return the status of the brokers of all channels of a journal folder.

    One row for each channel and broker, columns as in ``ctrlchan.state.storage.schemas.CHANNELS``; times are
    UTC microseconds (``_at``) and monotonic nanoseconds (``_ns``). No rows for a folder without channels,
    such as that of an older version. Raises JournalError naming the file that is broken, of a newer
    version, or of other types, or that has nulls where no journal has any.
    """
    tables = [CHANNELS.empty_table()]
    for file in channel_files(path):
        try:
            # Read in one step: opened by name, it would be opened twice and could be replaced in between.
            table = pq.read_table(pa.BufferReader(file.read_bytes()))
        except FileNotFoundError:
            # It was removed after the folder was listed.
            continue
        except (pa.ArrowException, OSError) as problem:
            reason = unreadable(problem) or f"not a whole Parquet file: {problem}; {REMEDY}"
            raise JournalError(f"{file}: {reason}") from problem
        written = (table.schema.metadata or {}).get(JOURNAL_VERSION_KEY, b"")
        if not written.isdigit() or int(written) > JOURNAL_VERSION:
            raise JournalError(
                f"{file}: journal version {written.decode()!r}; this reads up to {JOURNAL_VERSION}"
            )
        missing = [name for name in CHANNELS.names if name not in table.column_names]
        if missing:
            raise JournalError(f"{file}: these columns are missing: {', '.join(missing)}; {REMEDY}")
        require_types(table.schema, CHANNELS, file)
        nulls = [field.name for field in CHANNELS if not field.nullable and table[field.name].null_count]
        if nulls:
            raise JournalError(f"{file}: rows have no {', '.join(nulls)}, which no journal writes; {REMEDY}")
        if set(table["channel"].to_pylist()) - {file.stem}:
            raise JournalError(
                f"{file}: its rows are of another channel (a copy?): move it out of the folder"
            )
        tables.append(table)
    return pa.concat_tables(tables, promote_options="permissive")


def _table_of(status: ChannelStatus, host: str, now: int, offset: int) -> pa.Table:
    def at(timestamp: int) -> int:
        return (timestamp + offset) // _NANOSECONDS

    rows = [
        {
            "channel": status.channel,
            "host": host,
            "controller_id": status.controller_id,
            "seen_at": at(now),
            "seen_ns": now,
            "closed": status.closed,
            "outcomes": status.outcomes,
            "broker": broker.broker,
            "broker_epoch": broker.broker_epoch,
            "generation": broker.generation,
            "since_at": at(broker.since),
            "state": broker.state,
            "attempts": broker.attempts,
            "last_error": broker.last_error,
            "needs_resync": broker.needs_resync,
            "unfinished": broker.unfinished,
            "unfinished_bytes": broker.unfinished_bytes,
            "requests": _requests_of(broker.requests, offset),
        }
        for broker in status.brokers
    ]
    return pa.Table.from_pylist(rows, schema=CHANNELS)


def _requests_of(requests: Sequence[Unfinished], offset: int) -> list[dict[str, Any]]:
    return [
        {
            **request._asdict(),
            "enqueue_ns": request.enqueued,
            "enqueue_at": (request.enqueued + offset) // _NANOSECONDS,
            "partitions": None
            if request.partitions is None
            else [name for name in request.partitions.split(",") if name],
        }
        for request in requests
    ]
