"""Rows of outcomes as they leave the channel: a structured array, filled by ``channel/_gather.pyx``."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["NOT_KNOWN", "ROW", "Chunk", "Rows", "Source", "Taker"]

#: ``broker_epoch``, ``state_version``: there is none.
NOT_KNOWN: Final = -(2**63)

#: One outcome; ``Row`` in ``_gather.pyx`` is the same struct. Times are monotonic nanoseconds, 0: it never
#: came to that. ``encoding``: how long encoding took, nanoseconds. ``kind``, ``detail``: places in the
#: chunk's texts.
ROW: Final = np.dtype(
    [
        ("broker_epoch", np.int64),
        ("state_version", np.int64),
        ("bytes", np.int64),
        ("rows", np.int64),
        ("encoding", np.int64),
        ("encoded", np.int64),
        ("enqueued", np.int64),
        ("first_byte", np.int64),
        ("last_byte", np.int64),
        ("response", np.int64),
        ("ended", np.int64),
        ("callback", np.int64),
        ("broker", np.int32),
        ("controller_epoch", np.int32),
        ("correlation_id", np.int32),
        ("attempts", np.int32),
        ("merged", np.int32),
        ("api", np.int32),
        ("version", np.int32),
        ("error_code", np.int32),
        ("kind", np.int32),
        ("detail", np.int32),
    ]
)

#: One dimension, dtype ROW.
Rows: TypeAlias = NDArray[Any]


class Chunk(NamedTuple):
    """Outcomes of one channel, in the order of their ends. Nobody changes it any more."""

    rows: Rows
    texts: list[str]
    #: Of the first row: rows of a channel are counted from 0.
    sequence: int
    #: A UUID that no other channel has, and whose controller it speaks for.
    channel: str
    controller_id: int


class Taker(Protocol):
    """Is given every chunk, on any thread; must not block and must not raise."""

    def take(self, chunk: Chunk) -> None: ...


class Source(Protocol):
    """What a channel's rows come from: ``flush`` hands on those that do not yet fill a chunk."""

    def flush(self) -> None: ...
