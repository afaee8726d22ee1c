"""The state of one transactional id: its producer, and the transaction that is open or was the last one.

A change has two steps: ``prepare_…`` returns what to append and notes the state that follows (``pending``);
``complete`` takes the change over once the record is replicated.
Source: ``kafka.coordinator.transaction.{TransactionMetadata,TxnTransitMetadata}``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from ctrlchan.broker.coordinator.common.partitions import TopicPartition
from ctrlchan.broker.coordinator.common.timing_wheel import Timer
from ctrlchan.broker.coordinator.transaction.end_rights import EndRight
from ctrlchan.broker.coordinator.transaction.requests import (
    NO_CONNECTION,
    NO_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdentity,
)
from ctrlchan.broker.coordinator.transaction.states import VALID_PREVIOUS, TransactionState
from ctrlchan.errors import IllegalStateError

__all__ = ["HIGHEST_EPOCH", "NO_START", "Transaction", "Transition", "is_exhausted"]

HIGHEST_EPOCH: Final = 2**15 - 1
#: The start of a transactional id without a transaction.
NO_START: Final = -1

_NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()

_EMPTY, _ONGOING, _DEAD = TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.DEAD
_PREPARE_COMMIT, _PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT, _COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT


def is_exhausted(epoch: int) -> bool:
    """Whether no producer gets an epoch after this one: the highest one is kept for fencing."""
    return epoch >= HIGHEST_EPOCH - 1


class Transition(NamedTuple):
    """What a change leads to, as it is appended."""

    state: TransactionState
    producer_id: int
    last_producer_id: int
    epoch: int
    last_epoch: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    start_ms: int
    update_ms: int


class Transaction:
    """One transactional id. Every method requires the lock of its ``StatePartition``.

    Attributes: ``producer_id`` and ``epoch`` are those of the current producer; ``last_producer_id`` and
    ``last_epoch`` those that it had before, for InitProducerId requests that are repeated; ``pending``: the
    state whose record is being appended; ``start_ms``: when the first partition was added, in milliseconds
    since 1970, as ``update_ms``; ``has_failed_fence``: the epoch was raised without a record of it;
    ``connection``: the number of the one that has begun the transaction, if it was begun here;
    ``end_right``: lets processors end the transaction in its present state; each change takes it back;
    ``timer``: ends the transaction, ``timer_due_ms`` is its time; ``waiting``: what is called when the
    transaction is complete, or by its timer.
    """

    __slots__ = (
        "connection",
        "end_right",
        "epoch",
        "has_failed_fence",
        "last_epoch",
        "last_producer_id",
        "partitions",
        "pending",
        "producer_id",
        "start_ms",
        "state",
        "timeout_ms",
        "timer",
        "timer_due_ms",
        "transactional_id",
        "update_ms",
        "waiting",
    )

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        timeout_ms: int,
        update_ms: int,
        state: TransactionState = _EMPTY,
        partitions: frozenset[TopicPartition] = _NO_PARTITIONS,
        start_ms: int = NO_START,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = epoch
        self.timeout_ms = timeout_ms
        self.update_ms = update_ms
        self.state = state
        self.partitions = partitions
        self.start_ms = start_ms
        self.last_producer_id = NO_PRODUCER_ID
        self.last_epoch = NO_EPOCH
        self.pending: TransactionState | None = None
        self.has_failed_fence = False
        self.connection = NO_CONNECTION
        self.end_right: EndRight | None = None
        self.timer: Timer | None = None
        self.timer_due_ms = 0
        self.waiting: tuple[tuple[Callable[[], None], Timer], ...] = ()

    def accepts(self, expected: ProducerIdentity) -> bool:
        """Whether a producer that believes to be `expected` may be the current one, or have been the last.

        An epoch of -1: the id is new, and its producer recovers from UNKNOWN_PRODUCER_ID. The last producer
        with an exhausted epoch: it repeats a request that gave it another producer id.
        """
        return (
            self.epoch == NO_EPOCH
            or expected.producer_id == self.producer_id
            or (expected.producer_id == self.last_producer_id and is_exhausted(expected.epoch))
        )

    # -- first steps

    def prepare_epoch(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> Transition | None:
        """Give the producer the next epoch; return None when it is fenced.

        `expected_epoch`: the one that the producer believes to have, if it says so. The epoch before the
        current one: it repeats a request that succeeded, and gets the same epoch. Raises IllegalStateError
        when the epochs are exhausted.
        """
        if is_exhausted(self.epoch):
            raise IllegalStateError(f"producer id {self.producer_id} has no further epoch")
        if expected_epoch is None:
            epoch, last_epoch = self.epoch + 1, NO_EPOCH
        elif self.epoch in (NO_EPOCH, expected_epoch):
            epoch, last_epoch = self.epoch + 1, self.epoch
        elif expected_epoch == self.last_epoch:
            epoch, last_epoch = self.epoch, self.last_epoch
        else:
            return None
        return self._prepare(
            _EMPTY, self.producer_id, epoch, last_epoch, timeout_ms, _NO_PARTITIONS, NO_START, now_ms
        )

    def prepare_producer_id(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, keeps_last_epoch: bool
    ) -> Transition:
        """Give the producer another id, since its epochs are exhausted."""
        last_epoch = self.epoch if keeps_last_epoch else NO_EPOCH
        return self._prepare(_EMPTY, producer_id, 0, last_epoch, timeout_ms, _NO_PARTITIONS, NO_START, now_ms)

    def prepare_partitions(self, partitions: Collection[TopicPartition], now_ms: int) -> Transition:
        """Add partitions; the first ones begin the transaction."""
        return self._prepare(
            _ONGOING,
            self.producer_id,
            self.epoch,
            self.last_epoch,
            self.timeout_ms,
            self.partitions.union(partitions),
            self.start_ms if self.state is _ONGOING else now_ms,
            now_ms,
        )

    def prepare_end(self, *, commit: bool, now_ms: int) -> Transition:
        """Decide the end of the transaction."""
        return self._keep(_PREPARE_COMMIT if commit else _PREPARE_ABORT, self.partitions, now_ms)

    def decision_to_lend(self) -> Transition:
        """Return what a commit would be appended as. Nothing is pending, and the time is left open."""
        return Transition(
            _PREPARE_COMMIT,
            self.producer_id,
            self.producer_id,
            self.epoch,
            self.last_epoch,
            self.timeout_ms,
            self.partitions,
            self.start_ms,
            0,
        )

    def take_end_right_back(self) -> None:
        """Let no processor end the transaction any more."""
        if self.end_right is not None:
            self.end_right.take_back()
            self.end_right = None

    def prepare_fence(self, now_ms: int) -> Transition:
        """Fence the producer with an epoch that nobody gets, and decide to abort its transaction.

        The epoch counts at once. It is raised once, however often the record cannot be appended.
        """
        self._check_next(_PREPARE_ABORT)
        if not self.has_failed_fence and self.epoch < HIGHEST_EPOCH:
            self.epoch += 1
        self.last_epoch = NO_EPOCH
        return self._keep(_PREPARE_ABORT, self.partitions, now_ms)

    def prepare_complete(self, now_ms: int) -> Transition:
        """End the transaction, whose markers are going to be written."""
        self.has_failed_fence = False
        state = _COMPLETE_COMMIT if self.state is _PREPARE_COMMIT else _COMPLETE_ABORT
        return self._keep(state, _NO_PARTITIONS, now_ms)

    def prepare_dead(self) -> None:
        """Note that the tombstone is being written."""
        self._check_next(_DEAD)
        self.pending = _DEAD

    # -- second steps

    def complete(self, transition: Transition) -> None:
        """Take over a change whose record is replicated. Raises IllegalStateError when it does not fit."""
        if self.pending is not transition.state or not self._fits(transition):
            raise IllegalStateError(f"{transition} does not follow {self!r}")
        self.state = transition.state
        self.update_ms = transition.update_ms
        self.pending = None
        if transition.state is _EMPTY:
            self.timeout_ms = transition.timeout_ms
            self.producer_id = transition.producer_id
            self.last_producer_id = transition.last_producer_id
            self.epoch = transition.epoch
            self.last_epoch = transition.last_epoch
        # InitProducerId leaves the time of the last transaction's start, as in Kafka.
        else:
            self.start_ms = transition.start_ms
        self.partitions = transition.partitions

    def _fits(self, transition: Transition) -> bool:
        state = transition.state
        same_producer = (
            transition.producer_id == self.producer_id
            and transition.epoch == self.epoch
            and transition.timeout_ms == self.timeout_ms
        )
        if state is _EMPTY:
            is_new = transition.epoch == 0 and transition.producer_id != self.producer_id
            return (
                (is_new or self.epoch <= transition.epoch <= self.epoch + 1)
                and not transition.partitions
                and transition.start_ms == NO_START
            )
        if state is _ONGOING:
            return same_producer and self.partitions <= transition.partitions
        if state is _PREPARE_COMMIT or state is _PREPARE_ABORT:
            return (
                same_producer
                and transition.partitions == self.partitions
                and transition.start_ms == self.start_ms
            )
        if state is _COMPLETE_COMMIT or state is _COMPLETE_ABORT:
            return same_producer and transition.start_ms != NO_START
        return False

    def _keep(
        self, state: TransactionState, partitions: frozenset[TopicPartition], now_ms: int
    ) -> Transition:
        return self._prepare(
            state,
            self.producer_id,
            self.epoch,
            self.last_epoch,
            self.timeout_ms,
            partitions,
            self.start_ms,
            now_ms,
        )

    def _prepare(
        self,
        state: TransactionState,
        producer_id: int,
        epoch: int,
        last_epoch: int,
        timeout_ms: int,
        partitions: frozenset[TopicPartition],
        start_ms: int,
        now_ms: int,
    ) -> Transition:
        if producer_id < 0 or epoch < 0:
            raise IllegalStateError(f"producer id {producer_id} with epoch {epoch}")
        self._check_next(state)
        self.pending = state
        return Transition(
            state,
            producer_id,
            self.producer_id,
            epoch,
            last_epoch,
            timeout_ms,
            partitions,
            start_ms,
            now_ms,
        )

    def _check_next(self, state: TransactionState) -> None:
        if self.pending is not None or self.state not in VALID_PREVIOUS[state]:
            raise IllegalStateError(f"{state.value} does not follow {self!r}")
        self.take_end_right_back()

    def __repr__(self) -> str:
        """Return what log lines show."""
        return (
            f"Transaction({self.transactional_id!r}, producer {self.producer_id}, epoch {self.epoch}, "
            f"{self.state.value}, {None if self.pending is None else self.pending.value} being appended)"
        )
