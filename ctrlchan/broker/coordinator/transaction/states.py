"""The states of a transaction.

    Empty ──partition added──▶ Ongoing ──EndTxn──▶ PrepareCommit ──markers written──▶ CompleteCommit
      ▲                         │  ▲ ▲           └▶ PrepareAbort ──markers written──▶ CompleteAbort
      │                         └──┘ └──partition added──────────────────────────────────┤
      └──InitProducerId──────────────────────────────────────────────────────────────────┘

A state that may expire is followed by Dead: the tombstone is being written. Kafka has PrepareEpochFence
between Ongoing and PrepareAbort of a transaction that the coordinator ends by itself; here both are one step.
Neither of the two is ever in the log.
Source: ``kafka.coordinator.transaction.TransactionState``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

__all__ = ["EXPIRABLE", "PREPARED", "VALID_PREVIOUS", "TransactionState", "state_named", "state_of"]


class TransactionState(Enum):
    """The states, by the names that clients see."""

    # Members are the same object or differ: the hash of Enum takes longer, and each request needs several.
    __hash__ = object.__hash__

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @property
    def number(self) -> int:
        """The state's number in a record."""
        return _NUMBERS[self]


#: In the order of their numbers.
_STATES: Final = tuple(TransactionState)
_NUMBERS: Final[Mapping[TransactionState, int]] = {state: number for number, state in enumerate(_STATES)}
_NAMES: Final[Mapping[str, TransactionState]] = {state.value: state for state in _STATES}

_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_COMPLETE: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})

#: A transactional id expires in these.
EXPIRABLE: Final = _COMPLETE | {_EMPTY}
#: The end of the transaction is decided, and markers are written.
PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})

VALID_PREVIOUS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _EMPTY: EXPIRABLE,
    _ONGOING: EXPIRABLE | {_ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({_ONGOING}),
    TransactionState.PREPARE_ABORT: frozenset({_ONGOING, TransactionState.PREPARE_EPOCH_FENCE}),
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: EXPIRABLE,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({_ONGOING}),
}


def state_of(number: int) -> TransactionState | None:
    """Return the state that a record has this number for, or None."""
    return _STATES[number] if 0 <= number < len(_STATES) else None


def state_named(name: str) -> TransactionState | None:
    """Return the state of this name, or None."""
    return _NAMES.get(name)
