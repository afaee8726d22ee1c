"""The data that a channel hands to the journal: rows of outcomes, and the status of its brokers.

Rows are a structured array, which ``channel/observability/_gather.pyx`` fills: there are many. A status is
made of tuples: the journal asks for it once in a flush interval, and it lists few requests.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "NO_NUMBER",
    "NO_TEXT",
    "ROW",
    "BrokerStatus",
    "ChannelStatus",
    "Chunk",
    "OutcomeReceiver",
    "OutcomeSource",
    "Rows",
    "Unfinished",
]

#: ``broker_epoch``, ``state_version``, ``from_version``, ``frame``: there is none.
NO_NUMBER: Final = -(2**63)
#: ``state_id``, ``partitions``, ``dataset``: there is none.
NO_TEXT: Final = -1

#: One outcome; ``Row`` in ``_gather.pyx`` is the same struct. Times are monotonic nanoseconds, 0: the request
#: did not get that far. ``encoding``: duration of encoding, nanoseconds. ``kind``, ``detail``, ``state_id``,
#: ``partitions``, ``dataset``: indices of the chunk's texts. ``generation``: 0 without a response.
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
    """Outcomes of one channel, in the order of their ends. Never changed after it was handed on."""

    rows: Rows
    texts: list[str]
    #: Of the first row: rows of a channel are counted from 0.
    sequence: int
    #: The UUID of the channel.
    channel: str
    controller_id: int


class Unfinished(NamedTuple):
    """A request that has no outcome yet.

    ``enqueued``: monotonic nanoseconds; with channel and broker it identifies the request, here and in the
    row of its outcome.
    """

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
    #: A sender process has it.
    in_flight: bool


class BrokerStatus(NamedTuple):
    """The status of one broker in its channel."""

    broker: int
    #: None if it is unknown (-1).
    broker_epoch: int | None
    #: Generations of all brokers of the channel are numbered together, ascending.
    generation: int
    #: When this generation began, monotonic nanoseconds.
    since: int
    state: str
    #: Failed attempts at the first request, and the error of the last of them.
    attempts: int
    last_error: str
    needs_resync: bool
    unfinished: int
    unfinished_bytes: int
    #: The first of those that have waited for long, in the order of the queue.
    requests: tuple[Unfinished, ...]


class ChannelStatus(NamedTuple):
    """The status of a channel at one time."""

    channel: str
    controller_id: int
    #: It has shut down, and all of its outcomes were handed on.
    closed: bool
    #: Outcomes handed on so far.
    outcomes: int
    brokers: tuple[BrokerStatus, ...]


class OutcomeReceiver(Protocol):
    """Receives every chunk of a channel, on any thread. ``take`` must not block and must not raise."""

    def take(self, chunk: Chunk) -> None: ...


class OutcomeSource(Protocol):
    """The channel's side of a journal.

    ``flush`` hands on the rows that do not yet fill a chunk. ``status`` lists requests that have waited for
    more than ``waited`` nanoseconds.
    """

    def flush(self) -> None: ...
    def status(self, waited: int) -> ChannelStatus: ...
