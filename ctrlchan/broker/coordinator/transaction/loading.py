"""Reads the transactional ids of one partition of ``__transaction_state``.

Source: ``TransactionStateManager.loadTransactionMetadata``. Kafka stops reading the partition at a record
that it cannot read; here that record is skipped, with a line in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ctrlchan.broker.coordinator.common.topic import StoredBatch
from ctrlchan.broker.coordinator.transaction._values import take_idle
from ctrlchan.broker.coordinator.transaction.records import read_key, read_value
from ctrlchan.broker.coordinator.transaction.transaction import Transaction
from ctrlchan.errors import DecodeError
from ctrlchan.internal_topics import TRANSACTIONS_TOPIC
from ctrlchan.log_context import ContextLogger

__all__ = ["load_transactions"]

#: Log lines for one partition; the other records are counted.
_LINES: Final = 10
#: Batches.
_ASKS_AFTER: Final = 100


def load_transactions(
    number: int,
    read: Callable[[dict[str, Transaction | bytes]], Iterable[StoredBatch]],
    goes_on: Callable[[], bool],
    log: ContextLogger,
) -> dict[str, Transaction | bytes]:
    """Return what the records of a partition leave, by transactional id, in the order of the last records.

    Bytes: the value of the record, which ``read_value`` can read; the id has no open transaction. `read`
    yields the batches of the partition; it may put such values into its argument itself. `goes_on` is asked
    now and then; the reading ends when it returns False.
    """
    ids: dict[str, Transaction | bytes] = {}
    skipped = 0
    for count, batch in enumerate(read(ids)):
        if count % _ASKS_AFTER == 0 and not goes_on():
            break
        if batch.commits is not None:
            continue
        records = batch.records
        index = take_idle(ids, records, 0)
        while index < len(records):
            try:
                _replay(ids, *records[index])
            except DecodeError as error:
                skipped += 1
                if skipped <= _LINES:
                    log.error(
                        "%s-%d: a record of the batch at offset %d is skipped: %s",
                        TRANSACTIONS_TOPIC,
                        number,
                        batch.first_offset,
                        error,
                    )
            index = take_idle(ids, records, index + 1)
    if skipped > _LINES:
        log.error("%s-%d: %d records are skipped", TRANSACTIONS_TOPIC, number, skipped)
    return ids


def _replay(ids: dict[str, Transaction | bytes], key: bytes | None, value: bytes | None) -> None:
    """Take in one record. Raises DecodeError when it cannot be read."""
    if key is None:
        raise DecodeError("a record without a key")
    transactional_id = read_key(key)
    if isinstance(transactional_id, int):
        raise DecodeError(f"version {transactional_id} of a key is of a later release")
    transaction = None if value is None else read_value(transactional_id, value)
    ids.pop(transactional_id, None)
    if transaction is not None:
        ids[transactional_id] = transaction
