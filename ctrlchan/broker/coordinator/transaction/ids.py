"""TransactionalIds: the transactional ids of one partition of ``__transaction_state``."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Final

from ctrlchan.broker.coordinator.transaction._values import are_in_order, state_number, updated_ms
from ctrlchan.broker.coordinator.transaction.records import read_value
from ctrlchan.broker.coordinator.transaction.states import EXPIRABLE, TransactionState
from ctrlchan.broker.coordinator.transaction.transaction import Transaction

__all__ = ["TransactionalIds"]

#: Those of ids that were not used.
_BY_NUMBER: Final[Mapping[int, TransactionState]] = {state.number: state for state in EXPIRABLE}


class TransactionalIds:
    """Transactions by id. Every method but ``find`` requires the lock of the partition.

    `loaded`: what ``load_transactions`` returns. An id without an open transaction stays the value of its
    record (bytes) until it is used for the first time: most ids of a log are not used again.
    """

    __slots__ = ("_ids",)

    def __init__(self, loaded: dict[str, Transaction | bytes] | None = None) -> None:
        self._ids = {} if loaded is None else loaded

    def __len__(self) -> int:
        return len(self._ids)

    def find(self, transactional_id: str) -> Transaction | None:
        """Return the transaction if the id was used since it was loaded."""
        found = self._ids.get(transactional_id)
        return found if isinstance(found, Transaction) else None

    def get(self, transactional_id: str) -> Transaction | None:
        """Return the transaction of the id, or None if there is no such id."""
        found = self._ids.get(transactional_id)
        if isinstance(found, bytes):
            found = self._ids[transactional_id] = read_value(transactional_id, found)
        return found

    def add(self, transaction: Transaction) -> None:
        """Add a transactional id, or replace it."""
        self._ids[transaction.transactional_id] = transaction

    def remove(self, transactional_id: str) -> None:
        """Forget a transactional id, which there is."""
        del self._ids[transactional_id]

    def used(self) -> Iterator[Transaction]:
        """Yield the transactions of the ids that were used; all others have no open transaction."""
        return (each for each in self._ids.values() if isinstance(each, Transaction))

    def in_states(self, states: Container[TransactionState]) -> Iterator[Transaction]:
        """Yield the transactions in these states. Those of unused ids are copies."""
        for transactional_id, each in self._ids.items():
            if _state_of(each) in states:
                yield each if isinstance(each, Transaction) else read_value(transactional_id, each)

    def states(self) -> Iterator[TransactionState]:
        """Yield the state of each id."""
        return map(_state_of, self._ids.values())

    def expirable(self) -> dict[str, None]:
        """Return the ids whose state lets them expire, in the order of their last updates."""
        ids = self._ids
        if not are_in_order(ids):  # the clocks of the coordinators differed
            ids = dict(sorted(ids.items(), key=lambda item: updated_ms(item[1])))
        return {
            name: None for name, each in ids.items() if isinstance(each, bytes) or each.state in EXPIRABLE
        }


def _state_of(each: Transaction | bytes) -> TransactionState:
    return each.state if isinstance(each, Transaction) else _BY_NUMBER[state_number(each)]
