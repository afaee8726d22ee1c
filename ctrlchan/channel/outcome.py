"""Requests on their way (``Sent``) and their outcomes (``Outcome``); both are defined in ``_entries.pyx``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ctrlchan.channel.outcome_kind import OutcomeKind
from ctrlchan.channel.queues._entries import LISTENING, Countdown, Outcome, Sent, publish, wait_with
from ctrlchan.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ctrlchan._codec import ControlResponse
    from ctrlchan.channel.future import SentFuture

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


def _future_of(sent: Sent) -> SentFuture:
    from ctrlchan.channel.future import SentFuture

    return SentFuture(sent)


def _awaitable_of(sent: Sent) -> Awaitable[Outcome]:
    # Imported here: most programs do not use asyncio.
    from ctrlchan.channel.aio import outcome_of

    return outcome_of(sent)


wait_with(_future_of, _awaitable_of)
