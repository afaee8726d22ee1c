"""Requests on their way (``Sent``) and their outcomes (``Outcome``); both are defined in ``_entries.pyx``."""

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
    "RequestResult",
    "Sent",
    "partition_errors_text",
    "publish",
]


class OutcomeKind(Enum):
    """How a request ended. Every request to a broker has exactly one outcome, of one of these kinds."""

    #: The broker applied all of it.
    ACKNOWLEDGED = "acknowledged"
    #: The broker applied the request; some partitions have an error of their own.
    PARTITION_ERRORS = "partition errors"
    #: The broker answered STALE_CONTROLLER_EPOCH (11) or STALE_BROKER_EPOCH (77), or the request was not sent
    #: because of an earlier 11 or because the controller has resigned.
    FENCED = "fenced"
    #: The channel has no such broker (any more), or the channel was shut down.
    BROKER_GONE = "broker gone"
    #: Larger than ``max_request_bytes``; nothing was sent.
    TOO_LARGE = "too large"
    #: The broker answered with any other error.
    REFUSED = "refused"
    #: Cancelled while it was queued, or its timeout was over: nothing of it was sent.
    CANCELLED = "cancelled"


class RequestResult(NamedTuple):
    """The result of a request without times and counters; equal responses share one object."""

    kind: OutcomeKind
    error_code: int = 0
    response: ControlResponse | None = None
    detail: str = ""


def partition_errors_text(errors: npt.NDArray[np.integer[Any]]) -> str:
    """Return the partition errors with their counts, most frequent first: ``34 × STALE_CONTROLLER_EPOCH``."""
    codes, counts = np.unique(errors[errors != 0], return_counts=True)
    return ", ".join(
        f"{counts[row]} × {ErrorCode.name_of(int(codes[row]))}" for row in np.argsort(-counts, kind="stable")
    )


OutcomeCallback: TypeAlias = Callable[[Outcome], None]


class Listener(Protocol):
    """Has a ``finished``, called once on the channel's thread when a request has its outcome."""

    def finished(self, sent: Sent) -> None: ...


class Canceller(Protocol):
    """An object that can cancel requests: the channel through which they were sent."""

    def cancel(self, sent: Iterable[Sent]) -> int: ...
