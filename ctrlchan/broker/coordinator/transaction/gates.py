"""The right to end an open transaction, which the coordinator lends to the threads that read requests.

Such a thread (a processor) then answers EndTxn without Python: it appends the decision to
``__transaction_state`` itself, and leaves the markers to the coordinator. A ``Gate`` keeps processors and
Python apart: no decision is made while a thread is in ``with partition:``, which begins with taking over what
was decided before. So code with the lock of a partition sees states that nobody else changes.

A right is lent when a transaction is stored as Ongoing, and is taken back by any change of it
(``Transaction``). A request that finds no right, or a closed gate, is handled by the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ctrlchan.broker.coordinator.common.topic import Record
from ctrlchan.broker.coordinator.transaction.end_rights import EndRight
from ctrlchan.broker.coordinator.transaction.transaction import Transaction

__all__ = ["Decision", "Gate", "Gates"]


class Decision(NamedTuple):
    """What a processor has decided and appended. ``at_ms``: as the record says it, since 1970."""

    transaction: Transaction
    commit: bool
    at_ms: int


class Gate(Protocol):
    """Keeps processors out of one partition of ``__transaction_state`` while Python code is in it."""

    def enter(self) -> Sequence[Decision]:
        """Keep processors out until ``leave``. Return what they have decided; these rights are used up."""

    def leave(self) -> None:
        """Let processors decide again."""

    def lends(self) -> bool:
        """Whether a processor could use a right: no other broker has to have the decision."""

    def lend(self, transaction: Transaction, commit: Record, first_connection: int) -> EndRight | None:
        """Let processors end a transaction. Called in the gate. None: there is no memory for it.

        ``commit``: what a commit appends, with another time; ``first_connection``: connections with a lower
        number do not end the transaction.
        """

    def close(self) -> None:
        """Forget the partition. Called in the gate, with all rights taken back."""


class Gates(Protocol):
    """Makes the gates of a broker."""

    def open(self, number: int, epoch: int, settle: Callable[[], None]) -> Gate:
        """Return the gate of a partition that this broker leads since leader epoch ``epoch``.

        ``settle`` is called without a lock soon after a decision: it enters and leaves the gate.
        """
