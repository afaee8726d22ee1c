"""OutcomeKind: how a request ended."""

from __future__ import annotations

from enum import Enum

__all__ = ["OutcomeKind"]


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
