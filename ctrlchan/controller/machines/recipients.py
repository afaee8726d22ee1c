"""Replicas as (row, broker) pairs, and the batch of a state change with the requests to their brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np
import numpy.typing as npt

from ctrlchan._codec import ListColumn
from ctrlchan.batch import ControllerBrokerRequestBatch
from ctrlchan.errors import ControllerMovedError, IllegalStateError, SessionExpiredError
from ctrlchan.state.lists import packed_values
from ctrlchan.state.rows import distinct

__all__ = ["add_leader_and_isr", "brokers_by_row", "one_batch", "rows_by_broker", "sorted_pairs"]

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]

#: NumPy sorts 16-bit integers in linear time.
_MAX_UINT16: Final = 2**16 - 1


@contextmanager
def one_batch(batch: ControllerBrokerRequestBatch, controller_epoch: int) -> Iterator[None]:
    """Begin a batch, and send it when the block ends; empty it when the block raises.

    State nodes that the block has written may not have been sent then, so every error ends the term: it is
    raised as it is when it does so by itself, else as IllegalStateError.
    """
    try:
        batch.new_batch()
        yield
        batch.send_requests_to_brokers(controller_epoch)
    except (ControllerMovedError, SessionExpiredError, IllegalStateError):
        batch.clear()
        raise
    except Exception as error:
        batch.clear()
        raise IllegalStateError(f"a state change was not completed: {error!r}") from error


def sorted_pairs(rows: Int64, brokers: Int32) -> tuple[Int64, Int32]:
    """Return the pairs ascending by row, then broker, each once."""
    keys = distinct((rows << 32) | brokers)
    return keys >> 32, (keys & 0xFFFF_FFFF).astype(np.int32)


def brokers_by_row(rows: Int64, brokers: Int32) -> tuple[Int64, ListColumn]:
    """Return each row of ``sorted_pairs`` once, with the list of its brokers."""
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    lengths = np.diff(starts, append=len(rows))
    return rows[starts], ListColumn(starts.astype(np.int32), lengths.astype(np.int32), brokers)


def rows_by_broker(rows: Int64, brokers: Int32) -> Iterator[tuple[int, Int64]]:
    """Yield each broker, ascending, with its rows in their order."""
    if not len(rows):
        return
    small = brokers.max() <= _MAX_UINT16
    order = np.argsort(brokers.astype(np.uint16) if small else brokers, kind="stable")
    rows, brokers = rows[order], brokers[order]
    starts = np.flatnonzero(np.diff(brokers, prepend=np.int32(-1)))
    yield from zip(brokers[starts].tolist(), np.split(rows, starts[1:]), strict=True)


def add_leader_and_isr(
    batch: ControllerBrokerRequestBatch, rows: Int64, recipients: ListColumn, *, is_new: bool
) -> None:
    """Add LeaderAndIsr of each row to the brokers of its list."""
    if len(rows) == 1:
        # One request for all brokers.
        batch.add_leader_and_isr(packed_values(recipients).tolist(), int(rows[0]), is_new)
        return
    for broker, chosen in rows_by_broker(np.repeat(rows, recipients.lengths), packed_values(recipients)):
        batch.add_leader_and_isr([broker], chosen, is_new)
