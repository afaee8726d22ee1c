"""Writes synthetic journals of a controller that sends each change of a partition to every broker.

The files have the journal's own schema and a million rows each, so journals of any size can be made. The same
arguments give the same numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ctrlchan.state.storage.schemas import JOURNAL, TIMESTAMPS

__all__ = ["write_journal"]

#: Rows of one file.
_FILE: Final = 1_000_000
#: Of this many requests, one is a LeaderAndIsr and one a StopReplica; the rest are UpdateMetadata.
_RARE: Final = 20
#: One of this many outcomes is an error.
_ERRORS: Final = 10_000
#: Microseconds of 2026-01-01T00:00:00Z.
_EPOCH: Final = 1_767_225_600_000_000
#: Nanoseconds between two requests.
_PACE: Final = 30_000
_API: Final = np.array([6] * (_RARE - 2) + [4, 5], np.int16)


def write_journal(path: Path, outcomes: int, *, brokers: int = 100, partitions: int = 10_000) -> None:
    """Write a journal folder of one channel: a full push, then updates of single partitions, to all brokers.

    Times are log-normal, broker 0's ten times as long. One in ten thousand is refused.
    """
    path.mkdir(parents=True)
    for number, start in enumerate(range(0, outcomes, _FILE)):
        table = _table(np.arange(start, min(start + _FILE, outcomes)), brokers, partitions)
        pq.write_table(table, path / f"20260101T000000.000000Z-{number:06}.parquet", compression="zstd")


def _table(sequence: np.ndarray[Any, np.dtype[np.int64]], brokers: int, partitions: int) -> pa.Table:
    count = len(sequence)
    random = np.random.default_rng(int(sequence[0]))
    broker = (sequence % brokers).astype(np.int32)
    version = sequence // brokers
    slow = np.where(broker == 0, 10.0, 1.0)

    def spent(typical: float) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return nanoseconds, log-normal around a median in microseconds."""
        return (random.lognormal(np.log(typical * 1e3), 0.6, count) * slow).astype(np.int64)

    api = _API[version % _RARE]
    api[version == 0] = 6
    refused = random.integers(0, _ERRORS, count) == 0
    times = {"enqueue": sequence * _PACE + 1}
    times["encode"] = times["enqueue"] - 1
    times["first_byte"] = times["enqueue"] + spent(200)
    times["last_byte"] = times["first_byte"] + spent(20)
    times["response"] = times["last_byte"] + spent(900)
    times["end"] = times["response"] + spent(30)
    names = pa.array([f"topic-{number // 100:04}-{number % 100}" for number in range(partitions)])
    offsets: Any = pa.array(np.arange(count + 1, dtype=np.int32))
    named = pa.ListArray.from_arrays(offsets, names.take(pa.array(version % partitions)))
    columns: dict[str, Any] = {
        "channel": pa.repeat("synthetic", count),
        "sequence": sequence,
        "host": pa.repeat("host", count),
        "controller_id": pa.repeat(0, count),
        "controller_epoch": pa.repeat(7, count),
        "broker": broker,
        "broker_epoch": broker.astype(np.int64) + 1_000,
        "generation": broker + 1,
        "api": api,
        "version": pa.repeat(8, count),
        "correlation_id": version,
        "state_version": version,
        "state_id": pa.repeat("synthetic", count),
        "from_version": pa.array(np.full(count, -1), mask=version > 0),
        "partitions": pa.compute.if_else(pa.array(version > 0), named, pa.scalar(None, named.type)),
        "bytes": np.full(count, 240),
        "rows": np.where(version == 0, partitions, 1),
        "attempts": np.full(count, 1),
        "merged": np.full(count, 1),
        "outcome": pa.compute.if_else(pa.array(refused), "refused", "acknowledged"),
        "error_code": np.where(refused, 31, 0),
        "detail": pa.repeat("", count),
        "encoding_ns": spent(5),
    }
    for name in TIMESTAMPS:
        known = times.get(name)
        columns[f"{name}_ns"] = pa.nulls(count) if known is None else known
        columns[f"{name}_at"] = pa.nulls(count) if known is None else known // 1_000 + _EPOCH
    arrays = [
        pa.array(columns.get(field.name, pa.nulls(count))).cast(field.type)
        if not isinstance(columns.get(field.name), (pa.Array, pa.ChunkedArray))
        else columns[field.name].cast(field.type)
        for field in JOURNAL
    ]
    return pa.Table.from_arrays(arrays, schema=JOURNAL)
