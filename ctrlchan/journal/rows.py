"""What leaves a channel for the journal: rows of outcomes, and how its brokers stand now.

Rows are a structured array, filled by ``channel/observability/_gather.pyx``: there are many. A view of the
brokers is made
of tuples: the journal asks for it once in a flush interval, and it names what waits, which is little or is
news.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "NOT_KNOWN",
    "NOT_SAID",
    "ROW",
    "BrokerView",
    "ChannelView",
    "Chunk",
    "OutcomeSink",
    "Rows",
    "Source",
    "Unfinished",
]

#: ``broker_epoch``, ``state_version``, ``from_version``, ``frame``: there is none.
NOT_KNOWN: Final = -(2**63)
#: ``state_id``, ``partitions``, ``dataset``: there is none.
NOT_SAID: Final = -1

#: One outcome; ``Row`` in ``_gather.pyx`` is the same struct. Times are monotonic nanoseconds, 0: it never
#: came to that. ``encoding``: how long encoding took, nanoseconds. ``kind``, ``detail``, ``state_id``,
#: ``partitions``, ``dataset``: places in the chunk's texts. ``generation``: 0 without a response.
ROW: Final = np.dtype(
    [
        ("broker_epoch", np.int64),
        ("state_version", np.int64),
        ("from_version", np.int64),
        ("frame", np.int64),
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
        ("generation", np.int32),
        ("state_id", np.int32),
        ("partitions", np.int32),
        ("dataset", np.int32),
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


class Unfinished(NamedTuple):
    """A request that has no outcome yet. ``enqueued``: monotonic nanoseconds; with channel and broker it
    tells
    it from all others, here and in the row of its outcome."""

    enqueued: int
    api: int
    version: int
    controller_epoch: int
    state_version: int | None
    state_id: str | None
    from_version: int | None
    #: As ``Coverage.partitions``.
    partitions: str | None
    rows: int
    bytes: int
    #: A sender process has it in hand.
    in_flight: bool


class BrokerView(NamedTuple):
    """How a broker stands with its channel."""

    broker: int
    #: None: unknown (-1).
    broker_epoch: int | None
    #: Numbers the generations of all brokers of the channel, ascending.
    generation: int
    #: When this one began, monotonic nanoseconds.
    since: int
    state: str
    #: Failed attempts at the first request, and why the last of them failed.
    attempts: int
    last_error: str
    needs_resync: bool
    unfinished: int
    unfinished_bytes: int
    #: The first of those that have waited for long, in the order of the queue.
    requests: tuple[Unfinished, ...]


class ChannelView(NamedTuple):
    """A channel at one moment."""

    channel: str
    controller_id: int
    #: It has shut down, and all of its outcomes were handed on.
    closed: bool
    #: Outcomes handed on so far.
    outcomes: int
    brokers: tuple[BrokerView, ...]


class OutcomeSink(Protocol):
    """Is given every chunk, on any thread; must not block and must not raise."""

    def take(self, chunk: Chunk) -> None: ...


class Source(Protocol):
    """What a channel's rows come from: ``flush`` hands on those that do not yet fill a chunk; ``view`` says
    how
    its brokers stand, and names what has waited for longer than so many nanoseconds."""

    def flush(self) -> None: ...
    def view(self, waited: int) -> ChannelView: ...
