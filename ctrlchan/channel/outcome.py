"""What becomes of a request: ``Sent`` is the promise, ``Outcome`` its one and only end (``_entries.pyx``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ctrlchan.channel.queues._entries import LISTENING, Countdown, Outcome, Sent, publish
from ctrlchan.errors import ErrorCode

if TYPE_CHECKING:
    from ctrlchan._codec import ControlResponse

__all__ = [
    "LISTENING",
    "Canceller",
    "Countdown",
    "Listener",
    "Outcome",
    "OutcomeCallback",
    "OutcomeKind",
    "Sent",
    "Verdict",
    "partition_errors_text",
    "publish",
]


class OutcomeKind(Enum):
    """How a request ended; every request ends in exactly one of these."""

    #: The broker applied all of it.
    ACKNOWLEDGED = "acknowledged"
    #: The broker applied the request; some partitions have an error of their own.
    PARTITION_ERRORS = "partition errors"
    #: Stale controller epoch (11), or stale broker epoch (77); also what was not sent because of an 11.
    FENCED = "fenced"
    #: The broker is not, or is no longer, among those of the channel, or the channel was shut down.
    BROKER_GONE = "broker gone"
    #: Larger than ``max_request_bytes``; nothing was sent.
    TOO_LARGE = "too large"
    #: The broker answered with any other error.
    REFUSED = "refused"
    #: Cancelled, or its time limit was over, while it was queued: nothing of it was sent.
    CANCELLED = "cancelled"


class Verdict(NamedTuple):
    """The end of a request without its circumstances; equal answers share one."""

    kind: OutcomeKind
    error_code: int = 0
    response: ControlResponse | None = None
    detail: str = ""


def partition_errors_text(errors: npt.NDArray[np.integer[Any]]) -> str:
    """Return what partition errors there are, most frequent first: ``34 × STALE_CONTROLLER_EPOCH``."""
    codes, counts = np.unique(errors[errors != 0], return_counts=True)
    return ", ".join(
        f"{counts[row]} × {ErrorCode.name_of(int(codes[row]))}" for row in np.argsort(-counts, kind="stable")
    )


OutcomeCallback: TypeAlias = Callable[[Outcome], None]


class Listener(Protocol):
    """Is told once, on the channel's thread, that a request has its outcome."""

    def finished(self, sent: Sent) -> None: ...


class Canceller(Protocol):
    """What can cancel requests: the channel they were sent through."""

    def cancel(self, sent: Iterable[Sent]) -> int: ...
