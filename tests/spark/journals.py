"""Journals for tests: rows and files as channels write them, without a channel."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ctrlchan.journal.channels import CHANNELS_FOLDER
from ctrlchan.state.storage.schemas import CHANNELS, JOURNAL

__all__ = ["NOW", "row", "show_channel", "write_file"]

#: The time of the tests, seconds since 1970.
NOW = 1_770_000_000
_SECOND = 1_000_000_000
_sequence = itertools.count()
_files = itertools.count()


def row(
    broker: int = 1,
    *,
    outcome: str = "acknowledged",
    ended: float = 0.0,
    took: float = 0.002,
    enqueue_ns: int | None = None,
    **others: Any,
) -> dict[str, Any]:
    """A request that ended ``ended`` seconds before NOW and took ``took`` seconds."""
    end_ns = round((NOW - ended) * _SECOND)
    enqueue_ns = end_ns - round(took * _SECOND) if enqueue_ns is None else enqueue_ns
    values = {
        "channel": "channel-1",
        "sequence": next(_sequence),
        "host": "h",
        "controller_id": 9,
        "controller_epoch": 3,
        "broker": broker,
        "api": 6,
        "version": 8,
        "bytes": 100,
        "rows": 10,
        "attempts": 1,
        "merged": 1,
        "outcome": outcome,
        "error_code": 0,
        "detail": "",
        "enqueue_ns": enqueue_ns,
        "end_ns": end_ns,
        "enqueue_at": enqueue_ns // 1000,
        "end_at": end_ns // 1000,
    }
    return values | others


def write_file(folder: Path, rows: Sequence[dict[str, Any]], schema: pa.Schema = JOURNAL) -> Path:
    """One more file of the journal; it appears by rename."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"20260202T000000.{next(_files):06d}Z-000001.parquet"
    hidden = folder / f".{name}"
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), hidden)
    return hidden.rename(folder / name)


def show_channel(
    folder: Path,
    waiting: dict[int, Sequence[int]],
    *,
    channel: str = "channel-1",
    closed: bool = False,
    since: int = 0,
    attempts: int = 0,
    last_error: str = "",
) -> None:
    """The file of a channel. ``waiting``: broker -> enqueue_ns of its unanswered requests, the head first."""
    common = {
        "channel": channel,
        "host": "h",
        "controller_id": 9,
        "seen_at": NOW * 1_000_000,
        "seen_ns": NOW * _SECOND,
        "closed": closed,
        "outcomes": 0,
        "generation": 1,
        "since_at": since,
        "state": "connecting",
        "attempts": attempts,
        "last_error": last_error,
        "needs_resync": False,
        "unfinished_bytes": 0,
    }
    rows = [
        common
        | {
            "broker": broker,
            "unfinished": len(requests),
            "requests": [
                {
                    "enqueue_ns": at,
                    "enqueue_at": at // 1000,
                    "api": 6,
                    "version": 8,
                    "controller_epoch": 3,
                    "rows": 1,
                    "bytes": 1,
                    "in_flight": False,
                }
                for at in requests
            ],
        }
        for broker, requests in waiting.items()
    ]
    place = folder / CHANNELS_FOLDER
    place.mkdir(parents=True, exist_ok=True)
    hidden = place / f".{channel}.tmp"
    pq.write_table(pa.Table.from_pylist(rows, schema=CHANNELS), hidden)
    hidden.replace(place / f"{channel}.parquet")
