"""Packed rows: Arrow rows of one receiver as one Arrow IPC stream in one binary cell.

A shuffle then moves a few large cells instead of many rows, and unpacking gives columns again without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

__all__ = ["pack", "unpack"]


def pack(rows: pa.RecordBatch | pa.Table) -> bytes:
    """Return these rows as one Arrow IPC stream; of a slice only its own rows."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return sink.getvalue().to_pybytes()


def unpack(packed: Sequence[pa.Buffer | bytes]) -> pa.Table:
    """Return the rows of all cells in order, each column in one chunk. Needs at least one cell."""
    return pa.concat_tables([pa.ipc.open_stream(cell).read_all() for cell in packed]).combine_chunks()
