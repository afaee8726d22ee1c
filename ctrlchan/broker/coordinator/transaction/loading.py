"""Reads the transactional ids of one partition of ``__transaction_state``.

Source: ``TransactionStateManager.loadTransactionMetadata``. Kafka stops reading the partition at a record
that it cannot read; here that record is skipped, with a line in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from ctrlchan.broker.coordinator.common.topic import StoredBatch
from ctrlchan.broker.coordinator.transaction.records import read_key, read_value
from ctrlchan.broker.coordinator.transaction.transaction import Transaction
from ctrlchan.errors import DecodeError
from ctrlchan.internal_topics import TRANSACTIONS_TOPIC

__all__ = ["load_transactions"]

_LOG = logging.getLogger(__name__)

#: Log lines for one partition; the other records are counted.
_LINES: Final = 10


def load_transactions(
    number: int, batches: Iterable[StoredBatch], goes_on: Callable[[], bool]
) -> dict[str, Transaction]:
    """Return what the records of a partition leave, by transactional id.

    `goes_on` is asked before each batch; the reading ends when it returns False.
    """
    transactions: dict[str, Transaction] = {}
    skipped = 0
    for batch in batches:
        if not goes_on():
            break
        if batch.commits is not None:
            continue
        for key, value in batch.records:
            try:
                _replay(transactions, key, value)
            except DecodeError as error:
                skipped += 1
                if skipped <= _LINES:
                    _LOG.error(
                        "%s-%d: a record of the batch at offset %d is skipped: %s",
                        TRANSACTIONS_TOPIC,
                        number,
                        batch.first_offset,
                        error,
                    )
    if skipped > _LINES:
        _LOG.error("%s-%d: %d records are skipped", TRANSACTIONS_TOPIC, number, skipped)
    return transactions


def _replay(transactions: dict[str, Transaction], key: bytes | None, value: bytes | None) -> None:
    """Take in one record. Raises DecodeError when it cannot be read."""
    if key is None:
        raise DecodeError("a record without a key")
    transactional_id = read_key(key)
    if isinstance(transactional_id, int):
        raise DecodeError(f"version {transactional_id} of a key is of a later release")
    if value is None:
        transactions.pop(transactional_id, None)
    else:
        transactions[transactional_id] = read_value(transactional_id, value)
