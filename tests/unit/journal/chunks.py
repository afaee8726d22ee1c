"""Chunks of made-up rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ctrlchan.journal.rows import NO_NUMBER, NO_TEXT, ROW, Chunk

__all__ = ["TEXTS", "chunk_of", "plain_chunk"]

TEXTS = ["acknowledged", "", "fenced", "STALE_BROKER_EPOCH", "orders-0,pay.ments-12"]


def chunk_of(rows: Sequence[Mapping[str, Any]], *, sequence: int = 0, channel: str = "c") -> Chunk:
    """Return a chunk. ``rows``: fields of ROW; others are 0, or unknown for epochs, versions and coverage."""
    array = np.zeros(len(rows), dtype=ROW)
    array["broker_epoch"] = array["state_version"] = array["from_version"] = array["frame"] = NO_NUMBER
    array["state_id"] = array["partitions"] = array["dataset"] = NO_TEXT
    array["detail"] = 1
    for number, row in enumerate(rows):
        for name, value in row.items():
            array[name][number] = value
    return Chunk(array, TEXTS, sequence, channel, 3)


def plain_chunk(count: int, sequence: int = 0, *, channel: str = "c") -> Chunk:
    return chunk_of(
        [{"broker": number, "api": 6} for number in range(count)], sequence=sequence, channel=channel
    )
