"""How the channels of a journal stand: ``_channels/<channel>.parquet`` in its folder, one row for each
broker.

A request has its row in the journal when it has ended. Those that have not are told here, so that a request
that is stuck can be seen, and nobody who counts rows counts it twice: the file of a channel is replaced when
something has waited for longer than a flush interval, when that is over, when a generation of a broker
begins, and when the channel closes. Files and folders that begin with ``_`` are no part of the journal for
Spark or for Arrow.

=====================  ===================================================================================
seen_at, seen_ns       when the channel was looked at (wall time; the monotonic clock of ``host``)
closed                 the channel has shut down; false also when it was killed
outcomes               rows it had handed to the journal by then, lost ones included
broker_epoch, since_at of the broker's present generation, and when the channel learned of it
generation             as in the journal: rows of the broker with a lower one are of a process that is no more
state, attempts, ...   as in ``describe()``: attempts and last error are those of the request at the head
unfinished, ..._bytes  what the broker is owed in all
requests               the first of it, in the order of the queue, as far as it has waited for long; with the
                       columns of the journal. (channel, broker, enqueue_ns) tells a request from all others:
                       a row of the journal that has the same has ended since
=====================  ===================================================================================
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ctrlchan.errors import JournalError
from ctrlchan.journal.rows import ChannelView, Unfinished
from ctrlchan.state.storage.schemas import CHANNELS, JOURNAL_VERSION, JOURNAL_VERSION_KEY

__all__ = ["CHANNELS_FOLDER", "channel_files", "read_channels", "write_channel"]

CHANNELS_FOLDER: Final = "_channels"

#: In a microsecond.
_NANOSECONDS: Final = 1_000


def write_channel(folder: Path, mark: str, view: ChannelView, host: str, now: int, offset: int) -> None:
    """Replace the channel's file in one step. ``mark``: of the writer, for hidden names. ``now``: monotonic
    nanoseconds of the view, ``offset`` to wall time. Raises OSError."""
    place = folder / CHANNELS_FOLDER
    place.mkdir(parents=True, exist_ok=True)
    hidden = place / f".{mark}.tmp"
    try:
        pq.write_table(_table_of(view, host, now, offset), hidden, compression="zstd")
        os.replace(hidden, place / f"{view.channel}.parquet")
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise


def channel_files(path: str | Path) -> list[Path]:
    """The files of the channels that have written into this journal folder; none when none has."""
    place = Path(path) / CHANNELS_FOLDER
    return sorted(file for file in place.glob("*.parquet") if not file.name.startswith("."))


def read_channels(path: str | Path) -> pa.Table:
    """How the brokers of all channels stand; no rows where the journal has none of this (an older one).

    Raises JournalError naming the file that is broken or of a newer version.
    """
    tables = [CHANNELS.empty_table()]
    for file in channel_files(path):
        try:
            # At once: by its name it would be opened twice, and may have been replaced in between.
            table = pq.read_table(pa.BufferReader(file.read_bytes()))
        except FileNotFoundError:
            # Whoever tidies the folder is faster.
            continue
        except (pa.ArrowException, OSError) as problem:
            raise JournalError(f"{file}: not a whole Parquet file: {problem}") from problem
        written = (table.schema.metadata or {}).get(JOURNAL_VERSION_KEY, b"")
        if not written.isdigit() or int(written) > JOURNAL_VERSION:
            raise JournalError(
                f"{file}: journal version {written.decode()!r}; this reads up to {JOURNAL_VERSION}"
            )
        missing = [name for name in CHANNELS.names if name not in table.column_names]
        if missing:
            raise JournalError(f"{file}: these columns are missing: {', '.join(missing)}")
        tables.append(table)
    return pa.concat_tables(tables, promote_options="permissive")


def _table_of(view: ChannelView, host: str, now: int, offset: int) -> pa.Table:
    def at(moment: int) -> int:
        return (moment + offset) // _NANOSECONDS

    rows = [
        {
            "channel": view.channel,
            "host": host,
            "controller_id": view.controller_id,
            "seen_at": at(now),
            "seen_ns": now,
            "closed": view.closed,
            "outcomes": view.outcomes,
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
        for broker in view.brokers
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
