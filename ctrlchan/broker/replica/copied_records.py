"""Logs that are copies of others: appends what comes from there, and finds where both are the same."""

from __future__ import annotations

from typing import Final

from ctrlchan.broker.log._batches import read_header
from ctrlchan.broker.log._log import Log
from ctrlchan.errors import ErrorCode, KafkaError

__all__ = ["append_copied", "common_end"]

_UNDEFINED: Final = -1


def append_copied(log: Log, records: bytes) -> None:
    """Append the records of a leader, or of a log in another log directory. Raises KafkaError.

    An empty log begins with the whole batch that its first offset is in: records at the start of that batch
    were deleted. Source: ``Partition.appendRecordsToFollowerOrFutureReplica``.
    """
    try:
        log.append_as_follower(records)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_SERVER_ERROR or log.start_offset != log.end_offset:
            raise
        first = read_header(records)
        if not first.base_offset < log.end_offset <= first.base_offset + first.last_offset_delta:
            raise
        log.truncate_fully(first.base_offset)
        log.append_as_follower(records)
    # For the leader, all records below the next fetch offset are stored here.
    log.flush_if_due()


def common_end(log: Log, epoch: int, end_offset: int) -> int:
    """Return the offset to truncate a log to, if its leader's ``epoch`` ends at ``end_offset``.

    Source: ``AbstractFetcherThread.getOffsetTruncationState``.
    """
    own = log.end_of_epoch(epoch)
    if own.epoch == epoch:
        end_offset = min(own.end_offset, end_offset)
    elif own.epoch != _UNDEFINED:
        # The next answer says where the two logs diverge.
        end_offset = own.end_offset
    return min(end_offset, log.end_offset)
