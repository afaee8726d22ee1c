"""Whether a TxnOffsetCommit belongs to an open transaction, asked before its append (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable

from ctrlchan.broker.coordinator.group.requests import TransactionalCommitRequest
from ctrlchan.errors import ErrorCode

__all__ = ["Verified", "Verify", "unverified"]

#: Takes Kafka's error code, and the guard of the log for the append: 0 when it needs none.
Verified = Callable[[int, int], None]
#: Asks for a partition of ``__consumer_offsets``, and calls back once, on any thread, without a lock.
Verify = Callable[[int, TransactionalCommitRequest, Verified], None]


def unverified(_partition: int, _request: TransactionalCommitRequest, then: Verified) -> None:
    """Let every commit pass: for a broker without a transaction coordinator."""
    then(ErrorCode.NONE, 0)
