"""What the APIs of transactions share."""

from __future__ import annotations

from typing import Final

from ctrlchan.errors import ErrorCode

__all__ = ["for_old_clients"]

#: The first version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn whose clients know PRODUCER_FENCED.
_FENCED_SINCE: Final = 2


def for_old_clients(error: ErrorCode, version: int, fenced_since: int = _FENCED_SINCE) -> ErrorCode:
    """Return the error as a client of a version knows it: before ``fenced_since`` without PRODUCER_FENCED."""
    if error == ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
